"""The directory between a program and who started it: the attempt on the way in, spans on the way out.

    attempt      what the program runs for (`Handed`, MessagePack)
    first        made by the first Python process of the program
    marked       there if agents are marked
    refused      why the program was not started, where that is so
    *.spans      one for each process: notes, each with its length before it

A note is in the kernel's hands as soon as it is written: a program that is killed, crashes or leaves by `os._exit` has lost
nothing of what had ended. Nothing needs flushing, and no process but the parent needs the store.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from leyden.types import Resources, Rollout, Span, Struct

ATTEMPT, FIRST, MARKED, REFUSED, SPANS = "attempt", "first", "marked", "refused", ".spans"

FULL = 16 * 2**20
"""Bytes after which a process goes on in another file, so that the reader can delete what it has read."""

_LENGTH = 4
"""Bytes of the length before a note (big-endian)."""


class Handed(Struct, frozen=True):
    """What a program is told of its attempt."""

    rollout: Rollout
    attempt: str
    resources: Resources
    start_ns: int
    """`time.perf_counter_ns()` as the program was started; one clock for all processes of a machine."""
    supervisor: int = 0
    """Process id of the worker that the program dies with; 0: it goes on by itself."""


class Note(Struct, frozen=True):
    """One thing that a process of the program has to say."""

    process: int = 0
    """Its process id, once, as it is set up."""
    span: Span | None = None
    failure: tuple[str, str] | None = None
    """Name and message of a routing error of a marked agent."""
    raised: str | None = None
    """The exception that ended the process."""
    dropped: int = 0
    """Spans that could not be written before this note."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode


def hand(directory: Path, handed: Handed) -> None:
    """Write what a program is told."""
    (directory / ATTEMPT).write_bytes(msgspec.msgpack.encode(handed))
    if handed.resources.marks:
        (directory / MARKED).touch()


def handed(directory: Path) -> Handed:
    """Read what a program is told."""
    return msgspec.msgpack.decode((directory / ATTEMPT).read_bytes(), type=Handed)


class Spool:
    """The program's end: a `leyden.scope.SpanSink`, for any number of threads and forks of a process."""

    def __init__(self, directory: Path) -> None:
        self.dropped = 0
        self._directory = directory
        self._file: int | None = None
        self._identity = (0, 0)
        """Device and inode of our file."""
        self._lock = threading.Lock()

    def emit(self, span: Span) -> None:
        """Write one span; one that cannot be written is dropped and counted."""
        self.write(Note(span=span))

    def write(self, note: Note) -> None:
        """Write one note. Never raises."""
        with self._lock:
            try:
                if self.dropped:
                    note = msgspec.structs.replace(note, dropped=self.dropped)
                content = _encode(note)
                self._append(len(content).to_bytes(_LENGTH, "big") + content)
                self.dropped = 0
            except Exception:  # an observer must not break the agent that it observes
                self.dropped += note.span is not None

    def _append(self, data: bytes) -> None:
        end = self._size()
        if end is None or end >= FULL:
            self._close()
            name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}{SPANS}"
            flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY
            file = os.open(self._directory / name, flags, 0o600)
            status = os.fstat(file)
            self._file, self._identity, end = file, (status.st_dev, status.st_ino), 0
        assert self._file is not None
        if os.write(self._file, data) < len(data):  # a full disk
            os.ftruncate(self._file, end)
            raise OSError("the disk is full")

    def _size(self) -> int | None:
        """Bytes in our file; None where there is none. A program may close any descriptor and open its own in its place."""
        if self._file is None:
            return None
        try:
            status = os.fstat(self._file)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            self._file = None
            return None
        return status.st_size

    def _close(self) -> None:
        if self._size() is not None and self._file is not None:
            os.close(self._file)
        self._file = None

    def forked(self) -> None:
        """Give a forked child a file and a lock of its own."""
        self._lock = threading.Lock()
        self.dropped = 0
        self._close()


class Reader:
    """The parent's end: takes in what the processes of a program have written so far."""

    def __init__(self, directory: Path) -> None:
        self.broken = 0
        """Files that could not be read to their end."""
        self._directory = directory
        self._read: dict[Path, int] = {}
        """How many bytes of each file were read; -1 for a broken one."""

    def notes(self) -> Iterator[Note]:
        """The notes that are new since the last time, each process's in its order."""
        for path in sorted(self._directory.glob(f"*{SPANS}")):
            start = self._read.get(path, 0)
            if start < 0 or path.stat().st_size == start:
                continue
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            yield from self._notes(path, start, data)
            if self._read.get(path, 0) >= FULL:  # its process writes another one by now
                path.unlink()
                del self._read[path]

    def _notes(self, path: Path, start: int, data: bytes) -> Iterator[Note]:
        place = 0
        while len(data) - place >= _LENGTH:
            end = place + _LENGTH + int.from_bytes(data[place : place + _LENGTH], "big")
            if end > len(data):  # still being written, or its process was killed just then
                break
            try:
                note = _decode(data[place + _LENGTH : end])
            except msgspec.DecodeError:
                self.broken += 1
                self._read[path] = -1
                return
            place = end
            self._read[path] = start + place
            yield note
