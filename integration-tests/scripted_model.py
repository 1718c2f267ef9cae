"""A language model that says what its chat template tells it to: for tests that need tool calls from a real vLLM server.

The template reads the conversation and the tools, decides what the assistant says next, and ends the prompt with that
script. The model is a Llama of one layer whose weights are set, not trained: every head attends to the token that stands
`DISTANCE` places back, and the layer passes that token on. What vLLM does is the same as with any other model: it
renders the template, samples token by token, counts log-probs, parses tool calls and streams.

`ANY` in a script stands for a letter of the model's own choice: a to z, all equally likely until a training changes that.
"""

from __future__ import annotations

import argparse
import json
import math
import string
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|any|>")
ANY = SPECIAL[3]
CALL = ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
"""What stands around a tool's name and arguments: a token each, so that a tool call has 30 tokens and not 80."""
FIELD = 224
"""Tokens of the script with the end-of-message token and the filling; beside `CALL`, an ASCII character is a token."""
DISTANCE = FIELD + len("<|im_start|>assistant\n") - len("<|im_start|>")
"""How far before the token that is read last the token stands that is to be said next."""
CONTEXT = 16384
"""Longest conversation in tokens (a byte is a token)."""

HEAD = 64
HEADS = 6
HIDDEN = HEAD * HEADS
VOCABULARY = 320
THETA = 10000.0
SHARPNESS = 1000.0
"""Attention score of the place that is meant; its neighbours' are 3 % lower, which leaves them e^-30."""
CERTAINTY = 16.0
"""Logit of the scripted token above all others: 3e-5 of the probability is left for those at temperature 1."""
PASSED_ON = 100.0
"""Weight of the token that is passed on against the one that was read last."""

TEMPLATE = Path(__file__).with_name("scripted_model.jinja")


def chat_template(letters: int) -> str:
    """The template, with the numbers and the agents' instructions put in."""
    from leyden.testing.adapter import PLANNER, WRITER

    text = TEMPLATE.read_text()
    for name, value in {"PLANNER": PLANNER, "WRITER": WRITER, "LETTERS": letters, "FIELD": FIELD, "CALL": CALL}.items():
        text = text.replace(name, json.dumps(value))
    return text


def make_scripted_model(folder: Path, *, letters: int = 0) -> Path:
    """Write the model, its tokenizer and its template to `folder`; returns it.

    `letters`: how many letters of the model's own choice end every answer that is a text.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(),
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        additional_special_tokens=[ANY],
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = chat_template(letters)
    tokenizer.save_pretrained(folder)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": CONTEXT,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape))
    letters_ids = tokenizer.convert_tokens_to_ids(list(string.ascii_lowercase))
    set_weights(model, any_id=SPECIAL.index(ANY), letter_ids=letters_ids)
    model.save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """A token for each byte, and the special ones."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(SPECIAL)}
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[byte] = len(vocabulary)
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    raw.add_tokens([AddedToken(token, normalized=False) for token in CALL])
    return raw


def set_weights(model: Any, *, any_id: int, letter_ids: list[int]) -> None:
    """Set the weights of a Llama of one layer so that it says again what it read `DISTANCE` tokens ago.

    The embedding of token t has a 1 at place t and a 1 at the last place. The latter makes queries and keys: constant
    vectors, turned so that after the rotary embedding their product is greatest at `DISTANCE`. The former is the value.
    """
    import torch

    size = math.sqrt(HIDDEN / 2)  # of both 1s after the norm
    angles = DISTANCE * THETA ** (-torch.arange(0, HEAD, 2) / HEAD)
    length = math.sqrt(SHARPNESS * math.sqrt(HEAD) / (HEAD / 2)) / size
    query = torch.cat([torch.cos(angles), -torch.sin(angles)]) * length
    key = torch.cat([torch.ones(HEAD // 2), torch.zeros(HEAD // 2)]) * length
    tokens = torch.eye(HIDDEN)
    tokens[VOCABULARY:] = 0
    layer, attention = model.model.layers[0], model.model.layers[0].self_attn
    said = PASSED_ON / math.sqrt((PASSED_ON**2 + 2) / HIDDEN)  # after the last norm
    with torch.no_grad():
        for weight in (model.model.embed_tokens, attention.q_proj, attention.k_proj, layer.mlp.down_proj):
            weight.weight.zero_()
        model.model.embed_tokens.weight.copy_(tokens[:VOCABULARY])
        model.model.embed_tokens.weight[:, -1] = 1
        attention.q_proj.weight[:, -1] = query.repeat(HEADS)
        attention.k_proj.weight[:, -1] = key.repeat(HEADS)
        attention.v_proj.weight.copy_(tokens)
        attention.o_proj.weight.copy_(tokens * PASSED_ON / size)
        head = tokens[:VOCABULARY].clone()
        head[any_id, any_id] = 0
        head[letter_ids, any_id] = 1
        model.lm_head.weight.copy_(head * CERTAINTY / said)


def main() -> None:
    """The command line: make the model, serve it until Ctrl-C."""
    from leyden_lightningrl import serve

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where the model is written to")
    parser.add_argument("--letters", type=int, default=0, help="letters of the model's own choice that end a text")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    options = parser.parse_args()
    model = make_scripted_model(options.folder, letters=options.letters)
    raise SystemExit(
        serve.main([str(model), "--name=policy", f"--port={options.port}", "--context=16384", "--tool-parser=hermes"])
    )


if __name__ == "__main__":
    main()
