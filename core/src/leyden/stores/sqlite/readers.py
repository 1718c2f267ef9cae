"""Connections for reading: a few threads, each query in a snapshot of its own that never waits for the writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leyden.errors import StoreUnavailable

T = TypeVar("T")

THREADS = 4


class Readers:
    """Runs queries in a small thread pool. Connections are opened when first needed."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], translate: Callable[[sqlite3.Error], StoreUnavailable]
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._idle: deque[sqlite3.Connection] = deque()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="leyden-sqlite-reader")

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `query`, all of whose statements see one state of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._connect()
            try:
                db.execute("BEGIN")
                try:
                    return query(db)
                finally:
                    db.execute("COMMIT")
            finally:
                self._idle.append(db)
        except sqlite3.Error as error:
            raise self._translate(error)

    async def stop(self) -> None:
        """Let running queries end, then close the connections."""
        await asyncio.to_thread(self._pool.shutdown)
        while self._idle:
            self._idle.pop().close()
