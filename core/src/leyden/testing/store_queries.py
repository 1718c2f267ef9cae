"""Conformance: queries, pages, deletion, statistics and the closed store (rules 8 to 11 of `leyden.store`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leyden.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from leyden.store import LightningStore
from leyden.testing.store_base import PATIENCE_S, Base, a_span, one, start
from leyden.types import Mode, Resources, Rollout, RolloutRequest

Call = Callable[[LightningStore], Awaitable[Any]]

UNKNOWN: dict[str, Call] = {
    "heartbeat": lambda store: store.heartbeat("w", ["nobody"]),
    "finish": lambda store: store.finish("nobody", "succeeded"),
    "cancel": lambda store: store.cancel(["nobody"]),
    "wait": lambda store: store.wait(["nobody"], timeout_s=0),
    "spans of an attempt": lambda store: store.spans(attempt="nobody"),
    "spans of a rollout": lambda store: store.spans(rollout="nobody"),
    "resources": lambda store: store.resources(1),
    "rollouts": lambda store: store.rollouts(ids=["nobody"]),
    "attempts": lambda store: store.attempts(["nobody"]),
    "delete": lambda store: store.delete(["nobody"]),
}

ANY: dict[str, Call] = {
    **UNKNOWN,
    "enqueue": lambda store: store.enqueue([RolloutRequest(task=1)]),
    "claim": lambda store: store.claim("w"),
    "add_spans": lambda store: store.add_spans([]),
    "publish": lambda store: store.publish(Resources()),
    "all rollouts": lambda store: store.rollouts(),
    "statistics": lambda store: store.statistics(),
}


class QueryRules(Base):
    """What can be asked, and what a store says when it cannot answer."""

    async def _five(self, store: LightningStore) -> None:
        modes: list[Mode] = ["train", "val", "train", "test", "train"]
        groups = ["g", "g", None, "h", "g"]
        await store.enqueue(
            [
                RolloutRequest(task=i, id=f"r{i}", mode=m, group=g)
                for i, (m, g) in enumerate(zip(modes, groups, strict=True))
            ]
        )
        first, second, _ = await store.claim("w", limit=3)
        await store.finish(first.attempt.id, "succeeded")
        await store.finish(second.attempt.id, "failed")

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, "01234"),
            ({"status": ["succeeded"]}, "0"),
            ({"status": ["queued", "running"]}, "234"),
            ({"status": []}, ""),
            ({"mode": ["train"]}, "024"),
            ({"mode": ["test", "val"]}, "13"),
            ({"group": "g"}, "014"),
            ({"group": "none"}, ""),
            ({"ids": ["r4", "r0", "r4"]}, "04"),
            ({"ids": []}, ""),
            ({"ids": ["r0", "r1", "r4"], "mode": ["train"], "group": "g", "status": ["queued"]}, "4"),
        ],
        ids=str,
    )
    async def test_filters(self, store: LightningStore, filters: dict[str, Any], expected: str) -> None:
        await self._five(store)
        page = await store.rollouts(**filters)
        assert (["".join(r.id[1:] for r in page.items)], page.next) == ([expected], None)
        ids: list[str] = []
        cursor = None
        while True:
            small = await store.rollouts(**filters, limit=1, cursor=cursor)
            ids += [r.id[1:] for r in small.items]
            assert len(ids) <= len(expected), "a page repeats what the one before had"
            cursor = small.next
            if cursor is None:
                break
        assert "".join(ids) == expected

    @pytest.mark.parametrize(
        "wrong",
        [
            {"limit": 0},
            {"limit": -1},
            {"limit": 1_000_000_000},
            {"status": ["done"]},
            {"mode": ["training"]},
            {"cursor": "nonsense"},
            {"ids": "r0"},
        ],
        ids=str,
    )
    async def test_a_wrong_query_is_refused(self, store: LightningStore, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            await store.rollouts(**wrong)
        claimed = await start(store)
        if {"limit", "cursor"} & set(wrong):
            with pytest.raises(InvalidInput):
                await store.spans(attempt=claimed.attempt.id, **wrong)

    async def test_pages_are_whole_under_writes(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=i, id=f"old{i}") for i in range(60)])
        stop = asyncio.Event()

        async def disturb() -> None:
            count = 0
            while not stop.is_set():
                await store.enqueue([RolloutRequest(task=0, id=f"new{count}")])
                for claimed in await store.claim("w"):
                    await store.finish(claimed.attempt.id, "succeeded")
                if count >= 2:
                    await store.cancel([f"new{count - 2}"])
                    await store.delete([f"new{count - 2}"])
                count += 1
                await asyncio.sleep(0)

        disturbing = asyncio.create_task(disturb())
        try:
            for _ in range(3):
                seen: list[Rollout] = []
                cursor = None
                while cursor is not None or not seen:
                    page = await store.rollouts(limit=7, cursor=cursor)
                    seen += page.items
                    cursor = page.next
                    await asyncio.sleep(0)
                    if len(seen) > 500:
                        break
                ids = [r.id for r in seen]
                assert len(ids) == len(set(ids))
                assert [i for i in ids if i.startswith("old")] == [f"old{i}" for i in range(60)]
        finally:
            stop.set()
            await disturbing

    async def test_attempts_come_in_the_order_asked_for(self, store: LightningStore) -> None:
        one_, two = await start(store), await start(store)
        (idle,) = await store.enqueue([RolloutRequest(task=3)])
        got = await store.attempts([two.rollout.id, idle.id, one_.rollout.id])
        assert got == [two.attempt, one_.attempt]

    @pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN.keys())
    async def test_unknown_is_not_found(self, store: LightningStore, call: Call) -> None:
        with pytest.raises(NotFound):
            await call(store)

    async def test_delete_takes_all_that_is_theirs(self, store: LightningStore) -> None:
        gone, kept = await start(store, id="gone"), await start(store, id="kept")
        await store.add_spans([a_span(c.attempt, i) for c in (gone, kept) for i in range(2)])
        for claimed in (gone, kept):
            await store.finish(claimed.attempt.id, "succeeded")
        assert await store.delete(["gone", "gone"]) == 1
        calls: list[Call] = [
            lambda s: s.rollouts(ids=["gone"]),
            lambda s: s.attempts(["gone"]),
            lambda s: s.spans(rollout="gone"),
            lambda s: s.spans(attempt=gone.attempt.id),
            lambda s: s.finish(gone.attempt.id, "succeeded"),
            lambda s: s.add_spans([a_span(gone.attempt, 5)]),
            lambda s: s.delete(["gone"]),
        ]
        for call in calls:
            with pytest.raises(NotFound):
                await call(store)
        assert [r.id for r in (await store.rollouts()).items] == ["kept"]
        assert len((await store.spans(rollout="kept")).items) == 2
        statistics = await store.statistics()
        assert (statistics.spans, sum(statistics.rollouts.values()), sum(statistics.attempts.values())) == (2, 1, 1)
        (again,) = await store.enqueue([RolloutRequest(task="new", id="gone")])
        assert (again.status, again.attempts) == ("queued", 0)
        assert (await store.spans(rollout="gone")).items == ()

    async def test_delete_refuses_what_is_not_done(self, store: LightningStore) -> None:
        done, running = await start(store, id="done"), await start(store, id="running")
        await store.enqueue([RolloutRequest(task=1, id="queued")])
        await store.finish(done.attempt.id, "succeeded")
        for not_done in ("queued", "running"):
            with pytest.raises(Conflict, match=not_done):
                await store.delete(["done", not_done])
        with pytest.raises(NotFound):
            await store.delete(["done", "nobody"])
        assert (await one(store, "done")).status == "succeeded"
        assert (await store.finish(running.attempt.id, "succeeded")).status == "succeeded"

    async def test_statistics_count_everything(self, store: LightningStore) -> None:
        empty = await store.statistics()
        assert set(empty.rollouts) == {"queued", "running", "succeeded", "failed", "cancelled"}
        assert set(empty.attempts) == {"running", "succeeded", "failed", "timeout", "unresponsive", "cancelled"}
        assert not any((*empty.rollouts.values(), *empty.attempts.values(), empty.spans, empty.resources))
        await self._five(store)
        await store.cancel(["r2"])
        statistics = await store.statistics()
        assert statistics.rollouts == {"queued": 2, "running": 0, "succeeded": 1, "failed": 1, "cancelled": 1}
        assert {k: v for k, v in statistics.attempts.items() if v} == {"succeeded": 1, "failed": 1, "cancelled": 1}

    @pytest.mark.parametrize("call", ANY.values(), ids=ANY.keys())
    async def test_a_closed_store_is_unavailable(self, store: LightningStore, call: Call) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await call(store)

    async def test_close_wakes_those_who_wait(self, store: LightningStore) -> None:
        claimed = await start(store)
        waiting = [
            asyncio.create_task(store.wait([claimed.rollout.id])),
            asyncio.create_task(store.claim("w", wait_s=PATIENCE_S * 3)),
        ]
        await asyncio.sleep(0.05)
        await store.close()
        for outcome in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_S):
            assert isinstance(outcome, StoreUnavailable)
