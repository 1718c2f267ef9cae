"""The hooks of the AutoGen adapter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden.types import Endpoint
from leyden_autogen import clients, identity
from leyden_autogen.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_autogen.patches import patches


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_autogen import __version__

    return PluginInfo(name="autogen", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS)


@hookimpl
def leyden_instrument() -> Undo | None:
    """Run every agent as an agent of Leyden's, now or when AutoGen is imported."""
    take_out = patches.install()

    def undo() -> None:
        take_out()
        if not patches.active:
            clients.watched.release()

    return undo


@hookimpl
def leyden_identify() -> str | None:
    """The agent whose message handler runs: one written with autogen-core alone, which has no turns to enter."""
    return identity.handling_agent(teams_too=bool(patches.missing))


@hookimpl
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The agents of a team or an agent."""
    if not _is_runner(target):
        return None
    from leyden_autogen.discovery import Discovery

    return Discovery().agents(target)


@hookimpl
def leyden_bind(model: object, endpoint: Endpoint) -> object | None:
    """A stand-in for a model client."""
    models = sys.modules.get("autogen_core.models")
    if models is None or not isinstance(model, models.ChatCompletionClient):
        return None
    return clients.stand_in(model, endpoint)


@hookimpl
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Run a team or an agent on a task."""
    if not _is_runner(target):
        return None
    from leyden_autogen.runs import run

    return run(target, task)


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is needed."""
    problem = outside(SUPPORTED)
    detail = "; ".join([*([problem] if problem else []), *(f"{symbol} is not there" for symbol in patches.missing)])
    remedy = f"pip install {' '.join(repr(text) for text in SUPPORTED)}"
    return [Check(name="autogen version", ok=not detail, detail=detail or ", ".join(SUPPORTED), remedy=remedy)]


def _is_runner(target: object) -> bool:
    """Whether `target` is a team or an agent; False, without importing anything, where AutoGen is not imported."""
    base = sys.modules.get("autogen_agentchat.base")
    return base is not None and isinstance(target, (base.ChatAgent, base.Team))
