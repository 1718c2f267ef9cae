"""Peak memory of this process and everything below it, as the sum of proportional set sizes (PSS).

Source: Linux `/proc/<pid>/smaps_rollup` (proc(5)); shared pages count once over the processes that share them. Where
/proc is not there (macOS, Windows) nothing is measured and the peak is 0.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_PROC = Path("/proc")


def descendants(root: int) -> list[int]:
    """Ids of `root` and of all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def pss(pid: int) -> int:
    """Proportional set size of one process in bytes; 0 where it cannot be read."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class MemoryWatch:
    """Samples the memory of a process tree from a thread: `with MemoryWatch() as watch: …; watch.peak` (bytes)."""

    def __init__(self, root: int | None = None, *, every_s: float = 15.0) -> None:
        self.root = os.getpid() if root is None else root
        self.every_s = every_s
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="leyden-memory", daemon=True)

    def sample(self) -> int:
        """Measure now; returns the sum in bytes and raises `peak` to it."""
        total = sum(pss(pid) for pid in descendants(self.root))
        self.peak = max(self.peak, total)
        return total

    def _watch(self) -> None:
        while not self._stop.wait(self.every_s):
            self.sample()

    def __enter__(self) -> MemoryWatch:
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.sample()
