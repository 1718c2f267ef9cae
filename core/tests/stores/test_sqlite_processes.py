"""SQLite across processes: what was acknowledged survives `kill -9`, and several processes share one file."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from asyncio import events
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from leyden.errors import NotFound, StoreUnavailable
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


async def test_waiting_sees_what_another_opener_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two openers in one process share nothing but the file, as two processes do."""
    monkeypatch.setattr("leyden.stores.sqlite.store.RECHECK_S", 1000.0)
    path = tmp_path / "store.db"
    async with open_store(str(path)) as trainer, open_store(str(path)) as worker:
        for i in range(10):
            claiming = asyncio.create_task(worker.claim("w", wait_s=PATIENCE_S * 3))
            await asyncio.sleep(0.03)
            (rollout,) = await trainer.enqueue([RolloutRequest(task=i)])
            (claimed,) = await asyncio.wait_for(claiming, PATIENCE_S)
            waiting = asyncio.create_task(trainer.wait([rollout.id]))
            await asyncio.sleep(0.03)
            await worker.finish(claimed.attempt.id, "succeeded")
            assert [r.status for r in await asyncio.wait_for(waiting, PATIENCE_S)] == ["succeeded"]


async def test_waiting_does_not_outlive_a_deletion_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leyden.stores.sqlite.store.RECHECK_S", 0.1)
    path = tmp_path / "store.db"
    async with open_store(str(path)) as trainer, open_store(str(path)) as other:
        await trainer.enqueue([RolloutRequest(task=i, id=f"r{i}") for i in range(2)])
        waiting = asyncio.create_task(trainer.wait(["r0", "r1"]))
        await asyncio.sleep(0.03)
        await other.cancel(["r0"])
        await other.delete(["r0"])
        with pytest.raises(NotFound, match="r0"):
            await asyncio.wait_for(waiting, PATIENCE_S)


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


async def work_in_child(path: Path, name: str) -> int:
    """Claim and finish what is queued, in a store of this process's own."""
    done = 0
    async with open_store(str(path)) as store:
        while claims := await store.claim(name, limit=5):
            for claimed in claims:
                await store.finish(claimed.attempt.id, "succeeded")
                done += 1
    return done


def forked(path: Path, inherited: SQLiteStore, name: str) -> int:
    """Fork; the child finds the inherited store unusable, works in one of its own, and exits with 0. Its pid."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        with pytest.raises(StoreUnavailable, match="open it again"):
            asyncio.new_event_loop().run_until_complete(inherited.statistics())
        events._set_running_loop(None)  # the child starts inside the loop of its parent
        assert asyncio.run(work_in_child(path, name)) > 0
        status = 0
    finally:
        os._exit(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_children_that_were_forked_open_the_store_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)) as store:
        assert isinstance(store, SQLiteStore)
        rollouts = [r.id for r in await store.enqueue([RolloutRequest(task=i) for i in range(300)])]
        busy = asyncio.create_task(work(store))
        pids = []
        for i in range(3):
            await asyncio.sleep(0)
            pids.append(forked(path, store, f"child{i}"))
        statuses = [(await asyncio.to_thread(os.waitpid, pid, 0))[1] for pid in pids]
        assert statuses == [0, 0, 0]
        await busy
        assert {r.status for r in await store.wait(rollouts, timeout_s=PATIENCE_S)} == {"succeeded"}
        workers = {a.worker for a in await store.attempts(rollouts)}
        assert {a.number for a in await store.attempts(rollouts)} == {1}
        assert workers >= {"child0", "child1", "child2"}
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


async def work(store: LightningStore) -> None:
    """The parent works too, one by one, so that the children find something to do."""
    while claims := await store.claim("parent"):
        await store.finish(claims[0].attempt.id, "succeeded")
        await asyncio.sleep(0.005)
