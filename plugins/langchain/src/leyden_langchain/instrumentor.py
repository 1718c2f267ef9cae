"""LangChain's agents and tools as spans for `opentelemetry-instrument`."""

from __future__ import annotations

from leyden.instrumentor import SpanInstrumentor
from leyden_langchain.package import SUPPORTED
from leyden_langchain.patches import patches


class LangChainInstrumentor(SpanInstrumentor):
    """Opens the spans that the adapter opens, with the application's own provider; reroutes nothing."""

    requires = SUPPORTED
    install = staticmethod(patches.install)
