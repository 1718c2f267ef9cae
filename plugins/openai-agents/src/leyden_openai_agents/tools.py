"""What a turn does after the model's answer: function tools, tools that act on a machine, and handoffs, as spans."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from leyden import attributes, tracing
from leyden.patching import Function
from leyden_openai_agents.package import FRAMEWORK

logger = logging.getLogger(__name__)

HANDOFF = "leyden.handoff"
"""On the span of a handoff: the name of the agent that takes over."""

_MACHINE_TOOLS = ("computer_tool", "local_shell_tool", "shell_tool", "apply_patch_tool", "custom_tool")
_NOT_ARGUMENTS = ("id", "call_id", "type", "status", "name", "pending_safety_checks")


Described = tuple[str, dict[str, Any]]
"""Name of a tool, and the attributes of its span."""


def tool_run(original: Function) -> Function:
    """`invoke_function_tool(*, function_tool, context, arguments)` in a tool span; an agent as a tool runs inside it."""

    def describe(given: Mapping[str, Any]) -> Described:
        name, context = given["function_tool"].name, given["context"]
        return name, _attributes(name, getattr(context, "tool_call_id", None), given["arguments"])

    return _in_span(original, describe, _record_result)


def action_run(original: Function) -> Function:
    """`ShellAction.execute` and its like, class methods that run one call of a machine tool, in a tool span."""

    def describe(given: Mapping[str, Any]) -> Described:
        return _action(given["action"] if "action" in given else given["call"])

    return _in_span(getattr(original, "__func__", original), describe, _record_result)


def handoff_run(original: Function) -> Function:
    """`execute_handoffs` in a tool span: to the model a handoff is a tool that it calls."""

    def describe(given: Mapping[str, Any]) -> Described:
        first = given["run_handoffs"][0]  # the SDK ignores all others
        name = first.handoff.tool_name
        return name, _attributes(name, first.tool_call.call_id, first.tool_call.arguments)

    return _in_span(original, describe, _record_handoff)


def _in_span(
    original: Function,
    describe: Callable[[Mapping[str, Any]], Described],
    record: Callable[[trace.Span, Any], None],
) -> Function:
    """`original`, a coroutine function, in a tool span; what goes wrong in describing or recording it is only logged."""
    places = [*inspect.signature(original).parameters]

    @functools.wraps(original)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return await original(*args, **kwargs)
        try:
            name, given = describe({**dict(zip(places, args, strict=False)), **kwargs})
        except Exception:
            logger.exception("a tool of the OpenAI Agents SDK could not be described; it runs without a span")
            return await original(*args, **kwargs)
        with tracing.span(f"execute_tool {name}", "tool", given) as opened:
            result = await original(*args, **kwargs)
            try:
                record(opened, result)
            except Exception:
                logger.exception("the result of a tool of the OpenAI Agents SDK could not be recorded")
            return result

    return call


def _record_result(opened: trace.Span, result: Any) -> None:
    """The result is an item with an output, or it is the output itself (function tools before 0.19)."""
    output = getattr(result, "output", result)
    tracing.set_content(opened, attributes.TOOL_RESULT, output)
    if getattr(result, "is_sdk_generated_error", False):  # the model reads the message, the run goes on
        opened.set_status(Status(StatusCode.ERROR, tracing.text_of(output)[:500]))


def _record_handoff(opened: trace.Span, step: Any) -> None:
    taking_over = getattr(step.next_step, "new_agent", None)
    if taking_over is not None:
        opened.set_attribute(HANDOFF, str(taking_over.name))
    for item in step.new_step_items:
        if item.type == "handoff_output_item":
            tracing.set_content(opened, attributes.TOOL_RESULT, _get(item.raw_item, "output"))


def _action(run: Any) -> Described:
    tool = next((getattr(run, name) for name in _MACHINE_TOOLS if hasattr(run, name)), None)
    call = run.tool_call
    name = str(getattr(tool, "name", None) or _get(call, "type"))
    fields = call if isinstance(call, Mapping) else call.model_dump() if hasattr(call, "model_dump") else vars(call)
    arguments = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS and value is not None}
    return name, _attributes(name, _get(call, "call_id"), tracing.text_of(arguments))


def _attributes(name: str, call_id: object, arguments: object) -> dict[str, Any]:
    given = {
        attributes.OPERATION: attributes.EXECUTE_TOOL,
        attributes.TOOL_NAME: name,
        attributes.TOOL_ARGUMENTS: str(arguments or "{}"),
        attributes.FRAMEWORK: FRAMEWORK,
    }
    return given if call_id is None else {**given, attributes.TOOL_CALL_ID: str(call_id)}


def _get(item: Any, name: str) -> Any:
    """A field of what is a mapping in some versions of the SDK and an object in others."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
