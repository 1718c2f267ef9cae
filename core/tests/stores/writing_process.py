"""A process of the durability tests: works on a store for ever, and prints each call that was acknowledged.

Usage: writing_process.py FILE NAME. Each line is JSON: ["enqueued", rollout], ["claimed", rollout, attempt],
["span", attempt, span], ["finished", attempt], ["published", version].
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from leyden.store import LightningStore
from leyden.stores import open_store
from leyden.types import LLMCall, Resources, RolloutRequest, Span


def acknowledge(*what: object) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())  # one write a line: whole, or not at all


async def produce(store: LightningStore, name: str) -> None:
    for i in range(10**9):
        ids = [f"{name}-{i}-{j}" for j in range(4)]
        await store.enqueue([RolloutRequest(task={"i": i}, id=rollout) for rollout in ids])
        for rollout in ids:
            acknowledge("enqueued", rollout)
        if i % 10 == 0:
            acknowledge("published", (await store.publish(Resources(values={"i": i}))).version)


async def consume(store: LightningStore, name: str) -> None:
    while True:
        for claimed in await store.claim(name, limit=2, wait_s=1.0, lease_s=600.0):
            attempt = claimed.attempt
            acknowledge("claimed", claimed.rollout.id, attempt.id)
            call = LLMCall(prompt_ids=tuple(range(500)), sampled_ids=(1, 2, 3), logprobs=(-0.5, -0.25, -0.125))
            spans = [
                Span(
                    rollout_id=claimed.rollout.id,
                    attempt_id=attempt.id,
                    span_id=f"s{i}",
                    sequence=i,
                    name="llm",
                    call=call,
                )
                for i in range(3)
            ]
            await store.add_spans(spans)
            for span in spans:
                acknowledge("span", attempt.id, span.span_id)
            await store.finish(attempt.id, "succeeded")
            acknowledge("finished", attempt.id)


async def main(path: str, name: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        acknowledge("open")
        await asyncio.gather(produce(store, name), *(consume(store, f"{name}-{i}") for i in range(4)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
