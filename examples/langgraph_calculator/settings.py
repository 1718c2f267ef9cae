"""LightningRL's settings for this task; the demo and `train.py` share them."""

from typing import Any

SETTINGS: dict[str, Any] = {
    "tasks_per_step": 20,
    "group_size": 4,
    "steps": 12,
    "learning_rate": 2e-5,
    # At a constant rate late steps seemed to flip operators back and forth; decay was chosen for that, not compared.
    "lr_schedule": "cosine",
    "verl": {"actor_rollout_ref.actor.optim.min_lr_ratio": 0.1},
    # Against the whole step, not the own group alone: a group that is wrong throughout still unlearns its wrong answer,
    # where a baseline of its own would leave it nothing.
    "baseline": "batch_mean",
    "scale": "batch_std",
    "zero_variance": "keep",
    "max_prompt_tokens": 320,
    "max_response_tokens": 16,
    "server_kv_bytes": 256 << 20,
    "val_every": 6,
}

SMALL: dict[str, Any] = {"tasks_per_step": 4, "group_size": 4, "steps": 2, "val_every": 0}
"""What the short form of the demo changes."""
