"""Connections to one file, lent to threads, and closed around a fork.

SQLite keeps what it knows about locks in the memory of the process. A child that inherits that with an open connection, and
opens the same file, trusts locks that only its parent holds, and can damage the file. So no connection is open while a
process forks: the parent opens new ones after it, and the child may open the store as any other process does.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator


class Connections:
    """Opens connections as they are needed, and keeps them for the next who asks."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: deque[sqlite3.Connection] = deque()
        self._lent = 0
        self._frozen = False
        self._changed = threading.Condition()
        _everywhere.add(self)

    @contextlib.contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else has meanwhile. Raises `sqlite3.Error` where none can be opened."""
        with self._changed:
            self._changed.wait_for(lambda: not self._frozen)
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._connect()
            yield connection
        finally:
            with self._changed:
                self._lent -= 1
                if connection is not None:
                    self._idle.append(connection)
                self._changed.notify_all()

    def close(self) -> None:
        """Close those that are not lent."""
        with self._changed:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def freeze(self) -> None:
        """Wait until none is lent, close all, and hold back who asks, until `thaw` is called by the same thread."""
        self._changed.acquire()
        self._frozen = True
        self._changed.wait_for(lambda: not self._lent)
        self._close_idle()

    def thaw(self) -> None:
        """Lend again."""
        self._frozen = False
        self._changed.notify_all()
        self._changed.release()


_everywhere: weakref.WeakSet[Connections] = weakref.WeakSet()
_frozen: list[Connections] = []


def _before_fork() -> None:
    for connections in list(_everywhere):
        connections.freeze()
        _frozen.append(connections)


def _after_fork() -> None:
    while _frozen:
        _frozen.pop().thaw()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
