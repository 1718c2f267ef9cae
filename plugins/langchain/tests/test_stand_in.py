"""Stand-ins for chat models of other protocols: what was said, bound and set survives, however the model is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.language_models.llms import LLM
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

import leyden
from leyden.errors import RoutingError
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint
from leyden_langchain.arguments import translated
from leyden_langchain.testing import Foreign

SCHEMA = {"title": "Answer", "type": "object", "properties": {"colour": {"type": "string"}}}
LOOKUP = {"name": "lookup", "description": "Look.", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def server() -> Iterator[FakeModelServer]:
    with FakeModelServer() as server:
        yield server


@pytest.fixture
def writer(server: FakeModelServer) -> Iterator[RecordedAttempt]:
    policies = {"default": Endpoint(base_url=server.base_url, model="policy", version=1)}
    with recorded_attempt(policies, {"writer": "default"}) as attempt, leyden.agent("writer"):
        yield attempt


class Limited(Foreign):
    """Fields as other providers name them."""

    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None


class Text(LLM):
    @property
    def _llm_type(self) -> str:
        return "text"

    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        raise AssertionError("the text model was called")


CALLS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda model: model.invoke("x"),
    "batch": lambda model: model.batch(["x"]),
    "stream": lambda model: list(model.stream("x")),
    "generate": lambda model: model.generate([[HumanMessage("x")]], tags=["a"]),
    "agenerate": lambda model: asyncio.run(model.agenerate([[HumanMessage("x")]])),
    "with_retry": lambda model: model.with_retry().invoke("x"),
    "with_fallbacks": lambda model: model.with_fallbacks([Foreign()]).invoke("x"),
}


@pytest.mark.parametrize("way", CALLS)
def test_it_takes_the_call_in_every_way_of_calling(writer: RecordedAttempt, server: FakeModelServer, way: str) -> None:
    CALLS[way](Foreign())
    assert [body["model"] for body in server.bodies] == ["policy"]
    assert [call.policy for call in writer.calls] == ["default"]


def test_one_stand_in_serves_several_event_loops(writer: RecordedAttempt) -> None:
    model = Foreign()
    for _ in range(3):
        asyncio.run(model.ainvoke("x"))
    assert [call.hole for call in writer.calls] == [None] * 3


def test_a_text_model_of_a_marked_agent_fails_loudly(writer: RecordedAttempt) -> None:
    for call in (
        lambda: Text().invoke("x"),
        lambda: list(Text().stream("x")),
        lambda: asyncio.run(Text().ainvoke("x")),
    ):
        with pytest.raises(RoutingError, match="does not speak the OpenAI protocol"):
            call()
    assert len(writer.scope.failures) == 3


def test_what_the_model_was_told_is_kept_by_whatever_name(writer: RecordedAttempt, server: FakeModelServer) -> None:
    Limited(max_output_tokens=77, stop_sequences=["END"]).invoke("x")
    assert (server.bodies[0]["max_completion_tokens"], server.bodies[0]["stop"]) == (77, ["END"])


def test_the_most_that_another_model_can_say_is_no_limit(writer: RecordedAttempt, server: FakeModelServer) -> None:
    most = Limited(max_output_tokens=64_000)
    object.__setattr__(
        most, "profile", {"max_output_tokens": 64_000}
    )  # older releases of langchain-core have no such field
    most.invoke("x")
    assert not {"max_tokens", "max_completion_tokens"} & set(server.bodies[0])


def test_a_history_in_anthropics_blocks_says_the_same(writer: RecordedAttempt, server: FakeModelServer) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    call = {"id": "1", "name": "lookup", "args": {"word": "a"}}
    used = {"type": "tool_use", "id": "1", "name": "lookup", "input": {"word": "a"}}
    Foreign().invoke(
        [
            HumanMessage([{"type": "text", "text": "What is it?"}, image]),
            AIMessage([{"type": "text", "text": "Let me look."}, used], tool_calls=[call]),
            ToolMessage("warm", tool_call_id="1"),
        ]
    )
    asked, said, found = server.bodies[0]["messages"]
    assert asked["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert said["content"] in ("Let me look.", [{"type": "text", "text": "Let me look."}])
    assert [(one["id"], one["function"]["name"]) for one in said["tool_calls"]] == [("1", "lookup")]
    assert (found["content"], found["tool_call_id"]) == ("warm", "1")


NAMED = {"type": "function", "function": {"name": "lookup"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tool_choice": "auto"}, "auto"),
        ({"tool_choice": "any"}, "required"),
        ({"tool_choice": "lookup"}, NAMED),
        ({"tool_choice": True}, NAMED),
        ({"tool_choice": NAMED}, NAMED),
        ({"tool_choice": {"type": "any"}}, "required"),
        ({"tool_choice": {"type": "none"}}, "none"),
        ({"tool_choice": {"type": "tool", "name": "lookup"}}, NAMED),
        ({"tool_choice": ["lookup"]}, NAMED),
        ({"tool_config": {"function_calling_config": {"mode": "ANY"}}}, "required"),
        ({"tool_config": {"function_calling_config": {"mode": "NONE"}}}, "none"),
        ({"tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["lookup"]}}}, NAMED),
        ({"tool_choice": None}, None),
        ({"tool_choice": False}, None),
    ],
)
def test_tool_choices(given: dict[str, Any], expected: Any) -> None:
    found = translated({"tools": [{"type": "function", "function": LOOKUP}], **given})
    assert found.get("tool_choice") == expected
    assert set(found) == {"tools"} | ({"tool_choice"} if expected else set())


def test_one_tool_call_at_a_time_stays_so() -> None:
    given = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    assert translated(given) == {"tool_choice": "auto", "parallel_tool_calls": False}


def test_tools_of_anthropic_and_gemini() -> None:
    anthropic = {"name": "lookup", "description": "Look.", "input_schema": LOOKUP["parameters"], "strict": True}
    shouted = {"type_": "OBJECT", "properties": {"type": {"type_": 1}}}
    gemini = {"function_declarations": [{**LOOKUP, "parameters": shouted}]}
    first, second = translated({"tools": [anthropic, gemini]})["tools"]
    assert first == {"type": "function", "function": {**LOOKUP, "strict": True}}
    assert second["function"]["parameters"] == {"type": "object", "properties": {"type": {"type": "string"}}}


@pytest.mark.parametrize(
    "given",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"response_mime_type": "application/json", "response_json_schema": SCHEMA},
        {"response_mime_type": "application/json", "response_schema": SCHEMA},
    ],
    ids=["anthropic", "older anthropic", "gemini", "older gemini"],
)
def test_structured_output_survives(writer: RecordedAttempt, server: FakeModelServer, given: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": LOOKUP}]
    answer = Foreign().bind(**given).invoke("x")
    assert '"colour"' in str(answer.content)
    assert server.bodies[0]["response_format"]["json_schema"] == {"name": "Answer", "schema": SCHEMA}
    Foreign().bind(tools=tools, **given).invoke("x")  # the SDK refuses tools that are not strict beside a format
    assert [one["function"]["name"] for one in server.bodies[1]["tools"]] == ["lookup"]


def test_any_json_is_asked_for() -> None:
    assert translated({"response_mime_type": "application/json"}) == {"response_format": {"type": "json_object"}}
