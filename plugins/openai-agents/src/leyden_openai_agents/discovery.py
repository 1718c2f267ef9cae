"""Which agents an agent leads to: by handoffs, as tools, in guardrails, and in what its tools' functions refer to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from agents import Agent, FunctionTool, Handoff

from leyden.hookspecs import AgentInfo
from leyden.scope import child_path
from leyden_openai_agents.package import FRAMEWORK

MAX_OBJECTS = 200
"""How many objects behind one function are looked at."""


class Discovery:
    """One walk through the agents. Each path is listed once, in the order of the handoffs and tools."""

    def __init__(self) -> None:
        self._found: dict[str, AgentInfo] = {}
        self._open: list[int] = []

    def agents(self, target: object) -> list[AgentInfo]:
        """The agents that `target`, an agent or a handoff, leads to, itself first."""
        self._walk(target, "")
        return list(self._found.values())

    def _walk(self, target: object, parent: str) -> None:
        """List the agent that `target` is or leads to, at work below the agent `parent`."""
        agent = taking_over(target) if isinstance(target, Handoff) else target
        if not isinstance(agent, Agent):
            if isinstance(target, Handoff):
                self._add(child_path(target.agent_name, parent), None)
            return
        path = child_path(agent.name, parent)
        if path in self._found:
            return
        self._add(path, agent)
        if id(agent) in self._open:  # it is a tool of its own tools
            return
        for function in self._guardrails(agent):
            self._behind(function, parent)
        self._open.append(id(agent))
        try:
            for tool in agent.tools:
                self._tool(tool, path)
        finally:
            self._open.pop()
        for handoff in agent.handoffs:
            self._walk(handoff, parent)

    def _add(self, path: str, agent: Agent[Any] | None) -> None:
        self._found.setdefault(path, AgentInfo(path=path, target=agent, framework=FRAMEWORK))

    def _tool(self, tool: object, path: str) -> None:
        if not isinstance(tool, FunctionTool):
            return
        inside = getattr(tool, "_agent_instance", None)
        if inside is not None:
            self._walk(inside, path)
        else:
            self._behind(tool.on_invoke_tool, path)
        held: Any = tool
        for guardrail in (held.tool_input_guardrails or []) + (held.tool_output_guardrails or []):
            self._behind(guardrail.guardrail_function, path)

    def _behind(self, function: object, parent: str) -> None:
        for agent in referred(function):
            self._walk(agent, parent)

    @staticmethod
    def _guardrails(agent: Agent[Any]) -> list[object]:
        ways_in = [guardrail.guardrail_function for guardrail in agent.input_guardrails]
        return [*ways_in, *(guardrail.guardrail_function for guardrail in agent.output_guardrails)]


def taking_over(handoff: Handoff[Any, Any]) -> Agent[Any] | None:
    """The agent that a handoff leads to; None where only its own function knows."""
    reference = getattr(handoff, "_agent_ref", None)
    agent = reference() if reference is not None else next(referred(handoff.on_invoke_handoff), None)
    return agent if isinstance(agent, Agent) else None


def referred(function: object) -> Iterator[Agent[Any]]:
    """The agents that a function refers to by name, itself or in functions of the same package that it calls."""
    queue, seen = [function], set[int]()
    while queue and len(seen) < MAX_OBJECTS:
        current = queue.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Agent):
            yield current
        else:
            queue += _inside(current)


def _inside(current: object) -> list[object]:
    """What to look at behind a function, or behind an object of the SDK that wraps one."""
    if isinstance(current, functools.partial):
        return [current.func, *current.args, *current.keywords.values()]
    plain = getattr(current, "__func__", current)
    if isinstance(plain, FunctionType):
        cells = [cell.cell_contents for cell in plain.__closure__ or () if _is_filled(cell)]
        if _is_sdk(plain.__module__):  # its globals are the SDK itself; what it was given is in its closure
            return cells
        own = getattr(current, "__self__", None)
        named = [plain.__globals__[name] for name in _names(plain.__code__) if name in plain.__globals__]
        held = vars(own).values() if own is not None and hasattr(own, "__dict__") and not inspect.ismodule(own) else ()
        package = (plain.__module__ or "").split(".")[0]
        return [item for item in [*cells, *named, *held] if _is_worth_it(item, package)]
    return list(vars(current).values()) if _is_sdk(type(current).__module__) and hasattr(current, "__dict__") else []


def _is_worth_it(item: object, package: str) -> bool:
    plain = getattr(item, "__func__", item)
    if isinstance(plain, FunctionType):
        return (plain.__module__ or "").split(".")[0] == package
    return isinstance(item, (Agent, functools.partial))


def _is_sdk(module: str | None) -> bool:
    return (module or "").split(".")[0] == "agents"


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  an empty cell raises
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> list[str]:
    """Names that the code of a function and of the functions inside it use."""
    nested = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return list(dict.fromkeys([*code.co_names, *nested]))
