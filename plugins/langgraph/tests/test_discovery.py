"""Agents that are found before anything runs, and marks by object."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode

from leyden.errors import MarkError
from leyden.marks import Marks, check
from leyden.plugins import plugins
from leyden.types import Mark


class State(TypedDict):
    text: str


def planner(state: State) -> Any:
    return state


async def writer(state: State) -> Any:
    return state


class Critic:
    def judge(self, state: State) -> Any:
        return state

    def __call__(self, state: State) -> Any:
        return state


def graph(**nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    built: Any = StateGraph(State)
    previous = START
    for name, node in nodes.items():
        built.add_node(name, node)
        built.add_edge(previous, name)
        previous = name
    return built  # type: ignore[no-any-return]


def paths(target: object) -> list[str]:
    return [agent.path for agent in plugins.discover(target)]


def resolve(selector: object, app: object) -> tuple[Mark, ...]:
    marks = Marks()
    marks.add(selector)
    return marks.resolve([(agent.path, agent.target) for agent in plugins.discover(app)])


def test_nodes_of_compiled_and_uncompiled_graphs() -> None:
    critic = Critic()
    built = graph(planner=planner, writer=writer, critic=critic, judge=critic.judge)
    assert paths(built) == paths(built.compile()) == ["planner", "writer", "critic", "judge"]
    for app in (built, built.compile()):
        assert resolve(writer, app) == (Mark(selector="writer"),)
        assert resolve(critic, app) == (Mark(selector="critic"),)
        assert resolve(critic.judge, app) == (Mark(selector="judge"),)
    assert {agent.framework for agent in plugins.discover(built)} == {"langgraph"}


def test_nested_graphs_and_marks_on_them() -> None:
    inner = graph(writer=writer, poet=graph(rhyme=planner).compile()).compile()
    called = graph(deep=writer).compile()

    def caller(state: State) -> Any:
        return helper(state)

    def helper(state: State) -> Any:
        return called.invoke(state)

    app = graph(planner=planner, team=inner, caller=caller).compile()
    expected = ["planner", "team", "team/writer", "team/poet", "team/poet/rhyme", "caller", "caller/deep"]
    assert paths(app) == expected
    assert resolve(inner, app) == (Mark(selector="team"),)
    assert resolve(writer, app) == (Mark(selector="team/writer"), Mark(selector="caller/deep"))
    with pytest.raises(MarkError, match="known agents: planner, team, team/writer"):
        resolve(graph(other=planner).compile(), app)
    with pytest.raises(MarkError, match=r"'writr' matches no agent. Did you mean 'writer'\?.*team/writer"):
        check([Mark(selector="writr")], expected)


def test_named_chains_in_nodes() -> None:
    chain: Any = RunnableLambda(planner).with_config(run_name="verse")
    app = graph(poet=RunnableLambda(planner) | chain, verse=chain).compile()
    assert paths(app) == ["poet", "poet/verse", "verse"]


def test_functional_api() -> None:
    @task
    def write(text: str) -> str:
        return text

    @task(name="other name")
    def check_it(text: str) -> str:
        return text

    @entrypoint()
    def flow(text: str) -> str:
        return check_it(write(text).result()).result()

    assert sorted(paths(flow)) == ["flow", "flow/other name", "flow/write"]
    assert resolve(flow, flow) == (Mark(selector="flow"),)
    assert resolve(write, flow) == (Mark(selector="flow/write"),)
    app = graph(node=lambda state: flow.invoke(state)).compile()
    assert sorted(paths(app)) == ["node", "node/flow", "node/flow/other name", "node/flow/write"]


def test_graphs_behind_tools() -> None:
    inner = graph(writer=writer).compile()

    @tool
    def ask(text: str) -> str:
        """Ask."""
        return str(inner.invoke({"text": text}))

    @tool
    async def aask(text: str) -> str:
        """Ask."""
        return str(await inner.ainvoke({"text": text}))

    assert paths(graph(tools=ToolNode([ask])).compile()) == ["tools", "tools/writer"]
    assert paths(graph(tools=ToolNode([aask])).compile()) == ["tools", "tools/writer"]


def test_a_graph_that_refers_to_itself_ends() -> None:
    def again(state: State) -> Any:
        return app.invoke(state)

    app: Any = graph(again=again).compile()
    assert paths(app) == ["again"]


def test_other_objects_are_nobodys() -> None:
    assert paths(object()) == []
    assert paths(RunnableLambda(planner)) == []


async def test_run() -> None:
    built = graph(writer=lambda state: {"text": state["text"] + "!"})
    assert await plugins.first("leyden_run", target=built.compile(), task={"text": "hi"}) == {"text": "hi!"}
    assert await plugins.first("leyden_run", target=built, task={"text": "hi"}) == {"text": "hi!"}


def test_create_agent() -> None:
    pytest.importorskip("langchain", minversion="1.2.6", reason="create_agent keeps its name to itself before")
    from langchain import agents
    from langchain_core.language_models import GenericFakeChatModel

    model = GenericFakeChatModel(messages=iter([]))
    helper = agents.create_agent(model, [], name="helper")

    @tool
    def ask(text: str) -> str:
        """Ask."""
        return str(helper.invoke({"messages": [text]}))

    boss = agents.create_agent(model, [ask], name="boss")
    plain = agents.create_agent(model, [ask])
    assert paths(plain) == ["model", "tools", "tools/helper", "tools/helper/model"]
    assert paths(boss) == ["boss", "boss/model", "boss/tools", "boss/tools/helper", "boss/tools/helper/model"]
    app = graph(writer=boss, boss=boss).compile()
    assert paths(app)[:3] == ["writer", "writer/boss", "writer/boss/model"]
    assert "boss/model" in paths(app)
    assert "boss/boss" not in paths(app)
    assert resolve(boss, boss) == (Mark(selector="boss"),)


def test_the_agents_of_a_rollout_function_are_those_of_its_graph() -> None:
    from leyden.discovery import resolve_marks
    from leyden.marks import registry

    app = graph(planner=planner, team=graph(writer=writer).compile()).compile()

    async def solve(task: Any) -> float:
        await app.ainvoke(task)
        return 1.0

    try:
        registry.add("writer")
        registry.add(planner, policy="other")
        marks, agents = resolve_marks(solve)
        assert marks == (Mark(selector="writer"), Mark(selector="planner", policy="other"))
        assert {"planner", "team", "team/writer"} <= set(agents)
        registry.add("wrtier")
        with pytest.raises(
            MarkError, match=r"'wrtier' matches no agent. Did you mean 'writer'\?.*planner, team, team/writer"
        ):
            resolve_marks(solve)
    finally:
        registry.clear()
