"""A process of the two-process tests: claims and finishes until nothing is queued for a while; prints what it claimed.

Usage: claiming_process.py FILE NAME.
"""

from __future__ import annotations

import asyncio
import sys

from leyden.store import LightningStore
from leyden.stores import open_store


async def work(store: LightningStore, name: str) -> None:
    while claims := await store.claim(name, limit=2, wait_s=2.0):
        for claimed in claims:
            await store.finish(claimed.attempt.id, "succeeded")
            print(claimed.rollout.id, flush=True)


async def main(path: str, name: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        print("open", flush=True)
        await asyncio.gather(*(work(store, f"{name}-{i}") for i in range(8)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
