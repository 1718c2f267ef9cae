"""The arguments of `leyden.train` that say how to run, with their checks."""

from __future__ import annotations

from typing import Any

import msgspec

from leyden.errors import ConfigError
from leyden.run import OnFailed
from leyden.stores import check_url, scheme_of
from leyden.types import Struct
from leyden.workers import Method


class TrainingSettings(Struct, frozen=True):
    """The arguments of `train` that say how to run, not what. See `train`."""

    store: Any = None
    processes: int = 1
    concurrency: int = 16
    method: Method = "spawn"
    lease_s: float = 30.0
    timeout_s: float | None = 600.0
    max_attempts: int = 3
    on_failed: OnFailed = "drop"
    external_runners: bool = False
    instrument: bool = True

    def check(self) -> None:
        """Raise `ConfigError` for settings that cannot work."""
        try:
            msgspec.convert(msgspec.structs.asdict(self), TrainingSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(f"train(): {error}")
        if self.processes < 0 or self.concurrency < 1 or self.max_attempts < 1:
            raise ConfigError("train(): processes must be 0 or more, concurrency and max_attempts 1 or more")
        if not self.lease_s > 0 or not (self.timeout_s is None or self.timeout_s > 0):  # so written, NaN is refused too
            raise ConfigError("train(): lease_s and timeout_s are seconds above 0 (timeout_s=None sets no limit)")
        if isinstance(self.store, str):
            check_url(self.store)
        in_process = self.processes == 0 and not self.external_runners
        if self.store is not None and not isinstance(self.store, str) and self.processes and not self.external_runners:
            raise ConfigError("worker processes need the store's URL: give store='sqlite:///…', or processes=0")
        if isinstance(self.store, str) and scheme_of(self.store) == "memory" and not in_process:
            raise ConfigError(
                "a store in memory cannot be shared with worker processes: use processes=0 or a sqlite: URL"
            )
