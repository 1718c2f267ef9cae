"""The hooks of the CrewAI adapter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden.types import Endpoint
from leyden_crewai.models import is_model, make_stand_in
from leyden_crewai.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_crewai.patches import install, patches


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_crewai import __version__

    return PluginInfo(name="crewai", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS)


@hookimpl
def leyden_instrument() -> Undo | None:
    """Enter agents and record tools, now or when CrewAI is imported."""
    return install()


@hookimpl
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The agents of a crew, of a flow, of an instance of a `@CrewBase` class, or an agent by itself."""
    if _kind(target) is None:
        return None
    from leyden_crewai.discovery import agents_of

    return agents_of(target) or None


@hookimpl
def leyden_bind(model: object, endpoint: Endpoint) -> object | None:
    """A model object of CrewAI's OpenAI class in the place of any other one."""
    return make_stand_in(model, endpoint) if is_model(model) else None


@hookimpl
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Run a crew or a flow with the task as its inputs, or an agent with the task as its message.

    A task that is no mapping becomes the input `task`, so `{task}` in a crew's texts stands for it. A crew is copied for
    each run, as `kickoff_for_each` does it, because a crew that works keeps its state in itself; so is a flow, if its
    class is given.
    """
    kind = _kind(target)
    runner: Any = target
    if kind is None:
        return None
    if kind == "agent":
        return runner.kickoff_async(task if isinstance(task, (str, list)) else _text(task))  # type: ignore[no-any-return]
    if kind == "crew class":
        runner = runner.crew()
    if kind in ("crew", "crew class"):
        runner = runner.copy()
    elif isinstance(runner, type):
        runner = runner()
    return runner.kickoff_async(inputs=dict(task) if isinstance(task, Mapping) else {"task": task})  # type: ignore[no-any-return]


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is needed."""
    problem = outside(SUPPORTED)
    missing = [f"{symbol} is not there" for symbol in dict.fromkeys(patches.missing)]
    detail = "; ".join([*([problem] if problem else []), *missing])
    remedy = f"pip install {' '.join(repr(text) for text in SUPPORTED)}"
    return [Check(name="crewai version", ok=not detail, detail=detail or ", ".join(SUPPORTED), remedy=remedy)]


def _text(task: Any) -> str:
    from leyden.tracing import text_of

    return text_of(task)


def _kind(target: object) -> str | None:
    """What `target` is to CrewAI: "agent", "crew", "crew class", "flow" or None. Imports nothing."""
    crewai = sys.modules.get("crewai")
    if crewai is None or not all(hasattr(crewai, name) for name in ("Agent", "Crew", "Flow")):
        return None
    if isinstance(target, crewai.Agent):
        return "agent"
    if isinstance(target, crewai.Crew):
        return "crew"
    if isinstance(target, crewai.Flow) or (isinstance(target, type) and issubclass(target, crewai.Flow)):
        return "flow"
    return "crew class" if getattr(type(target), "is_crew_class", False) and hasattr(target, "crew") else None
