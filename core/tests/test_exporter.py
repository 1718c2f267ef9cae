from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from leyden.errors import NotFound, StoreUnavailable
from leyden.exporter import Exporter
from leyden.types import Span


class Recorder:
    """A store whose `add_spans` is unavailable a few times, and which knows only some attempts."""

    def __init__(self, outages: int = 0, known: Sequence[str] = ("a",)) -> None:
        self.outages, self.known = outages, known
        self.written: list[Span] = []
        self.calls = 0
        self.open, self.called = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def add_spans(self, spans: Sequence[Span]) -> int:
        self.calls += 1
        self.called.set()
        await self.open.wait()
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("gone for a moment")
        if any(span.attempt_id not in self.known for span in spans):
            raise NotFound("unknown attempt")
        self.written += spans
        return len(spans)


def span(number: int, attempt: str = "a") -> Span:
    return Span(rollout_id="r", attempt_id=attempt, span_id=f"{attempt}{number}", sequence=number, name="x")


def exporter(store: Any, **settings: Any) -> Exporter:
    return Exporter(store, **settings)


async def test_flush_waits_for_all_spans_so_far_and_writes_them_in_one_batch() -> None:
    store = Recorder()
    sink = exporter(store, delay_s=60)
    for number in range(10):
        sink.emit(span(number))
    await asyncio.wait_for(sink.flush(), 5)
    assert [item.sequence for item in store.written] == list(range(10))
    assert store.calls == 1
    await sink.close()


async def test_many_flushes_at_once_all_return() -> None:
    store = Recorder()
    sink = exporter(store, delay_s=60)

    async def one(number: int) -> None:
        sink.emit(span(number))
        await sink.flush()

    await asyncio.wait_for(asyncio.gather(*map(one, range(200))), 10)
    assert len(store.written) == 200
    await sink.close()


async def test_spans_from_threads_arrive() -> None:
    store = Recorder()
    sink = exporter(store)
    threads = [
        threading.Thread(target=lambda k=k: [sink.emit(span(k * 100 + i)) for i in range(100)]) for k in range(8)
    ]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    await asyncio.wait_for(sink.flush(), 10)
    assert len({item.span_id for item in store.written}) == 800
    await sink.close()


async def test_an_outage_is_waited_out() -> None:
    store = Recorder(outages=2)
    sink = exporter(store)
    sink.emit(span(1))
    await asyncio.wait_for(sink.flush(), 10)
    assert len(store.written) == 1
    assert not sink.dropped
    await sink.close()


async def test_a_refused_attempt_costs_no_other_attempt_its_spans() -> None:
    store = Recorder(known=("a", "b"))
    sink = exporter(store)
    for number in range(3):
        for attempt in ("a", "gone", "b"):
            sink.emit(span(number, attempt))
    await asyncio.wait_for(sink.flush(), 10)
    assert sorted(item.attempt_id for item in store.written) == ["a"] * 3 + ["b"] * 3
    assert sink.dropped == {"gone": 3}
    await sink.close()


async def test_a_full_queue_drops_and_counts_but_takes_the_runners_own() -> None:
    store = Recorder()
    store.open.clear()
    sink = exporter(store, capacity=5, batch=1)
    sink.emit(span(0))
    await asyncio.wait_for(store.called.wait(), 10)
    for number in range(1, 11):
        sink.emit(span(number))
    sink.emit(span(99), always=True)
    assert sink.dropped["a"] == 5
    store.open.set()
    await asyncio.wait_for(sink.flush(), 10)
    assert [item.sequence for item in store.written] == [0, 1, 2, 3, 4, 5, 99]
    await sink.close()


async def test_close_gives_up_on_a_dead_store_and_counts_what_is_lost() -> None:
    store = Recorder()
    store.open.clear()
    sink = exporter(store, batch=1)
    for number in range(3):
        sink.emit(span(number))
    await sink.close(timeout_s=0.05)
    sink.emit(span(4))
    assert sink.dropped["a"] == 4
