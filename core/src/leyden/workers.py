"""The worker processes of a run or of `leyden runner`, as the process that asked for them sees them."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from msgspec.structs import replace

from leyden import worker
from leyden.errors import ConfigError, LeydenError
from leyden.rollout_function import check_function
from leyden.stores import absolute, scheme_of
from leyden.supervisor import Supervisor
from leyden.target import Target, load, target_of
from leyden.types import Mode

Method = Literal["spawn", "fork"]


class WorkersFailed(LeydenError, RuntimeError):
    """The worker processes cannot be started or kept running, so nothing would ever be run."""


class Workers:
    """`processes` worker processes that run `function` on what the store at URL `store` hands out.

    `function` may be a `Target`. A worker whose event loop does not turn for `hang_s` seconds (default: the lease) is
    killed and started anew, one that is not ready after `start_s` seconds too. `start` before the store is opened here
    where `method` is "fork". Use it in `with`, or call `stop`.
    """

    def __init__(
        self,
        function: Callable[[Any], Any] | Target,
        store: str,
        *,
        processes: int = 1,
        concurrency: int = 16,
        method: Method = "spawn",
        lease_s: float = 30.0,
        hang_s: float | None = None,
        start_s: float = 300.0,
        modes: tuple[Mode, ...] | None = None,
        instrument: bool = True,
    ) -> None:
        if scheme_of(store) == "memory":
            raise ConfigError(
                "a store in memory cannot be shared with worker processes: use processes=0 or a sqlite: URL"
            )
        if method not in ("spawn", "fork"):
            raise ConfigError(f"method must be 'spawn' or 'fork', not {method!r}")
        if processes < 1 or concurrency < 1:
            raise ConfigError("processes and concurrency must be 1 or more")
        self.restarts = 0
        self.pids: set[int] = set()
        """Process ids of the workers that were alive at the last `check`."""
        self.ready: set[int] = set()
        """Those of them that take work."""
        self._function = None
        target = function if isinstance(function, Target) else None
        if method == "fork":
            self._function = load(function) if isinstance(function, Target) else function
            check_function(self._function)
        elif target is None:
            check_function(function)
            target = target_of(function)  # type: ignore[arg-type]
        self._settings = worker.WorkerSettings(
            store=absolute(store),
            supervisor=os.getpid(),
            target=None if method == "fork" else target,
            concurrency=concurrency,
            lease_s=lease_s,
            modes=modes,
            instrument=instrument,
            path=tuple(os.path.abspath(path) for path in sys.path),
        )
        self._processes, self._hang_s, self._start_s = processes, hang_s or lease_s, start_s
        self._control: int | None = None
        self._status = -1
        self._rest = b""
        self._fatal = ""
        self._wait_for_end: Callable[[], object] = lambda: None

    def start(self) -> Workers:
        """Start supervising; the workers come up in the background."""
        control, self._control = os.pipe()
        self._status, status = os.pipe()
        os.set_blocking(status, False)  # events are dropped when nobody reads them for very long
        supervisor = Supervisor(
            self._settings,
            self._processes,
            worker.Status(status).send,
            function=self._function,
            hang_s=self._hang_s,
            start_s=self._start_s,
        )
        if self._function is None:
            thread = threading.Thread(target=supervisor.loop, args=(control,), name="leyden-workers", daemon=True)
            thread.start()

            def wait() -> None:
                thread.join()
                os.close(control)
                os.close(status)

            self._wait_for_end = wait
        else:
            self._wait_for_end = self._fork(supervisor, control, status)
        return self

    def _fork(self, supervisor: Supervisor, control: int, status: int) -> Callable[[], object]:
        if self._settings.instrument:
            from leyden.plugins import instrument

            instrument()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._supervise(supervisor, control, status, parent)
        os.close(control)
        os.close(status)
        return lambda: os.waitpid(pid, 0)

    def _supervise(self, supervisor: Supervisor, control: int, status: int, parent: int) -> NoReturn:
        """The life of the forked supervising process."""
        code = 1
        try:
            worker.prepare_signals()
            worker.die_with(parent)
            assert self._control is not None
            os.close(self._control)
            os.close(self._status)
            supervisor.settings = replace(self._settings, supervisor=os.getpid())
            supervisor.inherited = (control, status)
            supervisor.loop(control)
            code = 0
        finally:
            worker.leave(code)

    def check(self) -> None:
        """Take note of what happened to the workers; raises `WorkersFailed` where they cannot be kept running."""
        if self._fatal:
            raise WorkersFailed(self._fatal)
        while self._control is not None and select.select([self._status], [], [], 0)[0]:
            chunk = os.read(self._status, 65536)
            if not chunk:
                self._fatal = "the process that supervises the workers has ended; see its messages above"
                break
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._note(json.loads(line))
        if self._fatal:
            raise WorkersFailed(self._fatal)

    def _note(self, event: dict[str, Any]) -> None:
        if "started" in event:
            self.pids.add(event["started"])
        if "died" in event:
            self.pids.discard(event["died"])
            self.ready.discard(event["died"])
            self.restarts += 1
        if "ready" in event:
            self.ready.add(event["ready"])
        if event.get("fatal"):
            self._fatal = str(event["fatal"])

    def stop(self) -> None:
        """End every worker: they hand back what they run, those that do not end in time are killed. Twice is once."""
        if self._control is None:
            return
        os.close(self._control)
        self._control = None
        self._wait_for_end()
        os.close(self._status)
        self.pids.clear()
        self.ready.clear()

    def __enter__(self) -> Workers:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
