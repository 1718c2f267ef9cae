"""Connections for reading: a few threads, each query in a snapshot of its own that never waits for the writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leyden.errors import StoreUnavailable
from leyden.stores.sqlite.connections import Connections

T = TypeVar("T")

THREADS = 4


class Readers:
    """Runs queries in a small thread pool."""

    def __init__(self, connections: Connections, translate: Callable[[sqlite3.Error], StoreUnavailable]) -> None:
        self._connections = connections
        self._translate = translate
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="leyden-sqlite-reader")

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `query`, all of whose statements see one state of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._connections.lend() as db:
                db.execute("BEGIN")
                try:
                    return query(db)
                finally:
                    db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._translate(error)

    async def stop(self) -> None:
        """Let running queries end, then close the connections."""
        await asyncio.to_thread(self._pool.shutdown)
        self._connections.close()
