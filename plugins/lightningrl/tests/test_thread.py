"""The thread that verl runs in: its result, its error, and an end of the process that does not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from leyden_lightningrl.algorithm import in_thread


def test_result_and_error() -> None:
    async def run() -> int:
        with pytest.raises(KeyError, match="gone"):
            await in_thread(lambda: {}["gone"])
        with pytest.raises(SystemExit):
            await in_thread(lambda: sys.exit(3))
        return await in_thread(lambda: 5)

    assert asyncio.run(run()) == 5


def test_a_thread_that_goes_on_does_not_hold_up_the_process() -> None:
    script = (
        "import asyncio, threading\n"
        "from leyden_lightningrl.algorithm import in_thread\n"
        "async def run():\n"
        "    in_thread(threading.Event().wait)\n"
        "    raise KeyboardInterrupt\n"
        "asyncio.run(run())\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert b"KeyboardInterrupt" in ended.stderr
