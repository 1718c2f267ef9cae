"""The OpenTelemetry SDK's side of tracing: what is loaded at the first span instead of at `import leyden`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from leyden.leaf import random_id

if TYPE_CHECKING:
    from leyden.tracing import ScopeProcessor


class Bridge(SpanProcessor):
    """Passes the starts and ends of an SDK provider's spans on to Leyden."""

    def __init__(self, target: ScopeProcessor) -> None:
        self._target = target

    def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
        """A span was started."""
        self._target.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """A span was ended."""
        self._target.on_end(span)


class Ids(IdGenerator):
    """Ids that do not come from the `random` module, unlike the SDK's own: an agent that seeds it for every rollout would
    get the same ids again, and would draw other numbers than without Leyden."""

    def generate_span_id(self) -> int:
        """Eight random bytes."""
        return random_id(8)

    def generate_trace_id(self) -> int:
        """Sixteen random bytes."""
        return random_id(16)


def make_provider(target: ScopeProcessor) -> TracerProvider:
    """A private provider that samples and keeps everything, whatever OTEL_* variables say, and reports to `target` only."""
    none = SpanLimits.UNSET
    limits = SpanLimits(
        max_attributes=none, max_span_attributes=none, max_attribute_length=none, max_span_attribute_length=none
    )
    made = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "leyden"}),
        shutdown_on_exit=False,
        span_limits=limits,
        id_generator=Ids(),
    )
    made._disabled = False  # OTEL_SDK_DISABLED turns off the user's telemetry; these spans are the training data
    made.add_span_processor(Bridge(target))
    return made
