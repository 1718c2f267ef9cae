"""miniflow's agents and tools as spans for `opentelemetry-instrument`."""

from __future__ import annotations

from leyden.instrumentor import SpanInstrumentor
from leyden_miniflow.package import SUPPORTED
from leyden_miniflow.patches import patches


class MiniflowInstrumentor(SpanInstrumentor):
    """Opens the spans that the adapter opens, with the application's own provider; reroutes nothing."""

    requires = SUPPORTED
    install = staticmethod(patches.install)
