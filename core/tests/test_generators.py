from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from opentelemetry import context as otel_context

import leyden
from leyden.generators import pull, pull_async
from leyden.scope import current_agent


@leyden.agent("writer")
def words() -> Iterator[str]:
    yield current_agent()
    with leyden.agent("inner"):
        yield current_agent()
        yield current_agent()
    yield current_agent()


@leyden.agent("writer")
async def awords() -> AsyncIterator[str]:
    yield current_agent()
    with leyden.agent("inner"):
        yield current_agent()
        await asyncio.sleep(0)
        yield current_agent()
    yield current_agent()


EXPECTED = ["team/writer", "team/writer/inner", "team/writer/inner", "team/writer"]


def test_a_generator_belongs_to_its_maker_and_never_leaks_into_its_consumer() -> None:
    with leyden.agent("team"):
        made = words()
    seen = []
    with leyden.agent("consumer"):
        for word in made:
            seen.append(word)
            assert current_agent() == "consumer"
    assert seen == EXPECTED
    assert current_agent() == ""


async def test_an_async_generator_too() -> None:
    with leyden.agent("team"):
        made = awords()
    seen = []
    with leyden.agent("consumer"):
        async for word in made:
            seen.append(word)
            assert current_agent() == "consumer"
    assert seen == EXPECTED
    assert current_agent() == ""


def test_an_abandoned_generator_leaks_nothing() -> None:
    made = words()
    assert [next(made), next(made)] == ["writer", "writer/inner"]
    made.close()  # type: ignore[attr-defined]
    assert current_agent() == ""


async def test_an_abandoned_async_generator_leaks_nothing() -> None:
    made = awords()
    assert [await anext(made), await anext(made)] == ["writer", "writer/inner"]
    await made.aclose()  # type: ignore[attr-defined]
    assert current_agent() == ""


def test_one_that_is_abandoned_when_the_loop_ends_is_closed_once() -> None:
    complaints, closed = [], []

    @leyden.agent("writer")
    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield current_agent()
        finally:
            closed.append(current_agent())

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        async for word in endless():
            assert word == "writer"
            break

    asyncio.run(main())
    assert closed == ["writer"]
    assert complaints == []


async def test_pulled_items_are_computed_in_the_given_context() -> None:
    with leyden.agent("a"):
        context = otel_context.get_current()

    async def source() -> AsyncIterator[str]:
        for _ in range(2):
            yield current_agent()

    with leyden.agent("b"):
        assert list(pull((current_agent() for _ in range(2)), context)) == ["a", "a"]
        assert [item async for item in pull_async(source(), context)] == ["a", "a"]
        assert current_agent() == "b"
