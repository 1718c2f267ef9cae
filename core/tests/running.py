"""Helpers of the tests that run rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from leyden.episode import Episode
from leyden.run import all_spans
from leyden.runner import Runner
from leyden.stores.memory import MemoryStore
from leyden.types import Prompt, Resources, RolloutRequest

RESOURCES = Resources(policies={"default": Prompt(text="be good", version=3)})


@asynccontextmanager
async def runner(function: Callable[[Any], Any], **settings: Any) -> AsyncIterator[tuple[Runner, MemoryStore]]:
    """A runner at work on a memory store with resources."""
    store = MemoryStore()
    await store.publish(RESOURCES)
    made = Runner(store, function, **{"lease_s": 5.0, "poll_s": 0.05, "grace_s": 0.2, **settings})
    task = asyncio.create_task(made.run())
    try:
        yield made, store
    finally:
        made.stop()
        await asyncio.wait_for(task, 10)
        await store.close()


async def episodes(store: MemoryStore, requests: Sequence[RolloutRequest], wait_s: float = 20) -> list[Episode]:
    """Enqueue, wait, and read back."""
    rollouts = await store.enqueue(requests)
    ended = await store.wait([rollout.id for rollout in rollouts], timeout_s=wait_s)
    assert len(ended) == len(rollouts), "not all rollouts ended in time"
    attempts = {attempt.id: attempt for attempt in await store.attempts([rollout.id for rollout in ended])}
    return [
        Episode(
            rollout=rollout,
            attempt=attempts.get(rollout.attempt or ""),
            spans=await all_spans(store, rollout.attempt) if rollout.attempt else (),
        )
        for rollout in ended
    ]
