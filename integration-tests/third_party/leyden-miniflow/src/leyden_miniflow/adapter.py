"""The hooks of the adapter for miniflow."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterator
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden_miniflow.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_miniflow.patches import patches


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_miniflow import __version__

    return PluginInfo(name="miniflow", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS)


@hookimpl
def leyden_instrument() -> Undo | None:
    """Name agents and record tools, now or when miniflow is imported."""
    return patches.install()


@hookimpl
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The agents of an agent, a chain or a group, and those that they have as tools."""
    return list(_agents(target)) if _is_miniflows(target) else None


@hookimpl
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Ask an agent, a chain or a group."""
    return target.run(str(task)) if _is_miniflows(target) else None  # type: ignore[attr-defined]


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is patched."""
    problem = outside(SUPPORTED)
    detail = "; ".join([*([problem] if problem else []), *(f"{symbol} is not there" for symbol in patches.missing)])
    remedy = f"pip install '{SUPPORTED[0]}'" if detail else ""
    return [Check(name="miniflow version", ok=not detail, detail=detail or SUPPORTED[0], remedy=remedy)]


def _is_miniflows(target: object) -> bool:
    """False, without importing anything, where miniflow is not imported."""
    miniflow = sys.modules.get("miniflow")
    return miniflow is not None and isinstance(target, (miniflow.Agent, miniflow.Chain, miniflow.Group))


def _agents(target: Any, above: str = "") -> Iterator[AgentInfo]:
    for agent in getattr(target, "agents", None) or [target]:
        path = f"{above}{agent.name}"
        yield AgentInfo(path=path, target=agent, framework=FRAMEWORK)
        for tool in agent.tools:
            if (inner := getattr(tool, "agent", None)) is not None:
                yield from _agents(inner, f"{path}/")
