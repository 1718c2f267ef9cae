"""Which agents a team or an agent has: participants, agents inside agents, and agents that tools run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.tools import BaseTool, Workbench

from leyden.discovery import referred
from leyden.hookspecs import AgentInfo
from leyden.scope import child_path
from leyden_autogen.identity import inner
from leyden_autogen.package import FRAMEWORK

DEPTH = 12
"""How many objects deep it looks: an end for agents that hold each other."""


class Discovery:
    """One walk through a team or an agent. Agents are listed once per path, in the order of the team."""

    def __init__(self) -> None:
        self._found: dict[str, AgentInfo] = {}
        self._open: list[int] = []
        self.runners: dict[int, Any] = {}
        """Every team and agent that was met, by its id: what has a state of its own."""

    def agents(self, target: object) -> list[AgentInfo]:
        """The agents inside `target`, itself included if it is one."""
        self._walk(target, "")
        return list(self._found.values())

    def _walk(self, target: Any, parent: str) -> None:
        if id(target) in self._open or len(self._open) >= DEPTH:
            return
        self._open.append(id(target))
        try:
            if isinstance(target, Team):
                self.runners[id(target)] = target
                for participant in getattr(target, "_participants", ()):
                    self._participant(participant, parent)
            elif isinstance(target, ChatAgent):
                self._agent(target, parent)
            else:
                for part in _parts(target):
                    self._walk(part, parent)
        finally:
            self._open.pop()

    def _participant(self, participant: Any, parent: str) -> None:
        if isinstance(participant, Team):
            path = child_path(participant.name, parent)
            self._add(path, participant)
            self._walk(participant, path)
        else:
            self._walk(participant, parent)

    def _agent(self, agent: Any, parent: str) -> None:
        self.runners[id(agent)] = agent
        path = child_path(agent.name, parent)
        passed_on = inner(agent)
        if passed_on is not None and passed_on.name == agent.name:
            self._walk(passed_on, parent)  # a filter of the same name: the agent that it filters for is the one to mark
            return
        self._add(path, agent)
        for part in _parts(agent):
            self._walk(part, path)

    def _add(self, path: str, target: object) -> None:
        self._found.setdefault(path, AgentInfo(path=path, target=target, framework=FRAMEWORK))


def _parts(holder: Any) -> Iterator[Any]:
    """What may hold or be agents in an agent, a tool, a workbench, or the function of a tool."""
    if isinstance(holder, (FunctionType, MethodType)):
        yield from (value for value in referred(holder) if isinstance(value, (ChatAgent, Team)))
        return
    for value in list(getattr(holder, "__dict__", {}).values()):
        for item in (
            value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, Mapping) else [value]
        ):
            function = isinstance(holder, BaseTool) and isinstance(item, (FunctionType, MethodType))
            if function or isinstance(item, (ChatAgent, Team, BaseTool, Workbench)):
                yield item
