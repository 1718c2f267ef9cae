"""Many agents at once, in tasks and threads, nested and generated: no call is given to another agent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest

import leyden
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer, prompt_ids
from leyden.types import Endpoint

Attempt = AbstractContextManager[RecordedAttempt]


def messages(name: str) -> Any:
    return [{"role": "user", "content": f"I am {name}"}]


@pytest.fixture
def threads() -> Iterator[None]:
    """`leyden.instrument()`, as `train` calls it: the context goes into threads."""
    leyden.instrument()
    yield
    leyden.uninstrument()


def check(attempt: RecordedAttempt, names: list[str]) -> None:
    """Every agent has its own calls, routed where it is marked ("m…") and left alone where it is not ("u…")."""
    assert sorted(span.agent for span in attempt.llm) == sorted(names)
    for span in attempt.llm:
        assert span.call is not None
        assert f"I am {span.agent}" in span.attributes["gen_ai.input.messages"]
        if span.agent.startswith("m"):
            assert span.call.policy == "default"
            assert span.call.prompt_ids == prompt_ids(messages(span.agent))
        else:
            assert span.call.policy is None
    assert sorted(span.sequence for span in attempt.spans) == list(range(1, len(attempt.spans) + 1))


async def test_64_tasks(aclient: openai.AsyncOpenAI, endpoint: Endpoint, provider: FakeModelServer) -> None:
    names = [f"{'mu'[number % 2]}{number}" for number in range(64)]

    async def work(name: str) -> None:
        with leyden.agent(name):
            await asyncio.sleep(0)
            if len(name) % 2:
                await aclient.chat.completions.create(model="own", messages=messages(name))
            else:
                stream = await aclient.chat.completions.create(model="own", messages=messages(name), stream=True)
                _ = [chunk async for chunk in stream]

    with recorded_attempt({"default": endpoint}, {"m*": "default"}) as attempt:
        await asyncio.gather(*(work(name) for name in names))
    check(attempt, names)
    assert len(provider.requests) == 32


async def test_attempts_at_the_same_time_keep_apart(aclient: openai.AsyncOpenAI, endpoint: Endpoint) -> None:
    async def work(name: str) -> RecordedAttempt:
        with recorded_attempt({"default": endpoint}, {"m*": "default"}) as attempt, leyden.agent(name):
            for _ in range(3):
                await aclient.chat.completions.create(model="own", messages=messages(name))
        return attempt

    names = [f"m{number}" for number in range(16)]
    for name, attempt in zip(names, await asyncio.gather(*(work(name) for name in names)), strict=True):
        check(attempt, [name] * 3)


@pytest.mark.usefixtures("threads")
def test_16_threads(client: openai.OpenAI, endpoint: Endpoint) -> None:
    names = [f"{'mu'[number % 2]}{number}" for number in range(16)]
    barrier = threading.Barrier(16)

    def call(name: str) -> None:
        barrier.wait()
        client.chat.completions.create(model="own", messages=messages(name))

    with recorded_attempt({"default": endpoint}, {"m*": "default"}) as attempt:
        started = []
        for name in names:
            with leyden.agent(name):
                started.append(threading.Thread(target=call, args=(name,)))
                started[-1].start()
        for thread in started:
            thread.join()
    check(attempt, names)


@pytest.mark.usefixtures("threads")
def test_a_pool_of_threads(client: openai.OpenAI, endpoint: Endpoint) -> None:
    names = [f"{'mu'[number % 2]}{number}" for number in range(32)]
    with recorded_attempt({"default": endpoint}, {"m*": "default"}) as attempt, ThreadPoolExecutor(4) as pool:
        waiting = []
        for name in names:
            with leyden.agent(name):
                waiting.append(pool.submit(client.chat.completions.create, model="own", messages=messages(name)))
        for future in waiting:
            future.result()
    check(attempt, names)


def test_nested_agents(client: openai.OpenAI, endpoint: Endpoint, provider: FakeModelServer) -> None:
    @leyden.agent("writer")
    def writer() -> None:
        client.chat.completions.create(model="own", messages=messages("inner"))

    with recorded_attempt({"default": endpoint}, {"planner/writer": "default"}) as attempt:
        with leyden.agent("planner"):
            client.chat.completions.create(model="own", messages=messages("outer"))
            writer()
            client.chat.completions.create(model="own", messages=messages("outer"))
        writer()
    assert [(span.agent, span.call and span.call.policy) for span in attempt.llm] == [
        ("planner", None),
        ("planner/writer", "default"),
        ("planner", None),
        ("writer", None),
    ]
    assert len(provider.requests) == 3


def test_a_call_by_no_agent_is_observed_and_never_routed(client: openai.OpenAI, endpoint: Endpoint) -> None:
    with recorded_attempt({"default": endpoint}, {"**": "default"}) as attempt:
        client.chat.completions.create(model="own", messages=messages("nobody"))
    assert [(span.agent, span.call and span.call.policy) for span in attempt.llm] == [("", None)]


def test_a_stream_belongs_to_the_agent_that_started_it(client: openai.OpenAI, endpoint: Endpoint) -> None:
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        with leyden.agent("writer"):
            stream = client.chat.completions.create(model="own", messages=messages("m"), stream=True)
        with leyden.agent("reader"):
            list(stream)
    assert [(span.agent, span.call and span.call.policy) for span in attempt.llm] == [("writer", "default")]


def test_an_adapters_answer_counts_where_the_context_names_no_agent(
    client: openai.OpenAI, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leyden.plugins import plugins

    monkeypatch.setattr(plugins, "identify", lambda: "writer")
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        client.chat.completions.create(model="own", messages=messages("a"))
        with leyden.agent("planner"):
            client.chat.completions.create(model="own", messages=messages("b"))
    assert [span.agent for span in attempt.llm] == ["writer", "planner"]
