"""An attempt for tests: run code inside it and read the spans that were recorded.

with recorded_attempt({"default": endpoint}, marks={"writer": "default"}) as attempt:
    agent()
attempt.calls[0].sampled_ids
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from leyden.scope import AttemptScope, attempt_scope
from leyden.types import LLMCall, Mark, Policy, Resources, Rollout, Span

_numbers = itertools.count(1)


class RecordedAttempt:
    """A sink that keeps what it is given, and the attempt that it belongs to."""

    def __init__(self, resources: Resources) -> None:
        number = next(_numbers)
        rollout = Rollout(id=f"rollout-{number}", task=None, status="running", created_at=0.0)
        self.emitted: list[Span] = []
        """Spans in the order in which they ended."""
        self.scope = AttemptScope(rollout=rollout, attempt_id=f"attempt-{number}", resources=resources, sink=self)

    def emit(self, span: Span) -> None:
        """Keep one span."""
        self.emitted.append(span)

    @property
    def spans(self) -> list[Span]:
        """Spans in the order in which they started."""
        return sorted(self.emitted, key=lambda span: span.sequence)

    @property
    def llm(self) -> list[Span]:
        """The LLM-call spans."""
        return [span for span in self.spans if span.kind == "llm"]

    @property
    def calls(self) -> list[LLMCall]:
        """The records of the LLM calls."""
        return [span.call for span in self.llm if span.call is not None]


@contextmanager
def recorded_attempt(
    policies: Mapping[str, Policy] | None = None, marks: Mapping[str, str] | None = None
) -> Iterator[RecordedAttempt]:
    """Run the enclosed code as an attempt. `marks`: selector → policy name."""
    given = tuple(Mark(selector=selector, policy=policy) for selector, policy in (marks or {}).items())
    attempt = RecordedAttempt(Resources(policies=dict(policies or {}), marks=given, version=1))
    with attempt_scope(attempt.scope):
        yield attempt
