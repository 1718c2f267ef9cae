from __future__ import annotations

import asyncio
import contextvars
import json
import math
import sys
import threading
from fractions import Fraction
from typing import Any

import pytest
from running import episodes, runner

import leyden
from leyden.errors import ConfigError, MissingTokenIds
from leyden.scope import current_attempt
from leyden.types import Retry, RolloutRequest


def request(task: Any = 1, **given: Any) -> RolloutRequest:
    return RolloutRequest(task=task, **given)


class Number:
    """What a NumPy scalar or a one-element tensor is to us: something that float() takes."""

    def __float__(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("value", "reward"), [(1, 1.0), (0.5, 0.5), (True, 1.0), (Number(), 0.25), (Fraction(1, 4), 0.25), (0.0, 0.0)]
)
async def test_what_a_function_returns_is_the_reward(value: Any, reward: float) -> None:
    async def solve(task: Any) -> Any:
        return value

    async with runner(solve) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.succeeded
    assert episode.reward == reward
    assert [span.kind for span in episode.spans] == ["rollout", "reward"]


async def test_no_reward_is_missing_and_not_zero() -> None:
    async def solve(task: Any) -> None:
        return None

    async with runner(solve) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.succeeded
    assert episode.reward is None


@pytest.mark.parametrize("value", [math.nan, math.inf, "1.0", {"reward": 1}, [1, 2]])
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_reward_that_is_no_finite_number_fails_the_attempt(value: Any, threaded: bool) -> None:
    async def solve(task: Any) -> Any:
        return value

    def solve_plainly(task: Any) -> Any:
        return value

    async with runner(solve_plainly if threaded else solve) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.rollout.status == "failed"
    assert "must be a finite number" in (episode.rollout.reason or "")
    assert episode.reward is None


async def test_an_agent_that_raises_fails_its_attempt_with_reason_and_traceback_and_the_runner_goes_on() -> None:
    async def solve(task: str) -> float:
        if task == "bad":
            raise KeyError("no such tool")
        return 1.0

    async with runner(solve) as (_, store):
        bad, good = await episodes(store, [request("bad"), request("good")])
    assert good.reward == 1.0
    assert bad.rollout.status == "failed"
    assert bad.rollout.attempts == 1
    assert (bad.rollout.reason or "").startswith("KeyError: 'no such tool' (at test_runner.py:")
    [recorded] = [span for span in bad.spans if span.kind == "exception"]
    assert recorded.error == "KeyError: 'no such tool'"
    assert 'raise KeyError("no such tool")' in json.loads(recorded.attributes["leyden.value"])["traceback"]


async def test_plain_functions_run_in_threads_of_their_own_many_at_once() -> None:
    everyone = threading.Barrier(8)

    def solve(task: int) -> float:
        everyone.wait(10)  # passes only if all eight run at once
        leyden.emit_message(f"task {task}")
        assert current_attempt() is not None
        return float(task)

    async with runner(solve, concurrency=8) as (_, store):
        found = await episodes(store, [request(task) for task in range(8)])
    assert [episode.reward for episode in found] == [float(task) for task in range(8)]
    for episode in found:
        [message] = [span for span in episode.spans if span.kind == "message"]
        assert f"task {episode.task}" in message.attributes["leyden.value"]


async def test_async_rollouts_run_at_once_and_never_swap_their_contexts() -> None:
    mine: contextvars.ContextVar[int] = contextvars.ContextVar("mine", default=-1)
    started = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def solve(task: int) -> float:
        assert mine.get() == -1
        mine.set(task)
        started.release()
        await go.wait()
        with leyden.agent(f"agent{task}"):
            await asyncio.sleep(0)
            leyden.emit_message(f"task {task}")
        assert mine.get() == task
        return float(task)

    async with runner(solve, concurrency=50) as (_, store):
        waiting = asyncio.create_task(episodes(store, [request(task) for task in range(50)]))
        for _ in range(50):
            await asyncio.wait_for(started.acquire(), 10)
        go.set()
        found = await waiting
    for episode in found:
        assert episode.reward == episode.task
        [message] = [span for span in episode.spans if span.kind == "message"]
        assert message.agent == f"agent{episode.task}"


async def test_a_plain_function_may_hand_on_a_coroutine() -> None:
    async def inner(task: Any) -> float:
        await asyncio.sleep(0)
        return 0.5

    async with runner(lambda task: inner(task)) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.reward == 0.5


async def test_a_routing_failure_fails_the_attempt_even_if_the_agent_hides_it() -> None:
    async def solve(task: Any) -> float:
        scope = current_attempt()
        assert scope is not None
        scope.failures.append(MissingTokenIds("the server sends no token ids"))
        return 1.0

    async with runner(solve) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.rollout.status == "failed"
    assert episode.rollout.reason == "MissingTokenIds: the server sends no token ids"
    assert episode.reward is None


@pytest.mark.parametrize("threaded", [False, True])
async def test_sys_exit_in_an_agent_fails_the_attempt_and_not_the_worker(threaded: bool) -> None:
    async def solve(task: int) -> float:
        if task:
            sys.exit(3)
        return 1.0

    def solve_plainly(task: int) -> float:
        if task:
            sys.exit(3)
        return 1.0

    async with runner(solve_plainly if threaded else solve, concurrency=1) as (_, store):
        bad, good = await episodes(store, [request(1), request(0)])
    assert bad.rollout.reason == "AgentExited: the agent called sys.exit(3)"
    assert good.reward == 1.0


