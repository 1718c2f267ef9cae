"""The ambient attempt and agent: in tasks, in threads, and never in somebody else's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import context as otel_context

import leyden
from leyden.errors import InvalidInput
from leyden.scope import (
    attempt_scope,
    child_path,
    current_agent,
    current_attempt,
    set_process_attempt,
    with_agent,
)
from leyden.testing.recording import recorded_attempt


def test_nothing_is_current_outside() -> None:
    assert current_attempt() is None
    assert current_agent() == ""


def test_scopes_nest_and_end() -> None:
    with recorded_attempt() as outer:
        with recorded_attempt() as inner:
            assert current_attempt() is inner.scope
        assert current_attempt() is outer.scope
    assert current_attempt() is None


def test_an_exception_ends_the_scope() -> None:
    with pytest.raises(KeyError), recorded_attempt():
        raise KeyError
    assert current_attempt() is None


async def test_a_task_keeps_its_own() -> None:
    ready = asyncio.Event()

    async def inside() -> None:
        with recorded_attempt() as attempt, leyden.agent("a"):
            ready.set()
            await asyncio.sleep(0)
            assert current_attempt() is attempt.scope
            assert await asyncio.create_task(path()) == "a"

    async def path() -> str:
        return current_agent()

    task = asyncio.create_task(inside())
    await ready.wait()
    assert current_attempt() is None
    assert current_agent() == ""
    await task


def test_threads_get_it_by_instrument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leyden.plugins.plugins, "_loaded", True)
    found: list[str] = []
    with recorded_attempt(), leyden.agent("a"):
        bare = threading.Thread(target=lambda: found.append(current_agent()))
        bare.start()
        bare.join()
        leyden.instrument()
        leyden.instrument()
        try:
            carried = threading.Thread(target=lambda: found.append(current_agent()))
            carried.start()
            carried.join()
            with ThreadPoolExecutor(1) as pool:
                found.append(pool.submit(current_agent).result())
        finally:
            leyden.uninstrument()
    assert found == ["", "a", "a"]


async def test_the_attempt_of_the_process_is_everywhere_but_in_other_attempts() -> None:
    with recorded_attempt() as process:
        pass
    set_process_attempt(process.scope)
    try:
        assert current_attempt() is process.scope
        found: list[object] = []
        bare = threading.Thread(target=lambda: found.append(current_attempt()))
        bare.start()
        bare.join()

        async def inside() -> object:
            await asyncio.sleep(0)
            return current_attempt()

        found += [await asyncio.create_task(inside()), await asyncio.to_thread(current_attempt)]
        assert found == [process.scope] * 3
        with leyden.agent("a"):
            leyden.emit_message("recorded")
        with recorded_attempt() as other:
            assert current_attempt() is other.scope
            leyden.emit_message("elsewhere")
    finally:
        set_process_attempt(None)
    assert current_attempt() is None
    assert [(span.kind, span.agent) for span in process.spans] == [("agent", "a"), ("message", "a")]
    assert [span.kind for span in other.spans] == ["message"]


def test_numbers_go_on_after_those_of_another_process() -> None:
    with recorded_attempt() as attempt:
        assert attempt.scope.next_sequence() == 1
        attempt.scope.continue_after(1000)
        assert attempt.scope.next_sequence() == 1001
        attempt.scope.continue_after(5)
        assert attempt.scope.next_sequence() == 1002


def test_sequence_numbers_are_unique_over_threads() -> None:
    with recorded_attempt() as attempt, ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: attempt.scope.next_sequence(), range(1000)))
    assert sorted(numbers) == list(range(1, 1001))


def test_contexts_made_by_hand() -> None:
    with recorded_attempt() as attempt:
        made = with_agent("planner/writer")
        assert current_agent() == ""
        assert current_agent(made) == "planner/writer"
        assert current_attempt(made) is attempt.scope
    with attempt_scope(attempt.scope):
        token = otel_context.attach(made)
        assert current_agent() == "planner/writer"
        otel_context.detach(token)


@pytest.mark.parametrize(
    ("name", "parent", "expected"), [("a", "", "a"), ("b", "a", "a/b"), (" /b/ ", "a", "a/b"), ("b/c", "a", "a/b/c")]
)
def test_child_paths(name: str, parent: str, expected: str) -> None:
    assert child_path(name, parent) == expected


@pytest.mark.parametrize("name", ["", " ", "/"])
def test_an_agent_needs_a_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"leyden\.agent"):
        child_path(name, "a")
