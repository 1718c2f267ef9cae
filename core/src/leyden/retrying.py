"""Waiting out a store that is away for a while. Every call of a store may be repeated, see the rules in `leyden.store`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leyden.errors import StoreUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 60.0
MAX_DELAY_S = 5.0


async def persistently(call: Callable[[], Awaitable[T]], for_s: float = PATIENCE_S) -> T:
    """`call`, again while it raises `StoreUnavailable`: with growing pauses, for `for_s` seconds."""
    loop = asyncio.get_running_loop()
    delay, until = 0.1, loop.time() + for_s
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if loop.time() + delay > until:
                raise
            logger.warning("the store is unavailable, trying again in %g s: %s", delay, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_DELAY_S)
