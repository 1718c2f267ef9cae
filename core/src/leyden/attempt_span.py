"""The spans of an attempt: OpenTelemetry spans that know their attempt, without the OpenTelemetry SDK.

They can be current, have children of any tracer, and carry attributes and a status, like any span. At their end they become
`leyden.types.Span`. The SDK's own take several times as long, and what its variables and samplers say is no business of
the training data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, Status, StatusCode
from opentelemetry.trace import SpanKind as OtelSpanKind
from opentelemetry.util.types import Attributes, AttributeValue

from leyden.leaf import random_id
from leyden.scope import AttemptScope, current_attempt
from leyden.types import LLMCall, Reward

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_SCALARS = (str, bool, int, float)


class AttemptSpan(trace.Span):
    """An open span of an attempt. `finish` is called once, at its end."""

    __slots__ = (
        "_context",
        "_finish",
        "attributes",
        "end_ns",
        "error",
        "name",
        "parent_id",
        "payload",
        "scope",
        "sequence",
        "start_ns",
    )

    def __init__(
        self,
        scope: AttemptScope,
        name: str,
        given: Mapping[str, Any],
        parent: trace.SpanContext,
        start_ns: int | None,
        finish: Callable[[AttemptSpan], None],
    ) -> None:
        trace_id = parent.trace_id if parent.is_valid else random_id(16)
        self._context = trace.SpanContext(trace_id, random_id(8), is_remote=False, trace_flags=_SAMPLED)
        self._finish = finish
        self.parent_id = parent.span_id if parent.is_valid else None
        self.scope = scope
        self.sequence = scope.next_sequence()
        self.name = name
        self.attributes: dict[str, Any] = {}
        self.error: str | None = None
        self.payload: LLMCall | Reward | None = None
        self.end_ns = 0
        self.start_ns = start_ns or time.time_ns()
        for key, value in given.items():
            self.set_attribute(key, value)

    def get_span_context(self) -> trace.SpanContext:
        """Ids of the trace and of the span."""
        return self._context

    def is_recording(self) -> bool:
        """Whether the span is open."""
        return not self.end_ns

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set one attribute: text, a number, a truth value, or a sequence of them; anything else is kept as its text."""
        if not self.end_ns and value is not None:
            try:
                self.attributes[key] = _plain(value)
            except Exception:  # a `__str__` of the user's may raise anything, a list may hold itself
                self.attributes[key] = f"<{type(value).__name__}>"

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set several."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Events are not recorded."""

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """What failed is said by the status."""

    def update_name(self, name: str) -> None:
        """Rename the span."""
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """An error with its description; anything else takes an error back."""
        code = status.status_code if isinstance(status, Status) else status
        text = status.description if isinstance(status, Status) else description
        if not self.end_ns:
            self.error = (text or "error") if code is StatusCode.ERROR else None

    def end(self, end_time: int | None = None) -> None:
        """End and record the span; a second end does nothing."""
        if not self.end_ns:
            self.end_ns = end_time or time.time_ns()
            self._finish(self)


def _plain(value: Any) -> Any:
    """An attribute's value in the types that a store can hold."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(part) for part in value]
    if isinstance(value, str):  # a subclass, say an enumeration's member, whose own `__str__` may say something else
        return str.__str__(value)
    for scalar in (int, float):
        if isinstance(value, scalar):
            return scalar(value)
    return str(value)


class AttemptTracer(trace.Tracer):
    """Starts the spans of the current attempt; outside any, spans that record nothing and hide nobody else's."""

    def __init__(self, started: Callable[[AttemptSpan], None], finish: Callable[[AttemptSpan], None]) -> None:
        self._started = started
        self._finish = finish

    def start_span(
        self,
        name: str,
        context: otel_context.Context | None = None,
        kind: OtelSpanKind = OtelSpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """A span below the current one. It is not made current."""
        scope = current_attempt(context)
        parent = trace.get_current_span(context).get_span_context()
        if scope is None or scope.closed:
            return trace.NonRecordingSpan(parent)
        made = AttemptSpan(scope, name, attributes or {}, parent, start_time, self._finish)
        self._started(made)
        return made

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # OpenTelemetry's serves as a decorator of coroutines too
        self,
        name: str,
        context: otel_context.Context | None = None,
        kind: OtelSpanKind = OtelSpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[trace.Span]:
        """A span below the current one, current in the enclosed code."""
        opened = self.start_span(name, context, kind, attributes, links, start_time)
        with trace.use_span(opened, end_on_exit, record_exception, set_status_on_exception):
            yield opened
