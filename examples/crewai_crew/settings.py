"""LightningRL's settings for this task, and where the run is kept. Paths are relative to the folder it is started in."""

from typing import Any

LEARNING: dict[str, Any] = {
    "model": "data/model",
    "tasks_per_step": 8,
    "group_size": 8,
    "steps": 5,
    "learning_rate": 2e-5,
    # Against the whole step, not the own group alone: a group that is wrong throughout still unlearns its wrong answer.
    "baseline": "batch_mean",
    "scale": "batch_std",
    "zero_variance": "keep",
    "max_prompt_tokens": 600,
    "max_response_tokens": 8,
    "server_kv_bytes": 256 << 20,
}

RUN: dict[str, Any] = {
    "tasks": "data/train.jsonl",
    "val_tasks": {"val": "data/val.jsonl", "phrasings": "data/phrasings.jsonl"},
    "store": "sqlite:///data/store.db",
    "external_runners": True,  # `leyden runner`, in the environment that has CrewAI, does the rollouts
}
