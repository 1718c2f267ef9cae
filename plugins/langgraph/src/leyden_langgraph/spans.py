"""The run of a node as an agent: its path and its `invoke_agent` span are current while it runs, retries included."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden import tracing
from leyden.patching import Function
from leyden.scope import with_agent
from leyden.tracing import recording
from leyden_langgraph.identity import node_name, with_agent_name
from leyden_langgraph.package import FRAMEWORK

logger = logging.getLogger(__name__)


def node_run(original: Function) -> Function:
    """`run_with_retry(task, ...)` as the agent that the task is."""

    @functools.wraps(original)
    def run(task: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return original(task, *args, **kwargs)
        with _node(task):
            return original(task, *args, **kwargs)

    return run


def node_arun(original: Function) -> Function:
    """`arun_with_retry(task, ...)` as the agent that the task is."""

    @functools.wraps(original)
    async def arun(task: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording():
            return await original(task, *args, **kwargs)
        with _node(task):
            return await original(task, *args, **kwargs)

    return arun


@contextmanager
def _node(task: Any) -> Iterator[None]:
    entered = _enter(task)
    if entered is None:
        yield
        return
    opened, token = entered
    try:
        yield
    except BaseException as error:
        if not _is_control_flow(error):
            tracing.fail(opened, error)
        raise
    finally:
        otel_context.detach(token)
        opened.end()


def _enter(task: Any) -> tuple[trace.Span, Any] | None:
    """Open the span and make it current; None for a node that is no agent, or if it could not be told which it is."""
    try:
        name = node_name(task)
        if name is None:
            return None
        path, opened = tracing.open_agent(name, FRAMEWORK)
        context = trace.set_span_in_context(opened, with_agent_name(task, with_agent(path)))
        return opened, otel_context.attach(context)
    except Exception:
        logger.exception("a node of the graph could not be named; it runs as no agent")
        return None


def _is_control_flow(error: BaseException) -> bool:
    """Whether LangGraph raised this to interrupt a graph or to leave it with a command: no failure of the node."""
    from langgraph.errors import GraphBubbleUp

    return isinstance(error, GraphBubbleUp)
