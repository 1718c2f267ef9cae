"""LLM-call spans for `opentelemetry-instrument`, where no other instrumentation of the SDK makes them."""

from __future__ import annotations

import importlib.metadata
import os

from leyden.hookspecs import Undo
from leyden.instrumentor import SpanInstrumentor
from leyden_openai.package import SUPPORTED

GROUP = "opentelemetry_instrumentor"


def _install() -> Undo:
    from leyden_openai.transport import patches

    return patches.install()


class OpenAIInstrumentor(SpanInstrumentor):
    """Records calls made through the `openai` SDK; reroutes nothing.

    OpenTelemetry's own `opentelemetry-instrumentation-genai-openai` (the extra `leyden-openai[otel]`) or another instrumentation
    named `openai…` takes precedence, so that no call is recorded twice.
    """

    requires = SUPPORTED
    install = staticmethod(_install)

    def records_llm_calls(self) -> bool:
        """Whether no other active instrumentation of the SDK is installed."""
        off = {name.strip() for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
        others = {point.name for point in importlib.metadata.entry_points(group=GROUP)} - off
        return not any(name.startswith("openai") and not name.startswith("openai_agents") for name in others)
