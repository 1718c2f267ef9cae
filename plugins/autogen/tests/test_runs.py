"""Teams and agents without a rollout function: what is found in them, and what running them on tasks does."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import MessageFilterAgent, MessageFilterConfig, SocietyOfMindAgent
from autogen_agentchat.agents._message_filter_agent import PerSourceFilter
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from leyden.errors import InvalidInput
from leyden.testing.recording import recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden_autogen.adapter import leyden_discover, leyden_doctor, leyden_run

from .conftest import Agents, turns

pytestmark = pytest.mark.usefixtures("instrumented")

ALL = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=1)])


def in_tools(assistant: Agents, client: OpenAIChatCompletionClient) -> Any:
    helper = assistant("helper")

    async def ask_helper(query: str) -> str:
        """Ask the helper."""
        return str((await helper.run(task=query)).messages[-1].content)

    team = TeamTool(RoundRobinGroupChat([assistant("critic")], max_turns=1), name="review", description="review it")
    return assistant("boss", tools=[AgentTool(assistant("writer")), team, ask_helper], reflect_on_tool_use=True)


def society(assistant: Agents, client: OpenAIChatCompletionClient) -> Any:
    inner = RoundRobinGroupChat([assistant("writer"), assistant("critic")], max_turns=2)
    return RoundRobinGroupChat(
        [assistant("planner"), SocietyOfMindAgent("som", team=inner, model_client=client)], max_turns=2
    )


def filtered(assistant: Agents, client: OpenAIChatCompletionClient) -> Any:
    return RoundRobinGroupChat(
        [
            MessageFilterAgent("planner", wrapped_agent=assistant("planner"), filter=ALL),
            MessageFilterAgent("some", wrapped_agent=assistant("writer"), filter=ALL),
        ],
        max_turns=2,
    )


def swarm(assistant: Agents, client: OpenAIChatCompletionClient) -> Any:
    return Swarm([assistant("planner", handoffs=["writer"]), assistant("writer")], max_turns=2)


SHAPES: dict[Any, list[str]] = {
    in_tools: ["boss", "boss/writer", "boss/critic", "boss/helper"],
    society: ["planner", "som", "som/writer", "som/critic"],
    filtered: ["planner", "some", "some/writer"],
    swarm: ["planner", "writer"],
}


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
async def test_what_is_found_is_what_runs(
    assistant: Agents, client: OpenAIChatCompletionClient, provider: FakeModelServer, make: Callable[..., Any]
) -> None:
    def reply(body: dict[str, Any]) -> Any:
        tools = body.get("tools") or ()
        asked = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        wanted = [{"name": name, "arguments": dict.fromkeys(of["properties"], "x")} for name, of in asked.items()]
        return {"tool_calls": wanted} if wanted else "well"

    provider.reply = reply
    target = make(assistant, client)
    found = leyden_discover(target)
    assert found is not None
    assert [agent.path for agent in found] == SHAPES[make]
    assert all(agent.target.name == agent.path.rsplit("/", 1)[-1] for agent in found)
    with recorded_attempt() as attempt:
        await leyden_run(target, "hello")  # type: ignore[misc]
    assert set(turns(attempt)) == set(SHAPES[make])


async def test_a_team_in_a_team_is_found(assistant: Agents) -> None:
    try:
        inner = RoundRobinGroupChat([assistant("writer")], max_turns=1, name="research")  # type: ignore[call-arg,unused-ignore]
    except TypeError:
        pytest.skip("this version has no teams in teams")
    found = leyden_discover(RoundRobinGroupChat([assistant("planner"), inner], max_turns=2))
    assert found is not None
    assert {agent.path: agent.target for agent in found}["research"] is inner
    assert [agent.path for agent in found] == ["planner", "research", "research/writer"]


def test_what_is_not_autogens_is_left_to_others() -> None:
    assert leyden_discover(object()) is None
    assert leyden_run(object(), "hello") is None


async def test_each_rollout_of_a_team_begins_where_the_team_began(
    assistant: Agents, client: OpenAIChatCompletionClient, provider: FakeModelServer
) -> None:
    known = UnboundedChatCompletionContext(initial_messages=[UserMessage(content="known", source="user")])
    writer = assistant("writer", model_context=known)
    boss = assistant("boss", tools=[AgentTool(writer)], reflect_on_tool_use=True)
    team = SelectorGroupChat(
        [boss, assistant("other")], model_client=client, selector_func=lambda _: "boss", max_turns=1
    )

    async def rollout(number: int) -> list[Any]:
        with recorded_attempt() as attempt:
            await leyden_run(team, f"task {number}")  # type: ignore[misc]
        return [re.sub(r"\d+", "N", span.attributes["gen_ai.input.messages"]) for span in attempt.llm]

    provider.delay_s = 0.01
    first, *others = [await rollout(8), *await asyncio.gather(rollout(5), rollout(6), rollout(7))]
    assert len(first) == 3
    assert "known" in first[1]
    assert "task N" in first[0]
    assert all(other == first for other in others)


async def test_a_team_that_was_run_is_forgotten_with_its_last_user(assistant: Agents) -> None:
    team = RoundRobinGroupChat([assistant("planner"), assistant("writer")], max_turns=1)
    await leyden_run(team, "hello")  # type: ignore[misc]
    gone = weakref.ref(team)
    del team
    for _ in range(5):  # what AutoGen's tasks hold goes with the next steps of the event loop
        await asyncio.sleep(0)
        gc.collect()
    assert gone() is None


async def test_a_task_must_be_text_or_messages(assistant: Agents) -> None:
    with pytest.raises(InvalidInput, match="this task is a dict"):
        await leyden_run(assistant("writer"), {"question": "?"})  # type: ignore[misc]


def test_the_doctor_is_content() -> None:
    assert [check.ok for check in leyden_doctor()] == [True]
