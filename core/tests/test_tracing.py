"""OpenTelemetry spans inside an attempt become spans of the attempt."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import leyden
from leyden import attributes, tracing
from leyden.leaf import Leaf
from leyden.testing.recording import recorded_attempt
from leyden.types import LLMCall


def test_a_span_is_recorded_with_its_parent_and_agent() -> None:
    inner_span = leyden.span("look up", city="Paris", sizes=[1, 2])
    with recorded_attempt() as attempt, leyden.agent("planner"), leyden.agent("writer"), inner_span:
        pass
    planner, writer, inner = attempt.spans
    assert [span.sequence for span in attempt.spans] == [1, 2, 3]
    assert [span.name for span in attempt.emitted] == ["look up", "invoke_agent planner/writer", "invoke_agent planner"]
    assert (planner.kind, planner.agent, planner.parent_id) == ("agent", "planner", None)
    assert (writer.kind, writer.agent, writer.parent_id) == ("agent", "planner/writer", planner.span_id)
    assert writer.attributes["gen_ai.agent.name"] == "writer"
    assert (inner.kind, inner.agent, inner.parent_id) == ("other", "planner/writer", writer.span_id)
    assert inner.attributes == {"city": "Paris", "sizes": [1, 2]}
    assert {span.trace_id for span in attempt.spans} == {planner.trace_id}
    assert (inner.rollout_id, inner.attempt_id) == (attempt.scope.rollout.id, attempt.scope.attempt_id)
    assert planner.start_ns <= inner.start_ns <= inner.end_ns <= planner.end_ns


def test_outside_an_attempt_and_after_it_nothing_is_recorded() -> None:
    with leyden.span("outside"):
        pass
    with recorded_attempt() as attempt:
        attempt.scope.closed = True
        with leyden.span("late"):
            pass
    assert attempt.spans == []


def test_an_exception_marks_the_span_and_goes_on() -> None:
    with recorded_attempt() as attempt, pytest.raises(ValueError, match="bad"), leyden.span("step"):
        raise ValueError("bad")
    (span,) = attempt.spans
    assert span.error == "ValueError: bad"
    assert span.attributes[attributes.ERROR_TYPE] == "ValueError"


def test_a_payload_goes_with_its_span() -> None:
    call = LLMCall(model="m")
    with recorded_attempt() as attempt, leyden.span("call") as opened:
        tracing.processor.attach(opened, call)
    assert attempt.spans[0].call is call
    outside = tracing.tracer().start_span("outside")
    tracing.processor.attach(outside, call)
    outside.end()
    assert not tracing.processor._payloads


def test_spans_that_never_end_are_forgotten() -> None:
    with recorded_attempt() as attempt:
        opened = tracing.tracer().start_span("open")
        tracing.processor.attach(opened, LLMCall())
    assert tracing.processor.forget(attempt.scope.attempt_id) == 1
    assert tracing.processor.forget(attempt.scope.attempt_id) == 0
    opened.end()
    assert attempt.spans == []


def test_a_sink_that_fails_never_reaches_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, span: Any) -> None:
            raise OSError("disk full")

    before = tracing.processor.dropped
    with recorded_attempt() as attempt, caplog.at_level(logging.CRITICAL):
        attempt.scope.sink = Broken()
        with leyden.span("step"):
            pass
    assert tracing.processor.dropped == before + 1


def test_a_frameworks_own_provider_can_be_watched() -> None:
    theirs = TracerProvider(shutdown_on_exit=False)
    tracing.watch(theirs)
    with recorded_attempt() as attempt, leyden.agent("a"):
        theirs.get_tracer("framework").start_span(
            "execute_tool x", attributes={"gen_ai.operation.name": "execute_tool"}
        ).end()
    assert [(span.kind, span.name, span.agent) for span in attempt.spans[1:]] == [("tool", "execute_tool x", "a")]


def test_the_users_tracing_is_left_alone() -> None:
    """Neither its provider, nor its current span where nothing is recorded, nor the parent of its own spans."""
    before = trace.get_tracer_provider()
    theirs = TracerProvider(shutdown_on_exit=False).get_tracer("their")
    with theirs.start_as_current_span("request") as request, leyden.span("not recorded"):
        assert trace.get_current_span().get_span_context() == request.get_span_context()
    with recorded_attempt() as attempt, leyden.span("step"), theirs.start_as_current_span("inner") as inner:
        assert trace.get_tracer_provider() is before
    assert attempt.spans[0].span_id == f"{inner.parent.span_id:016x}"  # type: ignore[attr-defined]


def test_a_span_takes_what_opentelemetry_allows() -> None:
    import enum

    class Colour(str, enum.Enum):
        RED = "red"

    with recorded_attempt() as attempt, leyden.span("step", enum=Colour.RED, odd={1: 2}, none=None) as opened:
        assert opened.is_recording()
        opened.set_attributes({"a": True, "b": [1.5, 2.5], "c": ("x",)})
        opened.add_event("event")
        opened.record_exception(ValueError("x"))
        opened.update_name("renamed")
        opened.set_status(trace.StatusCode.ERROR, "bad")
    opened.set_attribute("late", 1)
    opened.set_status(trace.Status(trace.StatusCode.OK))
    opened.end()
    (span,) = attempt.spans
    assert not opened.is_recording()
    assert span.attributes == {"enum": "red", "odd": "{1: 2}", "a": True, "b": [1.5, 2.5], "c": ["x"]}
    assert (span.name, span.error) == ("renamed", "bad")


def test_otel_variables_do_not_switch_the_recording_off() -> None:
    code = """
