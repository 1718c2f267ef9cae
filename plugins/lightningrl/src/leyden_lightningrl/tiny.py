"""A tiny random chat model, made in seconds without a download: for tests, and for trying a setup out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(
    folder: Path,
    *,
    kind: Literal["llama", "qwen2"] = "llama",
    tied: bool = False,
    hidden: int = 128,
    layers: int = 2,
    seed: int = 0,
) -> Path:
    """Write a random model with a byte-level tokenizer and a ChatML template to `folder`; returns it."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(SPECIAL)}
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[byte] = len(vocabulary)
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[0], model_max_length=4096
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    shape = {
        "vocab_size": 320,
        "hidden_size": hidden,
        "intermediate_size": hidden * 3,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 32,
        "num_key_value_heads": max(1, hidden // 64),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": tied,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "llama":
            LlamaForCausalLM(LlamaConfig(head_dim=32, **shape)).save_pretrained(folder)
        else:
            Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(folder)
    return folder
