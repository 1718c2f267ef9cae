"""Which agents a crew, a flow or an agent has, with the paths that they can have while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from crewai import Agent, Crew, Flow, Process
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.utilities.i18n import get_i18n

from leyden.discovery import referred
from leyden.hookspecs import AgentInfo
from leyden.scope import child_path
from leyden_crewai.identity import agent_name
from leyden_crewai.package import FRAMEWORK


def agents_of(target: object) -> list[AgentInfo]:
    """The agents inside `target`, each path once."""
    found: dict[str, AgentInfo] = {}
    for info in _agents(target):
        found.setdefault(info.path, info)
    return list(found.values())


def _agents(target: object) -> Iterator[AgentInfo]:
    if isinstance(target, BaseAgent):
        yield _info(agent_name(target), target)
    elif isinstance(target, Crew):
        yield from _of_crew(target)
    elif isinstance(target, Flow) or (isinstance(target, type) and issubclass(target, Flow)):
        yield from _of_flow(target)
    elif is_crew_class(target):
        yield from _of_crew(target.crew())  # type: ignore[attr-defined]


def is_crew_class(target: object) -> bool:
    """Whether `target` is an instance of a class made by `@CrewBase`."""
    return bool(getattr(type(target), "is_crew_class", False)) and callable(getattr(target, "crew", None))


def _of_crew(crew: Crew) -> Iterator[AgentInfo]:
    """The agents of a crew; below a manager, or below an agent that may delegate, the coworkers once more."""
    members: list[Any] = list(crew.agents)
    members += [task.agent for task in crew.tasks if task.agent is not None and not _has(members, task.agent)]
    if crew.process == Process.hierarchical:
        manager = crew.manager_agent
        name = agent_name(manager) if manager is not None else _manager_role(crew)
        yield _info(name, manager)
        yield from (_info(agent_name(member), member, name) for member in members)
        return
    yield from (_info(agent_name(member), member) for member in members)
    for boss in members:
        if getattr(boss, "allow_delegation", False):
            yield from (_info(agent_name(other), other, agent_name(boss)) for other in crew.agents if other is not boss)


def _of_flow(flow: Any) -> Iterator[AgentInfo]:
    """The agents in a flow's attributes and in what the code of its methods refers to."""
    kind = flow if isinstance(flow, type) else type(flow)
    held = [*vars(kind).values(), *([] if flow is kind else vars(flow).values())]
    for member in held:
        function = inspect.unwrap(getattr(member, "_meth", member)) if callable(member) else None
        if inspect.isfunction(function):
            for used in referred(function):
                if used is not kind and not (isinstance(used, type) and issubclass(used, kind)):
                    yield from _agents(used)
        elif isinstance(member, (Agent, Crew)):
            yield from _agents(member)


def _manager_role(crew: Crew) -> str:
    role = get_i18n(prompt_file=crew.prompt_file).retrieve("hierarchical_manager_agent", "role")
    return " ".join(role.split()).replace("/", "-")


def _has(members: list[Any], agent: object) -> bool:
    return any(member is agent for member in members)


def _info(name: str, target: object, parent: str = "") -> AgentInfo:
    return AgentInfo(path=child_path(name, parent), target=target, framework=FRAMEWORK)
