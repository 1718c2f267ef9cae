"""The clock of a store: what leases, time limits and sweepers go by. Tests put one of their own in its place."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. `leyden.testing.clock.ManualClock` is one that only moves when it is told to."""

    def now(self) -> float:
        """Seconds since the epoch. May be called from any thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The wall clock: the one that all processes of a machine share, so that they agree on leases."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await asyncio.sleep(seconds)
