"""LightningRL's settings for this task, and what it is trained on. Paths are relative to the folder it is started in."""

from typing import Any

LEARNING: dict[str, Any] = {
    "model": "data/model",
    "tasks_per_step": 8,
    "group_size": 6,
    "steps": 5,
    "learning_rate": 4e-5,
    # At 1.0 this model, of 4-bit weights, is too noisy to write twenty tokens of SQL.
    "temperature": 0.7,
    # Against the whole step, not the own group alone: a group that is wrong throughout still unlearns its wrong answer.
    "baseline": "batch_mean",
    "scale": "batch_std",
    "zero_variance": "keep",
    "max_prompt_tokens": 384,
    "max_response_tokens": 24,
    "server_kv_bytes": 256 << 20,
}

RUN: dict[str, Any] = {
    "tasks": "data/train.jsonl",
    "val_tasks": {"val": "data/val.jsonl", "schemas": "data/schemas.jsonl"},
    "concurrency": 60,
}
