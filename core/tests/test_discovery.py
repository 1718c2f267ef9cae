from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import pytest

import leyden
from leyden import agents, marks
from leyden.discovery import discover, referred, resolve_marks
from leyden.errors import MarkError
from leyden.hookspecs import AgentInfo, hookimpl
from leyden.plugins import plugins


class Graph:
    """What a framework's object is to us."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: object() for name in names}


class Adapter:
    @hookimpl
    def leyden_discover(self, target: object) -> list[AgentInfo] | None:
        if isinstance(target, Graph):
            return [AgentInfo(path=name, target=node, framework="test") for name, node in target.nodes.items()]
        return None


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agents, "_DECLARED", {})
    plugins.register("test-adapter", Adapter())
    yield
    plugins.manager.unregister(name="test-adapter")
    marks.registry.clear()


graph = Graph("planner", "writer")
module = types.ModuleType("agent")
module.app = Graph("inside")  # type: ignore[attr-defined]
module.unused = Graph("not referred to")  # type: ignore[attr-defined]


class Pipeline:
    def __init__(self, inner: Graph) -> None:
        self.inner = inner

    async def run(self, task: Any) -> float:
        return 1.0

    async def solve(self, task: Any) -> float:
        return 1.0


pipeline = Pipeline(Graph("held"))


async def helper(task: Any) -> Any:
    return await graph.ainvoke(task)  # type: ignore[attr-defined]


def by_global(task: Any) -> Any:
    return graph.nodes


def by_module(task: Any) -> Any:
    return module.app.nodes


def by_helper(task: Any) -> Any:
    return helper(task)


def by_nested(task: Any) -> Any:
    return [[graph.nodes for _ in range(2)] for _ in range(2)]


def by_object(task: Any) -> Any:
    return pipeline.run(task)


def by_default(task: Any, app: Graph = graph) -> Any:
    return app


def closure(app: Graph) -> Any:
    async def solve(task: Any) -> Any:
        return app

    return solve


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(task: Any) -> Any:
        return function(task)

    return wrapper


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (by_global, {"planner", "writer"}),
        (by_module, {"inside"}),
        (by_helper, {"planner", "writer"}),
        (by_nested, {"planner", "writer"}),
        (by_object, {"held"}),
        (by_default, {"planner", "writer"}),
        (closure(Graph("closed")), {"closed"}),
        (decorated(by_global), {"planner", "writer"}),
        (pipeline.solve, {"held"}),
        (len, set()),
    ],
)
def test_agents_are_found_in_what_the_function_refers_to(function: Any, names: set[str]) -> None:
    assert set(discover(function)) == names


def test_an_app_that_is_given_is_looked_into_alone() -> None:
    assert set(discover(by_global, Graph("given"))) == {"given"}


def test_agents_that_are_decorated_or_declared_count() -> None:
    @leyden.agent("checker")
    def check(text: str) -> bool:
        return True

    leyden.declare("later")
    assert set(discover(by_global)) == {"planner", "writer", "checker", "later"}


def test_a_library_is_not_searched() -> None:
    import json

    def solve(task: Any) -> Any:
        return json.dumps(task)

    assert len(list(referred(solve))) < 5


def test_marks_are_checked_against_the_agents_that_exist() -> None:
    leyden.trainable("writter")
    with pytest.raises(
        MarkError, match=r"'writter' matches no agent. Did you mean 'writer'\? Known agents: planner, writer"
    ):
        resolve_marks(by_global)


def test_an_object_may_be_marked() -> None:
    leyden.trainable(graph.nodes["writer"], policy="small")
    resolved, known = resolve_marks(by_global)
    assert resolved == (leyden.Mark(selector="writer", policy="small"),)
    assert set(known) == {"planner", "writer"}


def test_no_mark_is_an_error_that_lists_the_agents() -> None:
    with pytest.raises(MarkError, match=r"no agent is marked.*Known agents: planner, writer"):
        resolve_marks(by_global)
