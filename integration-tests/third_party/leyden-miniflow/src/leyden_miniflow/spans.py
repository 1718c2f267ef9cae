"""Agents and tools of miniflow: each is current in the OpenTelemetry context while it is at work, and has a span."""

from __future__ import annotations

import functools
from typing import Any

from opentelemetry import trace

from leyden import attributes, tracing
from leyden.generators import Carried, carry_async
from leyden.patching import Function
from leyden.scope import with_agent
from leyden_miniflow.package import FRAMEWORK


def run(original: Function) -> Function:
    """`Agent.run`."""

    @functools.wraps(original)
    async def wrapper(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return await original(agent, *args, **kwargs)
        with tracing.agent_span(agent.name, FRAMEWORK):
            return await original(agent, *args, **kwargs)

    return wrapper


def stream(original: Function) -> Function:
    """`Agent.stream`: the agent is current between two pieces, and never in the code that consumes them."""

    @functools.wraps(original)
    def wrapper(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return original(agent, *args, **kwargs)
        return carry_async(original(agent, *args, **kwargs), functools.partial(_Steps, agent))

    return wrapper


class _Steps(Carried):
    """The agent's context for the steps of its stream, and the agent's span."""

    def __init__(self, agent: Any) -> None:
        path, self._span = tracing.open_agent(agent.name, FRAMEWORK)
        super().__init__(trace.set_span_in_context(self._span, with_agent(path)))

    def failed(self, error: BaseException) -> None:
        tracing.fail(self._span, error)

    def ended(self) -> None:
        self._span.end()


def tool(original: Function) -> Function:
    """`call_tool`."""

    @functools.wraps(original)
    async def wrapper(function: Any, arguments: str) -> Any:
        if not tracing.recording():
            return await original(function, arguments)
        given = {
            attributes.OPERATION: attributes.EXECUTE_TOOL,
            attributes.TOOL_NAME: function.__name__,
            attributes.TOOL_ARGUMENTS: arguments,
            attributes.FRAMEWORK: FRAMEWORK,
        }
        with tracing.span(f"execute_tool {function.__name__}", "tool", given) as opened:
            result = await original(function, arguments)
            tracing.set_content(opened, attributes.TOOL_RESULT, result)
            return result

    return wrapper
