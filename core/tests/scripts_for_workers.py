"""Rollout functions that worker processes run in the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import leyden


def die_once(marker: Path) -> None:
    """End this process at once, the first time."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def solve(task: Any) -> float | None:
    """Does what the task says: hang, block, die (once), or be good."""
    await asyncio.sleep(0)
    match task:
        case {"hang": "async"}:
            await asyncio.sleep(3600)
        case {"block": "loop"}:
            time.sleep(3600)  # noqa: ASYNC251  the point
        case {"die once": marker}:
            die_once(Path(marker))
        case {"slow": seconds}:
            await asyncio.sleep(seconds)
    leyden.emit_object("process", os.getpid())
    return 1.0


def solve_in_thread(task: Any) -> float:
    """The same without async."""
    if task == {"hang": "thread"}:
        threading.Event().wait(3600)
    leyden.emit_object("process", os.getpid())
    return 1.0
