"""Group advantages, computed once per rollout: a rollout of ten calls weighs no more in its group than one of one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

EPSILON = 1e-6
"""Added to the standard deviation, as in GRPO's published form."""


def group_advantages(
    rewards: Sequence[Sequence[float]],
    *,
    baseline: Literal["group_mean", "leave_one_out", "none"] = "group_mean",
    scale: Literal["std", "none"] = "std",
) -> list[list[float]]:
    """Advantages of one group; `rewards[i][k]` is the reward of call k of rollout i, the result has the same shape.

    A rollout enters the group's statistics once, as the mean v_i of its calls' rewards. With G rollouts:

        group_mean     A_ik = (r_ik - mean(v)) / s            GRPO, arXiv 2402.03300
        leave_one_out  A_ik = (r_ik - mean(v without i)) / s  RLOO, arXiv 2402.14740
        none           A_ik = r_ik / s

    s = std(v) + 1e-6 with `scale="std"` (sample standard deviation; 1 for a single rollout), else 1 (Dr. GRPO, arXiv
    2503.20783, drops it).
    """
    values = [math.fsum(calls) / len(calls) for calls in rewards]
    count = len(values)
    total = math.fsum(values)
    mean = total / count
    divisor = 1.0
    if scale == "std" and count > 1:
        divisor = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1)) + EPSILON
    result = []
    for value, calls in zip(values, rewards, strict=True):
        base = mean if baseline == "group_mean" else 0.0
        if baseline == "leave_one_out":
            base = (total - value) / (count - 1) if count > 1 else 0.0
        result.append([(call - base) / divisor for call in calls])
    return result


def has_variance(rewards: Sequence[Sequence[float]]) -> bool:
    """Whether any two calls of the group were rewarded differently (beyond rounding)."""
    flat = [call for calls in rewards for call in calls]
    return max(flat) - min(flat) > 1e-9 * max(1.0, *map(abs, flat))
