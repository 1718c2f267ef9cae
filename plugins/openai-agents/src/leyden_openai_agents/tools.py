"""What a turn does after the model's answer: function tools, tools that act on a machine, and handoffs, as spans."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from leyden import attributes, tracing
from leyden.patching import Function
from leyden_openai_agents.package import FRAMEWORK

HANDOFF = "leyden.handoff"
"""On the span of a handoff: the name of the agent that takes over."""

_MACHINE_TOOLS = ("computer_tool", "local_shell_tool", "shell_tool", "apply_patch_tool", "custom_tool")
_NOT_ARGUMENTS = ("id", "call_id", "type", "status", "name", "pending_safety_checks")


def tool_run(original: Function) -> Function:
    """`invoke_function_tool(*, function_tool, context, arguments)` in a tool span; an agent as a tool runs inside it."""

    @functools.wraps(original)
    async def invoke(*, function_tool: Any, context: Any, arguments: str, **more: Any) -> Any:
        given = {"function_tool": function_tool, "context": context, "arguments": arguments, **more}
        if not tracing.recording():
            return await original(**given)
        described = _described(function_tool.name, getattr(context, "tool_call_id", None), arguments)
        with tracing.span(f"execute_tool {function_tool.name}", "tool", described) as opened:
            result = await original(**given)
            output = getattr(result, "output", result)
            tracing.set_content(opened, attributes.TOOL_RESULT, output)
            if getattr(result, "is_sdk_generated_error", False):  # the model reads the message, the run goes on
                opened.set_status(Status(StatusCode.ERROR, tracing.text_of(output)[:500]))
            return result

    return invoke


def action_run(original: Function) -> Function:
    """`ShellAction.execute` and its like, class methods that run one call of a machine tool, in a tool span."""
    function: Function = getattr(original, "__func__", original)

    @functools.wraps(function)
    async def execute(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = kwargs.get("call", kwargs.get("action"))
        if not tracing.recording() or run is None:
            return await function(cls, *args, **kwargs)
        name, described = _action(run)
        with tracing.span(f"execute_tool {name}", "tool", described) as opened:
            item = await function(cls, *args, **kwargs)
            tracing.set_content(opened, attributes.TOOL_RESULT, getattr(item, "output", item))
            return item

    return execute


def handoff_run(original: Function) -> Function:
    """`execute_handoffs` in a tool span: to the model a handoff is a tool that it calls."""

    @functools.wraps(original)
    async def execute(*args: Any, **kwargs: Any) -> Any:
        runs = kwargs.get("run_handoffs")
        if not tracing.recording() or not runs:
            return await original(*args, **kwargs)
        call, name = runs[0].tool_call, runs[0].handoff.tool_name
        described = _described(name, call.call_id, call.arguments)
        with tracing.span(f"execute_tool {name}", "tool", described) as opened:
            step = await original(*args, **kwargs)
            _record_handoff(opened, step)
            return step

    return execute


def _record_handoff(opened: trace.Span, step: Any) -> None:
    taking_over = getattr(step.next_step, "new_agent", None)
    if taking_over is not None:
        opened.set_attribute(HANDOFF, str(taking_over.name))
    for item in step.new_step_items:
        if item.type == "handoff_output_item":
            tracing.set_content(opened, attributes.TOOL_RESULT, _get(item.raw_item, "output"))


def _action(run: Any) -> tuple[str, dict[str, Any]]:
    """Name of a machine tool, and the attributes of its span."""
    tool = next((getattr(run, name) for name in _MACHINE_TOOLS if hasattr(run, name)), None)
    call = run.tool_call
    name = str(getattr(tool, "name", None) or _get(call, "type"))
    fields = call if isinstance(call, Mapping) else call.model_dump() if hasattr(call, "model_dump") else vars(call)
    arguments = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS and value is not None}
    return name, _described(name, _get(call, "call_id"), tracing.text_of(arguments))


def _described(name: str, call_id: object, arguments: object) -> dict[str, Any]:
    described = {
        attributes.OPERATION: attributes.EXECUTE_TOOL,
        attributes.TOOL_NAME: name,
        attributes.TOOL_ARGUMENTS: str(arguments or "{}"),
        attributes.FRAMEWORK: FRAMEWORK,
    }
    return described if call_id is None else {**described, attributes.TOOL_CALL_ID: str(call_id)}


def _get(item: Any, name: str) -> Any:
    """A field of what is a mapping in some versions of the SDK and an object in others."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
