"""AutoGen's tool calls as `execute_tool` spans, current while the tool runs, so that what it calls nests."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from leyden import attributes, tracing
from leyden.patching import Function
from leyden_autogen.package import FRAMEWORK

_CALLED = otel_context.create_key("leyden-autogen-tool-called")
"""Set between an assistant's tool call, which has a span, and the tool that it runs, which then needs none."""


def assistant_tool_call(original: Function) -> Function:
    """`AssistantAgent._execute_tool_call`, a static method: every tool, workbench and handoff of an assistant."""

    @functools.wraps(original)
    async def execute(_: None, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return await original(*args, **kwargs)
        call: Any = kwargs.get("tool_call", args[0] if args else None)
        with _tool_span(call.name, call.arguments, call.id, called=True) as opened:
            answer = await original(*args, **kwargs)
            _record(opened, answer[1].content, bool(answer[1].is_error))
            return answer

    return execute


def tool_run(original: Function) -> Function:
    """`BaseTool.run_json`, for tools that somebody else than an assistant calls."""

    @functools.wraps(original)
    async def run_json(tool: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return await original(tool, *args, **kwargs)
        if otel_context.get_value(_CALLED):
            with _attached(otel_context.set_value(_CALLED, False)):
                return await original(tool, *args, **kwargs)
        with _tool_span(tool.name, kwargs.get("args", args[0] if args else None), kwargs.get("call_id")) as opened:
            result = await original(tool, *args, **kwargs)
            _record(opened, result, False)
            return result

    return run_json


@contextmanager
def _tool_span(name: str, arguments: Any, call_id: str | None, called: bool = False) -> Iterator[trace.Span]:
    given: dict[str, Any] = {
        attributes.OPERATION: attributes.EXECUTE_TOOL,
        attributes.TOOL_NAME: name,
        attributes.TOOL_ARGUMENTS: arguments if isinstance(arguments, str) else tracing.text_of(arguments),
        attributes.FRAMEWORK: FRAMEWORK,
    }
    if call_id:
        given[attributes.TOOL_CALL_ID] = call_id
    with (
        tracing.span(f"execute_tool {name}", "tool", given) as opened,
        _attached(otel_context.set_value(_CALLED, called)),
    ):
        yield opened


@contextmanager
def _attached(context: otel_context.Context) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def _record(opened: trace.Span, result: Any, failed: bool) -> None:
    """Put a tool's result on its span; AutoGen gives a tool's error to the model as its result."""
    tracing.set_content(opened, attributes.TOOL_RESULT, result)
    if failed:
        opened.set_status(Status(StatusCode.ERROR, str(result)[:500]))
