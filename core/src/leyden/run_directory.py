"""The directory of a run: its default name, `run.json` with the settings, and their comparison when it is resumed."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leyden.errors import ConfigError
from leyden.files import read_json, write_atomically

try:
    import fcntl

    LOCKS = True
except ImportError:  # Windows
    LOCKS = False

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


def check_directory(directory: Path, settings: Mapping[str, Any], *, resume: bool) -> str:
    """The id of the run that `directory` holds, or of the new one that it will; writes nothing.

    Raises `ConfigError` for a new run in a directory that holds one, and for a setting that contradicts the resumed run's.
    """
    if resume:
        known = read_run(directory)
        _compare(known.get("settings", {}), json.loads(json.dumps(settings, default=str)), directory)
        return str(known["id"])
    if (directory / RUN_FILE).exists():
        raise ConfigError(
            f"{directory} holds a run already: go on with it (resume=True, or --resume {directory}), or give another directory"
        )
    return uuid.uuid4().hex[:12]


def make_directory(directory: Path, run_id: str, settings: Mapping[str, Any], unchecked: Mapping[str, Any]) -> Lock:
    """Make the directory of a new run, with its `run.json`; returns the lock on it.

    `unchecked` is written with the settings, but may change from one start to the next. Raises `ConfigError` where nothing
    can be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = Lock(directory)
        try:
            check_directory(directory, settings, resume=False)  # once more, now that nobody else can make one in it
            content = {"id": run_id, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "settings": settings, **unchecked}
            write_atomically(directory / RUN_FILE, json.dumps(content, indent=2, default=str) + "\n")
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise ConfigError(
            f"the run's directory {directory} cannot be made or written ({error.strerror or error}): "
            "give another one (directory=…, --directory …)"
        )
    return lock


class Lock:
    """Keeps other processes off a run's directory while this one is at work on it; a killed process leaves none behind."""

    def __init__(self, directory: Path, *, wait_s: float = 0.0) -> None:
        """Take the lock. Raises `ConfigError` where another process (or run of this one) still has it after `wait_s` seconds."""
        self._descriptor: int | None = None
        if not LOCKS:
            return
        self._descriptor = os.open(directory, os.O_RDONLY)
        until = time.monotonic() + wait_s
        while not _locked(self._descriptor):
            if time.monotonic() > until:
                self.release()
                raise ConfigError(
                    f"another process is at work on the run in {directory}: let it end, end it, or give another directory"
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Let the next one in. Twice is once."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


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
