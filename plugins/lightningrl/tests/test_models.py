"""Model folders: everything that is missing is found before a run starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leyden.errors import ConfigError
from leyden_lightningrl.models import MissingModel, check_context, check_model, check_prefix_tree, model_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


def test_a_whole_folder(folder: Path) -> None:
    assert model_folder(str(folder)) == folder.resolve()
    assert check_model(folder) == {"max_position_embeddings": 512}


def test_a_missing_folder() -> None:
    with pytest.raises(MissingModel, match="there is no model folder"):
        model_folder("./nowhere")


def test_a_hub_name_is_no_folder() -> None:
    assert model_folder("someone/some-model") is None


@pytest.mark.parametrize(
    ("file", "message"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights"), ("tokenizer_config.json", "no tokenizer")],
)
def test_missing_files(folder: Path, file: str, message: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ConfigError, match=message):
        check_model(folder)


@pytest.mark.parametrize("content", ['{"a":', "[]", "\udcff"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_broken_files(folder: Path, file: str, content: str) -> None:
    (folder / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=rf"{file} (is not JSON|holds no JSON object).*fetch the model again"):
        check_model(folder)


def test_no_chat_template(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="no chat template"):
        check_model(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    check_model(folder)


def test_context(folder: Path) -> None:
    check_context({"max_position_embeddings": 512}, 512, folder)
    with pytest.raises(ConfigError, match=r"= 513, but .* reads 512 tokens"):
        check_context({"max_position_embeddings": 512}, 513, folder)


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["full_attention", "linear_attention"]},
        {"sliding_window": 128},
        {"attention_dropout": 0.1},
        {"vision_config": {}},
    ],
)
def test_models_that_the_prefix_tree_does_not_reproduce(config: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="prefix_tree=False"):
        check_prefix_tree(config, 256)


def test_a_window_wider_than_the_context_is_none() -> None:
    check_prefix_tree({"sliding_window": 4096, "layer_types": ["sliding_attention"]}, 256)
    check_prefix_tree({"sliding_window": 128, "use_sliding_window": False}, 256)
