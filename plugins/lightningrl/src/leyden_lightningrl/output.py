"""What the trainer's thread prints goes to a file: verl and its libraries print freely, the terminal is Leyden's."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


class Split:
    """A text stream that writes one thread's output to `theirs` and everything else to `usual`."""

    def __init__(self, usual: TextIO, theirs: TextIO, thread: int) -> None:
        self._usual, self._theirs, self._thread = usual, theirs, thread

    def _stream(self) -> TextIO:
        return self._theirs if threading.get_ident() == self._thread else self._usual

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)


@contextlib.contextmanager
def to_file(path: Path) -> Iterator[None]:
    """For the time of the block, append what the calling thread prints to `path`."""
    usual = sys.stdout, sys.stderr
    with open(path, "a", buffering=1) as file:
        thread = threading.get_ident()
        sys.stdout, sys.stderr = (Split(stream, file, thread) for stream in usual)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = usual
