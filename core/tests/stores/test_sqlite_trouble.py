"""The SQLite store in trouble: a full disk, a lock that is kept, a call that fails among others, a slow reader."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leyden.errors import Conflict, NotFound, StoreUnavailable
from leyden.stores.sqlite import SQLiteStore, schema
from leyden.stores.sqlite.writer import Transaction
from leyden.testing.store_base import PATIENCE_S, a_span, start
from leyden.types import LLMCall, RolloutRequest


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = await SQLiteStore.open(tmp_path / "store.db")
    yield store
    await store.close()


async def test_a_full_disk(store: SQLiteStore) -> None:
    attempt = (await start(store)).attempt

    def shrink(tx: Transaction) -> int:
        pages: int = tx.db.execute("PRAGMA page_count").fetchone()[0]
        return int(tx.db.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone()[0])

    await store._write(shrink)
    big = "x" * 1_000_000
    outcomes = await asyncio.gather(
        store.add_spans([a_span(attempt, 0)]),
        store.add_spans([a_span(attempt, 1, attributes={"big": big})]),
        store.add_spans([a_span(attempt, 2)]),
        return_exceptions=True,
    )
    assert (outcomes[0], outcomes[2]) == (1, 1), "the others of the transaction do not fail with it"
    assert isinstance(outcomes[1], StoreUnavailable)
    assert "free some space" in str(outcomes[1])
    await store._write(lambda tx: tx.db.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await store.add_spans([a_span(attempt, 1, attributes={"big": big})]) == 1, "retrying is safe"
    assert [s.sequence for s in (await store.spans(attempt=attempt.id)).items] == [0, 1, 2]


async def test_a_lock_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BUSY_S", 0.1)
    store = await SQLiteStore.open(tmp_path / "store.db")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process"):
        await store.enqueue([RolloutRequest(task=1)])
    assert (await store.statistics()).rollouts["queued"] == 0, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert len(await store.enqueue([RolloutRequest(task=1)])) == 1
    await store.close()


async def test_readers_do_not_wait_for_the_writer(store: SQLiteStore) -> None:
    await store.enqueue([RolloutRequest(task=1)])
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.db.execute("DELETE FROM rollouts")
        begun.set()
        assert go_on.wait(PATIENCE_S)

    writing = asyncio.create_task(store._write(slow))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    assert (await store.statistics()).rollouts["queued"] == 1
    go_on.set()
    await writing
    assert (await store.statistics()).rollouts["queued"] == 0


async def test_many_calls_share_a_transaction(store: SQLiteStore) -> None:
    """While the writer is busy calls gather; then one transaction takes them all."""
    begun, go_on = threading.Event(), threading.Event()
    moments: list[int] = []

    def slow(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    writing = asyncio.create_task(store._write(slow))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    calls = [asyncio.create_task(store._write(lambda tx: moments.append(id(tx)))) for _ in range(50)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(writing, *calls)
    assert len(moments) == 50
    assert len(set(moments)) == 1


async def test_a_call_that_fails_does_not_fail_the_others(store: SQLiteStore) -> None:
    await store.enqueue([RolloutRequest(task=1, id="r")])

    def broken(tx: Transaction) -> None:
        tx.db.execute("DELETE FROM rollouts")
        raise ZeroDivisionError

    outcomes = await asyncio.gather(
        store.enqueue([RolloutRequest(task=2, id="s")]),
        store._write(broken),
        store.enqueue([RolloutRequest(task=2, id="r")]),
        store.finish("nobody", "succeeded"),
        store.enqueue([RolloutRequest(task=3, id="t")]),
        return_exceptions=True,
    )
    assert [type(o) for o in outcomes] == [list, ZeroDivisionError, Conflict, NotFound, list]
    assert [r.id for r in (await store.rollouts()).items] == ["r", "s", "t"]


async def test_an_error_after_a_write_leaves_nothing(store: SQLiteStore) -> None:
    await store.enqueue([RolloutRequest(task=1, id="r")])

    def half_done(tx: Transaction) -> None:
        tx.db.execute("DELETE FROM rollouts")
        raise Conflict("too late")

    outcomes = await asyncio.gather(
        store._write(half_done), store.enqueue([RolloutRequest(task=2, id="s")]), return_exceptions=True
    )
    assert [type(o) for o in outcomes] == [Conflict, list]
    assert [r.id for r in (await store.rollouts()).items] == ["r", "s"]


async def test_a_wait_is_told_and_does_not_look(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leyden.stores.sqlite.store.RECHECK_S", 1000.0)
    for end in ("finish", "cancel"):
        claimed = await start(store)
        waiting = asyncio.create_task(store.wait([claimed.rollout.id]))
        await asyncio.sleep(0.03)
        if end == "finish":
            await store.finish(claimed.attempt.id, "succeeded")
        else:
            await store.cancel([claimed.rollout.id])
        assert len(await asyncio.wait_for(waiting, PATIENCE_S)) == 1


async def test_a_cancelled_call_is_not_run(store: SQLiteStore) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    writing = asyncio.create_task(store._write(slow))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    adding = asyncio.create_task(store.enqueue([RolloutRequest(task=1)]))
    await asyncio.sleep(0)
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    go_on.set()
    await writing
    assert (await store.rollouts()).items == ()


async def test_close_writes_what_was_called_before(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db")
    calls = [asyncio.create_task(store.enqueue([RolloutRequest(task=i)])) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*calls)) == 20
    again = await SQLiteStore.open(tmp_path / "store.db")
    assert (await again.statistics()).rollouts["queued"] == 20
    await again.close()


async def test_tokens_are_stored_compactly(store: SQLiteStore, tmp_path: Path) -> None:
    attempt = (await start(store)).attempt
    call = LLMCall(prompt_ids=tuple(range(150_000)), sampled_ids=(1,) * 1000, logprobs=(-0.1,) * 1000)
    await store.add_spans([a_span(attempt, 0, call=call)])
    await store.close()
    assert (tmp_path / "store.db").stat().st_size < 150_000 * 4 + 1000 * 10 + 150_000
