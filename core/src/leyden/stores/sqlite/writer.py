"""The one writer of a process: a thread that puts many waiting calls into one transaction (group commit)."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from leyden.clock import Clock
from leyden.errors import LeydenError, StoreUnavailable
from leyden.stores.sqlite.connections import Connections

T = TypeVar("T")

MAX_BATCH = 512
"""The most calls of one transaction."""

FOREIGN_POLL_S = 0.015
"""How often the writer looks for commits of other processes while somebody waits."""


ENDED_SINCE = "SELECT e.no, r.id FROM ended e JOIN rollouts r ON r.seq = e.rollout WHERE e.no > ? ORDER BY e.no"


class Transaction:
    """What an operation works on, and what it tells those who wait: is there new work, which rollouts have ended."""

    def __init__(self, db: sqlite3.Connection, now: float) -> None:
        self.db = db
        self.now = now
        self.queued = False
        self.ended: list[str] = []


Operation = Callable[[Transaction], T]
"""Runs in the writer thread and may run twice, if its first transaction fails. Raises a `LeydenError` before it writes."""


class _Job(NamedTuple):
    operation: Operation[Any]
    future: asyncio.Future[Any]


class _Done(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


class Writer:
    """Runs operations, and follows what other processes commit. `changed` is called in the event loop after commits.

    `seen_end` is the last entry of the table `ended` that nobody needs to be told of.
    """

    def __init__(
        self,
        connections: Connections,
        seen_end: int,
        clock: Clock,
        translate: Callable[[sqlite3.Error], StoreUnavailable],
        changed: Callable[[bool, Sequence[str]], None],
    ) -> None:
        self._connections = connections
        self._seen_end = seen_end
        self._clock = clock
        self._translate = translate
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        """None wakes the thread."""
        self._stopping = False
        self._watchers = 0
        self._data_version = -1
        self._thread = threading.Thread(target=self._run, name="leyden-sqlite-writer", daemon=True)
        self._thread.start()

    async def submit(self, operation: Operation[T]) -> T:
        """Run `operation` in the next transaction; returns once that is committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(operation, future))
        return await future

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look for commits of other processes meanwhile."""
        self._watchers += 1
        if self._watchers == 1:
            self._jobs.put(None)
        try:
            yield
        finally:
            self._watchers -= 1

    async def stop(self) -> None:
        """Run what was submitted, then close the connection."""
        self._stopping = True
        self._jobs.put(None)
        await self._stopped
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                stopping = self._stopping  # read before taking, so that nothing submitted earlier is left behind
                if jobs := self._take(wait=not stopping):
                    self._deliver(self._commit(jobs))
                elif stopping:
                    break
                if self._watchers:
                    self._follow()
        except RuntimeError:
            pass  # the event loop was closed without closing the store: nobody is left to answer
        finally:
            self._connections.close()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _take(self, *, wait: bool) -> list[_Job]:
        jobs: list[_Job] = []
        try:
            first = self._jobs.get(wait, FOREIGN_POLL_S if self._watchers else None)
            while True:
                if first is not None and not first.future.cancelled():
                    jobs.append(first)
                if len(jobs) == MAX_BATCH:
                    return jobs
                first = self._jobs.get_nowait()
        except queue.Empty:
            return jobs

    def _commit(self, jobs: Sequence[_Job]) -> tuple[list[_Done], Transaction | None]:
        try:
            with self._connections.lend() as db:
                db.execute("BEGIN IMMEDIATE")
                return self._transact(db, jobs)
        except sqlite3.Error as error:  # none (more) of them could begin
            return [_Done(job.future, None, self._translate(error)) for job in jobs], None

    def _transact(self, db: sqlite3.Connection, jobs: Sequence[_Job]) -> tuple[list[_Done], Transaction | None]:
        try:
            transaction = Transaction(db, self._clock.now())
            done = [_operate(job, transaction) for job in jobs]
            db.execute("COMMIT")
            return done, transaction
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):  # some errors have rolled back already
                db.execute("ROLLBACK")
            if len(jobs) == 1:
                known = self._translate(error) if isinstance(error, sqlite3.Error) else error
                return [_Done(jobs[0].future, None, known)], None
        for job in jobs:  # the others must not fail for one of them
            db.execute("BEGIN IMMEDIATE")
            self._deliver(self._transact(db, [job]))
        return [], None

    def _deliver(self, outcome: tuple[list[_Done], Transaction | None]) -> None:
        done, transaction = outcome
        queued, ended = (transaction.queued, transaction.ended) if transaction else (False, [])
        if done or queued or ended:
            self._loop.call_soon_threadsafe(self._settle, done, queued, ended)

    def _settle(self, done: Sequence[_Done], queued: bool, ended: Sequence[str]) -> None:
        for future, value, error in done:
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if queued or ended:
            self._changed(queued, ended)

    def _follow(self) -> None:
        """See whether another process has committed, and tell the event loop what is new: work, and ended rollouts."""
        try:
            with self._connections.lend() as db:
                version = db.execute("PRAGMA data_version").fetchone()[0]
                if version == self._data_version:
                    return
                rows = db.execute(ENDED_SINCE, (self._seen_end,)).fetchall()
                queued = db.execute("SELECT EXISTS (SELECT 1 FROM rollouts WHERE status = 'queued')").fetchone()[0]
        except sqlite3.Error:
            return  # seen at the next look; calls report what is wrong with the file
        self._data_version = version
        self._seen_end = rows[-1][0] if rows else self._seen_end
        self._loop.call_soon_threadsafe(self._settle, [], bool(queued), [row[1] for row in rows])


def _operate(job: _Job, transaction: Transaction) -> _Done:
    before = transaction.db.total_changes
    try:
        return _Done(job.future, job.operation(transaction), None)
    except LeydenError as error:
        if transaction.db.total_changes != before:
            raise
        return _Done(job.future, None, error)
