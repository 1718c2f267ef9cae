"""The hooks of the LangGraph adapter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden_langchain.adapter import version_checks
from leyden_langgraph import identity
from leyden_langgraph.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_langgraph.patches import patches


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_langgraph import __version__

    return PluginInfo(name="langgraph", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS)


@hookimpl
def leyden_instrument() -> Undo | None:
    """Run every node as an agent, now or when langgraph is imported."""
    return patches.install()


@hookimpl
def leyden_identify() -> str | None:
    """The running node, where the installed version of langgraph does not let nodes be entered."""
    return identity.running_node() if patches.missing else None


@hookimpl(tryfirst=True)
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The nodes of a graph, and those of the graphs inside it."""
    if _kind(target) is None:
        return None
    from leyden_langgraph.discovery import Discovery

    return Discovery().agents(target)


@hookimpl(tryfirst=True)
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Run a graph on a task; one that is not compiled yet is compiled as it is."""
    kind = _kind(target)
    if kind is None or kind == "task":
        return None
    graph: Any = target.compile() if kind == "builder" else target  # type: ignore[attr-defined]
    return graph.ainvoke(task)  # type: ignore[no-any-return]


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is needed."""
    return version_checks("langgraph", SUPPORTED, patches.missing)


def _kind(target: object) -> str | None:
    """What `target` is to LangGraph: "graph", "builder", "task" or None. Imports nothing."""
    pregel, state = sys.modules.get("langgraph.pregel"), sys.modules.get("langgraph.graph.state")
    if pregel is not None and isinstance(target, pregel.Pregel):
        return "graph"
    if state is not None and isinstance(target, state.StateGraph):
        return "builder"
    return "task" if type(target).__module__ == "langgraph.func" and hasattr(target, "func") else None
