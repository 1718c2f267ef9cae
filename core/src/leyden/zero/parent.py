"""The side that starts a program: hands it its attempt, and takes in what its processes record."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace
from opentelemetry import trace

from leyden import errors
from leyden.errors import ConfigError, RoutingError
from leyden.scope import AttemptScope
from leyden.types import Span
from leyden.zero import spool
from leyden.zero.process import cannot_start
from leyden.zero.spool import Handed, Note, Reader

FOLDER = str(Path(__file__).parent / "path")
"""The folder of our `sitecustomize`."""
VARIABLE = "LEYDEN_SPOOL"
EVERY_S = 0.5

UNINSTRUMENTED = (
    "no Python process of the program was instrumented. Only Python programs are, and only where Python reads PYTHONPATH: "
    "not with the options -I, -E or -S, and not where a launcher clears the environment"
)


class Recording:
    """The attempt `scope` of the calling code as a program's: use it in `with` around the program's life.

    What the program's processes recorded goes to the scope's sink, by `follow` as it comes and at the end. Spans without a
    parent become children of the caller's current span.
    """

    def __init__(self, scope: AttemptScope, *, supervisor: int = 0) -> None:
        self.processes: set[int] = set()
        """Ids of the Python processes that were set up."""
        self.raised: str | None = None
        """The exception that ended a process of the program; the last one if there were several."""
        self.rewarded = False
        """Whether the program gave the rollout's reward itself (`leyden.emit_reward`)."""
        self._scope, self._supervisor = scope, supervisor
        self._last = 0
        self._dropped = 0

    def __enter__(self) -> Recording:
        self.directory = Path(tempfile.mkdtemp(prefix="leyden-"))
        self._reader = Reader(self.directory)
        current = trace.get_current_span().get_span_context()
        self._parent = f"{current.span_id:016x}" if current.is_valid else None
        scope = self._scope
        spool.hand(
            self.directory,
            Handed(
                rollout=scope.rollout,
                attempt=scope.attempt_id,
                resources=scope.resources,
                start_ns=time.perf_counter_ns(),
                supervisor=self._supervisor,
            ),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.take()
            self._tell_drops()
        finally:
            self._scope.continue_after(self._last)
            shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with what sets up the Python processes of the program, and theirs."""
        before = [folder for folder in base.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != FOLDER]
        path = os.pathsep.join([FOLDER, *before])
        return {**base, "PYTHONPATH": path, VARIABLE: str(self.directory)}

    async def follow(self) -> None:
        """Take in what comes, until this task is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            with contextlib.suppress(OSError):  # what cannot be read now is read later
                self.take()

    def take(self) -> None:
        """Take in what was written since the last time."""
        for note in self._reader.notes():
            self._take(note)

    def _take(self, note: Note) -> None:
        if note.process:
            self.processes.add(note.process)
        if note.failure is not None:
            self._scope.failures.append(_error(*note.failure))
        if note.raised is not None:
            self.raised = note.raised
        if note.span is not None:
            self._last = max(self._last, note.span.sequence)
            reward = note.span.reward
            self.rewarded = self.rewarded or (reward is not None and not reward.targeted)
            self._scope.sink.emit(note.span if note.span.parent_id else replace(note.span, parent_id=self._parent))
        self._dropped += note.dropped

    def _tell_drops(self) -> None:
        """Leave a trace of lost spans in the attempt: what is missing must not look like nothing."""
        if not self._dropped and not self._reader.broken:
            return
        text = f"{self._dropped} spans were dropped by the program: they could not be written"
        if self._reader.broken:
            text += f"; {self._reader.broken} of its files could not be read to their end"
        note = Span(
            rollout_id=self._scope.rollout.id, attempt_id=self._scope.attempt_id, span_id=uuid.uuid4().hex[:16],
            sequence=self._last + 1, parent_id=self._parent, name=text, kind="exception", error="SpansDropped",
        )  # fmt: skip
        self._last += 1
        self._scope.sink.emit(note)

    def check(self) -> None:
        """Once the program has ended: raise `RoutingError` where agents are marked and none of it was instrumented."""
        refused = self.directory / spool.REFUSED
        if refused.exists():
            raise RoutingError(refused.read_text(encoding="utf-8"))
        self.take()
        if not self.processes and self._scope.resources.marks:
            raise RoutingError(f"agents are marked, but {UNINSTRUMENTED}")


def _error(name: str, message: str) -> RoutingError:
    """A routing error of another process, as the one that it was."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, RoutingError):
        return kind(message)
    return RoutingError(f"{name}: {message}")


def check_command(command: Sequence[str]) -> None:
    """Raise `ConfigError` for a program that cannot be started or, as far as that can be seen, not be instrumented."""
    name = command[0]
    if shutil.which(name) is None:
        there = Path(name).is_file()
        error = PermissionError() if there else FileNotFoundError()
        raise ConfigError(cannot_start(name, error))
    if not Path(name).name.startswith(("python", "pypy")):
        return
    options = iter(command[1:])
    for option in options:
        if not option.startswith("-") or option.startswith(("-c", "-m", "--")) or option == "-":
            return
        if option in ("-W", "-X"):
            next(options, None)
        elif not option.startswith(("-W", "-X")) and set(option) & set("IES"):
            raise ConfigError(
                f"{name} {option} ignores the environment, by which Leyden instruments the program: leave {option} out"
            )
