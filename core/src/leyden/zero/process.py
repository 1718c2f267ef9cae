"""A process that was started here: waited for by its id, signalled alone or with its group, never after it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from leyden.errors import ConfigError

File = int | IO[bytes] | None


class Process:
    """A started program. Make it inside the event loop that waits for it.

    With `alone` it leads a session and a group of its own, so that it gets no signal from a terminal. With `kill_group` too,
    `signal` reaches the whole group, and what is left of the group when the program ends is killed; without, only the
    program itself is signalled, and it inherits the caller's open files. Raises `ConfigError` where it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str | None = None,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        alone: bool,
        kill_group: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._group, self._lock, self._gone = alone and kill_group, threading.Lock(), False
        try:
            self._popen = subprocess.Popen(
                list(command), env=dict(environment), cwd=directory, stdin=stdin, stdout=stdout, stderr=stderr,
                start_new_session=alone, close_fds=self._group,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ConfigError(cannot_start(command[0], error, directory)) from error
        threading.Thread(target=self._watch, name=f"leyden-program-{self._popen.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    async def wait(self) -> int:
        """Its exit status, once it has ended; negative: the signal that ended it. To be cancelled leaves it running."""
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._gone:
                (os.killpg if self._group else os.kill)(self.pid, number)

    async def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, and SIGKILL if it has not ended `grace_s` seconds later."""
        self.signal(signal.SIGTERM)
        await asyncio.wait({self._ended}, timeout=grace_s)
        if not self._ended.done():
            self.signal(signal.SIGKILL)
            await asyncio.wait({self._ended})

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet: its id is nobody else's
            if self._group:
                self.signal(signal.SIGKILL)
            with self._lock:
                code = self._popen.wait()
                self._gone = True
        else:
            code = self._popen.wait()
            with self._lock:
                self._gone = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, code)

    def _settle(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


def cannot_start(name: str, error: Exception, directory: str | None = None) -> str:
    """What to say of a program that the system does not start."""
    if isinstance(error, FileNotFoundError):
        if directory is not None and not Path(directory).is_dir():
            return f"the program's directory {directory} is not there any more"
        return f"there is no program {name!r}: check its name, or give its path"
    if isinstance(error, PermissionError):
        hint = (
            f"write python {name}" if name.endswith(".py") else "make it executable (chmod +x), or name its interpreter"
        )
        return f"{name!r} cannot be executed: {hint}"
    if isinstance(error, OSError) and error.errno == 7:  # E2BIG
        return "the arguments are too long for the system: let the program read the task from its standard input"
    return f"{name!r} cannot be started: {error}"


def how(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
