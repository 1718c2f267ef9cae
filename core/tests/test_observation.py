from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import leyden
from leyden import attributes, observation, tracing
from leyden.instrumentor import SpanInstrumentor
from leyden.leaf import open_leaf
from leyden.testing.recording import recorded_attempt


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def work() -> None:
    with leyden.agent("writer"), tracing.span("execute_tool add", "tool", {attributes.TOOL_ARGUMENTS: "{}"}) as opened:
        tracing.set_content(opened, attributes.TOOL_RESULT, {"sum": 3})


def test_spans_go_to_the_applications_provider_while_it_is_observed(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    assert not tracing.recording()
    end = observation.observe(provider)
    assert tracing.recording()
    work()
    end()
    end()
    assert not tracing.recording()
    work()
    tool, agent = exporter.get_finished_spans()
    assert (tool.name, agent.name) == ("execute_tool add", "invoke_agent writer")
    assert tool.parent is not None
    assert agent.context is not None
    assert tool.parent.span_id == agent.context.span_id
    assert agent.attributes is not None
    assert agent.attributes[attributes.AGENT] == "writer"


@pytest.mark.parametrize("wanted", ["", "true"])
def test_contents_are_recorded_only_if_they_are_asked_for(
    provider: TracerProvider, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.setenv(observation.CONTENT_VARIABLE, wanted)
    end = observation.observe(provider)
    work()
    end()
    found = exporter.get_finished_spans()[0].attributes or {}
    contents = {key: found[key] for key in (attributes.TOOL_ARGUMENTS, attributes.TOOL_RESULT) if key in found}
    assert contents == ({attributes.TOOL_ARGUMENTS: "{}", attributes.TOOL_RESULT: '{"sum": 3}'} if wanted else {})


def test_an_attempts_spans_stay_its_own(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    end = observation.observe(provider)
    with recorded_attempt() as attempt:
        work()
    end()
    assert [span.name for span in attempt.spans] == ["invoke_agent writer", "execute_tool add"]
    assert attempt.spans[1].attributes[attributes.TOOL_ARGUMENTS] == "{}"
    assert exporter.get_finished_spans() == ()


def test_leaves_hang_below_the_current_span(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    end = observation.observe(provider, llm_calls=True)
    observer = observation.current()
    assert observer is not None
    with leyden.agent("writer"):
        leaf = open_leaf(observer.scope, "chat own", "llm", "writer")
        leaf.end({attributes.REQUEST_MODEL: "own", attributes.INPUT_MESSAGES: "secret"}, error="it failed")
    end()
    chat, agent = exporter.get_finished_spans()
    assert chat.parent is not None
    assert agent.context is not None
    assert chat.context is not None
    assert chat.parent.span_id == agent.context.span_id
    assert f"{chat.context.trace_id:032x}-{chat.context.span_id:016x}" in leaf.traceparent
    assert chat.status.description == "it failed"
    assert attributes.INPUT_MESSAGES not in (chat.attributes or {})


def test_the_first_observer_that_is_left_decides(provider: TracerProvider) -> None:
    first = observation.observe(provider)
    second = observation.observe(TracerProvider(), llm_calls=True)
    before = observation.current()
    assert before is not None
    assert before.llm_calls
    second()
    after = observation.current()
    assert after is not None
    assert not after.llm_calls
    assert after.tracer is before.tracer
    first()
    assert observation.current() is None


def test_an_instrumentor_installs_and_takes_out(provider: TracerProvider) -> None:
    happened: list[str] = []

    def install() -> leyden.hookspecs.Undo:
        happened.append("in")
        return lambda: happened.append("out")

    class Instrumentor(SpanInstrumentor):
        requires = ("pluggy>=1",)

    Instrumentor.install = staticmethod(install)
    instrumentor = Instrumentor()
    instrumentor.instrument(tracer_provider=provider)
    assert tracing.recording()
    instrumentor.uninstrument()
    assert happened == ["in", "out"]
    assert not tracing.recording()
