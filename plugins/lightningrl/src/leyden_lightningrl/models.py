"""Model folders: what must be in one before a run starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leyden.errors import ConfigError, NotFound


class MissingModel(ConfigError, NotFound, FileNotFoundError):
    """There is no such model folder."""


def model_folder(model: str) -> Path | None:
    """The folder that `model` names, or None for a name on the Hugging Face hub. Raises `MissingModel`."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.exists():
        raise ConfigError(f"model {model!r} is a file; give the folder that holds config.json and the weights")
    if model.startswith(("/", ".", "~")) or model.count("/") != 1:
        raise MissingModel(
            f"there is no model folder {model!r}; give a folder with a Hugging Face model, or a hub name"
        )
    return None


def check_model(folder: Path) -> dict[str, Any]:
    """config.json of a model that can be trained and served here. Raises `ConfigError` naming what is missing."""
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise ConfigError(f"{folder} holds no config.json, so it is no Hugging Face model folder")
    config = read_object(config_file)
    if not (any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))):
        raise ConfigError(f"{folder} holds no weights (*.safetensors)")
    if not (folder / "tokenizer_config.json").is_file():
        raise ConfigError(f"{folder} holds no tokenizer (tokenizer_config.json)")
    if not has_chat_template(folder):
        raise ConfigError(
            f"the tokenizer in {folder} has no chat template, and agents speak in chat messages: use an instruct model, "
            "or put the template into chat_template.jinja in that folder"
        )
    return config


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer of the folder brings a chat template."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    return bool(read_object(folder / "tokenizer_config.json").get("chat_template"))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model. Raises `ConfigError` for anything else."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error}): fetch the model again")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check its permissions")
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object: fetch the model again")
    return value


def check_context(config: dict[str, Any], context: int, folder: Path) -> None:
    """Raises `ConfigError` if the model cannot read `context` tokens."""
    longest = config.get("max_position_embeddings")
    if isinstance(longest, int) and context > longest:
        raise ConfigError(
            f"max_prompt_tokens + max_response_tokens = {context}, but {folder} reads {longest} tokens at most"
        )


def check_prefix_tree(config: dict[str, Any], context: int) -> None:
    """Raises `ConfigError` for a model whose attention the prefix tree does not reproduce."""
    reasons = []
    kinds = set(config.get("layer_types") or ()) - {"full_attention"}
    window = config.get("sliding_window")
    windowed = isinstance(window, int) and window < context and config.get("use_sliding_window", True)
    if kinds - {"sliding_attention"}:
        reasons.append(f"layers of type {', '.join(sorted(kinds - {'sliding_attention'}))}")
    if windowed:
        reasons.append(f"a sliding window of {window} tokens")
    if config.get("attention_dropout"):
        reasons.append("attention dropout")
    if "vision_config" in config or "audio_config" in config:
        reasons.append("inputs other than text")
    if reasons:
        raise ConfigError(f"the prefix tree does not support this model ({'; '.join(reasons)}): set prefix_tree=False")


def download(name: str) -> Path:
    """Fetch a model by its hub name (or find it in the local cache); returns its folder."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    return Path(snapshot_download(name, allow_patterns=patterns))
