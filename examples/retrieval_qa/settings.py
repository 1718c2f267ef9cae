"""LightningRL's settings for this task, and what it is trained on. Paths are relative to the folder it is started in."""

from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
TOOLS = ("--chat-template", str(TEMPLATE), "--enable-auto-tool-choice", "--tool-call-parser", "pythonic")
"""What a vLLM server needs so that SmolLM2, whose own template knows no tools, can call one."""

LEARNING: dict[str, Any] = {
    "model": "data/model",
    "tasks_per_step": 8,
    "group_size": 6,
    "steps": 5,
    "learning_rate": 4e-5,
    # At 1.0 this model, of 4-bit weights, seldom writes a whole call with words that are in the corpus.
    "temperature": 0.7,
    # Against the whole step, not the own group alone: a group that is wrong throughout still unlearns its wrong answer.
    "baseline": "batch_mean",
    "scale": "batch_std",
    "zero_variance": "keep",
    "max_prompt_tokens": 320,
    "max_response_tokens": 24,
    "server_kv_bytes": 256 << 20,
    "server_arguments": TOOLS,
}

RUN: dict[str, Any] = {
    "tasks": "data/train.jsonl",
    "val_tasks": "data/val.jsonl",
    "concurrency": 60,
}
