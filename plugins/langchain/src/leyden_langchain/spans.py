"""LangChain's tool calls as `execute_tool` spans, current while the tool runs, so that calls inside it nest."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from leyden import attributes, tracing
from leyden.patching import Function
from leyden.tracing import recording
from leyden_langchain.package import FRAMEWORK


def tool_run(original: Function) -> Function:
    """`BaseTool.run` in a tool span."""

    @functools.wraps(original)
    def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return original(tool, *args, **kwargs)
        with _tool_span(tool, args, kwargs) as opened:
            result = original(tool, *args, **kwargs)
            _record(opened, result)
            return result

    return run


def tool_arun(original: Function) -> Function:
    """`BaseTool.arun` in a tool span."""

    @functools.wraps(original)
    async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return await original(tool, *args, **kwargs)
        with _tool_span(tool, args, kwargs) as opened:
            result = await original(tool, *args, **kwargs)
            _record(opened, result)
            return result

    return arun


@contextmanager
def _tool_span(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[trace.Span]:
    name = str(getattr(tool, "name", type(tool).__name__))
    given: dict[str, Any] = {
        attributes.OPERATION: attributes.EXECUTE_TOOL,
        attributes.TOOL_NAME: name,
        attributes.TOOL_ARGUMENTS: _arguments(tool, kwargs.get("tool_input", args[0] if args else None)),
        attributes.FRAMEWORK: FRAMEWORK,
    }
    if kwargs.get("tool_call_id"):
        given[attributes.TOOL_CALL_ID] = str(kwargs["tool_call_id"])
    with tracing.span(f"execute_tool {name}", "tool", given) as opened:
        yield opened


def _arguments(tool: Any, given: Any) -> str:
    """JSON text of a tool's input, without what the framework injects (the graph's state, the store, the runtime)."""
    try:
        if isinstance(given, dict) and hasattr(tool, "_filter_injected_args"):
            given = tool._filter_injected_args(given)
        elif isinstance(given, dict):
            shown = tool.tool_call_schema.model_json_schema()["properties"]
            given = {key: value for key, value in given.items() if key in shown}
    except Exception:  # a tool with a schema of its own kind: its input is shown as it is
        pass
    return tracing.text_of(given)


def _record(opened: trace.Span, result: Any) -> None:
    """Put a tool's result on its span; a tool that answers with an error message has failed."""
    content = getattr(result, "content", None) if hasattr(result, "tool_call_id") else result
    tracing.set_content(opened, attributes.TOOL_RESULT, content)
    if content is not result and getattr(result, "status", None) == "error":
        opened.set_status(
            Status(StatusCode.ERROR, tracing.text_of(content)[:500] if not isinstance(content, str) else content[:500])
        )
