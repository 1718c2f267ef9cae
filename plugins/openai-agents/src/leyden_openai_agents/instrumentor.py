"""The SDK's agents, tools and handoffs as spans for `opentelemetry-instrument`."""

from __future__ import annotations

from leyden.instrumentor import SpanInstrumentor
from leyden_openai_agents.adapter import install
from leyden_openai_agents.package import SUPPORTED


class OpenAIAgentsInstrumentor(SpanInstrumentor):
    """Opens the spans that the adapter opens, with the application's own provider; reroutes nothing."""

    requires = SUPPORTED
    install = staticmethod(install)
