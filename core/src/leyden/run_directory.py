"""The directory of a run: its default name, `run.json` with the settings, and their comparison when it is resumed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leyden.errors import ConfigError
from leyden.files import read_json, write_atomically

RUN_FILE = "run.json"


def default_directory(name: str) -> Path:
    """`runs/<name>-<date>-<time>`, with a number behind it where that one exists."""
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidate, number = base, 2
    while candidate.exists():
        candidate, number = base.with_name(f"{base.name}-{number}"), number + 1
    return candidate


def read_run(directory: Path) -> dict[str, Any]:
    """`run.json` of a run. Raises `ConfigError` where there is no run in `directory`."""
    found = read_json(directory / RUN_FILE)
    if found is None:
        raise ConfigError(f"{directory} holds no run ({RUN_FILE} is missing); give the directory of the run to resume")
    return found


def open_directory(directory: Path, settings: Mapping[str, Any], *, resume: bool, unchecked: Mapping[str, Any]) -> str:
    """Make the directory of a new run, or check `settings` against those of the run in it. Returns the run's id.

    `unchecked` is written with the settings, but may change from one start to the next. Raises `ConfigError` for a new
    run in a directory that holds one, and for a setting that contradicts the resumed run's.
    """
    if resume:
        known = read_run(directory)
        _compare(known.get("settings", {}), json.loads(json.dumps(settings, default=str)), directory)
        return str(known["id"])
    if (directory / RUN_FILE).exists():
        raise ConfigError(
            f"{directory} holds a run already: go on with it (resume=True, or --resume {directory}), or give another directory"
        )
    directory.mkdir(parents=True, exist_ok=True)
    run_id = uuid.uuid4().hex[:12]
    content = {"id": run_id, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "settings": settings, **unchecked}
    write_atomically(directory / RUN_FILE, json.dumps(content, indent=2, default=str) + "\n")
    return run_id


def _compare(known: Mapping[str, Any], given: Mapping[str, Any], directory: Path) -> None:
    different = [
        f"{key}: the run has {_short(before)}, now it is {_short(after)}"
        for key, before, after in _differences(known, given)
    ]
    if different:
        raise ConfigError(
            f"the run in {directory} was started with other settings: {'; '.join(different)}. "
            "Resume it with the same ones, or start a new run in another directory"
        )


def _differences(known: Any, given: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(known, Mapping) and isinstance(given, Mapping):
        keys = [*known, *(key for key in given if key not in known)]
        found = []
        for key in keys:
            found += _differences(known.get(key), given.get(key), f"{path}.{key}" if path else str(key))
        return found
    return [] if known == given else [(path, known, given)]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
