"""Checkpoint folders: a step's folder counts only once its marker is in it, so a kill at any moment costs no more than
the steps since the last whole one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from leyden.errors import ConfigError

MARKER = "complete.json"
PREFIX = "global_step_"
"""verl's name for a step's folder."""


def complete(folder: Path, step: int) -> None:
    """Mark a step's folder as whole, by a rename."""
    temporary = folder / f".{MARKER}"
    with open(temporary, "w") as file:
        json.dump({"step": step}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / MARKER)


def steps(checkpoints: Path) -> dict[int, Path]:
    """Folders of whole checkpoints by step, in ascending order."""
    found = {}
    for folder in checkpoints.glob(f"{PREFIX}*"):
        number = folder.name.removeprefix(PREFIX)
        if number.isdigit() and (folder / MARKER).is_file():
            found[int(number)] = folder
    return dict(sorted(found.items()))


def latest(checkpoints: Path) -> tuple[int, Path] | None:
    """The last whole checkpoint, or None."""
    found = steps(checkpoints)
    return (list(found.items()))[-1] if found else None


def prune(checkpoints: Path, *, keep: int) -> None:
    """Remove all but the last `keep` whole checkpoints, and every broken one that is older than the last whole one."""
    whole = steps(checkpoints)
    kept = set(list(whole)[-keep:])
    for folder in checkpoints.glob(f"{PREFIX}*"):
        number = folder.name.removeprefix(PREFIX)
        if number.isdigit() and int(number) not in kept and whole and int(number) < max(whole):
            (folder / MARKER).unlink(missing_ok=True)  # first: a half-removed folder must not look whole
            shutil.rmtree(folder)


def resume_point(directory: Path, *, resumed: bool) -> tuple[int, Path] | None:
    """Where a run goes on: its last whole checkpoint. Raises `ConfigError` for a new run in an old run's folder."""
    found = latest(directory / "checkpoints")
    if found is not None and not resumed:
        raise ConfigError(f"{directory} holds checkpoints of an earlier run: resume it, or choose another folder")
    return found if resumed else None
