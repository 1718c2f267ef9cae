"""The LightningStore protocol: the only contract between agents and trainers, with its rules.

Rules that every store keeps, each with a test in `leyden.testing.store`:

1.  What was acknowledged survives `kill -9` of the process (durable stores).
2.  `enqueue` is idempotent on the request's id, `publish` on the resources' id, `add_spans` on (attempt, span id).
    The same id with other content is a `Conflict` for `enqueue` and `publish`; for spans the first one stays.
    Retrying any call is safe (a `delete` that was done says `NotFound`).
3.  A rollout is claimed by one worker at a time, in the order of `enqueue`; a re-run keeps the place of its rollout.
4.  A lease that lapses ends the attempt as `unresponsive`, an attempt over its time ends as `timeout`; both are found
    by the store's own clock and sweeper, without anyone calling. Of two limits that have passed, the earlier counts.
5.  Terminal is terminal. A cancelled, failed or succeeded rollout stays so, whatever arrives late.
6.  A late success of an attempt that was given up is kept if the rollout is not decided yet: the rollout succeeds with
    that attempt, and a re-run that is queued or running is dropped (its attempt ends as `cancelled`).
7.  Retries follow the rollout's `Retry`. Without another attempt the rollout ends as `succeeded` or `cancelled` where its
    attempt did, else as `failed`. Every ended attempt and rollout has an end time; every end but success has a
    reason.
8.  An unknown id is `NotFound`, always, and but for `heartbeat` nothing of that call is done. A value that cannot be
    right is `InvalidInput`. An id that is given twice in one call counts once.
9.  Filters and pages mean the same in every store. Pages are keyset pages: nothing is skipped or repeated by writes
    between two pages. A `limit` is from 1 to 10,000. An empty list as a filter matches nothing.
10. Memory is bounded: what is kept is in the store until `delete` (resources: for ever); nothing is evicted silently.
11. A store that cannot answer raises `StoreUnavailable`; an empty queue is an empty answer.
12. Tasks, metadata, values and attributes are plain data (None, bool, int, float, str, bytes, lists and dicts), kept as
    copies: what a caller does to an object later changes nothing in the store. Tuples come back as lists. Token ids and
    log-probs come back exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from leyden.types import (
    Attempt,
    Claim,
    Mode,
    Outcome,
    Page,
    Resources,
    Rollout,
    RolloutRequest,
    RolloutStatus,
    Span,
    SpanKind,
    Statistics,
)


@runtime_checkable
class LightningStore(Protocol):
    """Tasks, resources and traces. Async and bulk by nature; safe to share between tasks of one event loop."""

    async def enqueue(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Add rollouts to the queue, all or none; returns them in the order of the requests."""
        ...

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        modes: Sequence[Mode] | None = None,
    ) -> list[Claim]:
        """Take up to `limit` queued rollouts under a lease of `lease_s` seconds.

        Waits up to `wait_s` seconds for the first one; an empty list says that nothing was queued. Where nothing was
        published, the resources are empty, of version 0. A call that is cancelled while it waits takes nothing.
        """
        ...

    async def heartbeat(self, worker: str, attempts: Sequence[str], *, lease_s: float = 30.0) -> list[str]:
        """Renew the leases of `attempts`; returns the ids that `worker` no longer holds (stop working on those).

        Raises `NotFound` where some are unknown, after renewing the others: one deleted rollout costs no other its lease.
        """
        ...

    async def finish(self, attempt: str, outcome: Outcome, *, reason: str | None = None) -> Attempt:
        """Report the end of an attempt; returns the attempt as it is then.

        The first report counts, later ones change nothing, but for a late success (rules 5 and 6). `reason` is for
        every outcome but `succeeded`.
        """
        ...

    async def cancel(self, rollouts: Sequence[str], *, reason: str = "cancelled") -> list[Rollout]:
        """End rollouts that are not terminal as `cancelled`, with their running attempts."""
        ...

    async def wait(
        self, rollouts: Sequence[str], *, timeout_s: float | None = None, count: int | None = None
    ) -> list[Rollout]:
        """Wait until `count` (default: all) of `rollouts` are terminal, or `timeout_s` passed.

        Returns the terminal ones among them, in the order of `rollouts`.
        """
        ...

    async def add_spans(self, spans: Sequence[Span]) -> int:
        """Append spans, all or none; returns how many were new. Attempts that have ended take spans too."""
        ...

    async def spans(
        self,
        *,
        rollout: str | None = None,
        attempt: str | None = None,
        kinds: Sequence[SpanKind] | None = None,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> Page[Span]:
        """Spans of a rollout or an attempt (one of the two is required), ordered by (attempt number, sequence)."""
        ...

    async def publish(self, resources: Resources) -> Resources:
        """Store an immutable snapshot; returns it with its `version`, 1 more than the latest one (from 1, no gaps)."""
        ...

    async def resources(self, version: int | None = None) -> Resources:
        """The snapshot of `version`, or the latest one. `NotFound` where there is none."""
        ...

    async def rollouts(
        self,
        *,
        ids: Sequence[str] | None = None,
        status: Sequence[RolloutStatus] | None = None,
        mode: Sequence[Mode] | None = None,
        group: str | None = None,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> Page[Rollout]:
        """Rollouts that match every given filter, in the order of `enqueue`. Unknown `ids` are `NotFound`."""
        ...

    async def attempts(self, rollouts: Sequence[str]) -> list[Attempt]:
        """All attempts of `rollouts`, ordered by rollout (as given) and number."""
        ...

    async def delete(self, rollouts: Sequence[str]) -> int:
        """Delete terminal rollouts with their attempts and spans, all or none; returns how many.

        One that is queued or running is a `Conflict`. Its id may be used again.
        """
        ...

    async def statistics(self) -> Statistics:
        """Counts over the whole store, with every status as a key."""
        ...

    async def close(self) -> None:
        """Finish what was called before, wake who waits, release everything. Calls after it raise `StoreUnavailable`.

        Closing twice is fine.
        """
        ...
