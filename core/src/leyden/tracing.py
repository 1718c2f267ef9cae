"""Leyden's own tracer: spans inside an attempt become `leyden.types.Span` and go to the attempt's sink.

A user's tracing set-up is left alone; `watch` records the spans of another provider too, so that a framework's native
instrumentation counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from leyden import attributes, observation
from leyden.attempt_span import AttemptSpan, AttemptTracer
from leyden.scope import AttemptScope, child_path, current_agent, current_attempt, with_agent
from leyden.types import LLMCall, Reward, Span, SpanKind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace import Span as SdkSpan

logger = logging.getLogger(__name__)

_KIND_OF_OPERATION: dict[str, SpanKind] = {attributes.INVOKE_AGENT: "agent", attributes.EXECUTE_TOOL: "tool"}
_OWN = (attributes.ROLLOUT, attributes.ATTEMPT, attributes.SEQUENCE, attributes.AGENT, attributes.KIND)


class ScopeProcessor:
    """Gives every span inside an attempt its rollout, attempt, agent and sequence, and hands it over at its end.

    `leyden.sdk.Bridge` is its face towards other providers of the OpenTelemetry SDK.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[AttemptScope, int, str]] = {}
        self._payloads: dict[int, LLMCall | Reward] = {}
        self.dropped = 0

    def started(self, span: AttemptSpan) -> None:
        """A span of Leyden's own was started."""
        self._open[span.get_span_context().span_id] = (span.scope, span.sequence, _agent_of(span.attributes, None))

    def on_start(self, span: SdkSpan, parent_context: otel_context.Context | None = None) -> None:
        """A span of a watched provider was started."""
        scope = current_attempt(parent_context)
        context = span.get_span_context()
        if scope is None or scope.closed or context is None:
            return
        agent = _agent_of(span.attributes or {}, parent_context)
        self._open[context.span_id] = (scope, scope.next_sequence(), agent)

    def finished(self, span: AttemptSpan) -> None:
        """A span of Leyden's own was ended."""
        opened = self._open.pop(span.get_span_context().span_id, None)
        if opened is not None:
            self._hand_over(opened, lambda: _own_to_span(span, opened[2]))

    def on_end(self, span: ReadableSpan) -> None:
        """A span of a watched provider was ended."""
        context = span.get_span_context()
        opened = self._open.pop(context.span_id, None) if context else None
        payload = self._payloads.pop(context.span_id, None) if context else None
        if opened is not None:
            self._hand_over(opened, lambda: _to_span(span, *opened, payload))

    def _hand_over(self, opened: tuple[AttemptScope, int, str], make: Callable[[], Span]) -> None:
        try:
            opened[0].sink.emit(make())
        except Exception:  # an observer must not break the agent that it observes
            self.dropped += 1
            logger.exception("a span could not be recorded and was dropped")

    def attach(self, span: trace.Span, payload: LLMCall | Reward) -> None:
        """Give an open span the record that OTel attributes would hold only clumsily. No effect outside an attempt."""
        span_id = span.get_span_context().span_id
        if isinstance(span, AttemptSpan):
            span.payload = payload
        elif span_id in self._open:
            self._payloads[span_id] = payload

    def forget(self, attempt_id: str) -> int:
        """Drop spans of an attempt that were never ended; returns how many there were."""
        stale = [key for key, (scope, _, _) in list(self._open.items()) if scope.attempt_id == attempt_id]
        for key in stale:
            self._open.pop(key, None)
            self._payloads.pop(key, None)
        return len(stale)


def _agent_of(given: Mapping[str, Any], context: otel_context.Context | None) -> str:
    """The agent that a span names, or else the current one."""
    named = given.get(attributes.AGENT)
    return named if isinstance(named, str) else current_agent(context)


def _kind_of(given: dict[str, Any]) -> SpanKind:
    """The kind of a span by its attributes; what a `Span` has fields for is taken out of them."""
    kind = given.get(attributes.KIND) or _KIND_OF_OPERATION.get(str(given.get(attributes.OPERATION)), "other")
    for key in _OWN:
        given.pop(key, None)
    return cast("SpanKind", kind)


def _own_to_span(span: AttemptSpan, agent: str) -> Span:
    """The frozen record of an ended span of Leyden's own."""
    context, given, payload = span.get_span_context(), span.attributes, span.payload
    kind = _kind_of(given)
    return Span(
        rollout_id=span.scope.rollout.id,
        attempt_id=span.scope.attempt_id,
        span_id=f"{context.span_id:016x}",
        trace_id=f"{context.trace_id:032x}",
        parent_id=None if span.parent_id is None else f"{span.parent_id:016x}",
        sequence=span.sequence,
        name=span.name,
        kind=kind,
        agent=agent,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        error=span.error,
        attributes=given,
        call=payload if isinstance(payload, LLMCall) else None,
        reward=payload if isinstance(payload, Reward) else None,
    )


