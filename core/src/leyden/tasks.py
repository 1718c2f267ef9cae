"""Task files: JSON Lines, a JSON list, CSV or plain text, with the number of a line that cannot be read."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

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
        if isinstance(source, Mapping) or not isinstance(source, Iterable):
            raise InvalidInput(f"{what} is a {type(source).__name__}; give a path to a .jsonl file, or a list of tasks")
        tasks, where = list(source), f"the list of {what}"
        for index, task in enumerate(tasks):
            _check(task, f"{what}[{index}]")
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


def _check(task: Any, what: str) -> Any:
    """`task`, if it comes back from a store as it is. Raises `InvalidInput` with the place of one that does not."""
    try:
        json.dumps(task)
        msgspec.msgpack.encode(task)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be kept ({error}); a task is a number, text, a list or a dict of these")
    return task


def _json_lines(path: Path) -> list[Any]:
    tasks = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                tasks.append(_check(json.loads(line), where))
            except json.JSONDecodeError as error:
                raise InvalidInput(f"{where}: not a JSON value ({error.msg} at column {error.colno})")
            except InvalidInput:
                raise
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{where}: cannot be read ({error})")
    return tasks


def _json(path: Path) -> list[Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}: not JSON ({error.msg} at column {error.colno})")
    except RecursionError as error:
        raise InvalidInput(f"{path}: cannot be read ({error})")
    if not isinstance(value, list):
        raise InvalidInput(
            f"{path} holds a {type(value).__name__}; tasks are a JSON list, or one value per line in .jsonl"
        )
    return [_check(task, f"{path}, task {number}") for number, task in enumerate(value, 1)]


def _csv(path: Path) -> list[Any]:
    tasks = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        try:
            names = rows.fieldnames or ()
            if len(set(names)) < len(names):
                raise InvalidInput(f"{path}: the header names a column twice ({', '.join(names)})")
            for row in rows:
                if None in row or None in row.values():
                    raise InvalidInput(f"{path}, line {rows.line_num}: not as many fields as the header has")
                tasks.append(dict(row))
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {rows.line_num}: not CSV ({error})")
    return tasks


def _text(path: Path) -> list[Any]:
    with path.open(encoding="utf-8-sig") as lines:  # not splitlines(): it also splits at characters within a line
        return [line.strip() for line in lines if line.strip()]


_READERS: dict[str, Callable[[Path], list[Any]]] = {".jsonl": _json_lines, ".json": _json, ".csv": _csv, ".txt": _text}
