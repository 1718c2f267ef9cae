"""Who is calling: in every kind of team, nested, streamed, concurrent, on a shared runtime, and called directly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import (
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
)
from autogen_agentchat.agents._message_filter_agent import PerSourceFilter
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import (
    AgentId,
    CancellationToken,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    message_handler,
)
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from opentelemetry import trace

import leyden
from leyden.scope import current_agent
from leyden.testing.answers import text_of
from leyden.testing.recording import recorded_attempt
from leyden.testing.server import FakeModelServer

from .conftest import Agents, calls, turns

pytestmark = pytest.mark.usefixtures("instrumented")


def said(body: dict[str, Any]) -> str:
    return "\n".join(text_of(message) for message in body["messages"])


async def test_each_turn_of_a_round_robin_team_is_its_agents(assistant: Agents) -> None:
    team = RoundRobinGroupChat([assistant("planner"), assistant("writer")], max_turns=3)
    with recorded_attempt() as attempt:
        await team.run(task="hello")
        await team.run(task="again")
    spoken = ["planner", "writer", "planner", "writer", "planner", "writer"]
    assert calls(attempt) == turns(attempt) == spoken
    agents = {span.span_id: span for span in attempt.spans if span.kind == "agent"}
    assert all(span.parent_id is None for span in agents.values())
    assert [agents[str(span.parent_id)].agent for span in attempt.llm] == spoken


async def test_a_team_that_ran_before_instrumenting_is_known_too(assistant: Agents) -> None:
    leyden.uninstrument()
    team = RoundRobinGroupChat([assistant("planner"), assistant("writer")], max_turns=2)
    await team.run(task="hello")
    leyden.instrument()
    with recorded_attempt() as attempt:
        await team.run(task="hello")
    assert calls(attempt) == ["planner", "writer"]


@pytest.mark.parametrize("nested", [False, True])
async def test_the_selectors_call_is_nobodys(
    assistant: Agents, client: OpenAIChatCompletionClient, provider: FakeModelServer, nested: bool
) -> None:
    order = iter(["writer", "planner", "writer"])
    provider.reply = lambda body: next(order) if "select the next role" in said(body) else "well"
    agents = [assistant("planner"), assistant("writer")]
    team: Any = SelectorGroupChat(agents, model_client=client, max_turns=3, allow_repeated_speaker=True)
    if nested:
        team = SocietyOfMindAgent("som", team=team, model_client=client)
    with recorded_attempt() as attempt:
        await team.run(task="hello")
    below = "som/" if nested else ""
    expected = ["", f"{below}writer", "", f"{below}planner", "", f"{below}writer"]
    assert calls(attempt) == [*expected, "som"] if nested else expected


async def test_a_handoff_makes_the_other_agent_the_caller_and_no_child(
    assistant: Agents, provider: FakeModelServer
) -> None:
    swarm = Swarm([assistant("planner", handoffs=["writer"]), assistant("writer")], max_turns=2)
    with recorded_attempt() as attempt:
        await swarm.run(task="hello")
    assert calls(attempt) == turns(attempt) == ["planner", "writer"]


async def test_an_agent_in_a_tool_is_below_its_caller(assistant: Agents) -> None:
    writer = assistant("writer")
    editor = assistant("editor", tools=[AgentTool(writer)], reflect_on_tool_use=True)
    boss = assistant("boss", tools=[AgentTool(editor)], reflect_on_tool_use=True)
    with recorded_attempt() as attempt:
        await RoundRobinGroupChat([boss], max_turns=1).run(task="hello")
    assert turns(attempt) == ["boss", "boss/editor", "boss/editor/writer"]
    assert calls(attempt) == ["boss", "boss/editor", "boss/editor/writer", "boss/editor", "boss"]


async def test_a_team_in_a_tool_gives_no_level(assistant: Agents) -> None:
    team = RoundRobinGroupChat([assistant("writer"), assistant("critic")], max_turns=2)
    boss = assistant("boss", tools=[TeamTool(team, name="write", description="write it")], reflect_on_tool_use=True)
    with recorded_attempt() as attempt:
        await boss.run(task="hello")
    assert calls(attempt) == ["boss", "boss/writer", "boss/critic", "boss"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_inner_team_of_a_society_is_below_it(
    assistant: Agents, client: OpenAIChatCompletionClient, streamed: bool
) -> None:
    inner = [assistant(name, model_client_stream=streamed) for name in ("writer", "critic")]
    som = SocietyOfMindAgent("som", team=RoundRobinGroupChat(inner, max_turns=2), model_client=client)
    team = RoundRobinGroupChat([assistant("planner"), som], max_turns=2)
    with recorded_attempt() as attempt:
        async for _ in team.run_stream(task="hello"):
            assert current_agent() == ""
    assert calls(attempt) == ["planner", "som/writer", "som/critic", "som"]
    assert turns(attempt) == ["planner", "som", "som/writer", "som/critic"]


async def test_a_team_in_a_team_is_a_level_by_its_name(assistant: Agents) -> None:
    try:
        inner = RoundRobinGroupChat([assistant("writer"), assistant("critic")], max_turns=2, name="research")  # type: ignore[call-arg,unused-ignore]
    except TypeError:
        pytest.skip("this version has no teams in teams")
    team = RoundRobinGroupChat([assistant("planner"), inner], max_turns=2)
    with recorded_attempt() as attempt:
        await team.run(task="hello")
    assert calls(attempt) == ["planner", "research/writer", "research/critic"]
    assert turns(attempt) == ["planner", "research", "research/writer", "research/critic"]


async def test_agents_of_a_graph_at_work_at_once_are_told_apart(assistant: Agents, provider: FakeModelServer) -> None:
    agents = [assistant("start"), *(assistant(f"worker{number}") for number in range(6))]
    graph = DiGraphBuilder()
    for agent in agents:
        graph.add_node(agent)
    for agent in agents[1:]:
        graph.add_edge(agents[0], agent)
    provider.delay_s = 0.02
    with recorded_attempt() as attempt:
        await GraphFlow(agents, graph.build()).run(task="hello")
    for span in attempt.llm:
        assert f"You are {span.agent}." in span.attributes["gen_ai.input.messages"]
    assert sorted(calls(attempt)) == sorted(agent.name for agent in agents)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # of AutoGen's own log of parsed answers
async def test_the_orchestrator_of_magentic_one_is_nobody(
    assistant: Agents, client: OpenAIChatCompletionClient, provider: FakeModelServer
) -> None:
    def reply(body: dict[str, Any]) -> str:
        if "is_request_satisfied" in said(body).rsplit("user", 1)[-1] or body.get("response_format"):
            yes, no = '{"answer": true, "reason": "-"}', '{"answer": false, "reason": "-"}'
            done = yes if "I am done" in said(body) else no
            return (
                f'{{"is_request_satisfied": {done}, "is_in_loop": {no}, "is_progress_being_made": {yes}, '
                f'"next_speaker": {{"answer": "writer", "reason": "-"}}, '
                f'"instruction_or_question": {{"answer": "write", "reason": "-"}}}}'
            )
        return "I am done" if "You are writer." in said(body) else "well"

    provider.reply = reply
    team = MagenticOneGroupChat([assistant("writer")], model_client=client, max_turns=3)
    with recorded_attempt() as attempt:
        await team.run(task="hello")
    assert calls(attempt).count("writer") == 1
    assert set(calls(attempt)) == {"", "writer"}


async def test_a_consumer_of_a_stream_is_never_the_agent(assistant: Agents) -> None:
    writer = assistant("writer", model_client_stream=True)
    with recorded_attempt() as attempt, leyden.agent("reader"):
        outside = trace.get_current_span()
        pieces = []
        async for event in writer.run_stream(task="hello"):
            assert current_agent() == "reader"
            assert trace.get_current_span() is outside
            if isinstance(event, ModelClientStreamingChunkEvent):
                pieces.append(event.content)
    assert len(pieces) > 1
    assert calls(attempt) == ["reader/writer"]
    assert turns(attempt) == ["reader", "reader/writer"]


async def test_an_abandoned_stream_ends_the_turn(assistant: Agents) -> None:
    with recorded_attempt() as attempt:
        stream = assistant("writer", model_client_stream=True).run_stream(task="hello")
        async for event in stream:
            if isinstance(event, ModelClientStreamingChunkEvent):
                break
        await stream.aclose()
        assert current_agent() == ""
    assert turns(attempt) == ["writer"]


async def test_two_teams_on_one_runtime_do_not_mix(assistant: Agents, provider: FakeModelServer) -> None:
    runtime = SingleThreadedAgentRuntime()
    with recorded_attempt() as first:
        runtime.start()  # its tasks belong to the first attempt
    provider.delay_s = 0.01

    async def rollout(number: int) -> Any:
        agents = [assistant("planner"), assistant("writer")]
        with recorded_attempt() as attempt, leyden.agent(f"app{number}"):
            await RoundRobinGroupChat(agents, max_turns=4, runtime=runtime).run(task=f"word-{number}.")
        return attempt

    attempts = await asyncio.gather(*(rollout(number) for number in range(6)))
    await runtime.stop()
    assert first.llm == []
    for number, attempt in enumerate(attempts):
        assert calls(attempt) == [f"app{number}/planner", f"app{number}/writer"] * 2
        assert all(f"word-{number}." in span.attributes["gen_ai.input.messages"] for span in attempt.llm)


async def test_a_team_that_is_run_twice_at_once_stays_the_first_ones(
    assistant: Agents, provider: FakeModelServer
) -> None:
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    team = RoundRobinGroupChat([assistant("planner"), assistant("writer")], max_turns=2, runtime=runtime)
    provider.delay_s = 0.05
    with recorded_attempt() as first:
        running = asyncio.create_task(team.run(task="hello"))
        await asyncio.to_thread(provider.received.acquire)
    with recorded_attempt() as second, pytest.raises(ValueError, match="already running"):
        await team.run(task="hello")
    await running
    await runtime.stop()
    assert (calls(first), calls(second)) == (["planner", "writer"], [])


class Wrapper(BaseChatAgent):
    """An agent of the user's own that asks an assistant directly."""

    def __init__(self, inner: Any) -> None:
        super().__init__("wrapper", "asks another one")
        self.inner = inner

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        await self.inner.on_messages(messages, cancellation_token)
        async for event in self.inner.on_messages_stream([], cancellation_token):
            answer = event
        return answer  # type: ignore[no-any-return]

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


