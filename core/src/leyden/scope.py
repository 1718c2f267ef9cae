"""The ambient rollout, attempt and agent, kept in the OpenTelemetry context.

The OTel context crosses `await`, tasks and (with opentelemetry-instrumentation-threading) threads and executors, and an
agent that is set inside one task is never seen by another one.

A process that runs for one attempt alone (see `leyden.zero`) makes it the attempt of all its threads and tasks with
`set_process_attempt`; an attempt of the context goes before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

from opentelemetry import context as otel_context

from leyden.errors import InvalidInput
from leyden.types import Resources, Rollout, Span

_ATTEMPT = otel_context.create_key("leyden-attempt")
_AGENT = otel_context.create_key("leyden-agent")


class SpanSink(Protocol):
    """Where finished spans go; never blocks and never raises."""

    def emit(self, span: Span) -> None:
        """Take one span."""
        ...


@dataclass(slots=True, eq=False)
class AttemptScope:
    """What an attempt runs in: its rollout, the resources snapshot with the marks, and the sink for its spans."""

    rollout: Rollout
    attempt_id: str
    resources: Resources
    sink: SpanSink
    failures: list[BaseException] = field(default_factory=list)
    """Routing errors of marked agents. The runner fails the attempt with the first one even if the agent hid it."""
    closed: bool = False
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Where span numbers come from: each one above the last, whichever thread asks."""

    def next_sequence(self) -> int:
        """The next span number of this attempt (1, 2, …); atomic under the GIL."""
        return next(self.numbers)

    def continue_after(self, number: int) -> None:
        """Let the next span number be above `number`, which another process of this attempt has used."""
        self.numbers = itertools.count(max(number + 1, next(self.numbers)))


_process_attempt: AttemptScope | None = None


def set_process_attempt(scope: AttemptScope | None) -> None:
    """Make `scope` the attempt of everything in this process that belongs to no other one; None takes it back."""
    global _process_attempt
    _process_attempt = scope


def current_attempt(context: otel_context.Context | None = None) -> AttemptScope | None:
    """The attempt that the calling code belongs to, or None outside any."""
    return cast("AttemptScope | None", otel_context.get_value(_ATTEMPT, context)) or _process_attempt


def current_agent(context: otel_context.Context | None = None) -> str:
    """The path of the agent that was set explicitly around the calling code, or ""."""
    return cast("str | None", otel_context.get_value(_AGENT, context)) or ""


def with_agent(path: str, context: otel_context.Context | None = None) -> otel_context.Context:
    """A context in which `path` is the current agent, for adapters that attach and detach contexts themselves."""
    return otel_context.set_value(_AGENT, path, context)


@contextmanager
def attempt_scope(scope: AttemptScope) -> Iterator[AttemptScope]:
    """Run the enclosed code as the attempt `scope`."""
    token = otel_context.attach(otel_context.set_value(_ATTEMPT, scope))
    try:
        yield scope
    finally:
        otel_context.detach(token)


def child_path(name: str, parent: str) -> str:
    """The path of agent `name` under `parent`. Raises `InvalidInput` for an empty name."""
    clean = name.strip().strip("/")
    if not clean:
        raise InvalidInput("an agent needs a name that is not empty, say leyden.agent('writer')")
    return f"{parent}/{clean}" if parent else clean
