"""CrewAI's agents and tools as spans for `opentelemetry-instrument`."""

from __future__ import annotations

from leyden.instrumentor import SpanInstrumentor
from leyden_crewai.package import SUPPORTED
from leyden_crewai.patches import install


class CrewAIInstrumentor(SpanInstrumentor):
    """Opens the spans that the adapter opens, with the application's own provider; reroutes nothing."""

    requires = SUPPORTED
    install = staticmethod(install)
