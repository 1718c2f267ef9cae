"""Conformance: enqueue, claim, leases (rules 2, 3, 4, 7, 8 of `leyden.store`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leyden.errors import Conflict, InvalidInput, NotFound
from leyden.store import LightningStore
from leyden.testing.clock import ManualClock
from leyden.testing.store_base import PATIENCE_S, Base, attempt_of, ended, eventually, one, start
from leyden.types import Claim, Endpoint, Mark, Resources, Retry, Rollout, RolloutRequest


class ClaimRules(Base):
    """From `enqueue` to a running attempt, and what becomes of it when its worker does not come back."""

    async def test_enqueue_returns_rollouts_in_order(self, store: LightningStore, clock: ManualClock) -> None:
        request = RolloutRequest(
            task={"q": [1, "zwei", None]},
            id="a",
            group="g",
            mode="val",
            retry=Retry(max_attempts=2, on=("failed", "timeout")),
            timeout_s=12.5,
            metadata={"k": "v"},
        )
        first, second = await store.enqueue([request, RolloutRequest(task="plain")])
        assert (first.id, first.task, first.group, first.mode) == ("a", {"q": [1, "zwei", None]}, "g", "val")
        assert (first.retry, first.timeout_s, first.metadata) == (request.retry, 12.5, {"k": "v"})
        assert (first.status, first.attempts, first.attempt, first.ended_at) == ("queued", 0, None, None)
        assert second.id not in ("", "a")
        assert (second.mode, second.group, second.retry) == ("train", None, Retry())
        assert [r.id for r in (await store.rollouts()).items] == ["a", second.id]
        assert (await one(store, "a")) == first

    async def test_enqueue_is_idempotent_on_the_id(self, store: LightningStore) -> None:
        request = RolloutRequest(task={"a": 1, "b": 2, "n": float("nan")}, id="r", timeout_s=3)
        (first,) = await store.enqueue([request])
        again = RolloutRequest(task={"b": 2, "a": 1, "n": float("nan")}, id="r", timeout_s=3)
        assert [r.created_at for r in await store.enqueue([again, request])] == [first.created_at] * 2
        await store.claim("w")
        (running,) = await store.enqueue([request])
        assert running.status == "running"
        assert (await store.statistics()).rollouts["running"] == 1

    async def test_the_same_id_for_another_task_is_a_conflict(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=1, id="r")])
        with pytest.raises(Conflict, match="r"):
            await store.enqueue([RolloutRequest(task=0, id="new"), RolloutRequest(task=2, id="r")])
        with pytest.raises(Conflict):
            await store.enqueue([RolloutRequest(task=1, id="twice"), RolloutRequest(task=2, id="twice")])
        assert [r.id for r in (await store.rollouts()).items] == ["r"], "all or none"

    async def test_a_store_keeps_no_hold_on_the_callers_objects(self, store: LightningStore) -> None:
        task: dict[str, Any] = {"list": [1]}
        (rollout,) = await store.enqueue([RolloutRequest(task=task, retry=Retry(on=("failed",)))])
        task["list"].append(2)
        rollout.task["list"].append(3)
        (first,) = await store.claim("w")
        assert first.rollout.task == {"list": [1]}
        first.rollout.task["list"].append(4)
        await store.finish(first.attempt.id, "failed")
        (second,) = await store.claim("w")
        assert second.rollout.task == {"list": [1]}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"task": object()},
            {"task": 1, "id": ""},
            {"task": 1, "timeout_s": 0.0},
            {"task": 1, "timeout_s": float("nan")},
            {"task": 1, "mode": "training"},
            {"task": 1, "retry": Retry(max_attempts=0)},
            {"task": 1, "retry": Retry(on=("succeeded",))},
        ],
        ids=str,
    )
    async def test_a_wrong_request_is_refused(self, store: LightningStore, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            await store.enqueue([RolloutRequest(task="fine"), RolloutRequest(**wrong)])
        assert (await store.rollouts()).items == ()

    async def test_claim_starts_an_attempt(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, "worker-1", timeout_s=100.0)
        rollout, attempt = claimed.rollout, claimed.attempt
        assert (attempt.rollout_id, attempt.number, attempt.worker) == (rollout.id, 1, "worker-1")
        assert (attempt.status, attempt.ended_at, attempt.reason) == ("running", None, None)
        assert attempt.lease_until - attempt.started_at == pytest.approx(30.0)
        assert attempt.deadline == pytest.approx(attempt.started_at + 100.0)
        assert (rollout.status, rollout.attempts, rollout.attempt) == ("running", 1, attempt.id)
        assert await one(store, rollout.id) == rollout
        assert await store.attempts([rollout.id]) == [attempt]
        assert await store.claim("other") == []

    async def test_claims_come_in_the_order_of_enqueue(self, store: LightningStore) -> None:
        modes = ("train", "val", "test")
        await store.enqueue([RolloutRequest(task=i, mode=modes[i % 3]) for i in range(9)])  # type: ignore[arg-type]
        assert [c.rollout.task for c in await store.claim("w", limit=2)] == [0, 1]
        assert [c.rollout.task for c in await store.claim("w", limit=9, modes=["test", "val"])] == [2, 4, 5, 7, 8]
        assert await store.claim("w", modes=["val"]) == []
        assert [c.rollout.task for c in await store.claim("w", limit=9)] == [3, 6]

    async def test_a_retry_keeps_its_place_in_the_order(self, store: LightningStore) -> None:
        first = await start(store, task="first", retry=Retry(on=("failed",)))
        await store.enqueue([RolloutRequest(task="second")])
        await store.finish(first.attempt.id, "failed")
        assert [c.rollout.task for c in await store.claim("w", limit=2)] == ["first", "second"]

    async def test_64_claimers_at_once_share_the_work(self, store: LightningStore) -> None:
        await store.enqueue([RolloutRequest(task=i) for i in range(200)])

        async def claimer(worker: str) -> list[Claim]:
            mine: list[Claim] = []
            while got := await store.claim(worker, limit=3):
                mine += got
            return mine

        shares = await asyncio.gather(*(claimer(f"w{i}") for i in range(64)))
        claims = [c for share in shares for c in share]
        assert sorted(c.rollout.task for c in claims) == list(range(200))
        assert len({c.attempt.id for c in claims}) == 200

    async def test_claim_waits_for_work(self, store: LightningStore) -> None:
        waiting = asyncio.create_task(store.claim("w", wait_s=PATIENCE_S * 3, modes=["val"]))
        await asyncio.sleep(0.02)
        await store.enqueue([RolloutRequest(task="no", mode="train")])
        await store.enqueue([RolloutRequest(task="yes", mode="val")])
        (claimed,) = await asyncio.wait_for(waiting, PATIENCE_S)
        assert claimed.rollout.task == "yes"

    async def test_each_of_many_waiting_claimers_gets_work(self, store: LightningStore) -> None:
        waiting = [asyncio.create_task(store.claim(f"w{i}", wait_s=PATIENCE_S * 3)) for i in range(16)]
        await asyncio.sleep(0.02)
        for i in range(16):
            await store.enqueue([RolloutRequest(task=i)])
        got = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert sorted(c.rollout.task for claims in got for c in claims) == list(range(16))

    async def test_a_waiting_claim_gets_a_retry(self, store: LightningStore) -> None:
        claimed = await start(store, retry=Retry(on=("failed",)))
        waiting = asyncio.create_task(store.claim("w2", wait_s=PATIENCE_S * 3))
        await asyncio.sleep(0.02)
        await store.finish(claimed.attempt.id, "failed", reason="no")
        (again,) = await asyncio.wait_for(waiting, PATIENCE_S)
        assert (again.attempt.number, again.rollout.id) == (2, claimed.rollout.id)

    async def test_a_claim_that_waits_in_vain_is_empty(self, store: LightningStore) -> None:
        assert await store.claim("w", wait_s=0.05) == []

    async def test_a_cancelled_claim_takes_nothing(self, store: LightningStore) -> None:
        waiting = asyncio.create_task(store.claim("w", wait_s=PATIENCE_S * 3))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await store.enqueue([RolloutRequest(task=1)])
        assert len(await store.claim("w")) == 1

    async def test_a_claim_carries_the_resources(self, store: LightningStore) -> None:
        nothing = await start(store)
        assert (nothing.resources, nothing.attempt.resources) == (Resources(), None)
        first = await store.publish(Resources(policies={"p": Endpoint(base_url="http://127.0.0.1:1/v1", model="m")}))
        await store.publish(Resources(values={"n": 2}, marks=(Mark(selector="writer"),)))
        pinned = await start(store, resources=1)
        assert (pinned.resources, pinned.attempt.resources) == (first, 1)
        latest = await start(store)
        assert (latest.resources.values, latest.resources.version, latest.attempt.resources) == ({"n": 2}, 2, 2)

    async def test_unknown_resources_are_not_found_at_enqueue(self, store: LightningStore) -> None:
        with pytest.raises(NotFound):
            await store.enqueue([RolloutRequest(task=1, resources=1)])

    @pytest.mark.parametrize("wrong", [{"limit": 0}, {"lease_s": 0.0}, {"lease_s": -1.0}, {"modes": ["all"]}], ids=str)
    async def test_a_wrong_claim_is_refused(self, store: LightningStore, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            await store.claim("w", **wrong)

    async def test_a_heartbeat_keeps_the_lease(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, "w")
        other = await start(store, "w")
        for _ in range(4):
            await self.advance(clock, 20.0)
            assert await store.heartbeat("w", [claimed.attempt.id]) == []
        assert (await ended(store, other.attempt)).status == "unresponsive"
        assert (await attempt_of(store, claimed.attempt)).status == "running"
        await self.advance(clock, 31.0)
        assert (await ended(store, claimed.attempt)).status == "unresponsive"

    async def test_a_heartbeat_names_what_is_no_longer_running(self, store: LightningStore, clock: ManualClock) -> None:
        done, cancelled, limited, mine = [
            await start(store, timeout_s=t, retry=Retry(max_attempts=1)) for t in (None, None, 5.0, None)
        ]
        await store.finish(done.attempt.id, "succeeded")
        await store.cancel([cancelled.rollout.id])
        await self.advance(clock, 6.0)
        ids = [c.attempt.id for c in (done, cancelled, limited, mine)]
        assert await store.heartbeat("w", ids) == ids[:3]
        assert await store.heartbeat("somebody else", [mine.attempt.id]) == [mine.attempt.id]

    async def test_a_heartbeat_with_an_unknown_attempt_renews_the_others(
        self, store: LightningStore, clock: ManualClock
    ) -> None:
        claimed = await start(store)
        await self.advance(clock, 20.0)
        with pytest.raises(NotFound, match="nobody"):
            await store.heartbeat("w", ["nobody", claimed.attempt.id])
        now = await attempt_of(store, claimed.attempt)
        assert now.lease_until == pytest.approx(claimed.attempt.lease_until + 20.0)

    async def test_a_lapsed_lease_is_found_without_a_call(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store)
        waiting = asyncio.create_task(store.claim("w2", wait_s=PATIENCE_S * 3))  # woken by the sweeper alone
        await asyncio.sleep(0.02)
        await self.advance(clock, 29.0)
        assert (await attempt_of(store, claimed.attempt)).status == "running"
        await self.advance(clock, 2.0)
        (again,) = await asyncio.wait_for(waiting, PATIENCE_S)
        assert (again.rollout.id, again.attempt.number) == (claimed.rollout.id, 2)
        lapsed = await attempt_of(store, claimed.attempt)
        assert lapsed.status == "unresponsive"
        assert lapsed.ended_at is not None
        assert lapsed.ended_at >= claimed.attempt.lease_until
        assert lapsed.reason
        assert "lease" in lapsed.reason

    async def test_a_time_limit_is_found_without_a_call(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, timeout_s=10.0)
        waiting = asyncio.create_task(store.wait([claimed.rollout.id], timeout_s=PATIENCE_S * 3))
        await asyncio.sleep(0.02)
        await self.advance(clock, 11.0)
        (rollout,) = await asyncio.wait_for(waiting, PATIENCE_S)
        assert (rollout.status, rollout.attempt) == ("failed", claimed.attempt.id)
        attempt = await attempt_of(store, claimed.attempt)
        assert attempt.status == "timeout"
        assert rollout.reason == attempt.reason
        assert "10" in (attempt.reason or "")

    async def test_a_heartbeat_does_not_extend_the_time_limit(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, timeout_s=25.0, retry=Retry(max_attempts=1))
        await self.advance(clock, 20.0)
        assert await store.heartbeat("w", [claimed.attempt.id], lease_s=1000.0) == []
        await self.advance(clock, 6.0)
        assert (await ended(store, claimed.attempt)).status == "timeout"

    async def test_the_earlier_of_lease_and_limit_decides(self, store: LightningStore, clock: ManualClock) -> None:
        lease_first = await start(store, timeout_s=60.0)
        limit_first = await start(store, timeout_s=15.0)
        await self.advance(clock, 100.0)  # both have passed for both
        assert (await ended(store, lease_first.attempt)).status == "unresponsive"
        assert (await ended(store, limit_first.attempt)).status == "timeout"

    async def test_lost_workers_use_up_the_attempts(self, store: LightningStore, clock: ManualClock) -> None:
        await store.enqueue([RolloutRequest(task=1, id="r", retry=Retry(max_attempts=2))])
        for _ in range(2):
            (claimed,) = await store.claim("w", wait_s=PATIENCE_S)
            await self.advance(clock, 31.0)
            await ended(store, claimed.attempt)
        rollout = await one(store, "r")
        assert (rollout.status, rollout.attempts, rollout.attempt) == ("failed", 2, claimed.attempt.id)
        assert rollout.ended_at is not None
        assert rollout.reason
        assert await store.claim("w") == []

    async def test_nothing_expires_that_has_ended(self, store: LightningStore, clock: ManualClock) -> None:
        claimed = await start(store, timeout_s=5.0)
        await store.finish(claimed.attempt.id, "succeeded")
        marker = await start(store, timeout_s=5.0)
        await self.advance(clock, 100.0)
        await ended(store, marker.attempt)

        async def settled() -> Rollout | None:
            rollout = await one(store, claimed.rollout.id)
            return rollout if rollout.status == "succeeded" else None

        await eventually(settled)
        assert (await attempt_of(store, claimed.attempt)).status == "succeeded"
