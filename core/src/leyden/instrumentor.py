"""An adapter's span part as an OpenTelemetry instrumentor, for people who want observation alone.

    class CrewAIInstrumentor(SpanInstrumentor):
        requires = SUPPORTED
        install = staticmethod(leyden_instrument)

Named as an entry point of the group `opentelemetry_instrumentor`, it is found by `opentelemetry-instrument`. Spans go to
the application's provider, and nothing is rerouted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from leyden.hookspecs import Undo
from leyden.observation import observe


class SpanInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Base of the adapters' instrumentors. `instrument(tracer_provider=…)` starts it, `uninstrument()` ends it."""

    requires: ClassVar[tuple[str, ...]] = ()
    """The supported framework versions, PEP 508; outside of them OpenTelemetry says so and does not instrument."""
    install: ClassVar[Callable[[], Undo | None]]
    """What the plugin's `leyden_instrument` does."""
    llm_calls: ClassVar[bool] = False
    """Whether it records LLM calls too."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported framework versions."""
        return self.requires

    def _instrument(self, **kwargs: Any) -> None:
        self._undo = [observe(kwargs.get("tracer_provider"), llm_calls=self.records_llm_calls()), type(self).install()]

    def records_llm_calls(self) -> bool:
        """Whether LLM calls are to be recorded."""
        return self.llm_calls

    def _uninstrument(self, **kwargs: Any) -> None:
        for undo in reversed(getattr(self, "_undo", [])):
            if undo is not None:
                undo()
        self._undo = []