async def test_an_assistant_that_is_called_directly_is_below_its_caller(assistant: Agents) -> None:
    with recorded_attempt() as attempt:
        await assistant("alone").on_messages([TextMessage(content="hello", source="user")], CancellationToken())
        await RoundRobinGroupChat([Wrapper(assistant("writer"))], max_turns=1).run(task="hello")
    assert calls(attempt) == ["alone", "wrapper/writer", "wrapper/writer"]
    assert turns(attempt) == ["alone", "wrapper", "wrapper/writer", "wrapper/writer"]


@pytest.mark.parametrize(("name", "path"), [("writer", "writer"), ("filtered", "filtered/writer")])
async def test_a_filter_of_the_same_name_is_its_agent(assistant: Agents, name: str, path: str) -> None:
    some = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=1)])
    agent = MessageFilterAgent(name, wrapped_agent=assistant("writer"), filter=some)
    with recorded_attempt() as attempt:
        await RoundRobinGroupChat([agent], max_turns=1).run(task="hello")
        await agent.on_messages([TextMessage(content="hello", source="user")], CancellationToken())
    assert calls(attempt) == [path, path]


@pytest.mark.filterwarnings("ignore:(Using LocalCommandLineCodeExecutor|No approval function):UserWarning")
async def test_an_agent_that_writes_and_runs_code(
    client: OpenAIChatCompletionClient, provider: FakeModelServer, tmp_path: Path
) -> None:
    from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

    texts = iter(["```sh\necho warm\n```", "It is warm.", "Nothing to run."])
    provider.reply = lambda body: next(texts)
    async with LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        coder = CodeExecutorAgent("coder", code_executor=executor, model_client=client)
        with recorded_attempt() as attempt:
            await RoundRobinGroupChat([coder], max_turns=1).run(task="hello")
            await coder.on_messages([TextMessage(content="hello", source="user")], CancellationToken())
    assert calls(attempt) == ["coder"] * len(provider.requests)
    assert turns(attempt) == ["coder", "coder"]


class Core(RoutedAgent):
    def __init__(self, client: OpenAIChatCompletionClient) -> None:
        super().__init__("an agent without agentchat")
        self.client = client

    @message_handler
    async def ask(self, message: UserMessage, ctx: MessageContext) -> None:
        await self.client.create([message])


async def test_an_agent_of_autogen_core_is_named_by_its_type(client: OpenAIChatCompletionClient) -> None:
    runtime = SingleThreadedAgentRuntime()
    await Core.register(runtime, "critic", lambda: Core(client))
    with recorded_attempt() as attempt:
        runtime.start()
        await runtime.send_message(UserMessage(content="hello", source="user"), AgentId("critic", "default"))
        await runtime.stop_when_idle()
    assert calls(attempt) == ["critic"]


async def test_an_agent_that_fails_fails_its_turn_and_the_team_as_ever(
    assistant: Agents, provider: FakeModelServer
) -> None:
    provider.fail_first = 1
    with recorded_attempt() as attempt, pytest.raises(RuntimeError, match="InternalServerError"):
        await RoundRobinGroupChat([assistant("planner"), assistant("writer")], max_turns=2).run(task="hello")
    assert [(span.agent, bool(span.error)) for span in attempt.spans if span.kind == "agent"] == [("planner", True)]
