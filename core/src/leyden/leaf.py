"""Leaf spans: steps that nothing runs inside of, an LLM call above all, recorded without the OpenTelemetry SDK.

A leaf is never the current span, so it needs none of what the SDK does for one, and costs a tenth of it. It hangs below
the current span and has ids like any other, so it can be named in a `traceparent`.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from opentelemetry import trace

from leyden import observation
from leyden.observation import ObservedLeaf
from leyden.scope import AttemptScope
from leyden.types import LLMCall, Span, SpanKind

logger = logging.getLogger(__name__)


def random_id(size: int) -> int:
    """A random id of `size` bytes that is not 0. Leaves the `random` module alone: agents seed it."""
    while True:
        found = int.from_bytes(os.urandom(size), "big")
        if found:
            return found


def open_leaf(scope: AttemptScope, name: str, kind: SpanKind, agent: str) -> Leaf | ObservedLeaf:
    """A leaf span of an attempt, or of an application that is only observed."""
    observer = observation.current()
    if observer is not None and scope is observer.scope:
        return ObservedLeaf(observer, name, kind, agent)
    return Leaf(scope, name, kind, agent)


class Leaf:
    """An open leaf span of an attempt. It is recorded by `end`, or never."""

    __slots__ = ("_parent", "_scope", "_sequence", "_start_ns", "agent", "kind", "name", "span_id", "trace_id")

    def __init__(self, scope: AttemptScope, name: str, kind: SpanKind, agent: str) -> None:
        parent = trace.get_current_span().get_span_context()
        self._scope = scope
        self._sequence = scope.next_sequence()
        self._start_ns = time.time_ns()
        self._parent = parent.span_id if parent.is_valid else None
        self.trace_id = parent.trace_id if parent.is_valid else random_id(16)
        self.span_id = random_id(8)
        self.name = name
        self.kind: SpanKind = kind
        self.agent = agent

    @property
    def traceparent(self) -> str:
        """The span as W3C trace context."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"

    def end(self, given: dict[str, Any], *, error: str | None = None, call: LLMCall | None = None) -> None:
        """Record the span with the attributes `given`, unless its attempt has ended. Never raises."""
        scope = self._scope
        if scope.closed:
            return
        try:
            span = Span(
                rollout_id=scope.rollout.id,
                attempt_id=scope.attempt_id,
                span_id=f"{self.span_id:016x}",
                trace_id=f"{self.trace_id:032x}",
                parent_id=None if self._parent is None else f"{self._parent:016x}",
                sequence=self._sequence,
                name=self.name,
                kind=self.kind,
                agent=self.agent,
                start_ns=self._start_ns,
                end_ns=time.time_ns(),
                error=error,
                attributes=given,
                call=call,
            )
            scope.sink.emit(span)
        except Exception:  # an observer must not break the agent that it observes
            logger.exception("a span could not be recorded and was dropped")
