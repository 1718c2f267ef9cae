"""The writing operations of the SQLite store, each run inside a transaction of the writer.

Each checks first and writes then: a `LeydenError` leaves the transaction as it was, so the others in it go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from leyden import lifecycle
from leyden.stores import checks, codec
from leyden.stores.sqlite import rows
from leyden.stores.sqlite.writer import Transaction
from leyden.types import (
    TERMINAL,
    Attempt,
    Claim,
    Mode,
    Outcome,
    Resources,
    Rollout,
    RolloutRequest,
    Span,
)

INSERT_ROLLOUT = (
    "INSERT INTO rollouts (id, status, mode, grp, created_at, resources, timeout_s, max_attempts, retry_on, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_ATTEMPT = (
    "INSERT INTO attempts (id, rollout, rollout_id, number, worker, status, started_at, lease_until, deadline, "
    "expires_at, resources) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_SPAN = (
    "INSERT OR IGNORE INTO spans (attempt, span_id, sequence, kind, body, prompt, sampled, logprobs) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def enqueue(tx: Transaction, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    """Add rollouts, all or none."""
    new: dict[str, Rollout] = {}
    order: list[Rollout] = []
    for request in requests:
        rollout_id = request.id or checks.new_id()
        rollout = new.get(rollout_id) or (_find(tx, rollout_id) if request.id else None)
        if rollout is None:
            if request.resources is not None:
                rows.resources(tx.db, request.resources)
            rollout = new[rollout_id] = lifecycle.new_rollout(request, rollout_id, tx.now)
        elif not checks.same(lifecycle.request_of(rollout), replace(request, id=rollout_id)):
            raise checks.other_content("rollout", rollout_id)
        order.append(rollout)
    tx.db.executemany(INSERT_ROLLOUT, [rows.rollout_row(rollout) for rollout in new.values()])
    tx.queued = tx.queued or bool(new)
    return order


def claim(tx: Transaction, worker: str, limit: int, lease_s: float, modes: Sequence[Mode]) -> list[Claim]:
    """Start attempts of queued rollouts, the first in the order of enqueue."""
    branch = f"SELECT {rows.ROLLOUT} FROM rollouts r WHERE r.status = 'queued' AND r.mode = ? ORDER BY r.seq LIMIT ?"
    query = " UNION ALL ".join(f"SELECT * FROM ({branch})" for _ in modes) + " ORDER BY 1 LIMIT ?"
    values = [value for mode in modes for value in (mode, limit)]
    claims: list[Claim] = []
    latest: int | None = tx.db.execute("SELECT max(version) FROM resources").fetchone()[0]
    for row in tx.db.execute(query, (*values, limit)).fetchall():
        rollout = rows.rollout(row)
        version = rollout.resources or latest
        change = lifecycle.claim(
            rollout, checks.new_id(), worker=worker, lease_s=lease_s, resources=version, now=tx.now
        )
        _update_rollout(tx, row[0], rollout, change.rollout)
        tx.db.execute(INSERT_ATTEMPT, rows.attempt_row(change.attempts[0], row[0]))
        resources = Resources() if version is None else rows.resources(tx.db, version)
        claims.append(Claim(rollout=change.rollout, attempt=change.attempts[0], resources=resources))
    return claims


def heartbeat(tx: Transaction, worker: str, attempts: Sequence[str], lease_s: float) -> tuple[list[str], list[str]]:
    """Renew leases; (attempts that are lost, attempts that are unknown)."""
    lost: list[str] = []
    unknown: list[str] = []
    for attempt_id in attempts:
        row = tx.db.execute(f"SELECT {rows.ATTEMPT} FROM attempts a WHERE a.id = ?", (attempt_id,)).fetchone()
        if row is None:
            unknown.append(attempt_id)
        elif renewed := lifecycle.renew(rows.attempt(row), worker, lease_s=lease_s, now=tx.now):
            tx.db.execute(
                "UPDATE attempts SET lease_until = ?, expires_at = ? WHERE id = ?",
                (renewed.lease_until, lifecycle.expires_at(renewed), attempt_id),
            )
        else:
            lost.append(attempt_id)
    return lost, unknown


def finish(tx: Transaction, attempt_id: str, outcome: Outcome, reason: str | None) -> Attempt:
    """Take the report of a worker; the attempt as it is then."""
    attempt = rows.attempt_by_id(tx.db, attempt_id)
    seq, rollout = _owner(tx, attempt)
    live = attempt if attempt.status == "running" else _live(tx, rollout)
    change = lifecycle.finish(rollout, attempt, live, outcome, reason, tx.now)
    if change is None:
        return attempt
    _apply(tx, seq, rollout, change)
    return change.attempts[0]


def cancel(tx: Transaction, rollouts: Sequence[str], reason: str) -> list[Rollout]:
    """End rollouts that are not terminal; all of them as they are then."""
    found = [(row[0], rows.rollout(row)) for row in rows.by_ids(tx.db, rollouts)]
    after: list[Rollout] = []
    for seq, rollout in found:
        change = lifecycle.cancel(rollout, _live(tx, rollout), reason, tx.now)
        if change is not None:
            _apply(tx, seq, rollout, change)
        after.append(change.rollout if change else rollout)
    return after


def expire(tx: Transaction) -> None:
    """End the attempts whose lease or time is up."""
    query = f"SELECT {rows.ATTEMPT} FROM attempts a WHERE a.status = 'running' AND a.expires_at <= ?"
    for row in tx.db.execute(query, (tx.now,)).fetchall():
        attempt = rows.attempt(row)
        seq, rollout = _owner(tx, attempt)
        change = lifecycle.expire(rollout, attempt, tx.now)
        if change is not None:
            _apply(tx, seq, rollout, change)


def add_spans(tx: Transaction, spans: Sequence[Span], packed: Sequence[codec.PackedSpan]) -> int:
    """Append spans that are not there yet; how many were new."""
    keys: dict[str, int] = {}
    owners: dict[str, str] = {}
    for attempt_id in dict.fromkeys(span.attempt_id for span in spans):
        row = tx.db.execute("SELECT key, rollout_id FROM attempts WHERE id = ?", (attempt_id,)).fetchone()
        if row is None:
            raise checks.unknown("attempt", [attempt_id])
        keys[attempt_id], owners[attempt_id] = row
    for span in spans:
        checks.belongs(span, owners[span.attempt_id])
    before = tx.db.total_changes
    tx.db.executemany(
        INSERT_SPAN,
        [(keys[s.attempt_id], s.span_id, s.sequence, s.kind, *data) for s, data in zip(spans, packed, strict=True)],
    )
    return tx.db.total_changes - before


def publish(tx: Transaction, resources: Resources) -> Resources:
    """Store a snapshot under the next version, once."""
    resources_id = resources.id or checks.new_id()
    row = tx.db.execute("SELECT body FROM resources WHERE id = ?", (resources_id,)).fetchone()
    if row is not None:
        return checks.published(codec.unpack_resources(row[0]), resources)
    version = tx.db.execute("SELECT coalesce(max(version), 0) + 1 FROM resources").fetchone()[0]
    stored = replace(resources, id=resources_id, version=version, created_at=tx.now)
    tx.db.execute("INSERT INTO resources VALUES (?, ?, ?)", (version, resources_id, codec.pack(stored)))
    return stored


def delete(tx: Transaction, rollouts: Sequence[str]) -> int:
    """Delete terminal rollouts with all that is theirs, all or none."""
    found = rows.by_ids(tx.db, rollouts)
    for row in found:
        if row[2] not in TERMINAL:
            raise checks.not_terminal(row[1], row[2])
    seqs = [(row[0],) for row in found]
    tx.db.executemany("DELETE FROM spans WHERE attempt IN (SELECT key FROM attempts WHERE rollout = ?)", seqs)
    tx.db.executemany("DELETE FROM attempts WHERE rollout = ?", seqs)
    tx.db.executemany("DELETE FROM ended WHERE rollout = ?", seqs)
    tx.db.executemany("DELETE FROM rollouts WHERE seq = ?", seqs)
    return len(seqs)


def _find(tx: Transaction, rollout_id: str) -> Rollout | None:
    row = tx.db.execute(f"SELECT {rows.ROLLOUT} FROM rollouts r WHERE r.id = ?", (rollout_id,)).fetchone()
    return rows.rollout(row) if row else None


def _owner(tx: Transaction, attempt: Attempt) -> tuple[int, Rollout]:
    (row,) = rows.by_ids(tx.db, [attempt.rollout_id])
    return row[0], rows.rollout(row, whole=False)


def _live(tx: Transaction, rollout: Rollout) -> Attempt | None:
    if rollout.status != "running" or rollout.attempt is None:
        return None
    return rows.attempt_by_id(tx.db, rollout.attempt)


def _apply(tx: Transaction, seq: int, before: Rollout, change: lifecycle.Change) -> None:
    _update_rollout(tx, seq, before, change.rollout)
    _update_attempts(tx, change.attempts)
    if change.rollout.status == "queued":
        tx.queued = True
    elif change.rollout.status in TERMINAL:
        tx.db.execute("INSERT INTO ended (rollout) VALUES (?)", (seq,))
        tx.ended.append(change.rollout.id)


def _update_rollout(tx: Transaction, seq: int, before: Rollout, after: Rollout) -> None:
    if after != before:
        tx.db.execute(
            "UPDATE rollouts SET status = ?, attempts = ?, attempt = ?, ended_at = ?, reason = ? WHERE seq = ?",
            (after.status, after.attempts, after.attempt, after.ended_at, after.reason, seq),
        )


def _update_attempts(tx: Transaction, attempts: Iterable[Attempt]) -> None:
    tx.db.executemany(
        "UPDATE attempts SET status = ?, ended_at = ?, reason = ? WHERE id = ?",
        [(attempt.status, attempt.ended_at, attempt.reason, attempt.id) for attempt in attempts],
    )
