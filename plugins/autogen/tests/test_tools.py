"""Tool calls: one span each, with arguments and result, below the agent that called."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool

import leyden
from leyden import attributes
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer

from .conftest import Agents, calls, tools

pytestmark = pytest.mark.usefixtures("instrumented")


async def search(query: str) -> str:
    """Search."""
    return f"found {query}"


async def broken(query: str) -> str:
    """Break."""
    raise OSError(f"no {query}")


def shown(attempt: RecordedAttempt) -> list[tuple[str, str, Any, str]]:
    return [
        (
            span.agent,
            span.attributes[attributes.TOOL_NAME],
            json.loads(span.attributes[attributes.TOOL_ARGUMENTS]),
            span.attributes[attributes.TOOL_RESULT],
        )
        for span in tools(attempt)
    ]


async def test_parallel_calls_are_siblings(assistant: Agents, provider: FakeModelServer) -> None:
    asked = [{"name": "search", "arguments": {"query": query}} for query in ("a", "b", "c")]
    provider.reply = lambda body: "done" if body["messages"][-1]["role"] == "tool" else {"tool_calls": asked}
    with recorded_attempt() as attempt:
        await assistant("writer", tools=[search], reflect_on_tool_use=True).run(task="hello")
    expected = [("writer", "search", {"query": query}, f"found {query}") for query in ("a", "b", "c")]
    assert sorted(shown(attempt), key=str) == expected
    (turn,) = {span.parent_id for span in tools(attempt)}
    assert turn == next(span.span_id for span in attempt.spans if span.kind == "agent")
    assert len({span.attributes[attributes.TOOL_CALL_ID] for span in tools(attempt)}) == 3
    assert not any(span.error for span in tools(attempt))
    assert calls(attempt) == ["writer", "writer"]


async def test_what_goes_wrong_is_the_models_result_and_the_spans_error(
    assistant: Agents, provider: FakeModelServer
) -> None:
    asked = [{"name": "broken", "arguments": {"query": "a"}}, {"name": "absent", "arguments": {}}]
    provider.reply = lambda body: {"tool_calls": asked}
    with recorded_attempt() as attempt:
        await assistant("writer", tools=[broken]).run(task="hello")
    (first, second) = sorted(tools(attempt), key=lambda span: span.name, reverse=True)
    assert (first.name, first.error) == ("execute_tool broken", "no a")
    assert second.name == "execute_tool absent"
    assert "absent" in str(second.error)


async def test_a_handoff_is_a_tool_call(assistant: Agents) -> None:
    with recorded_attempt() as attempt:
        await Swarm([assistant("planner", handoffs=["writer"]), assistant("writer")], max_turns=2).run(task="hello")
    ((agent, name, _, result),) = shown(attempt)
    assert (agent, name) == ("planner", "transfer_to_writer")
    assert "writer" in result


async def test_a_tool_that_no_assistant_calls(assistant: Agents) -> None:
    tool = FunctionTool(search, description="search")

    async def twice(query: str) -> str:
        """Search twice."""
        return str(await tool.run_json({"query": query}, CancellationToken()))

    with recorded_attempt() as attempt:
        with leyden.agent("plain"):
            await tool.run_json({"query": "x"}, CancellationToken())
        await assistant("writer", tools=[twice]).run(task="hello")
    assert shown(attempt) == [
        ("plain", "search", {"query": "x"}, "found x"),
        ("writer", "twice", {"query": "sample"}, "found sample"),
        ("writer", "search", {"query": "sample"}, "found sample"),
    ]
    outer, inner = tools(attempt)[1:]
    assert inner.parent_id == outer.span_id


async def test_a_blocking_tool_that_asks_a_model_in_its_thread(assistant: Agents, provider: FakeModelServer) -> None:
    def consult(query: str) -> str:
        """Consult a model."""
        with openai.OpenAI(base_url=provider.base_url, api_key="secret") as client:
            asked: Any = [{"role": "user", "content": query}]
            return str(client.chat.completions.create(model="other", messages=asked).choices[0].message.content)

    with recorded_attempt() as attempt:
        await assistant("writer", tools=[consult], reflect_on_tool_use=True).run(task="hello")
    assert calls(attempt) == ["writer", "writer", "writer"]
    (tool,) = tools(attempt)
    assert attempt.llm[1].parent_id == tool.span_id
