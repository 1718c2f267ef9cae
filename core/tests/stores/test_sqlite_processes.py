"""SQLite across processes: what was acknowledged survives `kill -9`, and several processes share one file."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from leyden.errors import StoreUnavailable
from leyden.store import LightningStore
from leyden.stores import open_store
from leyden.stores.sqlite import SQLiteStore
from leyden.testing.store_base import PATIENCE_S
from leyden.types import Rollout, RolloutRequest

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("LEYDEN_KILL_ROUNDS", "20"))


async def spawn(script: str, *arguments: str) -> Process:
    process = await asyncio.create_subprocess_exec(sys.executable, str(HERE / script), *arguments, stdout=PIPE)
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).strip() in (b"open", b'["open"]')
    return process


async def killed_at_random(path: Path, name: str, chance: random.Random) -> list[list[str]]:
    """What a writing process had acknowledged when it was killed."""
    process = await spawn("writing_process.py", str(path), name)
    reading = asyncio.create_task(process.communicate())
    await asyncio.sleep(chance.uniform(0.01, 0.4))
    process.send_signal(signal.SIGKILL)
    output, _ = await reading
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


async def check(store: LightningStore, acknowledged: list[list[str]]) -> None:
    of = {
        kind: [line[1:] for line in acknowledged if line[0] == kind]
        for kind in ("enqueued", "claimed", "span", "finished")
    }
    ids = [rollout for (rollout,) in of["enqueued"]]
    if ids:
        found: list[Rollout] = []
        for i in range(0, len(ids), 500):
            found += (await store.rollouts(ids=ids[i : i + 500])).items
        assert len(found) == len(ids)
    attempts = {a.id: a for a in await store.attempts([rollout for rollout, _ in of["claimed"]])}
    assert {attempt for _, attempt in of["claimed"]} <= set(attempts)
    spans: dict[str, set[str]] = {}
    for attempt, span in of["span"]:
        if attempt not in spans:
            spans[attempt] = {
                s.span_id
                for s in (await store.spans(attempt=attempt)).items
                if s.call and len(s.call.prompt_ids) == 500
            }
        assert span in spans[attempt]
    for (attempt,) in of["finished"]:
        assert attempts[attempt].status == "succeeded"
    for line in acknowledged:
        if line[0] == "published":
            assert (await store.resources(int(line[1]))).version == int(line[1])


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path, chance = tmp_path / "store.db", random.Random(1)
    acknowledged: list[list[str]] = []
    for turn in range(ROUNDS):
        new = await killed_at_random(path, f"p{turn}", chance)
        async with open_store(str(path)) as store:
            await check(store, new)
        acknowledged += new
    async with open_store(str(path)) as store:
        await check(store, acknowledged)
    kinds = {line[0] for line in acknowledged}
    assert kinds == {"enqueued", "claimed", "span", "finished", "published"}, "the test has to have tested something"
    attempts = [line[2] for line in acknowledged if line[0] == "claimed"]
    rollouts = [line[1] for line in acknowledged if line[0] == "claimed"]
    assert len(attempts) == len(set(attempts))
    assert len(rollouts) == len(set(rollouts)), "leases are long: nothing may be claimed twice"
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


async def test_two_processes_share_the_work(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)) as store:
        rollouts = [r.id for r in await store.enqueue([RolloutRequest(task=i, id=f"r{i}") for i in range(400)])]
        processes = [await spawn("claiming_process.py", str(path), f"p{i}") for i in range(2)]
        more = [r.id for r in await store.enqueue([RolloutRequest(task=i, id=f"s{i}") for i in range(400)])]
        done = await store.wait(rollouts + more, timeout_s=PATIENCE_S * 3)
        assert len(done) == 800
        claimed = [(await process.communicate())[0].decode().split() for process in processes]
        assert all(claimed), "both have worked"
        assert sorted(claimed[0] + claimed[1]) == sorted(rollouts + more), "none was claimed twice"
        assert {a.number for a in await store.attempts(rollouts + more)} == {1}


async def test_waiting_sees_what_another_opener_does(tmp_path: Path) -> None:
    """Two openers in one process share nothing but the file, as two processes do."""
    path = tmp_path / "store.db"
    async with open_store(str(path)) as trainer, open_store(str(path)) as worker:
        loop = asyncio.get_running_loop()
        lags = []
        for i in range(10):
            claiming = asyncio.create_task(worker.claim("w", wait_s=PATIENCE_S))
            await asyncio.sleep(0.03)
            (rollout,) = await trainer.enqueue([RolloutRequest(task=i)])
            (claimed,) = await asyncio.wait_for(claiming, PATIENCE_S)
            waiting = asyncio.create_task(trainer.wait([rollout.id]))
            await asyncio.sleep(0.03)
            await worker.finish(claimed.attempt.id, "succeeded")
            finished = loop.time()
            assert [r.status for r in await asyncio.wait_for(waiting, PATIENCE_S)] == ["succeeded"]
            lags.append(loop.time() - finished)
        assert sorted(lags)[5] < 0.5, "far below the two seconds after which it would look by itself"


async def test_one_sweeper_ends_what_another_process_left(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)) as worker:
        await worker.enqueue([RolloutRequest(task=1, id="r")])
        (claimed,) = await worker.claim("w", lease_s=0.2)
    async with open_store(str(path)) as one, open_store(str(path)) as two:
        (again,) = await one.claim("w2", wait_s=PATIENCE_S)
        assert (again.rollout.id, again.attempt.number) == ("r", 2)
        statuses = [a.status for a in await two.attempts(["r"])]
        assert statuses == ["unresponsive", "running"]
        assert claimed.attempt.id != again.attempt.id


async def test_many_openers_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "store.db"
    stores = await asyncio.gather(*(SQLiteStore.open(path) for _ in range(8)))
    await asyncio.gather(*(s.enqueue([RolloutRequest(task=1)]) for s in stores))
    assert (await stores[0].statistics()).rollouts["queued"] == 8
    for store in stores:
        await store.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["store.db"], "closing leaves one file"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_store_does_not_cross_a_fork(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db")
    store._pid -= 1  # as a child would find it
    with pytest.raises(StoreUnavailable, match="open it again"):
        await store.statistics()
    store._pid += 1
    await store.close()
