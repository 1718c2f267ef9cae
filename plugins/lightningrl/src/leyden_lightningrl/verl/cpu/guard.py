"""A small process between an owner and a program that starts children of its own: nothing of it outlives the owner.

    python guard.py OWNER GRACE PROGRAM ARGUMENT...

vLLM's API server starts its engine as a child, and a SIGKILL, or a SIGTERM while it starts, leaves that engine running.
PR_SET_PDEATHSIG reaches one process alone. So the guard runs the program in a session of its own, becomes the one that
orphans below it are handed to (PR_SET_CHILD_SUBREAPER, prctl(2)), and ends all of them once the program has ended,
the owner's thread has, or SIGTERM came: SIGTERM first, SIGKILL after GRACE seconds. Its exit status is the program's.

Runs as a file, with the standard library alone, so that it starts at once and stays small.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

PDEATHSIG, SUBREAPER = 1, 36
LOOK_S = 0.5


class Guard:
    """Owns the program's process and all that descends from it."""

    def __init__(self, owner: int, grace: float, command: list[str]) -> None:
        self.owner, self.grace = owner, grace
        self.ending = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the owner's affair
        control(PDEATHSIG, signal.SIGTERM)
        control(SUBREAPER, 1)
        self.program = subprocess.Popen(
            command, start_new_session=True, preexec_fn=lambda: control(PDEATHSIG, signal.SIGTERM)
        )

    def _end(self, *_: object) -> None:
        self.ending = True

    def watch(self) -> int:
        """Wait for the end of the program or of the owner, then end everything; returns the program's exit status."""
        while self.program.poll() is None and not self.ending and os.getppid() == self.owner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(LOOK_S)
        if self.program.poll() is None:
            self.program.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(self.grace)
        kill_descendants(self.program)
        status = self.program.wait()
        return status if status >= 0 else 128 - status


def control(option: int, value: int) -> None:
    """prctl(2); where there is none (not Linux), the owner's end is seen by its process id."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def kill_descendants(program: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the program's process group and to every orphan that came to this process, until none is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Process ids of this process's children (Linux; elsewhere none, the process group has to do)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(Guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).watch())
