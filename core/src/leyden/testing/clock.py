"""A clock that moves only when it is told to, so that leases and time limits pass without waiting."""

from __future__ import annotations

import asyncio
import contextlib


class ManualClock:
    """A `leyden.clock.Clock` for tests. `advance` may be called from any thread, sleepers may be in any event loop."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._sleepers: set[tuple[float, asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def now(self) -> float:
        """Seconds since the epoch, as far as this clock knows."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Return once `advance` has moved the clock by `seconds`."""
        loop = asyncio.get_running_loop()
        sleeper = (self._now + seconds, loop, loop.create_future())
        self._sleepers.add(sleeper)
        try:
            await sleeper[2]
        finally:
            self._sleepers.discard(sleeper)

    def advance(self, seconds: float) -> None:
        """Move the clock and wake those whose time has come."""
        self._now += seconds
        for due, loop, future in list(self._sleepers):
            if due <= self._now:
                with contextlib.suppress(RuntimeError):  # a loop that was closed has no sleepers left
                    loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
