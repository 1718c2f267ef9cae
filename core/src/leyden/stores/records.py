"""What the memory store keeps: rollouts and attempts with their spans packed, and the queues, always in step."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from leyden.lifecycle import Change
from leyden.stores import checks, codec
from leyden.types import TERMINAL, Attempt, Mode, Resources, Rollout, Span, SpanKind


class StoredSpan(NamedTuple):
    """A packed span with what pages are ordered and filtered by."""

    sequence: int
    kind: SpanKind
    packed: codec.PackedSpan


@dataclass(slots=True)
class AttemptRecord:
    """An attempt and its spans, by span id."""

    attempt: Attempt
    spans: dict[str, StoredSpan] = field(default_factory=dict)

    def add(self, span: Span, packed: codec.PackedSpan) -> bool:
        """Keep `span` where its id is new; whether it was."""
        if span.span_id in self.spans:
            return False
        self.spans[span.span_id] = StoredSpan(span.sequence, span.kind, packed)
        return True


@dataclass(slots=True)
class RolloutRecord:
    """A rollout without its task and metadata, which are kept as bytes, and the ids of its attempts in order."""

    seq: int
    rollout: Rollout
    body: bytes
    attempts: list[str] = field(default_factory=list)

    def out(self) -> Rollout:
        """The whole rollout, sharing nothing mutable with the store."""
        task, metadata = codec.unpack(self.body)
        return replace(self.rollout, task=task, metadata=metadata)


class Records:
    """All rollouts and attempts of a store. `seq` numbers rollouts in the order of `enqueue`, from 1, never reused."""

    def __init__(self) -> None:
        self.rollouts: dict[str, RolloutRecord] = {}
        self.attempts: dict[str, AttemptRecord] = {}
        self.running: dict[str, None] = {}
        """Ids of the running attempts."""
        self._order: list[tuple[int, str]] = []
        self._queued: dict[Mode, list[tuple[int, str]]] = {mode: [] for mode in checks.MODES}
        self._last_seq = 0

    def add(self, rollout: Rollout) -> RolloutRecord:
        """Keep a new, queued rollout."""
        self._last_seq += 1
        body = codec.pack((rollout.task, rollout.metadata))
        record = RolloutRecord(self._last_seq, replace(rollout, task=None, metadata={}), body)
        self.rollouts[rollout.id] = record
        self._order.append((record.seq, rollout.id))
        self._queued[rollout.mode].append((record.seq, rollout.id))
        return record

    def of(self, ids: Iterable[str]) -> list[RolloutRecord]:
        """The records of `ids`, each once, in their order. `NotFound` where one is unknown."""
        wanted = checks.unique(ids)
        if unknown := [rollout for rollout in wanted if rollout not in self.rollouts]:
            raise checks.unknown("rollout", unknown)
        return [self.rollouts[rollout] for rollout in wanted]

    def attempt(self, attempt: str) -> AttemptRecord:
        """The record of an attempt. `NotFound` where it is unknown."""
        if attempt not in self.attempts:
            raise checks.unknown("attempt", [attempt])
        return self.attempts[attempt]

    def live(self, record: RolloutRecord) -> Attempt | None:
        """The running attempt of a rollout: only its newest can be."""
        newest = self.attempts[record.attempts[-1]].attempt if record.attempts else None
        return newest if newest is not None and newest.status == "running" else None

    def next_queued(self, modes: Sequence[Mode]) -> RolloutRecord | None:
        """The queued rollout that is first in the order of `enqueue`."""
        heads = [self._queued[mode][0] for mode in modes if self._queued[mode]]
        return self.rollouts[min(heads)[1]] if heads else None

    def after(self, seq: int) -> Iterator[RolloutRecord]:
        """Rollouts after `seq`, in order."""
        for i in range(bisect.bisect_right(self._order, seq, key=lambda entry: entry[0]), len(self._order)):
            yield self.rollouts[self._order[i][1]]

    def apply(self, record: RolloutRecord, change: Change) -> None:
        """Keep what a transition of `leyden.lifecycle` has made of a rollout and its attempts."""
        was, now = record.rollout.status, change.rollout.status
        record.rollout = change.rollout
        queue, entry = self._queued[change.rollout.mode], (record.seq, change.rollout.id)
        if now == "queued" and was != "queued":
            bisect.insort(queue, entry)
        elif was == "queued" and now != "queued":
            del queue[bisect.bisect_left(queue, entry)]
        for attempt in change.attempts:
            if attempt.id in self.attempts:
                self.attempts[attempt.id].attempt = attempt
            else:
                self.attempts[attempt.id] = AttemptRecord(attempt)
                record.attempts.append(attempt.id)
            if attempt.status == "running":
                self.running[attempt.id] = None
            else:
                self.running.pop(attempt.id, None)

    def delete(self, records: Sequence[RolloutRecord]) -> None:
        """Drop terminal rollouts with all that is theirs. A `Conflict` where one is not terminal, and none is dropped."""
        for record in records:
            if record.rollout.status not in TERMINAL:
                raise checks.not_terminal(record.rollout.id, record.rollout.status)
        for record in records:
            for attempt in record.attempts:
                del self.attempts[attempt]
            del self.rollouts[record.rollout.id]
        self._order = [entry for entry in self._order if entry[1] in self.rollouts]


class Snapshots:
    """All published resources, by version from 1."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._versions: dict[str, int] = {}

    @property
    def latest(self) -> int:
        """The latest version, 0 where nothing was published."""
        return len(self._bodies)

    def get(self, version: int) -> Resources:
        """The resources of `version`. `NotFound` where there is none."""
        if not 1 <= version <= len(self._bodies):
            raise checks.unknown("resources of version", [version])
        return codec.unpack_resources(self._bodies[version - 1])

    def publish(self, resources: Resources, now: float) -> Resources:
        """Keep `resources` under the next version, once for each id."""
        resources_id = resources.id or checks.new_id()
        if known := self._versions.get(resources_id):
            return checks.published(self.get(known), resources)
        stored = replace(resources, id=resources_id, version=self.latest + 1, created_at=now)
        self._bodies.append(codec.pack(stored))
        self._versions[resources_id] = stored.version
        return stored
