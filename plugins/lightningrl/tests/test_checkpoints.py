"""Checkpoint folders: only whole ones count, and old ones go."""

from __future__ import annotations

from pathlib import Path

import pytest

from leyden.errors import ConfigError
from leyden_lightningrl.checkpoints import complete, latest, prune, resume_point, steps


def make(folder: Path, step: int, *, whole: bool = True) -> Path:
    made = folder / f"global_step_{step}"
    made.mkdir(parents=True)
    (made / "weights").write_text("w")
    if whole:
        complete(made, step)
    return made


def test_a_folder_without_its_marker_does_not_count(tmp_path: Path) -> None:
    make(tmp_path, 4)
    make(tmp_path, 10)
    make(tmp_path, 12, whole=False)
    found = latest(tmp_path)
    assert found is not None
    assert found[0] == 10
    assert list(steps(tmp_path)) == [4, 10]


def test_no_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") is None


def test_prune_keeps_the_last_and_removes_broken_older_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        make(tmp_path, step)
    make(tmp_path, 4, whole=False)
    broken = make(tmp_path, 11, whole=False)
    prune(tmp_path, keep=2)
    assert list(steps(tmp_path)) == [3, 10]
    assert not (tmp_path / "global_step_4").exists()
    assert broken.exists()  # may be in the making


def test_a_new_run_does_not_mix_with_an_old_one(tmp_path: Path) -> None:
    make(tmp_path / "checkpoints", 3)
    with pytest.raises(ConfigError, match="holds checkpoints of an earlier run"):
        resume_point(tmp_path, resumed=False)
    point = resume_point(tmp_path, resumed=True)
    assert point is not None
    assert point[0] == 3
