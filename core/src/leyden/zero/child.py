"""The program's side: makes a Python process that just starts part of the attempt that it was started for."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from leyden.errors import PluginError
from leyden.scope import AttemptScope, set_process_attempt
from leyden.zero import spool
from leyden.zero.spool import Handed, Note, Spool

REFUSAL = 78
"""Exit status of a program that is not started (EX_CONFIG of sysexits.h)."""


class _Moments(Iterator[int]):
    """Span numbers that all processes of an attempt share without asking each other: nanoseconds since its start."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns

    def __next__(self) -> int:
        return time.perf_counter_ns() - self._start_ns


class _Failures(list[BaseException]):
    """Routing errors, told to the parent as they happen: the program may hide them."""

    def __init__(self, sink: Spool) -> None:
        super().__init__()
        self._sink = sink

    def append(self, error: BaseException) -> None:
        super().append(error)
        self._sink.write(Note(failure=(type(error).__name__, str(error))))


def start(directory: str) -> None:
    """Set this process up. A failure is told on stderr and the program goes on; with marked agents it ends here."""
    where = Path(directory)
    first = _is_first(where)
    try:
        handed = spool.handed(where)
    except OSError:
        print("leyden: this process is not recorded: the run that it was started in has ended", file=sys.stderr)
        return
    try:
        _set_up(where, handed, first)
    except Exception as error:
        set_process_attempt(None)
        problem = f"{type(error).__name__}: {error}"
        if not handed.resources.marks:
            print(f"leyden: the program is not recorded: {problem}", file=sys.stderr)
            return
        (where / spool.REFUSED).write_text(problem, encoding="utf-8")
        print(f"leyden: agents are marked, so the program is not started: {problem}", file=sys.stderr, flush=True)
        os._exit(REFUSAL)  # an exception would be Python's own fatal error here


def _is_first(directory: Path) -> bool:
    try:
        os.close(os.open(directory / spool.FIRST, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    return True


def _set_up(directory: Path, handed: Handed, first: bool) -> None:
    from leyden.plugins import instrument, plugins

    if handed.supervisor and first:
        _under(handed.supervisor)
    instrument()
    if handed.resources.marks and plugins.failed:
        broken = "; ".join(f"{name}: {reason}" for name, reason in plugins.failed.items())
        raise PluginError(
            f"plugins that may be needed to route the marked agents failed ({broken}); reinstall them, or name in "
            "LEYDEN_PLUGINS those that the program needs"
        )
    sink = Spool(directory)
    scope = AttemptScope(
        rollout=handed.rollout,
        attempt_id=handed.attempt,
        resources=handed.resources,
        sink=sink,
        failures=_Failures(sink),
        numbers=_Moments(handed.start_ns),
    )
    sink.write(Note(process=os.getpid()))
    if sink.dropped or not list(directory.glob(f"*{spool.SPANS}")):
        raise OSError(f"nothing can be written to {directory}")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=sink.forked)
    atexit.register(_end, sink)  # the first one registered is the last one run
    set_process_attempt(scope)


def _under(supervisor: int) -> None:
    """Die with the worker, and take Ctrl-C as any program does, which a worker leaves to its own parent."""
    if os.getppid() == supervisor:
        from leyden.worker import die_with

        die_with(supervisor)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(sink: Spool) -> None:
    """Tell what ended the program, and what was lost on the way."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # of an exception that nobody caught
    if isinstance(error, KeyboardInterrupt):
        # Python has yet to end the process by SIGINT, and forgets it where source text is run meanwhile, as imports do.
        sink.write(Note(raised="KeyboardInterrupt"))
    elif isinstance(error, BaseException):
        from leyden.attempt import describe, record_exception

        record_exception(error)
        sink.write(Note(raised=describe(error)))
    elif sink.dropped:
        sink.write(Note())
