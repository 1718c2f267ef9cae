"""LightningRL's settings for this task, found with a plain loop over seeds; the demo and `train.py` share them."""

from typing import Any

SETTINGS: dict[str, Any] = {
    "tasks_per_step": 10,
    "group_size": 8,
    "steps": 16,
    "learning_rate": 2e-5,
    "max_prompt_tokens": 320,
    "max_response_tokens": 16,
}

SMALL: dict[str, Any] = {"tasks_per_step": 4, "group_size": 4, "steps": 2}
"""What the short form of the demo changes."""
