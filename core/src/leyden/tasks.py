"""Task files: JSON Lines, a JSON list, CSV or plain text, with the number of a line that cannot be read."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from leyden.errors import InvalidInput

Tasks = str | PathLike[str] | Iterable[Any]
"""A path, or the tasks themselves (anything that JSON can hold)."""


def load_tasks(source: Tasks, what: str = "tasks") -> list[Any]:
    """The tasks of a file or of an iterable. Raises `InvalidInput` for none at all and for a line that is broken.

    `.jsonl`: a JSON value per line; `.json`: one list; `.csv`: a task per row with the header's names; `.txt`: a task
    per line. Empty lines are skipped.
    """
    if isinstance(source, (str, PathLike)):
        path = Path(source)
        if not path.is_file():
            raise InvalidInput(
                f"there is no file {str(path)!r} ({what}); give a path to a .jsonl file, or a list of tasks"
            )
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            raise InvalidInput(f"{path}: tasks are read from {', '.join(_READERS)}, not from {path.suffix or 'this'!r}")
        try:
            tasks = reader(path)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8")
        where = str(path)
    else:
        tasks, where = list(source), f"the list of {what}"
        for index, task in enumerate(tasks):
            _check_json(task, f"{what}[{index}]")
    if not tasks:
        raise InvalidInput(f"{where} holds no tasks; there is nothing to run the agent on")
    return tasks


def load_task_sets(source: Tasks | Mapping[str, Tasks] | None) -> dict[str, list[Any]]:
    """Held-out sets by name. One that is given without a name is "val"."""
    if source is None:
        return {}
    if not isinstance(source, Mapping):
        return {"val": load_tasks(source, "val_tasks")}
    for name in source:
        if not name or "/" in name or name in ("train", "step", "time"):
            raise InvalidInput(f"a held-out set cannot be called {name!r}; its name is the first part of metric names")
    return {name: load_tasks(tasks, f"val_tasks[{name!r}]") for name, tasks in source.items()}


def digest(tasks: Sequence[Any]) -> str:
    """SHA-256 of the tasks as canonical JSON, to tell whether a resumed run has the same ones."""
    text = json.dumps(list(tasks), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_json(task: Any, what: str) -> None:
    try:
        json.dumps(task)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} cannot be written as JSON ({error}); a task is a number, text, a list or a dict")


def _json_lines(path: Path) -> list[Any]:
    tasks = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                tasks.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise InvalidInput(f"{path}, line {number}: not a JSON value ({error.msg} at column {error.colno})")
    return tasks


def _json(path: Path) -> list[Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}: not JSON ({error.msg} at column {error.colno})")
    if not isinstance(value, list):
        raise InvalidInput(
            f"{path} holds a {type(value).__name__}; tasks are a JSON list, or one value per line in .jsonl"
        )
    return value


def _csv(path: Path) -> list[Any]:
    tasks = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            if None in row or None in row.values():
                raise InvalidInput(f"{path}, line {rows.line_num}: not as many fields as the header has")
            tasks.append(dict(row))
    return tasks


def _text(path: Path) -> list[Any]:
    return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


_READERS: dict[str, Callable[[Path], list[Any]]] = {".jsonl": _json_lines, ".json": _json, ".csv": _csv, ".txt": _text}
