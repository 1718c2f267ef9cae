"""Which agents a graph has: its nodes, those of the graphs inside them, and those of graphs that its code refers to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from leyden.hookspecs import AgentInfo
from leyden.scope import child_path
from leyden_langchain.identity import parts
from leyden_langgraph.identity import HIDDEN, agent_name, below
from leyden_langgraph.package import FRAMEWORK

DEPTH = 12
"""How many objects deep it looks; enough for any graph that a person wrote, and an end for one that holds itself."""

LIBRARIES = ("langchain", "langgraph")
"""Modules whose functions are not looked into: they refer to everything that they were built with."""


class Discovery:
    """One walk through a user's object. Agents are listed once per path, in the order of the graph."""

    def __init__(self) -> None:
        self._found: dict[str, AgentInfo] = {}
        self._open: list[int] = []

    def agents(self, target: object) -> list[AgentInfo]:
        """The agents inside `target`: a graph, compiled or not, an agent, an entrypoint, or what a function refers to."""
        self._walk(target, "", None)
        return list(self._found.values())

    def _add(self, path: str, target: object) -> None:
        self._found.setdefault(path, AgentInfo(path=path, target=target, framework=FRAMEWORK))

    def _walk(self, target: Any, parent: str, inherited: str | None) -> None:
        if id(target) in self._open or len(self._open) >= DEPTH:
            return
        self._open.append(id(target))
        try:
            if isinstance(target, Pregel):
                self._graph(target, parent, inherited)
            elif isinstance(target, StateGraph):
                for name, spec in target.nodes.items():
                    self._node(name, spec.runnable, spec.runnable, parent, inherited)
            elif is_task(target):
                path = child_path(task_name(target), parent)
                self._add(path, target)
                self._walk(target.func, path, inherited)
            elif isinstance(target, Runnable) or is_function(target):
                self._inside(target, parent, inherited)
        finally:
            self._open.pop()

    def _graph(self, graph: Pregel[Any, Any, Any, Any], parent: str, inherited: str | None) -> None:
        name = agent_name(graph.config)
        if name is not None and below(name, inherited, parent):
            parent = child_path(name, parent)
            self._add(parent, graph)
        entrypoint = not hasattr(graph, "builder") and len(graph.nodes) == 1
        for key, node in graph.nodes.items():
            self._node(key, graph if entrypoint else node.bound, node.bound, parent, name or inherited)

    def _node(self, name: str, target: Any, runnable: Any, parent: str, inherited: str | None) -> None:
        if name in HIDDEN:
            return
        path = child_path(name, parent)
        self._add(path, written_by_user(target))
        self._walk(runnable, path, inherited)

    def _inside(self, target: Any, parent: str, inherited: str | None) -> None:
        config = getattr(target, "config", None)
        name = config.get("run_name") if isinstance(config, dict) else None
        if isinstance(name, str) and name.strip("/ ") and parent.rsplit("/", 1)[-1] != name:
            parent = child_path(name, parent)
            self._add(parent, target)
        for part in [*parts(target), *getattr(target, "steps", ())] if isinstance(target, Runnable) else ():
            self._walk(part, parent, inherited)
        for function in functions(target):
            for used in referred(function):
                self._walk(used, parent, inherited)


def functions(target: Any) -> Iterator[Any]:
    """The user's functions inside a runnable, a tool or a tool node; a function is its own."""
    if is_function(target):
        if not (target.__module__ or "").startswith(LIBRARIES):
            yield target
        return
    for tool in (getattr(target, "tools_by_name", None) or {}).values():
        yield from functions(tool)
    for name in ("func", "coroutine" if isinstance(target, BaseTool) else "afunc"):
        function: Any = getattr(target, name, None)
        while isinstance(function, functools.partial):
            function = function.func
        if is_function(function):
            yield from functions(inspect.unwrap(function))


def is_function(target: object) -> bool:
    """Whether `target` is a Python function or method."""
    return isinstance(target, (FunctionType, MethodType))


def referred(function: Any) -> Iterator[Any]:
    """Graphs, runnables, tasks and functions of the same package that the code of `function` refers to by name."""
    try:
        names = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return
    own = getattr(function, "__self__", None)
    held = vars(own).values() if own is not None and hasattr(own, "__dict__") and not inspect.ismodule(own) else ()
    package = (function.__module__ or "").split(".")[0]
    for value in [*names.nonlocals.values(), *names.globals.values(), *held]:
        if is_function(value):
            if (value.__module__ or "").split(".")[0] == package:
                yield value
        elif isinstance(value, (Runnable, StateGraph)) or is_task(value):
            yield value


def written_by_user(target: Any) -> Any:
    """The object that the user gave for a node: LangGraph wraps a function in a runnable of its own."""
    if isinstance(target, Pregel) or hasattr(target, "tools_by_name"):
        return target
    for name in ("func", "afunc"):
        function: Any = getattr(target, name, None)
        if callable(function) and type(target).__module__.startswith("langgraph."):
            return function
    return target


def is_task(target: object) -> bool:
    """Whether `target` was made by `@task`."""
    return type(target).__module__ == "langgraph.func" and hasattr(target, "func") and not isinstance(target, Runnable)


def task_name(target: Any) -> str:
    """The name that a task runs under."""
    return str(getattr(target, "name", None) or getattr(target.func, "__name__", "task"))
