"""The state machine of rollouts and attempts, as pure functions: every store calls it, none re-implements it.

    rollout   queued ──claim──▶ running ──▶ succeeded | failed | cancelled      (terminal)
                ▲                  │
                └──── retry ───────┘
    attempt                     running ──▶ succeeded | failed | timeout | unresponsive | cancelled
                                              ▲                   │           │
                                              └── late success ───┴───────────┘   (only while the rollout is undecided)

Nothing here does I/O or looks at a clock: `now` (seconds since the epoch, on the store's clock) is passed in. A function
that finds nothing to do returns None, which is what makes the calls of a store idempotent.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from leyden.errors import Conflict
from leyden.types import TERMINAL, Attempt, Outcome, Rollout, RolloutRequest

GIVEN_UP: frozenset[str] = frozenset({"timeout", "unresponsive"})
"""Attempt states that the store decided without the worker: a late success takes these back."""


class Change(NamedTuple):
    """What a transition makes of a rollout and of its attempts (only those that changed)."""

    rollout: Rollout
    attempts: tuple[Attempt, ...]


def new_rollout(request: RolloutRequest, rollout_id: str, now: float) -> Rollout:
    """The queued rollout that `request` asks for."""
    return Rollout(
        id=rollout_id,
        task=request.task,
        status="queued",
        created_at=now,
        group=request.group,
        mode=request.mode,
        resources=request.resources,
        retry=request.retry,
        timeout_s=request.timeout_s,
        metadata=request.metadata,
    )


def request_of(rollout: Rollout) -> RolloutRequest:
    """The request that made `rollout`: what a second request of the same id is compared with."""
    return RolloutRequest(
        id=rollout.id,
        task=rollout.task,
        group=rollout.group,
        mode=rollout.mode,
        resources=rollout.resources,
        retry=rollout.retry,
        timeout_s=rollout.timeout_s,
        metadata=rollout.metadata,
    )


def claim(
    rollout: Rollout, attempt_id: str, *, worker: str, lease_s: float, resources: int | None, now: float
) -> Change:
    """Start the next attempt of a queued rollout, against version `resources`. Another state is a `Conflict`."""
    if rollout.status != "queued":
        raise Conflict(f"rollout {rollout.id!r} is {rollout.status}, only a queued one can be claimed")
    attempt = Attempt(
        id=attempt_id,
        rollout_id=rollout.id,
        number=rollout.attempts + 1,
        worker=worker,
        status="running",
        started_at=now,
        lease_until=now + lease_s,
        deadline=None if rollout.timeout_s is None else now + rollout.timeout_s,
        resources=resources,
    )
    running = replace(rollout, status="running", attempts=attempt.number, attempt=attempt.id)
    return Change(running, (attempt,))


def renew(attempt: Attempt, worker: str, *, lease_s: float, now: float) -> Attempt | None:
    """The attempt with a new lease; None where `worker` no longer holds it and must stop working on it."""
    if attempt.status != "running" or attempt.worker != worker:
        return None
    if attempt.deadline is not None and now >= attempt.deadline:
        return None  # the sweeper ends it in a moment; renewing would keep a hung agent busy until then
    return replace(attempt, lease_until=now + lease_s)


def finish(
    rollout: Rollout, attempt: Attempt, running: Attempt | None, outcome: Outcome, reason: str | None, now: float
) -> Change | None:
    """A worker reports the end of `attempt`; `running` is the live attempt of the rollout, if there is one.

    A report about an attempt that has ended changes nothing, but for a late success: see rule 6 of `leyden.store`.
    """
    if attempt.status == "running":
        return _end(rollout, attempt, outcome, reason, now)
    late_success = outcome == "succeeded" and attempt.status in GIVEN_UP and rollout.status not in TERMINAL
    if not late_success:
        return None
    kept = replace(attempt, status="succeeded", ended_at=now, reason=None)
    dropped: tuple[Attempt, ...] = ()
    if running is not None:
        why = f"attempt {attempt.number} succeeded late, so this one is not needed"
        dropped = (replace(running, status="cancelled", ended_at=now, reason=why),)
    decided = replace(rollout, status="succeeded", attempt=attempt.id, ended_at=now, reason=None)
    return Change(decided, (kept, *dropped))


def expires_at(attempt: Attempt) -> float:
    """When a running attempt ends without its worker: the end of its lease or its time limit, the earlier of the two."""
    return attempt.lease_until if attempt.deadline is None else min(attempt.lease_until, attempt.deadline)


def expire(rollout: Rollout, attempt: Attempt, now: float) -> Change | None:
    """End a running attempt whose time is up: what a sweeper does. The outcome does not depend on how late it looks."""
    if attempt.status != "running" or now < expires_at(attempt):
        return None
    if attempt.deadline is not None and attempt.deadline <= attempt.lease_until:
        limit = attempt.deadline - attempt.started_at
        return _end(rollout, attempt, "timeout", f"attempt {attempt.number} ran over its limit of {limit:g} s", now)
    why = f"worker {attempt.worker!r} did not renew its lease in time: it died, hung or lost the store"
    return _end(rollout, attempt, "unresponsive", why, now)


def cancel(rollout: Rollout, running: Attempt | None, reason: str, now: float) -> Change | None:
    """End a rollout as `cancelled`, with its running attempt; None where it is terminal already."""
    if rollout.status in TERMINAL:
        return None
    ended = () if running is None else (replace(running, status="cancelled", ended_at=now, reason=reason),)
    return Change(replace(rollout, status="cancelled", ended_at=now, reason=reason), ended)


def retries(rollout: Rollout, outcome: Outcome) -> bool:
    """Whether an attempt of `rollout` that ended as `outcome` is followed by another one."""
    return outcome != "succeeded" and outcome in rollout.retry.on and rollout.attempts < rollout.retry.max_attempts


def _end(rollout: Rollout, attempt: Attempt, outcome: Outcome, reason: str | None, now: float) -> Change:
    why = None if outcome == "succeeded" else reason or f"the worker reported {outcome!r} and gave no reason"
    ended = replace(attempt, status=outcome, ended_at=now, reason=why)
    if retries(rollout, outcome):
        return Change(replace(rollout, status="queued"), (ended,))
    if outcome == "succeeded" or outcome == "cancelled":
        return Change(replace(rollout, status=outcome, attempt=attempt.id, ended_at=now, reason=why), (ended,))
    return Change(replace(rollout, status="failed", attempt=attempt.id, ended_at=now, reason=why), (ended,))
