"""Generators that keep an OpenTelemetry context of their own between their steps, and never lend it to their consumer."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context


class Carried:
    """A context that is current during each step and remembered, with what the step changed, until the next one."""

    def __init__(self, context: otel_context.Context) -> None:
        self._context = context

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run one step."""
        token = otel_context.attach(self._context)
        try:
            yield
        except (StopIteration, StopAsyncIteration):
            raise
        except BaseException as error:
            self.failed(error)
            raise
        finally:
            self._context = otel_context.get_current()
            otel_context.detach(token)

    def failed(self, error: BaseException) -> None:
        """Called with an exception that leaves the generator."""

    def ended(self) -> None:
        """Called once when the generator is exhausted, closed or has failed."""


def carry(inner: Generator[Any, Any, Any], start: Callable[[], Carried]) -> Generator[Any, Any, Any]:
    """`inner` with each of its steps run in what `start` (called at the first step) returns."""
    carried, resume = start(), functools.partial(inner.send, None)
    try:
        while True:
            try:
                with carried.step():
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                resume = functools.partial(inner.send, (yield item))
            except GeneratorExit:
                with carried.step():
                    inner.close()
                raise
            except BaseException as error:
                resume = functools.partial(inner.throw, error)
    finally:
        carried.ended()


async def carry_async(inner: AsyncGenerator[Any, Any], start: Callable[[], Carried]) -> AsyncGenerator[Any, Any]:
    """`carry` for an async generator."""
    carried, resume = start(), functools.partial(_first, inner)
    try:
        while True:
            try:
                with carried.step():
                    item = await resume()
            except StopAsyncIteration:
                return
            try:
                resume = functools.partial(inner.asend, (yield item))
            except GeneratorExit:
                with carried.step():
                    await inner.aclose()
                raise
            except BaseException as error:
                resume = functools.partial(inner.athrow, error)
    finally:
        carried.ended()


def _first(inner: AsyncGenerator[Any, Any]) -> Coroutine[Any, Any, Any]:
    """The first step of `inner`, unknown to the event loop: it is closed by the generator around it, and a loop that
    shuts down would close it a second time at the same moment."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def pull(source: Iterator[Any], context: otel_context.Context) -> Iterator[Any]:
    """`source` with every item computed in `context`, whoever asks for it."""
    carried = Carried(context)
    while True:
        try:
            with carried.step():
                item = next(source)
        except StopIteration:
            return
        yield item


async def pull_async(source: AsyncIterator[Any], context: otel_context.Context) -> AsyncIterator[Any]:
    """`pull` for an async iterator."""
    carried = Carried(context)
    while True:
        try:
            with carried.step():
                item = await source.__anext__()
        except StopAsyncIteration:
            return
        yield item
