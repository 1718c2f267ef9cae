"""Worker processes: starts them, restarts those that die, kills those whose event loop hangs, ends them all together.

Only processes that were started here are ever ended, each by its id. Under `spawn` each worker is a fresh interpreter
that loads the user's file again. Under `fork` a supervising process is forked first and forks the workers: it has never
opened the store, so that no worker inherits a connection.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from leyden import worker

logger = logging.getLogger(__name__)

_BOOT = """
import json, sys
path = json.loads(sys.argv[3])
own = set(sys.path[1:])
sys.path[:] = [folder for folder in path if folder in own] + [folder for folder in path if folder not in own]
from leyden.worker import main
sys.path[:] = path
main()
"""
"""The import path goes on the command line: in the environment it would reach the agent's own child processes. The worker
itself is imported past the user's folders, whose `queue.py` or `select.py` would stand in for the standard library's."""

MAX_STARTS = 5
"""So many starts in a row that end before the worker is ready are given up."""
LONG_ENOUGH_S = 60.0
"""A worker that lived so long is restarted without delay."""


@dataclass(slots=True)
class _Worker:
    """One worker process and the supervisor's ends of its pipes."""

    pid: int
    control: int
    status: int
    started: float
    seen: float
    ready: bool = False
    told_to_stop: bool = False
    rest: bytes = b""


@dataclass(slots=True)
class _Slot:
    """A place that always holds one worker."""

    worker: _Worker | None = None
    start_at: float = 0.0
    early_deaths: int = 0


@dataclass(slots=True)
class Supervisor:
    """The loop over the workers. It runs in a thread (`spawn`) or in a process of its own (`fork`)."""

    settings: worker.WorkerSettings
    processes: int
    report: Callable[..., None]
    function: Callable[[Any], Any] | None = None
    """The function to fork with; None under `spawn`."""
    hang_s: float = 30.0
    start_s: float = 300.0
    inherited: Sequence[int] = ()
    """Descriptors that a forked worker must close."""
    _slots: list[_Slot] = field(default_factory=list)

    def loop(self, control: int) -> None:
        """Keep the workers running until `control` is at its end, then end them."""
        self._slots = [_Slot() for _ in range(self.processes)]
        fatal = ""
        try:
            while not fatal:
                now = time.monotonic()
                for slot in self._slots:
                    if slot.worker is None and now >= slot.start_at:
                        slot.worker = self._start()
                        self.report(started=slot.worker.pid)
                pipes = [slot.worker.status for slot in self._slots if slot.worker]
                readable, _, _ = select.select([control, *pipes], [], [], 0.2)
                if control in readable and not os.read(control, 4096):
                    return
                for slot in self._slots:
                    fatal = fatal or self._look_after(slot, readable)
            self.report(fatal=fatal)
        finally:
            self._end_all()

    def _look_after(self, slot: _Slot, readable: Sequence[int]) -> str:
        """Read a worker's events, end it if it hangs, note its death. Returns a reason to give up, or ""."""
        one = slot.worker
        if one is None:
            return ""
        fatal = self._read(one) if one.status in readable else ""
        code = _exit_code(one.pid)
        if code is None:
            silent = time.monotonic() - one.seen
            if silent > (self.hang_s if one.ready else self.start_s):
                what = "its event loop is blocked" if one.ready else "it did not become ready"
                logger.warning("worker %d is killed: %s (silent for %.0f s)", one.pid, what, silent)
                self.report(killed=one.pid, reason=what)
                _signal(one.pid, signal.SIGKILL)
            return fatal
        fatal = self._read(one) or fatal
        _close(one.control, one.status)
        slot.worker = None
        return fatal or self._after_death(slot, one, code)

    def _after_death(self, slot: _Slot, one: _Worker, code: int) -> str:
        lived = time.monotonic() - one.started
        if code == worker.REPLACE_ME:
            logger.warning("worker %d is replaced: an agent in it hangs", one.pid)
        else:
            logger.warning("worker %d ended (%s) after %.1f s and is started again", one.pid, _how(code), lived)
        self.report(died=one.pid, how=_how(code))
        slot.early_deaths = 0 if lived >= LONG_ENOUGH_S or code == worker.REPLACE_ME else slot.early_deaths + 1
        if not one.ready and slot.early_deaths >= MAX_STARTS:
            return f"a worker process ended {slot.early_deaths} times in a row before it was ready ({_how(code)})"
        delay = 0.0 if slot.early_deaths == 0 else min(0.1 * 2**slot.early_deaths, 10.0)
        slot.start_at = time.monotonic() + delay
        return ""

    def _read(self, one: _Worker) -> str:
        """Take in what a worker wrote; returns its `fatal` reason, or ""."""
        with contextlib.suppress(OSError):
            while select.select([one.status], [], [], 0)[0]:
                chunk = os.read(one.status, 65536)
                if not chunk:
                    break
                one.rest += chunk
        *lines, one.rest = one.rest.split(b"\n")
        for line in lines:
            event = json.loads(line)
            one.seen = time.monotonic()
            one.ready = one.ready or "ready" in event
            if "ready" in event:
                self.report(ready=one.pid)
            if "fatal" in event:
                return str(event["fatal"])
        return ""

    def _start(self) -> _Worker:
        control_read, control = os.pipe()
        status, status_write = os.pipe()
        os.set_blocking(status_write, False)  # a supervisor that is held up must not hold up its workers
        pid = self._spawn(control_read, status_write) if self.function is None else 0
        if self.function is not None:
            others = [fd for slot in self._slots if slot.worker for fd in (slot.worker.control, slot.worker.status)]
            pid = os.fork()
            if pid == 0:
                _close(control, status, *others, *self.inherited)
                _forked_worker(self.settings, self.function, control_read, status_write)
        _close(control_read, status_write)
        if self.function is None:
            with contextlib.suppress(BrokenPipeError):
                os.write(control, msgspec.json.encode(self.settings) + b"\n")
        now = time.monotonic()
        return _Worker(pid, control, status, started=now, seen=now)

    def _spawn(self, control: int, status: int) -> int:
        command = [sys.executable, "-c", _BOOT, str(control), str(status), json.dumps(self.settings.path)]
        process = subprocess.Popen(command, pass_fds=(control, status), stdin=subprocess.DEVNULL)
        process.returncode = 0  # waited for by id in `_exit_code`, not by this object
        return process.pid

    def _end_all(self) -> None:
        """Tell every worker to stop, wait a little, kill the rest."""
        alive = [slot.worker for slot in self._slots if slot.worker]
        for one in alive:
            _close(one.control)
        until = time.monotonic() + worker.STOP_GRACE_S + 1.0
        while alive and time.monotonic() < until:
            alive = [one for one in alive if _exit_code(one.pid) is None]
            time.sleep(0.02)
        for one in alive:
            _signal(one.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, 0)
        _close(*(slot.worker.status for slot in self._slots if slot.worker))


def _forked_worker(
    settings: worker.WorkerSettings, function: Callable[[Any], Any], control: int, status_fd: int
) -> NoReturn:
    """The life of a forked worker."""
    code = 1
    try:
        worker.prepare_signals()
        worker.die_with(settings.supervisor)
        code = worker.run_worker(settings, worker.Status(status_fd), control, function)
    except BaseException as error:
        print(f"leyden worker {os.getpid()}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        worker.leave(code)


def _exit_code(pid: int) -> int | None:
    """The exit status of a child that has ended (negative: the signal), or None."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return -signal.SIGKILL
    return os.waitstatus_to_exitcode(status) if ended else None


def _how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
