"""The model folder as made from the package: it loads, and it is a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model
import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "smollm2"
    assert model.make(out) is True
    return out


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


def test_the_tokenizer_splits_digits_and_gives_text_back(tokenizer: Any) -> None:
    assert tokenizer.tokenize("<<15*31>>") == ["<<", "1", "5", "*", "3", "1", ">>"]
    text = 'Ünïcode, 12 cups\n\n  and "more" 3.5 \U0001f600'
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == tokenizer.eos_token_id == 2


def test_the_chat_template_adds_no_system_text_to_one_that_is_given(tokenizer: Any) -> None:
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


def test_the_weights_speak(folder: Path, tokenizer: Any) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert network.lm_head.weight.data_ptr() == network.model.embed_tokens.weight.data_ptr()
    assert sum(weight.numel() for weight in network.parameters()) == 134_515_008
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = network.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(reply, skip_special_tokens=True) == "The capital of France is Paris."