import leyden
from leyden.testing.recording import recorded_attempt
with recorded_attempt() as attempt, leyden.span("step", text="x" * 100):
    pass
assert len(attempt.spans[0].attributes["text"]) == 100
"""
    given = {
        "OTEL_SDK_DISABLED": "true",
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "5",
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "5",
    }
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **given}, timeout=60)


def test_a_leaf_hangs_below_the_current_span() -> None:
    call = LLMCall(model="m")
    with recorded_attempt() as attempt, leyden.agent("writer"):
        leaf = Leaf(attempt.scope, "chat m", "llm", "writer")
        assert leaf.traceparent == f"00-{leaf.trace_id:032x}-{leaf.span_id:016x}-01"
        with leyden.span("next"):
            pass
        leaf.end({"a": 1}, error="ValueError: bad", call=call)
    writer, span, following = attempt.spans
    assert (span.parent_id, span.trace_id) == (writer.span_id, writer.trace_id)
    assert (span.name, span.kind, span.agent, span.error) == ("chat m", "llm", "writer", "ValueError: bad")
    assert (span.attributes, span.call) == ({"a": 1}, call)
    assert writer.start_ns <= span.start_ns <= span.end_ns <= writer.end_ns
    assert following.sequence == span.sequence + 1


def test_a_leaf_of_an_ended_attempt_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, span: Any) -> None:
            raise OSError("disk full")

    with recorded_attempt() as attempt:
        late, broken = (Leaf(attempt.scope, "chat", "llm", "") for _ in range(2))
        attempt.scope.sink = Broken()
        broken.end({})
        assert "disk full" in caplog.text
        attempt.scope.sink = attempt
        attempt.scope.closed = True
        late.end({})
    assert attempt.spans == []
    assert late.trace_id != broken.trace_id


def test_ids_neither_follow_nor_disturb_a_seeded_agent() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with recorded_attempt() as attempt:
        with leyden.span("one"):
            Leaf(attempt.scope, "chat", "llm", "").end({})
        assert random.random() == expected
        random.seed(1)
        with leyden.span("two"):
            pass
    assert len({span.span_id for span in attempt.spans}) == 3
    assert len({span.trace_id for span in attempt.spans}) == 2


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


def test_what_has_no_text_disturbs_neither_the_agent_nor_its_own_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with recorded_attempt() as attempt:
        with pytest.raises(Unspeakable), leyden.agent("writer"):
            opened = trace.get_current_span()
            opened.set_attribute("a", Unspeakable())  # type: ignore[arg-type]
            opened.set_attribute("b", endless)
            raise Unspeakable
        with pytest.raises(Unspeakable), tracing.span("step"):
            raise Unspeakable
    writer, step = attempt.spans
    assert (writer.error, step.error) == ("Unspeakable", "Unspeakable")
    assert (writer.attributes["a"], writer.attributes["b"]) == ("<Unspeakable>", "<list>")
