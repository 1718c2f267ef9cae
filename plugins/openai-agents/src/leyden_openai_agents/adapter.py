"""The hooks of the adapter for the OpenAI Agents SDK."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden.types import Endpoint
from leyden_openai_agents.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_openai_agents.patches import installed, patches


def install() -> Undo | None:
    """Hook the SDK, now or when it is imported; None where it is not installed (`agents` may be anybody's package)."""
    return patches.install() if installed() else None


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_openai_agents import __version__

    return PluginInfo(
        name="openai-agents", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS
    )


@hookimpl
def leyden_instrument() -> Undo | None:
    """Run every turn as its agent, record tools and handoffs, and let marked agents call their policy."""
    return install()


@hookimpl
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The agents that an agent or a handoff leads to."""
    if not _is(target, "agents.agent", "Agent") and not _is(target, "agents.handoffs", "Handoff"):
        return None
    from leyden_openai_agents.discovery import Discovery

    return Discovery().agents(target)


@hookimpl
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Run an agent on a task, what `Runner.run` takes: text, input items or a `RunState`. Gives the `RunResult`."""
    if not _is(target, "agents.agent", "Agent"):
        return None
    from agents import Agent, Runner

    assert isinstance(target, Agent)
    return Runner.run(target, task)


@hookimpl
def leyden_bind(model: object, endpoint: Endpoint) -> object | None:
    """A chat-completions model on `endpoint` in the place of any model of the SDK's interface."""
    if not _is(model, "agents.models.interface", "Model"):
        return None
    from leyden_openai_agents.stand_in import PolicyModel

    return PolicyModel(model, endpoint)


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is needed."""
    version = installed()
    if not version:
        return [Check(name="openai-agents version", ok=True, detail="not installed")]
    problem = outside(SUPPORTED)
    lost = [f"{symbol} is not there" for symbol in patches.missing]
    detail = "; ".join([*([problem] if problem else []), *lost])
    remedy = f"pip install '{SUPPORTED[0]}'" if detail else ""
    return [
        Check(name="openai-agents version", ok=not detail, detail=detail or f"openai-agents {version}", remedy=remedy)
    ]


def _is(target: object, module: str, name: str) -> bool:
    """Whether `target` is an instance of a class of the SDK; False, without importing anything, where that is not imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(target, kind)
