"""The store in the memory of one process: for tests and short runs. Nothing outlives `close`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from leyden import lifecycle
from leyden.clock import Clock, SystemClock
from leyden.errors import ConfigError
from leyden.stores import checks, codec
from leyden.stores.records import Records, RolloutRecord, Snapshots
from leyden.stores.sweeper import Sweeper
from leyden.stores.waiting import Deadline, Signal, Watches, until
from leyden.types import (
    TERMINAL,
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


async def open_store(url: str) -> MemoryStore:
    """An empty store for `memory:`. Two calls give two stores."""
    if url not in ("memory", "memory:", "memory://"):
        raise ConfigError(f"{url!r}: a memory store takes no name and no options, use 'memory:'")
    return MemoryStore()


class MemoryStore:
    """A `LightningStore` in memory. Make it inside a running event loop, and `close` it.

    It keeps spans packed and hands out copies, so that what a caller does to a task or to attributes stays with it.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._records = Records()
        self._snapshots = Snapshots()
        self._work = Signal()
        self._watches = Watches()
        self._closed = False
        self._sweeper = Sweeper(self._sweep, self._clock)

    async def enqueue(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """See `LightningStore.enqueue`."""
        self._check_open()
        now = self._clock.now()
        new: dict[str, Rollout] = {}
        order: list[str] = []
        for request in [checks.request(r) for r in requests]:
            rollout_id = request.id or checks.new_id()
            order.append(rollout_id)
            known = self._records.rollouts.get(rollout_id)
            existing = new.get(rollout_id) or (known.out() if known else None)
            if existing is None:
                if request.resources is not None:
                    self._snapshots.get(request.resources)
                new[rollout_id] = lifecycle.new_rollout(request, rollout_id, now)
            elif not checks.same(lifecycle.request_of(existing), request):
                raise checks.other_content("rollout", rollout_id)
        for rollout in new.values():
            self._records.add(rollout)
        if new:
            self._work.notify()
        return [self._records.rollouts[rollout_id].out() for rollout_id in order]

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        modes: Sequence[Mode] | None = None,
    ) -> list[Claim]:
        """See `LightningStore.claim`."""
        checks.limit(limit)
        checks.positive("lease_s", lease_s)
        wanted = checks.choices("modes", modes, checks.MODES)
        deadline = Deadline(wait_s)
        while True:
            self._check_open()
            if claims := self._claim_queued(worker, limit, lease_s, wanted):
                return claims
            ticket = self._work.ticket()
            try:
                if not await until(ticket, deadline.left()):
                    return []
            finally:
                self._work.drop(ticket)

    def _claim_queued(self, worker: str, limit: int, lease_s: float, modes: Sequence[Mode]) -> list[Claim]:
        now = self._clock.now()
        claims: list[Claim] = []
        while len(claims) < limit and (record := self._records.next_queued(modes)) is not None:
            version = record.rollout.resources or self._snapshots.latest or None
            change = lifecycle.claim(
                record.rollout, checks.new_id(), worker=worker, lease_s=lease_s, resources=version, now=now
            )
            self._records.apply(record, change)
            resources = Resources() if version is None else self._snapshots.get(version)
            claims.append(Claim(rollout=record.out(), attempt=change.attempts[0], resources=resources))
        return claims

    async def heartbeat(self, worker: str, attempts: Sequence[str], *, lease_s: float = 30.0) -> list[str]:
        """See `LightningStore.heartbeat`."""
        self._check_open()
        checks.positive("lease_s", lease_s)
        now = self._clock.now()
        lost: list[str] = []
        unknown: list[str] = []
        for attempt_id in checks.unique(attempts):
            record = self._records.attempts.get(attempt_id)
            if record is None:
                unknown.append(attempt_id)
            elif renewed := lifecycle.renew(record.attempt, worker, lease_s=lease_s, now=now):
                record.attempt = renewed
            else:
                lost.append(attempt_id)
        if unknown:
            raise checks.unknown("attempt", unknown)
        return lost

    async def finish(self, attempt: str, outcome: Outcome, *, reason: str | None = None) -> Attempt:
        """See `LightningStore.finish`."""
        self._check_open()
        checks.choices("outcome", [outcome], checks.OUTCOMES)
        record = self._records.attempt(attempt)
        owner = self._records.rollouts[record.attempt.rollout_id]
        now, live = self._clock.now(), self._records.live(owner)
        self._apply(owner, lifecycle.finish(owner.rollout, record.attempt, live, outcome, reason, now))
        return record.attempt

    async def cancel(self, rollouts: Sequence[str], *, reason: str = "cancelled") -> list[Rollout]:
        """See `LightningStore.cancel`."""
        self._check_open()
        records = self._records.of(rollouts)
        now = self._clock.now()
        for record in records:
            self._apply(record, lifecycle.cancel(record.rollout, self._records.live(record), reason, now))
        return [record.out() for record in records]

    async def wait(
        self, rollouts: Sequence[str], *, timeout_s: float | None = None, count: int | None = None
    ) -> list[Rollout]:
        """See `LightningStore.wait`."""
        self._check_open()
        records = self._records.of(rollouts)
        ids = [record.rollout.id for record in records]
        deadline = Deadline(timeout_s)
        watch = self._watches.add(ids, checks.wanted(count, ids))
        try:
            watch.saw(record.rollout.id for record in records if record.rollout.status in TERMINAL)
            await until(watch.done, deadline.left())
        finally:
            self._watches.remove(watch, ids)
        self._check_open()
        return [record.out() for record in self._records.of(ids) if record.rollout.status in TERMINAL]

    async def add_spans(self, spans: Sequence[Span]) -> int:
        """See `LightningStore.add_spans`."""
        self._check_open()
        packed = [codec.pack_span(span) for span in spans]
        known = self._records.attempts
        if unknown := checks.unique(span.attempt_id for span in spans if span.attempt_id not in known):
            raise checks.unknown("attempt", unknown)
        for span in spans:
            checks.belongs(span, known[span.attempt_id].attempt.rollout_id)
        return sum(known[span.attempt_id].add(span, data) for span, data in zip(spans, packed, strict=True))

    async def spans(
        self,
        *,
        rollout: str | None = None,
        attempt: str | None = None,
        kinds: Sequence[SpanKind] | None = None,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> Page[Span]:
        """See `LightningStore.spans`."""
        self._check_open()
        checks.limit(limit)
        checks.one_owner(rollout, attempt)
        chosen = checks.choices("kinds", kinds, checks.KINDS)
        after = checks.span_cursor(cursor)
        ids = [attempt] if attempt is not None else self._records.of([rollout or ""])[0].attempts
        owners = [self._records.attempt(attempt_id) for attempt_id in ids]
        found = sorted(
            ((owner.attempt.number, span.sequence, span_id), span.packed)
            for owner in owners
            for span_id, span in owner.spans.items()
            if span.kind in chosen and (owner.attempt.number, span.sequence, span_id) > after
        )
        items = tuple(codec.unpack_span(packed) for _, packed in found[:limit])
        return Page(items=items, next=checks.to_cursor(found[limit - 1][0]) if len(found) > limit else None)

    async def publish(self, resources: Resources) -> Resources:
        """See `LightningStore.publish`."""
        self._check_open()
        return self._snapshots.publish(checks.snapshot(resources), self._clock.now())

    async def resources(self, version: int | None = None) -> Resources:
        """See `LightningStore.resources`."""
        self._check_open()
        if version is None and not self._snapshots.latest:
            raise checks.no_resources()
        return self._snapshots.get(self._snapshots.latest if version is None else version)

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
        """See `LightningStore.rollouts`."""
        self._check_open()
        checks.limit(limit)
        after = checks.rollout_cursor(cursor)
        states, modes = checks.choices("status", status, checks.STATUSES), checks.choices("mode", mode, checks.MODES)
        candidates: Iterable[RolloutRecord] = self._records.after(after)
        if ids is not None:
            candidates = sorted((r for r in self._records.of(ids) if r.seq > after), key=lambda record: record.seq)
        page: list[RolloutRecord] = []
        for record in candidates:
            rollout = record.rollout
            if rollout.status in states and rollout.mode in modes and group in (None, rollout.group):
                if len(page) == limit:
                    return Page(items=tuple(r.out() for r in page), next=str(page[-1].seq))
                page.append(record)
        return Page(items=tuple(record.out() for record in page))

    async def attempts(self, rollouts: Sequence[str]) -> list[Attempt]:
        """See `LightningStore.attempts`."""
        self._check_open()
        return [self._records.attempts[a].attempt for record in self._records.of(rollouts) for a in record.attempts]

    async def delete(self, rollouts: Sequence[str]) -> int:
        """See `LightningStore.delete`."""
        self._check_open()
        records = self._records.of(rollouts)
        self._records.delete(records)
        return len(records)

    async def statistics(self) -> Statistics:
        """See `LightningStore.statistics`."""
        self._check_open()
        rollouts = Counter(record.rollout.status for record in self._records.rollouts.values())
        attempts = Counter(record.attempt.status for record in self._records.attempts.values())
        spans = sum(len(record.spans) for record in self._records.attempts.values())
        return checks.statistics(rollouts, attempts, spans, self._snapshots.latest)

    async def close(self) -> None:
        """See `LightningStore.close`."""
        if self._closed:
            return
        self._closed = True
        self._work.notify()
        self._watches.wake_all()
        await self._sweeper.stop()

    async def _sweep(self) -> float | None:
        now = self._clock.now()
        for attempt_id in list(self._records.running):
            attempt = self._records.attempts[attempt_id].attempt
            owner = self._records.rollouts[attempt.rollout_id]
            self._apply(owner, lifecycle.expire(owner.rollout, attempt, now))
        running = (self._records.attempts[attempt_id].attempt for attempt_id in self._records.running)
        return min((lifecycle.expires_at(attempt) for attempt in running), default=None)

    def _apply(self, record: RolloutRecord, change: lifecycle.Change | None) -> None:
        if change is None:
            return
        self._records.apply(record, change)
        if change.rollout.status == "queued":
            self._work.notify()
        elif change.rollout.status in TERMINAL:
            self._watches.ended([change.rollout.id])

    def _check_open(self) -> None:
        if self._closed:
            raise checks.closed("the memory store")
