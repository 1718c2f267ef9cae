"""What the parts of the store's conformance suite share: fixtures, requests, spans and waiting for the sweeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from leyden.store import LightningStore
from leyden.testing.clock import ManualClock
from leyden.types import Attempt, Claim, LLMCall, Reward, Rollout, RolloutRequest, Span

T = TypeVar("T")

PATIENCE_S = 20.0
"""How long a test waits for what must happen soon, before it fails."""


class Base:
    """Fixtures and helpers. `store` has to be overridden."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock of the store under test."""
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> Any:
        """A fresh, empty store that goes by `clock`."""
        raise NotImplementedError("override the fixture `store` with one that yields a fresh, empty store")

    async def advance(self, clock: ManualClock, seconds: float) -> None:
        """Let `seconds` pass on the store's clock."""
        clock.advance(seconds)


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` returns, as soon as it is true."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_S
    while not (seen := await look()):
        assert loop.time() < until, f"did not happen within {PATIENCE_S:g} s"
        await asyncio.sleep(0.005)
    return seen


async def one(store: LightningStore, rollout: str) -> Rollout:
    """The rollout as it is now."""
    (found,) = (await store.rollouts(ids=[rollout])).items
    return found


async def attempt_of(store: LightningStore, attempt: Attempt) -> Attempt:
    """The attempt as it is now."""
    return next(a for a in await store.attempts([attempt.rollout_id]) if a.id == attempt.id)


async def ended(store: LightningStore, attempt: Attempt) -> Attempt:
    """The attempt, as soon as the sweeper has ended it."""

    async def look() -> Attempt | None:
        now = await attempt_of(store, attempt)
        return None if now.status == "running" else now

    return await eventually(look)


async def start(store: LightningStore, worker: str = "w", **request: Any) -> Claim:
    """Enqueue one rollout and claim it."""
    request.setdefault("task", {"x": 1})
    await store.enqueue([RolloutRequest(**request)])
    (claimed,) = await store.claim(worker)
    return claimed


def a_span(attempt: Attempt, sequence: int, **fields: Any) -> Span:
    """A span of `attempt`."""
    fields.setdefault("span_id", f"s{sequence:04}")
    fields.setdefault("name", "step")
    return Span(rollout_id=attempt.rollout_id, attempt_id=attempt.id, sequence=sequence, **fields)


def an_llm_span(attempt: Attempt, sequence: int) -> Span:
    """A span with token ids of every size, exact log-probs, a reward and nested attributes."""
    call = LLMCall(
        model="m",
        server="http://127.0.0.1:8000",
        response_id="r1",
        policy="default",
        version=3,
        prompt_ids=(0, 1, 65_535, 65_536, 2**31 - 1),
        sampled_ids=(5, 6, 7),
        logprobs=(-0.1, -1e-300, -1.2345678901234567),
        finish_reason="stop",
        prompt_tokens=5,
        completion_tokens=3,
    )
    return a_span(
        attempt,
        sequence,
        kind="llm",
        agent="planner/writer",
        parent_id="p",
        trace_id="t",
        start_ns=1_700_000_000_123_456_789,
        end_ns=1_700_000_000_987_654_321,
        attributes={"text": "ä 漢 \x00", "list": [1, 2.5, None, True], "nested": {"a": {"b": []}}},
        call=call,
        reward=Reward(value=0.1, dimensions={"format": 1.0}, agent="writer"),
    )