async def test_a_hung_async_agent_is_cancelled_at_its_limit() -> None:
    cleaned = asyncio.Event()

    async def solve(task: int) -> float:
        try:
            await asyncio.sleep(task)
        finally:
            cleaned.set()
        return 1.0

    async with runner(solve, concurrency=1) as (made, store):
        slow, quick = await episodes(store, [request(600, timeout_s=0.1), request(0)])
        assert not made.hung
    assert cleaned.is_set()
    assert slow.rollout.status == "failed"
    assert slow.attempt is not None
    assert slow.attempt.status == "timeout"
    assert "over its limit of 0.1 s" in (slow.rollout.reason or "")
    assert quick.reward == 1.0


async def test_an_async_agent_that_ignores_its_cancellation_is_given_up() -> None:
    release = asyncio.Event()

    async def solve(task: int) -> float:
        while task and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return 1.0

    async with runner(solve, concurrency=1) as (_, store):
        stubborn, quick = await episodes(store, [request(1, timeout_s=0.1), request(0)])
        release.set()
    assert stubborn.attempt is not None
    assert stubborn.attempt.status == "timeout"
    assert quick.reward == 1.0


async def test_a_hung_thread_is_reported_at_once_and_asks_for_a_new_process_when_the_others_are_done() -> None:
    release = threading.Event()

    def solve(task: int) -> float:
        if task == 0:
            release.wait(30)
            leyden.emit_message("too late to be recorded")
        return 1.0

    async with runner(solve, concurrency=2, replaceable=True) as (made, store):
        [hung] = await episodes(store, [request(0, timeout_s=0.2)])
        for _ in range(500):
            if made.hung:
                break
            await asyncio.sleep(0.01)
        assert made.hung  # run() has ended, nothing more is claimed
        [late] = await store.enqueue([request(1)])
        assert await store.wait([late.id], timeout_s=0.2) == []
        release.set()
    assert hung.attempt is not None
    assert hung.attempt.status == "timeout"
    assert hung.spans == ()


async def test_a_thread_that_ends_late_is_no_reason_to_be_replaced() -> None:
    release, others = threading.Event(), threading.Event()

    def solve(task: str) -> float:
        if task == "late":
            release.wait(30)
        elif task == "other":
            others.wait(30)
        return 1.0

    async with runner(solve, concurrency=2, replaceable=True) as (made, store):
        [other] = await store.enqueue([request("other")])
        [late] = await episodes(store, [request("late", timeout_s=0.1)])
        release.set()
        [after] = await episodes(store, [request("after")])
        others.set()
        await store.wait([other.id], timeout_s=10)
        assert not made.hung
    assert late.rollout.status == "failed"
    assert after.reward == 1.0


async def test_a_cancelled_rollout_stops_its_agent_and_stays_cancelled() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def solve(task: Any) -> float:
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()
        return 1.0

    async with runner(solve, lease_s=0.3) as (_, store):
        [rollout] = await store.enqueue([request()])
        await asyncio.wait_for(started.wait(), 10)
        await store.cancel([rollout.id])
        await asyncio.wait_for(stopped.wait(), 10)
        [ended] = (await store.rollouts(ids=[rollout.id])).items
    assert ended.status == "cancelled"


async def test_leases_are_renewed_for_longer_than_they_last() -> None:
    async def solve(task: Any) -> float:
        await asyncio.sleep(1.0)
        return 1.0

    async with runner(solve, lease_s=0.3) as (_, store):
        [episode] = await episodes(store, [request(retry=Retry(max_attempts=1))])
    assert episode.succeeded
    assert episode.rollout.attempts == 1


async def test_stop_hands_back_what_runs_and_loses_nothing() -> None:
    started = asyncio.Event()

    async def solve(task: Any) -> float:
        started.set()
        await asyncio.sleep(600)
        return 1.0

    async with runner(solve) as (made, store):
        [rollout] = await store.enqueue([request()])
        await asyncio.wait_for(started.wait(), 10)
        made.stop()
        for _ in range(500):
            [seen] = (await store.rollouts(ids=[rollout.id])).items
            if seen.status == "queued":
                break
            await asyncio.sleep(0.01)
        assert seen.status == "queued"
        assert await store.wait([rollout.id], timeout_s=0.2) == []  # it is not claimed again by the runner that stops
        [attempt] = await store.attempts([rollout.id])
    assert attempt.status == "unresponsive"
    assert attempt.reason == "the worker was stopped"


async def test_prompt_gives_the_text_of_the_attempts_resources_and_the_default_outside() -> None:
    async def solve(task: Any) -> float:
        assert leyden.prompt("default", "?") == "be good"
        assert leyden.prompt("other", "fallback") == "fallback"
        return 1.0

    async with runner(solve) as (_, store):
        [episode] = await episodes(store, [request()])
    assert episode.succeeded, episode.rollout.reason
    [used] = [span for span in episode.spans if span.name == "prompt default"]
    assert used.attributes["leyden.value"] == '{"policy": "default", "version": 3}'
    assert leyden.prompt("default", "outside") == "outside"


def test_functions_that_cannot_be_run_on_a_task_are_refused() -> None:
    async def solve() -> float:
        return 1.0

    def stream(task: Any) -> Any:
        yield 1.0

    with pytest.raises(ConfigError, match="exactly one argument"):
        leyden.rollout(solve)
    with pytest.raises(ConfigError, match="generator"):
        leyden.rollout(stream)
    with pytest.raises(ConfigError, match="not a function"):
        leyden.rollout(3)  # type: ignore[type-var]
