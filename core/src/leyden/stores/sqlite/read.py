"""The reading operations of the SQLite store, each on one snapshot of the file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from leyden.stores import checks, codec
from leyden.stores.sqlite import rows
from leyden.types import TERMINAL, Attempt, Mode, Page, Rollout, RolloutStatus, Span, SpanKind, Statistics


def terminal(db: sqlite3.Connection, ids: Sequence[str]) -> list[str]:
    """Those of `ids` that are terminal. `NotFound` where one is unknown."""
    query = "SELECT r.id, r.status FROM json_each(?) j CROSS JOIN rollouts r ON r.id = j.value"
    found: dict[str, str] = dict(db.execute(query, (json.dumps(ids),)).fetchall())
    if len(found) < len(ids):
        raise checks.unknown("rollout", [i for i in ids if i not in found])
    return [i for i in ids if found[i] in TERMINAL]


def terminal_rollouts(db: sqlite3.Connection, ids: Sequence[str]) -> list[Rollout]:
    """The terminal rollouts among `ids`, in their order."""
    return [rows.rollout(row) for row in rows.by_ids(db, ids) if row[2] in TERMINAL]


def rollouts(
    db: sqlite3.Connection,
    ids: Sequence[str] | None,
    status: Sequence[RolloutStatus],
    mode: Sequence[Mode],
    group: str | None,
    after: int,
    limit: int,
) -> Page[Rollout]:
    """One page of rollouts that match all filters."""
    source, where, values = "rollouts r", ["r.seq > ?"], [after]
    parameters: list[object] = []
    if ids is not None:
        terminal(db, ids)  # for its NotFound
        source = "json_each(?) j CROSS JOIN rollouts r ON r.id = j.value"
        parameters.append(json.dumps(ids))
    parameters += values
    for column, chosen, known in (("status", status, checks.STATUSES), ("mode", mode, checks.MODES)):
        if len(chosen) < len(known):
            where.append(f"r.{column} IN ({', '.join('?' * len(chosen))})")
            parameters += chosen
    if group is not None:
        where.append("r.grp = ?")
        parameters.append(group)
    query = f"SELECT {rows.ROLLOUT} FROM {source} WHERE {' AND '.join(where)} ORDER BY r.seq LIMIT ?"
    found = db.execute(query, (*parameters, limit + 1)).fetchall()
    items = tuple(rows.rollout(row) for row in found[:limit])
    return Page(items=items, next=str(found[limit - 1][0]) if len(found) > limit else None)


def attempts(db: sqlite3.Connection, ids: Sequence[str]) -> list[Attempt]:
    """All attempts of rollouts, by rollout as given and number."""
    query = f"SELECT {rows.ATTEMPT} FROM attempts a WHERE a.rollout = ? ORDER BY a.number"
    return [rows.attempt(found) for row in rows.by_ids(db, ids) for found in db.execute(query, (row[0],))]


def spans(
    db: sqlite3.Connection,
    rollout: str | None,
    attempt: str | None,
    kinds: Sequence[SpanKind],
    after: tuple[int, int, str],
    limit: int,
) -> Page[Span]:
    """One page of spans by attempt number, sequence and span id."""
    items: list[Span] = []
    last = (0, 0, "")
    in_kinds = f"AND kind IN ({', '.join('?' * len(kinds))})" if len(kinds) < len(checks.KINDS) else ""
    parameters = tuple(kinds) if in_kinds else ()
    for key, number in _owners(db, rollout, attempt):
        if number < after[0]:
            continue
        beyond, start = ("AND (sequence, span_id) > (?, ?)", after[1:]) if number == after[0] else ("", ())
        query = (
            "SELECT sequence, span_id, body, prompt, sampled, logprobs FROM spans "
            f"WHERE attempt = ? {beyond} {in_kinds} ORDER BY sequence, span_id LIMIT ?"
        )
        for row in db.execute(query, (key, *start, *parameters, limit + 1 - len(items))):
            if len(items) == limit:
                return Page(items=tuple(items), next=checks.to_cursor(last))
            items.append(codec.unpack_span(codec.PackedSpan(*row[2:])))
            last = (number, row[0], row[1])
    return Page(items=tuple(items))


def _owners(db: sqlite3.Connection, rollout: str | None, attempt: str | None) -> list[tuple[int, int]]:
    """(key, number) of the attempts whose spans are meant, by number."""
    if attempt is not None:
        found = db.execute("SELECT key, number FROM attempts WHERE id = ?", (attempt,)).fetchall()
        if not found:
            raise checks.unknown("attempt", [attempt])
        return found
    ((seq, *_),) = rows.by_ids(db, [rollout or ""])
    return db.execute("SELECT key, number FROM attempts WHERE rollout = ? ORDER BY number", (seq,)).fetchall()


def statistics(db: sqlite3.Connection) -> Statistics:
    """Counts over all tables."""
    of_rollouts = dict(db.execute("SELECT status, count(*) FROM rollouts GROUP BY status").fetchall())
    of_attempts = dict(db.execute("SELECT status, count(*) FROM attempts GROUP BY status").fetchall())
    spans = db.execute("SELECT count(*) FROM spans").fetchone()[0]
    version = db.execute("SELECT coalesce(max(version), 0) FROM resources").fetchone()[0]
    return checks.statistics(of_rollouts, of_attempts, spans, version)


def next_expiry(db: sqlite3.Connection) -> float | None:
    """When the next running attempt expires; None where none runs."""
    due: float | None = db.execute("SELECT min(expires_at) FROM attempts WHERE status = 'running'").fetchone()[0]
    return due
