"""The memory watch sees this process and its children."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leyden.memory import MemoryWatch, descendants, pss

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux /proc")


def test_own_memory_is_counted() -> None:
    assert pss(os.getpid()) > 1_000_000
    assert pss(2**22 + 1) == 0


def test_memory_of_a_child_is_in_the_peak() -> None:
    code = "import sys; block = b'x' * 60_000_000; print('ready', flush=True); sys.stdin.read()"
    with MemoryWatch(every_s=60) as watch:
        before = watch.sample()
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        assert child.pid in descendants(os.getpid())
        assert watch.sample() - before > 50_000_000
        child.stdin.close()
        child.stdout.close()
        child.wait()
    assert watch.peak - before > 50_000_000
