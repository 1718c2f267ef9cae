"""The turn of an agent: its path and its `invoke_agent` span are current while it runs, and never in who consumes its stream."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden import tracing
from leyden.generators import Carried, carry_async
from leyden.patching import Function
from leyden.plugins import plugins
from leyden.scope import current_attempt
from leyden_autogen import identity
from leyden_autogen.clients import watched
from leyden_autogen.package import FRAMEWORK

logger = logging.getLogger(__name__)


def turn(original: Function) -> Function:
    """A coroutine method of an agent (`run`, `on_messages`) as its turn."""

    @functools.wraps(original)
    async def run(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording() or identity.runs_already(agent):
            return await original(agent, *args, **kwargs)
        with entered(agent):
            return await original(agent, *args, **kwargs)

    return run


def streamed_turn(original: Function) -> Function:
    """An async generator method of an agent (`run_stream`, `on_messages_stream`) as its turn; the caller is who makes it."""

    @functools.wraps(original)
    def stream(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording() or identity.runs_already(agent):
            return original(agent, *args, **kwargs)
        start = functools.partial(_Steps, agent, otel_context.get_current())
        return carry_async(original(agent, *args, **kwargs), start)

    return stream


@contextmanager
def entered(agent: Any) -> Iterator[None]:
    """Run the enclosed code as `agent` (or as the team that takes turns under a name)."""
    opened = _open(agent)
    if opened is None:
        yield
        return
    context, span = opened
    token = otel_context.attach(context)
    try:
        yield
    except BaseException as error:
        tracing.fail(span, error)
        raise
    finally:
        otel_context.detach(token)
        span.end()


class _Steps(Carried):
    """The agent's context for the steps of its stream, and the agent's span."""

    def __init__(self, agent: Any, caller: otel_context.Context) -> None:
        token = otel_context.attach(caller)
        try:
            opened = _open(agent)
        finally:
            otel_context.detach(token)
        self._span = None if opened is None else opened[1]
        super().__init__(caller if opened is None else opened[0])

    def failed(self, error: BaseException) -> None:
        if self._span is not None:
            tracing.fail(self._span, error)

    def ended(self) -> None:
        if self._span is not None:
            self._span.end()


def _open(agent: Any) -> tuple[otel_context.Context, trace.Span] | None:
    """Start the span of a turn; the context to run it in. None if that failed: the agent runs as nobody new."""
    try:
        if current_attempt() is not None:
            watched.look()
        path, span = tracing.open_agent(agent.name, FRAMEWORK)
        return trace.set_span_in_context(span, identity.as_agent(agent, path)), span
    except Exception as problem:
        plugins.errors["autogen.turn"] += 1
        if plugins.errors["autogen.turn"] == 1:
            logger.warning("an agent could not be entered; it runs as none: %r", problem, exc_info=problem)
        return None


def native_span(original: Function) -> Function:
    """AutoGen's own span of a turn or a tool, left out where the same provider gets ours of the same thing."""

    @functools.wraps(original)
    def span(*args: Any, **kwargs: Any) -> Any:
        if tracing.recording() and current_attempt() is None:
            return nullcontext(trace.get_current_span())
        return original(*args, **kwargs)

    return span