def _to_span(
    span: ReadableSpan, scope: AttemptScope, sequence: int, agent: str, payload: LLMCall | Reward | None
) -> Span:
    """The frozen record of an ended span of a watched provider."""
    context, given = span.get_span_context(), dict(span.attributes or {})
    assert context is not None
    kind = _kind_of(given)
    error = None
    if span.status.status_code is StatusCode.ERROR:
        error = span.status.description or "error"
    return Span(
        rollout_id=scope.rollout.id,
        attempt_id=scope.attempt_id,
        span_id=f"{context.span_id:016x}",
        trace_id=f"{context.trace_id:032x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        sequence=sequence,
        name=span.name,
        kind=kind,
        agent=agent,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        error=error,
        attributes={key: list(value) if isinstance(value, tuple) else value for key, value in given.items()},
        call=payload if isinstance(payload, LLMCall) else None,
        reward=payload if isinstance(payload, Reward) else None,
    )


processor = ScopeProcessor()
_tracer = AttemptTracer(processor.started, processor.finished)


def recording() -> bool:
    """Whether anything is recorded here: an attempt is current, or the application is observed. Adapters ask this first."""
    return current_attempt() is not None or observation.current() is not None


def tracer() -> trace.Tracer:
    """The tracer that adapters open their spans with: Leyden's own, or outside attempts the observed application's."""
    observer = observation.current()
    return _tracer if observer is None or current_attempt() is not None else observer.tracer


def watch(other: TracerProvider) -> None:
    """Record the spans of another provider too (a framework's native instrumentation)."""
    from leyden.sdk import Bridge  # only here: the SDK takes as long to import as all of Leyden

    other.add_span_processor(Bridge(processor))


def error_text(error: BaseException) -> str:
    """What a span says of an exception: its type and its message, 500 characters at most. Never raises."""
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # a `__str__` of the user's that fails must not take the place of the error itself
        return type(error).__name__


def fail(span: trace.Span, error: BaseException) -> None:
    """Mark a span as failed by `error`."""
    span.set_status(Status(StatusCode.ERROR, error_text(error)))
    span.set_attribute(attributes.ERROR_TYPE, type(error).__qualname__)


def json_text(value: object) -> str:
    """JSON text of anything; what JSON does not know is written as its `str`."""
    return json.dumps(value, default=str, ensure_ascii=False)


def shown(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`given`, without contents where an observer wants none."""
    observer = observation.current()
    return given if observer is None or current_attempt() is not None else observer.shown(given)


def set_content(opened: trace.Span, attribute: str, value: object) -> None:
    """Set what was said or returned on an open span, as text (JSON where it is none). Never raises."""
    for key in shown({attribute: value}):
        opened.set_attribute(key, value if isinstance(value, str) else text_of(value))


def text_of(value: object) -> str:
    """JSON text of `value`; its `repr` where it has none (keys that are no text, cycles), or else its type's name."""
    for render in (json_text, repr):
        try:
            return render(value)
        except Exception:  # a user's `__str__` may raise anything, and must not fail the tool
            continue
    return f"<{type(value).__name__}>"


@contextmanager
def span(name: str, kind: SpanKind = "other", given: Mapping[str, Any] | None = None) -> Iterator[trace.Span]:
    """An OpenTelemetry span around the enclosed code; an exception marks it as failed and goes on."""
    with tracer().start_as_current_span(
        name,
        attributes={attributes.KIND: kind, **shown(given or {})},
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except BaseException as error:
            fail(opened, error)
            raise


def open_agent(name: str, framework: str = "python") -> tuple[str, trace.Span]:
    """Start an `invoke_agent` span for agent `name` below the current agent; the caller ends it.

    Returns the agent path and the span. Nothing is made current.
    """
    path = child_path(name, current_agent())
    opened = tracer().start_span(
        f"invoke_agent {path}",
        attributes={
            attributes.KIND: "agent",
            attributes.OPERATION: attributes.INVOKE_AGENT,
            attributes.AGENT_NAME: path.rsplit("/", 1)[-1],
            attributes.AGENT: path,
            attributes.FRAMEWORK: framework,
        },
    )
    return path, opened


@contextmanager
def agent_span(name: str, framework: str = "python") -> Iterator[str]:
    """Enter agent `name` below the current agent: sets the path and opens an `invoke_agent` span. Yields the path."""
    path, opened = open_agent(name, framework)
    token = otel_context.attach(trace.set_span_in_context(opened, with_agent(path)))
    try:
        yield path
    except BaseException as error:
        fail(opened, error)
        raise
    finally:
        otel_context.detach(token)
        opened.end()
