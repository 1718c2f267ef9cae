"""The turns of agents and the calls of tools as spans that are current while they run, so that calls inside them nest.

Whose call is it? An agent's turn is `Agent.execute_task` or `Agent.kickoff`; every model call in it is the agent's: its steps,
its plan, the search query for its knowledge, the summary of its conversation that became too long. So is the call that
brings its answer into the shape of the task's `output_pydantic` or `output_json` afterwards: CrewAI makes all of these with
the agent's model, for the agent's task, and will make them with the trained one. What CrewAI asks for its own ends is a
helper call, by no agent: the plan of a crew with `planning=True`, memory, and the judgement of a guardrail that is text.
"""

from __future__ import annotations

import functools
import logging
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden import attributes, tracing
from leyden.patching import Function
from leyden.scope import with_agent
from leyden.tracing import recording
from leyden_crewai.identity import Turn, agent_name, as_agent, as_helper, current_turn, is_helper, with_turn
from leyden_crewai.models import models
from leyden_crewai.package import FRAMEWORK

logger = logging.getLogger(__name__)

Around = Callable[[Any, tuple[Any, ...], dict[str, Any]], AbstractContextManager[Any]]


def inside(around: Around, unless: Callable[[], bool] = lambda: False) -> Callable[[Function], Function]:
    """A patch that runs a method inside `around(self, args, kwargs)`; not where nothing is recorded, or `unless()`."""

    def make(original: Function) -> Function:
        @functools.wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not recording() or unless():
                return original(self, *args, **kwargs)
            with around(self, args, kwargs):
                return original(self, *args, **kwargs)

        return run

    return make


def inside_async(around: Around) -> Callable[[Function], Function]:
    """The same for an async method."""

    def make(original: Function) -> Function:
        @functools.wraps(original)
        async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not recording():
                return await original(self, *args, **kwargs)
            with around(self, args, kwargs):
                return await original(self, *args, **kwargs)

        return run

    return make


def in_event_loop() -> bool:
    """Whether a loop runs in this thread; `kickoff` then only makes the coroutine of `kickoff_async`."""
    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def agent_turn(agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """The turn of an agent, retries included, as one `invoke_agent` span. The work is the task or the messages."""
    entered = _enter(agent, args[0] if args else kwargs.get("task", kwargs.get("messages")))
    if entered is None:
        yield
        return
    opened, token = entered
    try:
        yield
    except BaseException as error:
        tracing.fail(opened, error)
        raise
    finally:
        otel_context.detach(token)
        opened.end()


def _enter(agent: Any, work: object) -> tuple[trace.Span, Any] | None:
    """Open the span and make it current; None for a retry, a helper, or if it could not be told which agent it is."""
    try:
        if is_helper():
            return None
        models.cover(agent)
        turn = Turn(agent_name(agent), work)
        if turn.is_again(current_turn()):
            return None
        path, opened = tracing.open_agent(turn.name, FRAMEWORK)
        return opened, otel_context.attach(trace.set_span_in_context(opened, with_turn(turn, with_agent(path))))
    except Exception:
        logger.exception("an agent of the crew could not be named; it runs as no agent")
        return None


def conversion(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AbstractContextManager[None]:
    """The conversion of an answer into the task's output type, as work of the agent that answered."""
    if is_helper() or getattr(task, "agent", None) is None:
        return nullcontext()
    name = agent_name(task.agent)
    return as_agent(name) if name else nullcontext()


def helper(original: Function) -> Function:
    """A function that does CrewAI's own work, by no agent."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not recording():
            return original(*args, **kwargs)
        with as_helper():
            return original(*args, **kwargs)

    return run


def tool_run(original: Function) -> Function:
    """`BaseTool.run(**arguments)` or `CrewStructuredTool.invoke(arguments)` in a tool span."""

    @functools.wraps(original)
    def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return original(tool, *args, **kwargs)
        with _tool_span(tool, _given(original, args, kwargs)) as opened:
            result = original(tool, *args, **kwargs)
            tracing.set_content(opened, attributes.TOOL_RESULT, result)
            return result

    return run


def tool_arun(original: Function) -> Function:
    """The same for `arun` and `ainvoke`."""

    @functools.wraps(original)
    async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return await original(tool, *args, **kwargs)
        with _tool_span(tool, _given(original, args, kwargs)) as opened:
            result = await original(tool, *args, **kwargs)
            tracing.set_content(opened, attributes.TOOL_RESULT, result)
            return result

    return arun


def _given(original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a tool was called with: the input of `invoke(input, config)`, or the arguments of `run(...)`."""
    if original.__name__ in ("invoke", "ainvoke"):
        return args[0] if args else kwargs.get("input")
    return kwargs if not args else args[0] if len(args) == 1 and not kwargs else [*args, kwargs]


def _tool_span(tool: Any, given: Any) -> AbstractContextManager[trace.Span]:
    name = str(getattr(tool, "name", type(tool).__name__))
    return tracing.span(
        f"execute_tool {name}",
        "tool",
        {
            attributes.OPERATION: attributes.EXECUTE_TOOL,
            attributes.TOOL_NAME: name,
            attributes.TOOL_ARGUMENTS: given if isinstance(given, str) else tracing.text_of(given),
            attributes.FRAMEWORK: FRAMEWORK,
        },
    )
