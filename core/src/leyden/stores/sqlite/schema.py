"""The SQLite file: its schema and migrations, how it is opened, and what SQLite's errors mean to a user."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from leyden.errors import ConfigError, LeydenError, StoreUnavailable

APPLICATION_ID = 0x4C594A52
"""Marks a file as a Leyden store (`PRAGMA application_id`)."""

BUSY_S = 15.0
"""How long a writer waits for the writer of another process."""

FIRST = """
CREATE TABLE rollouts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of enqueue
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    mode TEXT NOT NULL,
    grp TEXT,
    created_at REAL NOT NULL,
    resources INTEGER,
    timeout_s REAL,
    max_attempts INTEGER NOT NULL,
    retry_on TEXT NOT NULL,                 -- outcomes, separated by commas
    attempts INTEGER NOT NULL DEFAULT 0,
    attempt TEXT,
    ended_at REAL,
    reason TEXT,
    body BLOB NOT NULL                      -- MessagePack of (task, metadata)
);
CREATE INDEX rollouts_queue ON rollouts (mode, seq) WHERE status = 'queued';
CREATE INDEX rollouts_status ON rollouts (status, seq);
CREATE INDEX rollouts_group ON rollouts (grp, seq) WHERE grp IS NOT NULL;

CREATE TABLE attempts (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    rollout INTEGER NOT NULL,               -- rollouts.seq
    rollout_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    status TEXT NOT NULL,
    started_at REAL NOT NULL,
    lease_until REAL NOT NULL,
    deadline REAL,
    expires_at REAL NOT NULL,               -- lifecycle.expires_at
    resources INTEGER,
    ended_at REAL,
    reason TEXT,
    UNIQUE (rollout, number)
);
CREATE INDEX attempts_expiry ON attempts (expires_at) WHERE status = 'running';

CREATE TABLE spans (
    attempt INTEGER NOT NULL,               -- attempts.key
    span_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,                     -- codec.PackedSpan
    prompt BLOB,
    sampled BLOB,
    logprobs BLOB
);
CREATE UNIQUE INDEX spans_once ON spans (attempt, span_id);
CREATE INDEX spans_order ON spans (attempt, sequence, span_id);

CREATE TABLE resources (
    version INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL
);

CREATE TABLE ended (                        -- rollouts in the order in which they ended: what waiting processes follow
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    rollout INTEGER NOT NULL UNIQUE         -- rollouts.seq
);
"""

MIGRATIONS: tuple[str, ...] = (FIRST,)
"""Script n takes a file from schema version n to n + 1. Add to the end; never change one that was released."""

VERSION = len(MIGRATIONS)


def connect(path: Path, *, synchronous: str, read_only: bool = False) -> sqlite3.Connection:
    """A connection that may be used from any one thread at a time, without implicit transactions."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA temp_store = MEMORY")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA wal_autocheckpoint = 2000")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a Leyden store of a known version, make it one if it is empty, migrate it if it is old."""
    _check(connection, path)  # before the journal mode, which would be written into somebody else's file
    _retry_while_busy(lambda: connection.execute("PRAGMA journal_mode = WAL"))
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        _check(connection, path)
        for script in MIGRATIONS[_version(connection) :]:  # another process may have done it by now: then none is left
            for statement in script.split(";\n"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_sqlite(path: Path) -> bool:
    """Whether a file is SQLite's, or empty, by its first bytes (https://sqlite.org/fileformat.html, 1.3.1)."""
    try:
        with path.open("rb") as file:
            return file.read(16) in (b"", b"SQLite format 3\0")
    except OSError:  # opening it will say why
        return not path.is_dir()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = connection.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0]
    if application == 0 and empty:
        return
    if application != APPLICATION_ID:
        raise ConfigError(f"{path} is an SQLite file of another program, not a Leyden store: name another file")
    version = _version(connection)
    if version > VERSION:
        raise ConfigError(
            f"{path} was written by a newer Leyden (schema {version}, this one knows up to {VERSION}): upgrade leyden"
        )


def _retry_while_busy(action: Callable[[], object]) -> None:
    until = time.monotonic() + BUSY_S
    while True:  # SQLite does not wait by itself while two processes switch a new file to WAL
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0.01)


def cannot_open(error: sqlite3.Error, path: Path) -> LeydenError:
    """What an error of SQLite means when a file is opened."""
    if "not a database" in str(error):
        return ConfigError(f"{path} is not a Leyden store (nor any SQLite file): name another file, or move it away")
    return unavailable(error, path)


def unavailable(error: sqlite3.Error, path: Path) -> StoreUnavailable:
    """What an error of SQLite means, and what to do about it."""
    text = str(error)
    if "full" in text:
        advice = "the disk is full. Nothing of this call was written: free some space and try again"
    elif "locked" in text or "busy" in text:
        advice = f"another process has kept it locked for {BUSY_S:g} s: look for one that hangs, then try again"
    elif "readonly" in text:
        advice = (
            "it cannot be written: check the permissions of the file and of its folder, and that it was not deleted"
        )
    elif "unable to open" in text:
        advice = "it cannot be opened: check that the folder exists and that you may write there"
    elif "malformed" in text or "not a database" in text:
        advice = "the file is damaged: restore a copy, or start with a new file"
    else:
        advice = "check the disk that holds it, then try again"
    return StoreUnavailable(f"the store {path} does not answer ({text}): {advice}")
