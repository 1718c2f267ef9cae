"""The sweeper of a store: a task that finds lapsed leases and attempts over their time, without anyone calling."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from leyden.clock import Clock

log = logging.getLogger("leyden.stores")

LONGEST_NAP_S = 1.0
SHORTEST_NAP_S = 0.01


class Sweeper:
    """Calls `sweep`, which ends what is due and returns when the next attempt expires, again and again until `stop`.

    It looks at least every second, since other processes may add work with shorter leases.
    """

    def __init__(self, sweep: Callable[[], Awaitable[float | None]], clock: Clock) -> None:
        self._sweep = sweep
        self._clock = clock
        self._failing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="leyden-sweeper")

    async def _run(self) -> None:
        while True:
            nap = LONGEST_NAP_S
            try:
                due = await self._sweep()
                self._failing = False
                if due is not None:
                    nap = min(LONGEST_NAP_S, max(SHORTEST_NAP_S, due - self._clock.now()))
            except Exception as error:
                if not self._failing:
                    log.warning("looking for lapsed leases failed, trying again every second: %s", error)
                self._failing = True
            await self._clock.sleep(nap)

    async def stop(self) -> None:
        """Stop, and return once it has stopped."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
