"""Agents of plain Python: blocks, functions of all four kinds, and the names that were declared."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator

import pytest

import leyden
from leyden.agents import declared_agents
from leyden.errors import InvalidInput
from leyden.marks import Marks
from leyden.scope import current_agent
from leyden.testing.recording import recorded_attempt
from leyden.types import Mark


def test_blocks_nest() -> None:
    with leyden.agent("planner") as outer:
        with leyden.agent("writer") as inner:
            assert (outer, inner, current_agent()) == ("planner", "planner/writer", "planner/writer")
        assert current_agent() == "planner"
    assert current_agent() == ""


async def test_one_agent_object_may_be_entered_by_many_tasks() -> None:
    writer = leyden.agent("writer")
    everybody = asyncio.Barrier(8) if hasattr(asyncio, "Barrier") else None
    turn = asyncio.Event()

    async def work(number: int) -> None:
        with leyden.agent(f"team{number}"), writer as path:
            if everybody is not None:
                await everybody.wait()
            if number % 2:  # half of them leave before the others
                await turn.wait()
            assert current_agent() == path == f"team{number}/writer"
        turn.set()
        assert current_agent() == ""

    with recorded_attempt() as attempt:
        await asyncio.gather(*(work(number) for number in range(8)))
    assert sorted(span.agent for span in attempt.spans) == sorted(
        path for number in range(8) for path in (f"team{number}", f"team{number}/writer")
    )


def test_one_agent_object_may_be_entered_within_itself() -> None:
    writer = leyden.agent("writer")
    with writer, writer as path:
        assert path == "writer/writer"
    assert current_agent() == ""


def test_functions_of_all_kinds() -> None:
    @leyden.agent("plain")
    def plain(add: int) -> tuple[str, int]:
        """Documented."""
        return current_agent(), add

    @leyden.agent
    async def coroutine() -> str:
        await asyncio.sleep(0)
        return current_agent()

    @leyden.agent("generator")
    def generator() -> Iterator[str]:
        yield current_agent()
        yield current_agent()

    @leyden.agent("async generator")
    async def async_generator() -> AsyncIterator[str]:
        yield current_agent()
        await asyncio.sleep(0)
        yield current_agent()

    async def run() -> None:
        assert await coroutine() == "coroutine"
        async for path in async_generator():
            assert path == "async generator"
            assert current_agent() == ""

    assert plain(add=1) == ("plain", 1)
    assert (plain.__name__, plain.__doc__) == ("plain", "Documented.")
    assert inspect.iscoroutinefunction(coroutine)
    for path in generator():
        assert path == "generator"
        assert current_agent() == ""
    with recorded_attempt() as attempt:
        asyncio.run(run())
    assert [span.name for span in attempt.spans] == ["invoke_agent coroutine", "invoke_agent async generator"]


def test_an_exception_is_the_functions_own_and_marks_the_span() -> None:
    @leyden.agent("broken")
    def broken() -> None:
        raise ValueError("bad")

    with recorded_attempt() as attempt, pytest.raises(ValueError, match="bad"):
        broken()
    assert attempt.spans[0].error == "ValueError: bad"
    assert current_agent() == ""


def test_declared_agents_and_marks_by_function() -> None:
    @leyden.agent("declared-function")
    def function() -> None: ...

    leyden.declare("declared-name", "declared-function")
    known = declared_agents()
    assert known["declared-name"] is None
    assert known["declared-function"] is function
    marks = Marks()
    marks.add(function)
    assert marks.resolve(known.items()) == (Mark(selector="declared-function"),)


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(InvalidInput):
        leyden.agent(" ")
    with pytest.raises(InvalidInput):
        leyden.declare("/")
