"""`LightningRL.check`: what is wrong is said before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leyden.errors import ConfigError, InvalidInput
from leyden_lightningrl import LightningRL


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def run_with(tmp_path: Path, **values: Any) -> Any:
    fields = {
        "tasks": list(range(20)),
        "val_tasks": {},
        "policies": ("default",),
        "directory": tmp_path / "run",
        "seed": 0,
        "resumed": False,
    }
    return SimpleNamespace(**{**fields, **values})


@pytest.mark.parametrize(
    ("settings", "run", "error", "message"),
    [
        ({}, {"tasks": []}, InvalidInput, "no training tasks"),
        ({"tasks_per_step": 21}, {}, ConfigError, "only 20 training tasks; set tasks_per_step=20"),
        ({}, {"policies": ("a", "b")}, ConfigError, "marks name 2: a, b"),
        ({"model": "./nowhere"}, {}, FileNotFoundError, "no model folder"),
        ({"max_prompt_tokens": 5000}, {}, ConfigError, "reads 4096 tokens at most"),
    ],
)
def test_errors(
    tmp_path: Path, model: Path, settings: dict[str, Any], run: dict[str, Any], error: type[Exception], message: str
) -> None:
    algorithm = LightningRL(**{"model": str(model), "device": "cpu", **settings})
    with pytest.raises(error, match=message):
        algorithm.check(run_with(tmp_path, **run))


def test_unknown_setting() -> None:
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        LightningRL(model="m", learning_rat=1e-5)
