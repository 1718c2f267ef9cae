"""One rollout, several frameworks: the nodes of a LangGraph graph run an AutoGen team, a CrewAI crew and OpenAI agents."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import pytest
from framework_agents import app_class

from leyden import attributes
from leyden.plugins import plugins
from leyden.testing.adapter import AgentApp, ModelAccess
from leyden.testing.adapter.script import role_of, scripted, words_in
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.trajectories import transitions
from leyden.types import Endpoint

NODES = {"research": "autogen", "report": "crewai", "review": "openai-agents"}
"""Node → the framework that it runs."""
INNER = {f"{node}/{agent}" for node in NODES for agent in ("planner", "writer")}


class State(TypedDict, total=False):
    question: str
    research: str
    report: str
    review: str


@asynccontextmanager
async def graph(*servers: FakeModelServer) -> AsyncIterator[Any]:
    """The graph, whose nodes' models are at the first server; all servers say what the suite's script says."""
    from langgraph.graph import END, START, StateGraph

    apps = {node: app_class(framework)(ModelAccess(base_url=servers[0].base_url)) for node, framework in NODES.items()}
    for server in servers:
        server.reply = functools.partial(scripted, AgentApp(ModelAccess("")))
    builder: Any = StateGraph(State)
    for node, app in apps.items():

        async def run(state: State, node: str = node, app: AgentApp = app) -> dict[str, str]:
            return {node: await app.run(state["question"])}

        builder.add_node(node, run)
    for start, end in zip([START, *NODES], [*NODES, END], strict=True):
        builder.add_edge(start, end)
    try:
        yield builder.compile()
    finally:
        for app in apps.values():
            await app.close()


@pytest.fixture
def policy_server() -> Any:
    with FakeModelServer(name="policy-") as server:
        yield server


def check_callers(attempt: RecordedAttempt, word: str) -> None:
    """Every call is of a known agent whose name fits what it said, and of this attempt's question."""
    assert {span.agent for span in attempt.llm} == INNER
    for span in attempt.llm:
        messages = str(span.attributes[attributes.INPUT_MESSAGES])
        assert span.agent.endswith(f"/{role_of([{'role': 'user', 'content': messages}])}")
        assert words_in(messages) == {word}


def test_every_adapter_is_there() -> None:
    assert {"openai", "langchain", "langgraph", *NODES.values()} <= set(plugins.info())
    assert not [check for check in plugins.doctor() if not check.ok]


async def test_agents_are_below_the_node_that_runs_them(adapters: None, other_model: FakeModelServer) -> None:
    async with graph(other_model) as app:
        with recorded_attempt() as attempt:
            done = await app.ainvoke({"question": "Tell me of word-17."})
    assert all("word-17 is warm" in done[node] for node in NODES)
    check_callers(attempt, "word-17")
    tools = [span.agent for span in attempt.spans if span.kind == "tool" and "lookup" in span.name]
    assert tools == [f"{node}/writer" for node in NODES]
    frameworks = {span.agent: span.attributes[attributes.FRAMEWORK] for span in attempt.spans if span.kind == "agent"}
    assert {path: frameworks[path] for path in (*NODES, *INNER)} == {
        **dict.fromkeys(NODES, "langgraph"),
        **{f"{node}/{agent}": name for node, name in NODES.items() for agent in ("planner", "writer")},
    }


@pytest.mark.parametrize("marked", sorted(INNER))
async def test_one_agent_of_one_framework_is_marked(
    adapters: None, other_model: FakeModelServer, policy_server: FakeModelServer, marked: str
) -> None:
    endpoint = Endpoint(base_url=policy_server.base_url, model="policy", version=3)
    async with graph(other_model, policy_server) as app:
        with recorded_attempt({"default": endpoint}, {marked: "default"}) as attempt:
            await app.ainvoke({"question": "Tell me of word-17."})
    check_callers(attempt, "word-17")
    routed = {span.agent for span in attempt.llm if span.call is not None and span.call.policy}
    assert routed == {marked}
    assert len(transitions(attempt.spans)) == len(policy_server.bodies) == (2 if marked.endswith("writer") else 1)
    assert len(other_model.bodies) == len(attempt.llm) - len(policy_server.bodies)


async def test_rollouts_at_once(adapters: None, other_model: FakeModelServer, policy_server: FakeModelServer) -> None:
    endpoint = Endpoint(base_url=policy_server.base_url, model="policy", version=3)

    async def rollout(number: int) -> RecordedAttempt:
        async with graph(other_model, policy_server) as app:
            with recorded_attempt({"default": endpoint}, {"*/writer": "default"}) as attempt:
                await app.ainvoke({"question": f"Tell me of word-{number}."})
        return attempt

    attempts = await asyncio.gather(*(rollout(number) for number in range(100, 108)))
    for number, attempt in enumerate(attempts, 100):
        check_callers(attempt, f"word-{number}")
        assert len(transitions(attempt.spans)) == 2 * len(NODES)
