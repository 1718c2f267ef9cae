"""One turn of an agent: its path and its `invoke_agent` span are current while its model and its tools run.

A turn is one call of the model and all that follows from its answer. So agents that run inside a tool of a turn are
below its agent (`planner/writer`), those that take over by a handoff are beside it (`writer`), and so are the agents
that guardrails run before, after or beside the turns.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden import tracing
from leyden.patching import Function
from leyden.scope import with_agent
from leyden_openai_agents.package import FRAMEWORK

logger = logging.getLogger(__name__)

_SERVER_STATE = otel_context.create_key("leyden-openai-agents-server-state")


def turn(original: Function) -> Function:
    """A turn, plain, streamed or resumed, run as its agent."""
    places = [*inspect.signature(original).parameters]

    @functools.wraps(original)
    async def run(*args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return await original(*args, **kwargs)
        with _entered({**dict(zip(places, args, strict=False)), **kwargs}):
            return await original(*args, **kwargs)

    return run


def history_is_on_the_server() -> bool:
    """Whether the running turn sends only what is new, because the server keeps the conversation."""
    return bool(otel_context.get_value(_SERVER_STATE))


def agent_of(given: Mapping[str, Any]) -> Any:
    """The agent that a turn is called for. As of 0.14 it comes in a pair with the one that is run in a sandbox for it."""
    return given["bindings"].public_agent if "bindings" in given else given["agent"]


@contextmanager
def _entered(given: Mapping[str, Any]) -> Iterator[None]:
    entered = _enter(given)
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


def _enter(given: Mapping[str, Any]) -> tuple[trace.Span, Any] | None:
    """Open the span and make it current; None if it could not be told which agent it is."""
    try:
        path, opened = tracing.open_agent(agent_of(given).name, FRAMEWORK)
        stays = given.get("server_conversation_tracker") is not None or given.get("server_manages_conversation")
        context = otel_context.set_value(_SERVER_STATE, bool(stays), with_agent(path))
        return opened, otel_context.attach(trace.set_span_in_context(opened, context))
    except Exception:
        logger.exception("an agent of the OpenAI Agents SDK could not be named; it runs as no agent")
        return None
