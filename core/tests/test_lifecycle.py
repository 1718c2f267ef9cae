"""The state machine by itself: what each transition makes of a rollout and its attempts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from leyden import lifecycle
from leyden.errors import Conflict
from leyden.types import Attempt, Outcome, Retry, Rollout, RolloutRequest


def started(**request: object) -> tuple[Rollout, Attempt]:
    rollout = lifecycle.new_rollout(RolloutRequest(task=1, **request), "r", 100.0)  # type: ignore[arg-type]
    change = lifecycle.claim(rollout, "a1", worker="w", lease_s=30.0, resources=7, now=110.0)
    return change.rollout, change.attempts[0]


def test_a_request_is_found_again_in_its_rollout() -> None:
    request = RolloutRequest(
        task={"q": 1}, id="r", group="g", mode="val", resources=2, retry=Retry(on=()), timeout_s=3.0, metadata={"m": 1}
    )
    assert lifecycle.request_of(lifecycle.new_rollout(request, "r", 1.0)) == request


def test_claim_gives_lease_limit_and_number() -> None:
    rollout, attempt = started(timeout_s=5.0)
    assert attempt == Attempt(
        id="a1",
        rollout_id="r",
        number=1,
        worker="w",
        status="running",
        started_at=110.0,
        lease_until=140.0,
        deadline=115.0,
        resources=7,
    )
    assert (rollout.status, rollout.attempts, rollout.attempt) == ("running", 1, "a1")
    with pytest.raises(Conflict, match="running"):
        lifecycle.claim(rollout, "a2", worker="w", lease_s=30.0, resources=None, now=111.0)


def test_renew_is_for_the_worker_that_holds_the_attempt() -> None:
    _, attempt = started(timeout_s=50.0)
    renewed = lifecycle.renew(attempt, "w", lease_s=10.0, now=135.0)
    assert renewed is not None
    assert renewed.lease_until == 145.0
    assert lifecycle.renew(attempt, "other", lease_s=10.0, now=135.0) is None
    assert lifecycle.renew(attempt, "w", lease_s=10.0, now=160.0) is None, "past its limit"
    assert lifecycle.renew(replace(attempt, status="cancelled"), "w", lease_s=10.0, now=135.0) is None


@pytest.mark.parametrize(
    ("timeout_s", "now", "status"),
    [
        (None, 139.9, None),
        (None, 140.0, "unresponsive"),
        (30.0, 140.0, "timeout"),
        (20.0, 129.9, None),
        (20.0, 130.0, "timeout"),
        (20.0, 9999.0, "timeout"),
        (31.0, 9999.0, "unresponsive"),
    ],
)
def test_expiry(timeout_s: float | None, now: float, status: str | None) -> None:
    rollout, attempt = started(timeout_s=timeout_s, retry=Retry(max_attempts=1))
    change = lifecycle.expire(rollout, attempt, now)
    assert (change.attempts[0].status if change else None) == status
    if change:
        assert (change.rollout.status, change.rollout.ended_at) == ("failed", now)
        assert lifecycle.expire(change.rollout, change.attempts[0], now + 1) is None


def test_a_late_success_needs_an_undecided_rollout() -> None:
    rollout, attempt = started()
    change = lifecycle.expire(rollout, attempt, 140.0)
    assert change is not None
    queued, (lapsed,) = change
    assert queued.status == "queued"
    late = lifecycle.finish(queued, lapsed, None, "succeeded", None, 150.0)
    assert late is not None
    assert (late.rollout.status, late.rollout.attempt, late.rollout.ended_at) == ("succeeded", "a1", 150.0)
    assert lifecycle.finish(queued, lapsed, None, "failed", None, 150.0) is None
    for decided in ("failed", "cancelled", "succeeded"):
        assert lifecycle.finish(replace(queued, status=decided), lapsed, None, "succeeded", None, 150.0) is None


def test_what_a_worker_reported_itself_is_not_taken_back() -> None:
    rollout, attempt = started(retry=Retry(on=("failed",)))
    change = lifecycle.finish(rollout, attempt, attempt, "failed", "why", 120.0)
    assert change is not None
    assert change.rollout.status == "queued"
    assert lifecycle.finish(change.rollout, change.attempts[0], None, "succeeded", None, 121.0) is None


@pytest.mark.parametrize(
    ("retry", "outcome", "again"),
    [
        (Retry(), "unresponsive", True),
        (Retry(), "failed", False),
        (Retry(max_attempts=1), "unresponsive", False),
        (Retry(on=("failed", "timeout")), "timeout", True),
        (Retry(on=("succeeded",)), "succeeded", False),
    ],
)
def test_retry_decision(retry: Retry, outcome: Outcome, again: bool) -> None:
    rollout, _ = started(retry=retry)
    assert lifecycle.retries(rollout, outcome) is again
