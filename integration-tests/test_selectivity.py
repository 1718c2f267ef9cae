"""A LangGraph application with one marked node: its calls go to the policy's vLLM server, all others to their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import pytest

from leyden.episode import Episode
from leyden.types import Mark

pytestmark = pytest.mark.heavy


class State(TypedDict, total=False):
    question: str
    plan: str
    text: str
    verdict: str


def build(base_url: str) -> Any:
    """planner → writer → checker, each with one model call."""
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    model = ChatOpenAI(base_url=base_url, api_key="own-key", model="own-model", max_retries=0)  # type: ignore[arg-type]

    async def planner(state: State) -> State:
        return {"plan": (await model.ainvoke(f"plan: {state['question']}")).text}

    async def writer(state: State) -> State:
        return {"text": (await model.ainvoke(f"write: {state['question']}")).text}

    async def checker(state: State) -> State:
        return {"verdict": (await model.ainvoke(f"check: {state['question']}")).text}

    graph = StateGraph(State)
    for node in (planner, writer, checker):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "writer")
    graph.add_edge("writer", "checker")
    graph.add_edge("checker", END)
    return graph.compile()


@pytest.mark.parametrize("marked", ["writer", "planner"])
def test_only_the_marked_node_reaches_the_policy_and_yields_transitions(
    served: Any, other_model: Any, episodes: Callable[..., list[Episode]], marked: str
) -> None:
    app = build(other_model.base_url)

    async def agent(task: str) -> float:
        await app.ainvoke({"question": task})
        return 0.5

    tasks = [f"task {index}" for index in range(6)]
    found = episodes(agent, tasks, {"default": served.endpoint()}, [Mark(selector=marked)])
    assert [episode.rollout.reason for episode in found] == [None] * len(tasks)
    for episode in found:
        calls = {span.agent: span.call for span in episode.spans if span.call is not None}
        assert set(calls) == {"planner", "writer", "checker"}
        for name, call in calls.items():
            origin = served.origin if name == marked else other_model.origin
            assert (call.server, call.policy) == (origin, "default" if name == marked else None)
        (transition,) = episode.transitions()
        assert transition.agent == marked
        assert all(not call.sampled_ids for name, call in calls.items() if name != marked)
    verbs = {"planner": "plan", "writer": "write", "checker": "check"}
    asked = {body["messages"][-1]["content"].split(":")[0] for body in other_model.bodies}
    assert asked == {verb for name, verb in verbs.items() if name != marked}
    assert all(request.headers["authorization"] == "Bearer own-key" for request in other_model.requests)
    assert len(other_model.bodies) == 2 * len(tasks)
