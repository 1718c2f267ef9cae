"""The OpenTelemetry SDK's side of tracing: loaded only where another provider is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

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
