"""Files that a kill at any moment leaves whole: written beside, flushed to the disk, then renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from leyden.errors import InvalidInput


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`; a reader, and a process that starts after a crash, sees the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:  # say, a full disk
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON any more ({error}); restore it or start a new run")
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} does not hold a JSON object; restore it or start a new run")
    return value
