"""The adapter's spans for `opentelemetry-instrument`: observation alone, nothing is rerouted."""

from __future__ import annotations

from leyden.instrumentor import SpanInstrumentor
from leyden_autogen.adapter import leyden_instrument
from leyden_autogen.package import SUPPORTED


class AutogenInstrumentor(SpanInstrumentor):
    """Spans of AutoGen's agents and tools."""

    requires = SUPPORTED
    install = staticmethod(leyden_instrument)
