"""The SQLite store: `LightningStore` over one file, for one machine and any number of its processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

from leyden.clock import Clock, SystemClock
from leyden.errors import ConfigError, StoreUnavailable
from leyden.stores import checks, codec
from leyden.stores.sqlite import read, rows, schema, write
from leyden.stores.sqlite.connections import Connections
from leyden.stores.sqlite.readers import Readers
from leyden.stores.sqlite.writer import Operation, Writer
from leyden.stores.sweeper import Sweeper
from leyden.stores.waiting import Deadline, Signal, Watches, until
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

T = TypeVar("T")

RECHECK_S = 2.0
"""How often a `wait` looks for itself, for what notifications do not tell: a rollout that another process deleted."""


async def open_store(url: str) -> SQLiteStore:
    """The store at `sqlite:///relative.db`, `sqlite:////absolute.db` or a bare path; made where there is none.

    `?synchronous=full` makes every acknowledged write survive a loss of power too. The default, `normal`, survives the
    death of any process (`kill -9` included); a loss of power may take the last moments, but never damages the file.
    """
    path, synchronous = parse(url)
    return await SQLiteStore.open(path, synchronous=synchronous)


def parse(url: str) -> tuple[Path, str]:
    """The file and the value of `synchronous` in a URL or a bare path. Raises `ConfigError` for a bad URL."""
    where, _, query = url.partition("?")
    name = url
    if not where.startswith("sqlite:"):
        query = ""
    else:
        if not where.startswith("sqlite:///") or len(where) == len("sqlite:///"):
            raise ConfigError(
                f"{url!r} names no file: use sqlite:///relative/path.db or sqlite:////absolute/path.db ('memory:' for none)"
            )
        name = unquote(where.removeprefix("sqlite:///"))
    synchronous = "normal"
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key != "synchronous" or value.lower() not in ("normal", "full"):
            raise ConfigError(
                f"{url!r}: {key}={value} is unknown, the one option is synchronous=normal or synchronous=full"
            )
        synchronous = value.lower()
    return Path(name), synchronous


class SQLiteStore:
    """A `LightningStore` in an SQLite file (WAL). Made by `open`, inside a running event loop; `close` it there.

    One thread writes, many calls a transaction; a few threads read. The process may fork: the child opens a store of its own.
    """

    def __init__(self, writing: Connections, seen_end: int, path: Path, synchronous: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._pid = os.getpid()
        self._work = Signal()
        self._watches = Watches()
        self._closed = False
        self._writer = Writer(writing, seen_end, clock, self._unavailable, self._changed)
        reading = Connections(lambda: schema.connect(path, synchronous=synchronous, read_only=True))
        self._readers = Readers(reading, self._unavailable)
        self._sweeper = Sweeper(self._sweep, clock)

    @classmethod
    async def open(cls, path: str | Path, *, synchronous: str = "normal", clock: Clock | None = None) -> SQLiteStore:
        """Open the file at `path`, or make it with the folders above it. See `open_store` for `synchronous`."""
        writing, seen_end, where = await asyncio.to_thread(_connect, Path(path), synchronous)
        return cls(writing, seen_end, where, synchronous, clock or SystemClock())

    async def enqueue(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """See `LightningStore.enqueue`."""
        taken = [checks.request(request) for request in requests]
        return await self._write(lambda tx: write.enqueue(tx, taken))

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
            ticket = self._work.ticket()
            try:
                claims = await self._write(lambda tx: write.claim(tx, worker, limit, lease_s, wanted))
                if claims:
                    return claims
                with self._writer.watching():
                    if not await until(ticket, deadline.left()):
                        return []
            finally:
                self._work.drop(ticket)

    async def heartbeat(self, worker: str, attempts: Sequence[str], *, lease_s: float = 30.0) -> list[str]:
        """See `LightningStore.heartbeat`."""
        checks.positive("lease_s", lease_s)
        ids = checks.unique(attempts)
        lost, unknown = await self._write(lambda tx: write.heartbeat(tx, worker, ids, lease_s))
        if unknown:
            raise checks.unknown("attempt", unknown)
        return lost

    async def finish(self, attempt: str, outcome: Outcome, *, reason: str | None = None) -> Attempt:
        """See `LightningStore.finish`."""
        checks.choices("outcome", [outcome], checks.OUTCOMES)
        return await self._write(lambda tx: write.finish(tx, attempt, outcome, reason))

    async def cancel(self, rollouts: Sequence[str], *, reason: str = "cancelled") -> list[Rollout]:
        """See `LightningStore.cancel`."""
        ids = checks.unique(rollouts)
        return await self._write(lambda tx: write.cancel(tx, ids, reason))

    async def wait(
        self, rollouts: Sequence[str], *, timeout_s: float | None = None, count: int | None = None
    ) -> list[Rollout]:
        """See `LightningStore.wait`."""
        ids = checks.unique(rollouts)
        deadline = Deadline(timeout_s)
        watch = self._watches.add(ids, checks.wanted(count, ids))
        try:
            with self._writer.watching():
                while True:
                    watch.saw(await self._read(lambda db: read.terminal(db, ids)))
                    left = deadline.left()
                    nap = RECHECK_S if left is None else min(RECHECK_S, left)
                    if await until(watch.done, nap) or deadline.left() == 0:
                        break
        finally:
            self._watches.remove(watch, ids)
        return await self._read(lambda db: read.terminal_rollouts(db, ids))

    async def add_spans(self, spans: Sequence[Span]) -> int:
        """See `LightningStore.add_spans`."""
        taken = list(spans)
        packed = [codec.pack_span(span) for span in taken]
        return await self._write(lambda tx: write.add_spans(tx, taken, packed))

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
        checks.limit(limit)
        checks.one_owner(rollout, attempt)
        chosen = checks.choices("kinds", kinds, checks.KINDS)
        after = checks.span_cursor(cursor)
        return await self._read(lambda db: read.spans(db, rollout, attempt, chosen, after, limit))

    async def publish(self, resources: Resources) -> Resources:
        """See `LightningStore.publish`."""
        taken = checks.snapshot(resources)
        return await self._write(lambda tx: write.publish(tx, taken))

    async def resources(self, version: int | None = None) -> Resources:
        """See `LightningStore.resources`."""
        return await self._read(lambda db: rows.resources(db, version))

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
        checks.limit(limit)
        after = checks.rollout_cursor(cursor)
        states, modes = checks.choices("status", status, checks.STATUSES), checks.choices("mode", mode, checks.MODES)
        wanted = None if ids is None else checks.unique(ids)
        return await self._read(lambda db: read.rollouts(db, wanted, states, modes, group, after, limit))

    async def attempts(self, rollouts: Sequence[str]) -> list[Attempt]:
        """See `LightningStore.attempts`."""
        ids = checks.unique(rollouts)
        return await self._read(lambda db: read.attempts(db, ids))

    async def delete(self, rollouts: Sequence[str]) -> int:
        """See `LightningStore.delete`."""
        ids = checks.unique(rollouts)
        return await self._write(lambda tx: write.delete(tx, ids))

    async def statistics(self) -> Statistics:
        """See `LightningStore.statistics`."""
        return await self._read(read.statistics)

    async def close(self) -> None:
        """See `LightningStore.close`. What was called before is still written."""
        if self._closed:
            return
        self._closed = True
        self._work.notify()
        self._watches.wake_all()
        await self._sweeper.stop()
        await self._readers.stop()
        await self._writer.stop()

    async def _write(self, operation: Operation[T]) -> T:
        self._check_open()
        return await self._writer.submit(operation)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return await self._readers.run(query)

    async def _sweep(self) -> float | None:
        due = await self._read(read.next_expiry)
        if due is None or due > self._clock.now():
            return due
        await self._write(write.expire)
        return await self._read(read.next_expiry)

    def _changed(self, queued: bool, ended: Sequence[str]) -> None:
        if queued:
            self._work.notify()
        self._watches.ended(ended)

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        return schema.unavailable(error, self._path)

    def _check_open(self) -> None:
        if self._closed:
            raise checks.closed(f"the store {self._path}")
        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"the store {self._path} was opened before this process was forked: open it again in the child"
            )


def _connect(path: Path, synchronous: str) -> tuple[Connections, int, Path]:
    """Connections for writing to a file that is in order, the last entry of its table `ended`, and its whole path."""
    path = path.absolute()
    writing = Connections(lambda: schema.connect(path, synchronous=synchronous))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing.lend() as db:
            schema.prepare(db, path)
            return writing, db.execute("SELECT coalesce(max(no), 0) FROM ended").fetchone()[0], path
    except sqlite3.Error as error:
        writing.close()
        raise schema.cannot_open(error, path)
    except OSError as error:
        raise StoreUnavailable(f"the folder of {path} cannot be made ({error}): name another place")
    except BaseException:
        writing.close()
        raise
