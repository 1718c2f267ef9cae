"""Observation alone: adapters' spans go to the application's own OpenTelemetry provider, where no attempt runs.

This is what `opentelemetry-instrument` switches on. Nothing is ever rerouted: there are no marks outside an attempt.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind as OtelSpanKind
from opentelemetry.trace import Status, StatusCode, TracerProvider

from leyden import attributes
from leyden.scope import AttemptScope
from leyden.types import LLMCall, Resources, Rollout, Span, SpanKind

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""What people say and tools return is left out unless this is `true`, `span_only` or `span_and_event`, as in OpenTelemetry's own
GenAI instrumentations."""

CONTENT: Final = frozenset(
    {
        attributes.INPUT_MESSAGES,
        attributes.OUTPUT_MESSAGES,
        attributes.TOOL_DEFINITIONS,
        attributes.TOOL_ARGUMENTS,
        attributes.TOOL_RESULT,
        attributes.VALUE,
    }
)


class _Nowhere:
    def emit(self, span: Span) -> None:
        """Observed spans go to the application's provider instead."""


@dataclass(eq=False)
class Observer:
    """Where spans go outside attempts."""

    tracer: trace.Tracer
    content: bool
    llm_calls: bool = False
    """Whether LLM calls are to be recorded; somebody else's instrumentation may do that."""
    scope: AttemptScope = field(
        default_factory=lambda: AttemptScope(
            rollout=Rollout(id="", task=None, status="running", created_at=0.0),
            attempt_id="",
            resources=Resources(),
            sink=_Nowhere(),
        )
    )
    """Stands in for an attempt's scope: it has no marks."""

    def shown(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that may be recorded."""
        return {key: value for key, value in given.items() if self.content or key not in CONTENT}


_users: list[tuple[object, Observer]] = []
_lock = threading.Lock()
_current: Observer | None = None


def current() -> Observer | None:
    """The observer, or None where nobody observes."""
    return _current


def observe(provider: TracerProvider | None = None, *, llm_calls: bool = False) -> Callable[[], None]:
    """Record outside attempts with `provider` (default: the global one); returns what ends it. May be nested.

    The provider is the first one's that still observes; LLM calls are recorded while anyone asked for them.
    """
    wanted = os.environ.get(CONTENT_VARIABLE, "").strip().lower()
    tracer = trace.get_tracer("leyden", tracer_provider=provider)
    mine = (object(), Observer(tracer, wanted in ("true", "1", "span_only", "span_and_event"), llm_calls))
    with _lock:
        _users.append(mine)
        _choose()

    def end() -> None:
        with _lock:
            if mine in _users:
                _users.remove(mine)
            _choose()

    return end


def _choose() -> None:
    global _current
    first = _users[0][1] if _users else None
    if first is not None:
        first = Observer(first.tracer, first.content, any(one.llm_calls for _, one in _users), first.scope)
    _current = first


class ObservedLeaf:
    """An LLM call outside an attempt: an ordinary OpenTelemetry span of the application's provider. See `leyden.leaf.Leaf`."""

    def __init__(self, observer: Observer, name: str, kind: SpanKind, agent: str) -> None:
        self._observer = observer
        given = {attributes.KIND: kind, **({attributes.AGENT: agent} if agent else {})}
        self._span = observer.tracer.start_span(name, kind=OtelSpanKind.CLIENT, attributes=given)

    @property
    def traceparent(self) -> str:
        """The span as W3C trace context."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end(self, given: dict[str, Any], *, error: str | None = None, call: LLMCall | None = None) -> None:
        """End the span with the attributes `given`."""
        del call  # its ids and log-probs are for training
        self._span.set_attributes(self._observer.shown(given))
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()
