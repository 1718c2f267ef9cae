"""Plain-Python agents: `with leyden.agent("writer")` and `@leyden.agent`, and the names declared by them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden.generators import Carried, carry, carry_async
from leyden.scope import child_path, with_agent
from leyden.tracing import agent_span, fail, open_agent

F = TypeVar("F", bound=Callable[..., Any])

_DECLARED: dict[str, object] = {}
_ENTERED: ContextVar[tuple[AbstractContextManager[str], ...]] = ContextVar("leyden-entered-agents", default=())
"""The `with agent(...)` blocks around the running code: one `Agent` object may be entered by many tasks at once."""


def declare(*names: str) -> None:
    """Say which agents will be named at run time with `with agent(...)`, so that a mark for them can be checked."""
    for name in names:
        _DECLARED.setdefault(child_path(name, ""), None)


def declared_agents() -> dict[str, object]:
    """Names given to `declare` or `@agent`, each with the function as `@agent` left it, where there is one."""
    return dict(_DECLARED)


class Agent(AbstractContextManager[str]):
    """Names the enclosed code, or the decorated function, as an agent below the current one.

    Works on plain and async functions and on both kinds of generators; in a generator the agent is current only while
    the generator itself runs, never in its consumer.
    """

    def __init__(self, name: str) -> None:
        self.name = child_path(name, "")

    def __enter__(self) -> str:
        manager = agent_span(self.name)
        path = manager.__enter__()
        _ENTERED.set((*_ENTERED.get(), manager))
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        *outer, manager = _ENTERED.get()
        _ENTERED.set(tuple(outer))
        manager.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        wrapped = cast("F", wrap(self.name, function))
        _DECLARED[self.name] = wrapped
        return wrapped


def wrap(name: str, function: Callable[..., Any], framework: str = "python") -> Callable[..., Any]:
    """`function` (plain, async, or a generator of either kind) run as agent `name` below the caller's agent.

    For a generator the caller is who makes it, not who consumes it.
    """
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def async_generator(*args: Any, **kwargs: Any) -> Any:
            start = functools.partial(_Steps, name, framework, otel_context.get_current())
            return carry_async(function(*args, **kwargs), start)

        return async_generator
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            start = functools.partial(_Steps, name, framework, otel_context.get_current())
            return carry(function(*args, **kwargs), start)

        return generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with agent_span(name, framework):
                return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with agent_span(name, framework):
            return function(*args, **kwargs)

    return plain


class _Steps(Carried):
    """The agent's context for the steps of a generator, and the agent's span."""

    def __init__(self, name: str, framework: str, caller: otel_context.Context) -> None:
        token = otel_context.attach(caller)
        try:
            path, self._span = open_agent(name, framework)
            super().__init__(trace.set_span_in_context(self._span, with_agent(path)))
        finally:
            otel_context.detach(token)

    def failed(self, error: BaseException) -> None:
        fail(self._span, error)

    def ended(self) -> None:
        self._span.end()


@overload
def agent(name: str) -> Agent: ...
@overload
def agent(name: F) -> F: ...
def agent(name: str | F) -> Agent | F:
    """Name an agent: `with agent("writer"):`, `@agent("writer")` or bare `@agent` (the function's name)."""
    if isinstance(name, str):
        return Agent(name)
    return Agent(name.__name__)(name)
