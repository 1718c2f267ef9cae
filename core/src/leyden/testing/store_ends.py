"""Conformance: how attempts and rollouts end, and who is told (rules 5 to 8 of `leyden.store`)."""

from __future__ import annotations

import asyncio

import pytest

from leyden.errors import InvalidInput, NotFound
from leyden.store import LightningStore
from leyden.testing.clock import ManualClock
from leyden.testing.store_base import PATIENCE_S, Base, attempt_of, ended, one, start
from leyden.types import Claim, Outcome, Retry, RolloutRequest


class EndRules(Base):
    """Outcomes, retries, late reports, cancellation and `wait`."""

    async def test_success_decides_the_rollout(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store)
        await self.advance(clock, 5.0)
        attempt = await store.finish(claimed.attempt.id, "succeeded")
        rollout = await one(store, claimed.rollout.id)
        assert (attempt.status, attempt.reason, rollout.status, rollout.reason) == ("succeeded", None) * 2
        assert attempt.ended_at == rollout.ended_at == pytest.approx(claimed.attempt.started_at + 5.0, abs=1.0)
        assert (rollout.attempt, rollout.attempts) == (attempt.id, 1)
        assert rollout.task == {"x": 1}

    @pytest.mark.parametrize("outcome", ["failed", "timeout", "unresponsive", "cancelled"])
    async def test_other_outcomes_have_an_end_and_a_reason(self, store: LightningStore, outcome: Outcome) -> None:
        given = await start(store, retry=Retry(on=()))
        silent = await start(store, retry=Retry(on=()))
        assert (await store.finish(given.attempt.id, outcome, reason="out of tokens")).reason == "out of tokens"
        assert (await store.finish(silent.attempt.id, outcome)).reason
        for claimed in (given, silent):
            rollout, attempt = await one(store, claimed.rollout.id), await attempt_of(store, claimed.attempt)
            assert rollout.status == ("cancelled" if outcome == "cancelled" else "failed")
            assert (attempt.status, rollout.attempt) == (outcome, attempt.id)
            assert rollout.reason
            assert None not in (rollout.ended_at, attempt.ended_at)

    @pytest.mark.parametrize("outcome", ["failed", "timeout", "unresponsive", "cancelled"])
    async def test_retries_follow_the_policy(self, store: LightningStore, outcome: Outcome) -> None:
        claimed = await start(store, retry=Retry(max_attempts=3, on=(outcome,)))
        numbers = [1]
        await store.finish(claimed.attempt.id, outcome)
        while claims := await store.claim("w"):
            numbers.append(claims[0].attempt.number)
            assert claims[0].rollout.ended_at is None
            await store.finish(claims[0].attempt.id, outcome)
        assert numbers == [1, 2, 3]
        rollout = await one(store, claimed.rollout.id)
        assert rollout.status in ("failed", "cancelled")
        assert [a.status for a in await store.attempts([rollout.id])] == [outcome] * 3

    async def test_a_failure_is_not_retried_unless_asked(self, store: LightningStore) -> None:
        claimed = await start(store)
        await store.finish(claimed.attempt.id, "failed")
        assert await store.claim("w") == []
        assert (await one(store, claimed.rollout.id)).status == "failed"

    async def test_success_after_a_retry(self, store: LightningStore) -> None:
        first = await start(store, retry=Retry(on=("failed",)))
        await store.finish(first.attempt.id, "failed", reason="flaky")
        queued = await one(store, first.rollout.id)
        assert (queued.status, queued.attempts, queued.attempt) == ("queued", 1, first.attempt.id)
        (second,) = await store.claim("w")
        await store.finish(second.attempt.id, "succeeded")
        rollout = await one(store, first.rollout.id)
        assert (rollout.status, rollout.attempts, rollout.attempt) == ("succeeded", 2, second.attempt.id)
        assert rollout.reason is None

    async def test_finish_is_idempotent(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store)
        first = await store.finish(claimed.attempt.id, "failed", reason="one")
        await self.advance(clock, 10.0)
        assert await store.finish(claimed.attempt.id, "failed", reason="two") == first
        assert await store.finish(claimed.attempt.id, "succeeded") == first, "the first report counts"
        assert (await one(store, claimed.rollout.id)).status == "failed"

    async def test_an_unknown_outcome_is_refused(self, store: LightningStore) -> None:
        claimed = await start(store)
        for wrong in ("running", "ok"):
            with pytest.raises(InvalidInput):
                await store.finish(claimed.attempt.id, wrong)  # type: ignore[arg-type]

    async def _given_up(self, store: LightningStore, clock: ManualClock) -> Claim:
        claimed = await start(store)
        await self.advance(clock, 31.0)
        assert (await ended(store, claimed.attempt)).status == "unresponsive"
        return claimed

    async def test_a_late_success_drops_the_queued_rerun(self, store: LightningStore, clock: ManualClock) -> None:
        first = await self._given_up(store, clock)
        kept = await store.finish(first.attempt.id, "succeeded")
        assert (kept.status, kept.reason) == ("succeeded", None)
        rollout = await one(store, first.rollout.id)
        assert (rollout.status, rollout.attempt, rollout.attempts) == ("succeeded", first.attempt.id, 1)
        assert await store.claim("w2") == []

    async def test_a_late_success_drops_the_running_rerun(self, store: LightningStore, clock: ManualClock) -> None:
        first = await self._given_up(store, clock)
        (second,) = await store.claim("w2")
        await store.finish(first.attempt.id, "succeeded")
        rollout = await one(store, first.rollout.id)
        assert (rollout.status, rollout.attempt, rollout.attempts) == ("succeeded", first.attempt.id, 2)
        dropped = await attempt_of(store, second.attempt)
        assert dropped.status == "cancelled"
        assert dropped.reason
        assert await store.heartbeat("w2", [second.attempt.id]) == [second.attempt.id]
        assert (await store.finish(second.attempt.id, "succeeded")) == dropped
        assert (await one(store, first.rollout.id)) == rollout

    async def test_a_late_success_after_a_time_out_is_kept(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, timeout_s=5.0, retry=Retry(on=("timeout",)))
        await self.advance(clock, 6.0)
        await ended(store, claimed.attempt)
        await store.finish(claimed.attempt.id, "succeeded")
        assert (await one(store, claimed.rollout.id)).status == "succeeded"

    async def test_a_late_success_does_not_undo_the_reruns_result(
        self, store: LightningStore, clock: ManualClock
    ) -> None:
        first = await self._given_up(store, clock)
        (second,) = await store.claim("w2")
        await store.finish(second.attempt.id, "failed", reason="really")
        late = await store.finish(first.attempt.id, "succeeded")
        assert late.status == "unresponsive"
        rollout = await one(store, first.rollout.id)
        assert (rollout.status, rollout.attempt, rollout.reason) == ("failed", second.attempt.id, "really")

    async def test_a_late_failure_changes_nothing(self, store: LightningStore, clock: ManualClock) -> None:
        first = await self._given_up(store, clock)
        assert (await store.finish(first.attempt.id, "failed")).status == "unresponsive"
        (second,) = await store.claim("w2")
        await store.finish(first.attempt.id, "failed")
        assert (await attempt_of(store, second.attempt)).status == "running"

    async def test_cancel_ends_the_running_attempt(self, store: LightningStore) -> None:
        running = await start(store)
        (queued,) = await store.enqueue([RolloutRequest(task=2)])
        ids = [queued.id, running.rollout.id]
        cancelled = await store.cancel(ids, reason="not needed")
        assert [r.id for r in cancelled] == ids
        assert {(r.status, r.reason) for r in cancelled} == {("cancelled", "not needed")}
        assert all(r.ended_at is not None for r in cancelled)
        attempt = await attempt_of(store, running.attempt)
        assert (attempt.status, attempt.reason) == ("cancelled", "not needed")
        assert attempt.ended_at is not None
        assert await store.claim("w") == []
        assert await store.cancel(ids, reason="again") == cancelled

    async def test_cancel_beats_a_late_success(self, store: LightningStore, clock: ManualClock) -> None:
        running = await start(store)
        given_up = await self._given_up(store, clock)
        for claimed in (running, given_up):
            await store.cancel([claimed.rollout.id])
            assert (await store.finish(claimed.attempt.id, "succeeded")).status != "succeeded"
            assert (await one(store, claimed.rollout.id)).status == "cancelled"

    async def test_cancel_leaves_the_finished_as_they_are(self, store: LightningStore) -> None:
        claimed = await start(store)
        await store.finish(claimed.attempt.id, "succeeded")
        (rollout,) = await store.cancel([claimed.rollout.id])
        assert (rollout.status, rollout.reason) == ("succeeded", None)

    async def test_cancel_is_all_or_none(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=1, id="r")])
        with pytest.raises(NotFound, match="nobody"):
            await store.cancel(["r", "nobody"])
        assert (await one(store, "r")).status == "queued"

    async def test_wait_returns_when_all_have_ended(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=i, id=f"r{i}") for i in range(3)])
        claims = await store.claim("w", limit=3)
        waiting = asyncio.create_task(store.wait(["r2", "r0", "r1"], timeout_s=PATIENCE_S * 3))
        for claimed in claims[:2]:
            await store.finish(claimed.attempt.id, "succeeded")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store.cancel(["r2"])
        rollouts = await asyncio.wait_for(waiting, PATIENCE_S)
        assert [(r.id, r.status) for r in rollouts] == [("r2", "cancelled"), ("r0", "succeeded"), ("r1", "succeeded")]
        assert await store.wait(["r0", "r0"]) == [rollouts[1]], "at once, each once"

    async def test_wait_for_some(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=i, id=f"r{i}") for i in range(4)])
        ids = [f"r{i}" for i in range(4)]
        claims = await store.claim("w", limit=4)
        await store.finish(claims[3].attempt.id, "failed")
        waiting = asyncio.create_task(store.wait(ids, count=2))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store.finish(claims[1].attempt.id, "succeeded")
        assert [r.id for r in await asyncio.wait_for(waiting, PATIENCE_S)] == ["r1", "r3"]
        assert [r.id for r in await store.wait(ids, count=0)] == ["r1", "r3"]
        with pytest.raises(InvalidInput):
            await store.wait(ids, count=5)

    async def test_wait_gives_up_after_its_time(self, store: LightningStore) -> None:
        done = await start(store)
        await store.finish(done.attempt.id, "succeeded")
        open_ = await start(store)
        ids = [open_.rollout.id, done.rollout.id]
        assert [r.id for r in await store.wait(ids, timeout_s=0.05)] == [done.rollout.id]
        assert [r.id for r in await store.wait(ids, timeout_s=0)] == [done.rollout.id]
        assert await store.wait([]) == []

    async def test_wait_is_not_ended_by_a_retry(self, store: LightningStore) -> None:
        claimed = await start(store, retry=Retry(on=("failed",)))
        waiting = asyncio.create_task(store.wait([claimed.rollout.id]))
        await store.finish(claimed.attempt.id, "failed")
        (again,) = await store.claim("w")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store.finish(again.attempt.id, "succeeded")
        assert [r.status for r in await asyncio.wait_for(waiting, PATIENCE_S)] == ["succeeded"]

    async def test_many_wait_at_once(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=i, id=f"r{i}") for i in range(50)])
        waits = [asyncio.create_task(store.wait([f"r{i}", f"r{(i + 1) % 50}"])) for i in range(50)]
        claims = await store.claim("w", limit=50)
        await asyncio.gather(*(store.finish(c.attempt.id, "succeeded") for c in claims))
        assert [len(rollouts) for rollouts in await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_S)] == [2] * 50

    async def test_one_report_wins_among_many(self, store: LightningStore) -> None:
        claimed = await start(store)
        outcomes: list[Outcome] = ["succeeded", "failed", "timeout"] * 5
        reports = await asyncio.gather(*(store.finish(claimed.attempt.id, outcome) for outcome in outcomes))
        assert len({(a.status, a.ended_at, a.reason) for a in reports}) == 1
