"""Plain-Python agents: `with leyden.agent("writer")` and `@leyden.agent`, and the names declared by them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace

from leyden.scope import child_path, with_agent
from leyden.tracing import agent_span, fail, open_agent

F = TypeVar("F", bound=Callable[..., Any])

_DECLARED: dict[str, object] = {}


def declare(*names: str) -> None:
    """Say which agents will be named at run time with `with agent(...)`, so that a mark for them can be checked."""
    for name in names:
        _DECLARED.setdefault(child_path(name, ""), None)


def declared_agents() -> dict[str, object]:
    """Names given to `declare` or `@agent`, each with the decorated function where there is one."""
    return dict(_DECLARED)


class Agent(AbstractContextManager[str]):
    """Names the enclosed code, or the decorated function, as an agent below the current one.

    Works on plain and async functions and on both kinds of generators; in a generator the agent is current only while
    the generator itself runs, never in its consumer.
    """

    def __init__(self, name: str) -> None:
        self.name = child_path(name, "")
        self._entered: list[AbstractContextManager[str]] = []

    def __enter__(self) -> str:
        manager = agent_span(self.name)
        path = manager.__enter__()
        self._entered.append(manager)
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        _DECLARED[self.name] = function
        return cast("F", _wrap(self.name, function))


def _wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def async_generator(*args: Any, **kwargs: Any) -> Any:
            return _step_async(name, function(*args, **kwargs))

        return async_generator
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return _step(name, function(*args, **kwargs))

        return generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with agent_span(name):
                return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with agent_span(name):
            return function(*args, **kwargs)

    return plain


class _Steps:
    """Runs the steps of a generator inside the agent's context, and gives the consumer its own back in between."""

    def __init__(self, name: str) -> None:
        path, self._span = open_agent(name)
        self._context = trace.set_span_in_context(self._span, with_agent(path))

    @contextmanager
    def step(self) -> Iterator[None]:
        token = otel_context.attach(self._context)
        try:
            yield
        except (StopIteration, StopAsyncIteration):
            raise
        except BaseException as error:
            fail(self._span, error)
            raise
        finally:
            self._context = otel_context.get_current()
            otel_context.detach(token)

    def end(self) -> None:
        """End the agent's span."""
        self._span.end()


def _step(name: str, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    steps, resume = _Steps(name), functools.partial(inner.send, None)
    try:
        while True:
            try:
                with steps.step():
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                resume = functools.partial(inner.send, (yield item))
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                resume = functools.partial(inner.throw, error)
    finally:
        steps.end()


async def _step_async(name: str, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    steps, resume = _Steps(name), functools.partial(inner.asend, None)
    try:
        while True:
            try:
                with steps.step():
                    item = await resume()
            except StopAsyncIteration:
                return
            try:
                resume = functools.partial(inner.asend, (yield item))
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:
                resume = functools.partial(inner.athrow, error)
    finally:
        steps.end()


@overload
def agent(name: str) -> Agent: ...
@overload
def agent(name: F) -> F: ...
def agent(name: str | F) -> Agent | F:
    """Name an agent: `with agent("writer"):`, `@agent("writer")` or bare `@agent` (the function's name)."""
    if isinstance(name, str):
        return Agent(name)
    return Agent(name.__name__)(name)
