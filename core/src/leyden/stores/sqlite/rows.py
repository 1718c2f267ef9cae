"""Rows of the SQLite tables as structs, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from leyden import lifecycle
from leyden.stores import checks, codec
from leyden.types import Attempt, Resources, Retry, Rollout

ROLLOUT = (
    "r.seq, r.id, r.status, r.mode, r.grp, r.created_at, r.resources, r.timeout_s, r.max_attempts, r.retry_on, "
    "r.attempts, r.attempt, r.ended_at, r.reason, r.body"
)
ATTEMPT = (
    "a.id, a.rollout_id, a.number, a.worker, a.status, a.started_at, a.lease_until, a.deadline, a.resources, "
    "a.ended_at, a.reason"
)

Row = tuple[Any, ...]


def rollout(row: Row, *, whole: bool = True) -> Rollout:
    """The rollout in a row of `ROLLOUT` columns; without task and metadata unless `whole` (a transition needs neither)."""
    task, metadata = codec.unpack(row[14]) if whole else (None, {})
    return Rollout(
        id=row[1],
        task=task,
        status=row[2],
        mode=row[3],
        group=row[4],
        created_at=row[5],
        resources=row[6],
        timeout_s=row[7],
        retry=Retry(max_attempts=row[8], on=tuple(row[9].split(",")) if row[9] else ()),
        metadata=metadata,
        attempts=row[10],
        attempt=row[11],
        ended_at=row[12],
        reason=row[13],
    )


def rollout_row(new: Rollout) -> Row:
    """The values of a rollout that is not in the store yet, for `INSERT`."""
    return (
        new.id,
        new.status,
        new.mode,
        new.group,
        new.created_at,
        new.resources,
        new.timeout_s,
        new.retry.max_attempts,
        ",".join(new.retry.on),
        codec.pack((new.task, new.metadata)),
    )


def attempt(row: Row) -> Attempt:
    """The attempt in a row of `ATTEMPT` columns."""
    return Attempt(
        id=row[0],
        rollout_id=row[1],
        number=row[2],
        worker=row[3],
        status=row[4],
        started_at=row[5],
        lease_until=row[6],
        deadline=row[7],
        resources=row[8],
        ended_at=row[9],
        reason=row[10],
    )


def attempt_row(new: Attempt, seq: int) -> Row:
    """The values of an attempt of rollout number `seq`, for `INSERT`."""
    return (
        new.id,
        seq,
        new.rollout_id,
        new.number,
        new.worker,
        new.status,
        new.started_at,
        new.lease_until,
        new.deadline,
        lifecycle.expires_at(new),
        new.resources,
    )


def by_ids(db: sqlite3.Connection, ids: Iterable[str]) -> list[Row]:
    """The rows of rollouts, in the order of `ids`, each once. `NotFound` where one is unknown."""
    wanted = checks.unique(ids)
    query = f"SELECT {ROLLOUT} FROM json_each(?) j CROSS JOIN rollouts r ON r.id = j.value"
    found = {row[1]: row for row in db.execute(query, (json.dumps(wanted),))}
    if len(found) < len(wanted):
        raise checks.unknown("rollout", [i for i in wanted if i not in found])
    return [found[i] for i in wanted]


def attempt_by_id(db: sqlite3.Connection, attempt_id: str) -> Attempt:
    """An attempt. `NotFound` where it is unknown."""
    row = db.execute(f"SELECT {ATTEMPT} FROM attempts a WHERE a.id = ?", (attempt_id,)).fetchone()
    if row is None:
        raise checks.unknown("attempt", [attempt_id])
    return attempt(row)


def resources(db: sqlite3.Connection, version: int | None) -> Resources:
    """The resources of `version`, or the latest. `NotFound` where there is none."""
    if version is None:
        row = db.execute("SELECT body FROM resources ORDER BY version DESC LIMIT 1").fetchone()
        if row is None:
            raise checks.no_resources()
    else:
        row = db.execute("SELECT body FROM resources WHERE version = ?", (version,)).fetchone()
        if row is None:
            raise checks.unknown("resources of version", [version])
    return codec.unpack_resources(row[0])
