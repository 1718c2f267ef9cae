"""Ctrl-C and SIGTERM as a clean end: the first one cancels a task, a second Ctrl-C is a KeyboardInterrupt wherever it hits."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType


class Interrupted(SystemExit, KeyboardInterrupt):
    """A run was stopped by Ctrl-C or SIGTERM, and ended cleanly. A script that does not catch it ends without a
    traceback and with the usual exit status (128 + the signal)."""


class Interruption:
    """Which signal came, or 0."""

    signal = 0


@contextmanager
def cancelled_by_signals(interruption: Interruption) -> Iterator[None]:
    """Let SIGINT and SIGTERM cancel the current task and leave their number in `interruption`.

    Outside the main thread, where Python handles no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.signal:
            raise KeyboardInterrupt
        interruption.signal = number
        loop.call_soon_threadsafe(task.cancel)
        loop.call_soon_threadsafe(partial(print, "stopping; Ctrl-C again ends at once", file=sys.stderr, flush=True))

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
