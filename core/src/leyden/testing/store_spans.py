"""Conformance: spans and resources (rules 2, 8 and 9 of `leyden.store`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from leyden.errors import Conflict, InvalidInput, NotFound
from leyden.store import LightningStore
from leyden.testing.clock import ManualClock
from leyden.testing.store_base import Base, a_span, an_llm_span, ended, start
from leyden.types import Endpoint, LLMCall, Mark, Prompt, Resources, Retry, Span

NO_IDS: dict[str, Any] = {"sampled_ids": ("a",)}


class SpanRules(Base):
    """What attempts leave behind, and what they run against."""

    async def test_spans_come_back_exactly(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        spans = [
            an_llm_span(attempt, 0),
            a_span(attempt, 1, error="boom", kind="tool"),
            a_span(attempt, 2, call=LLMCall()),
        ]
        assert await store.add_spans(spans) == 3
        page = await store.spans(attempt=attempt.id)
        assert (page.items, page.next) == (tuple(spans), None)
        call = page.items[0].call
        assert call is not None
        assert call.logprobs == (-0.1, -1e-300, -1.2345678901234567)

    async def test_long_calls_come_back_exactly(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        ids = tuple(range(100_000, 140_000))
        call = LLMCall(prompt_ids=ids, sampled_ids=ids[::2], logprobs=tuple(-1.0 / i for i in ids[::2]))
        await store.add_spans([a_span(attempt, 0, kind="llm", call=call)])
        assert (await store.spans(attempt=attempt.id)).items[0].call == call

    async def test_adding_spans_is_idempotent(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        first, second = a_span(attempt, 0), a_span(attempt, 1)
        assert await store.add_spans([first, replace(first, name="other")]) == 1
        assert await store.add_spans([replace(first, name="late", sequence=9), second]) == 1
        assert (await store.spans(attempt=attempt.id)).items == (first, second), "the first one stays"
        assert await store.add_spans([]) == 0
        assert (await store.statistics()).spans == 2

    async def test_an_unknown_attempt_writes_nothing(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        with pytest.raises(NotFound, match="nobody"):
            await store.add_spans([a_span(attempt, 0), replace(a_span(attempt, 1), attempt_id="nobody")])
        with pytest.raises(InvalidInput, match="elsewhere"):
            await store.add_spans([a_span(attempt, 0), replace(a_span(attempt, 1), rollout_id="elsewhere")])
        assert (await store.spans(attempt=attempt.id)).items == ()

    @pytest.mark.parametrize(
        "wrong",
        [{"attributes": {"x": object()}}, {"kind": "chat"}, {"call": LLMCall(**NO_IDS)}],
        ids=str,
    )
    async def test_a_span_that_is_not_plain_data_is_refused(self, store: LightningStore, wrong: dict[str, Any]) -> None:
        attempt = (await start(store)).attempt
        with pytest.raises(InvalidInput):
            await store.add_spans([a_span(attempt, 0), a_span(attempt, 1, **wrong)])
        assert (await store.spans(attempt=attempt.id)).items == ()

    async def test_spans_are_ordered_by_attempt_and_sequence(self, store: LightningStore) -> None:
        first = await start(store, retry=Retry(on=("failed",)))
        await store.finish(first.attempt.id, "failed")
        (second,) = await store.claim("w")
        spans = [a_span(c.attempt, i) for c in (first, second) for i in range(3)]
        for span in reversed(spans):
            await store.add_spans([span])
        assert (await store.spans(rollout=first.rollout.id)).items == tuple(spans)
        assert (await store.spans(attempt=second.attempt.id)).items == tuple(spans[3:])

    async def test_spans_are_filtered_by_kind(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        spans = [a_span(attempt, i, kind=kind) for i, kind in enumerate(["llm", "tool", "reward", "llm", "other"])]
        await store.add_spans(spans)
        assert (await store.spans(attempt=attempt.id, kinds=["llm", "reward"])).items == (spans[0], spans[2], spans[3])
        assert (await store.spans(attempt=attempt.id, kinds=[])).items == ()
        with pytest.raises(InvalidInput):
            await store.spans(attempt=attempt.id, kinds=["chat"])  # type: ignore[list-item]

    async def test_pages_of_spans(self, store: LightningStore) -> None:
        first = await start(store, retry=Retry(on=("failed",)))
        await store.finish(first.attempt.id, "failed")
        (second,) = await store.claim("w")
        # ids with the separator of cursors, and one sequence number for several spans
        spans = [a_span(c.attempt, i // 2, span_id=f"{i}:é{i}") for c in (first, second) for i in range(6)]
        await store.add_spans(spans)
        for limit in (1, 4, 5, 6, 12):
            seen: list[Span] = []
            cursor = None
            while True:
                page = await store.spans(rollout=first.rollout.id, limit=limit, cursor=cursor)
                seen += page.items
                assert len(seen) <= len(spans), "a page repeats what the one before had"
                cursor = page.next
                if cursor is None:
                    break
                assert len(page.items) == limit
            assert seen == spans, limit

    async def test_late_spans_are_kept(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store)
        await store.cancel([claimed.rollout.id])
        assert await store.add_spans([a_span(claimed.attempt, 0)]) == 1
        lapsed = await start(store)
        await self.advance(clock, 31.0)
        await ended(store, lapsed.attempt)
        assert await store.add_spans([a_span(lapsed.attempt, 0)]) == 1

    async def test_spans_of_many_writers(self, store: LightningStore) -> None:
        attempt = (await start(store)).attempt
        counts = await asyncio.gather(
            *(store.add_spans([a_span(attempt, i * 10 + j) for j in range(15)]) for i in range(20))
        )
        assert sum(counts) == 205, "neighbours overlap by five, each span is new once"
        assert [s.sequence for s in (await store.spans(attempt=attempt.id)).items] == list(range(205))

    async def test_spans_need_one_owner(self, store: LightningStore) -> None:
        claimed = await start(store)
        with pytest.raises(InvalidInput):
            await store.spans()
        with pytest.raises(InvalidInput):
            await store.spans(rollout=claimed.rollout.id, attempt=claimed.attempt.id)

    async def test_publish_counts_versions(self, store: LightningStore) -> None:
        with pytest.raises(NotFound):
            await store.resources()
        first = await store.publish(Resources(policies={"w": Endpoint(base_url="http://127.0.0.1:1/v1", model="m")}))
        sent = Resources(
            policies={
                "p": Prompt(text="Be brief.", version=4),
                "w": Endpoint(base_url="http://127.0.0.1:1/v1", model="m"),
            },
            marks=(Mark(selector="writer", policy="w"),),
            values={"k": [1, {"a": None}]},
            version=77,
        )
        second = await store.publish(sent)
        assert (first.version, second.version) == (1, 2)
        assert second.id not in ("", first.id)
        assert second.created_at > 0
        assert replace(second, id="", created_at=0.0, version=77) == sent
        assert await store.resources() == second
        assert await store.resources(1) == first
        assert (await store.statistics()).resources == 2
        for version in (0, 3, -1):
            with pytest.raises(NotFound):
                await store.resources(version)

    async def test_publish_is_idempotent_on_the_id(self, store: LightningStore) -> None:
        first = await store.publish(Resources(id="step-1", values={"a": 1}))
        await store.publish(Resources(values={"a": 2}))
        assert await store.publish(Resources(id="step-1", values={"a": 1})) == first
        with pytest.raises(Conflict, match="step-1"):
            await store.publish(Resources(id="step-1", values={"a": 3}))
        assert (await store.resources()).values == {"a": 2}

    async def test_versions_have_no_gaps_under_load(self, store: LightningStore) -> None:
        published = await asyncio.gather(*(store.publish(Resources(values={"i": i})) for i in range(20)))
        assert sorted(r.version for r in published) == list(range(1, 21))
