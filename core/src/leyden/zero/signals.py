"""Signals on their way to a program: each reaches it once, whether a terminal or another process sends it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AbstractContextManager
from types import TracebackType

from leyden.zero.process import Process

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
FROM_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the whole group that is in its foreground: the program has it already."""


class Signals(AbstractContextManager["Signals"]):
    """Hands signals on to the program. `shared`: the terminal sends its own to the program too, as to a group of its."""

    def __init__(self) -> None:
        self.shared = _in_foreground()
        self._loop = asyncio.get_running_loop()
        self._process: Process | None = None
        self._early: list[int] = []
        self._taken: list[int] = []
        for name in FORWARDED:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:  # ignored here is ignored there
                continue
            silent = self.shared and name in FROM_TERMINAL
            self._loop.add_signal_handler(number, (lambda _: None) if silent else self._forward, number)
            self._taken.append(number)

    def to(self, process: Process) -> None:
        """The program is there; what came before goes to it now."""
        self._process = process
        for number in self._early:
            process.signal(number)

    def _forward(self, number: int) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.signal(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in self._taken:
            self._loop.remove_signal_handler(number)


def _in_foreground() -> bool:
    """Whether this process's group is the one that a terminal sends its signals to."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY)
    except (AttributeError, OSError):
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
