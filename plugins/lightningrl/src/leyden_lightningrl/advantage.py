"""Advantages, computed once per rollout: a rollout of ten calls weighs no more than one of one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

EPSILON = 1e-6
"""Added to a standard deviation, as in GRPO's published form."""

Baseline: TypeAlias = Literal["group_mean", "leave_one_out", "batch_mean", "none"]
Scale: TypeAlias = Literal["std", "batch_std", "none"]
Rewards: TypeAlias = Sequence[Sequence[float]]
"""Of one group: `rewards[i][k]` is the reward of call k of rollout i."""


def advantages(
    groups: Sequence[Rewards], *, baseline: Baseline = "group_mean", scale: Scale = "std"
) -> list[list[list[float]]]:
    """Advantages of a step's groups, in the shape of `groups`.

    A rollout enters the statistics once, as the mean v_i of its calls' rewards:

        group_mean     A_ik = (r_ik - mean(v of the group)) / s            GRPO, arXiv 2402.03300
        leave_one_out  A_ik = (r_ik - mean(v of the group without i)) / s  RLOO, arXiv 2402.14740
        batch_mean     A_ik = (r_ik - mean(v of the step)) / s             as REINFORCE++, arXiv 2501.03262
        none           A_ik = r_ik / s

    s is the sample standard deviation of the group ("std") or of the step ("batch_std") plus 1e-6, or 1 ("none", as in
    Dr. GRPO, arXiv 2503.20783); 1 for a single rollout.
    """
    values = [[math.fsum(calls) / len(calls) for calls in group] for group in groups]
    everything = [value for group in values for value in group]
    batch_mean, batch_std = statistics(everything)
    result = []
    for group, means in zip(groups, values, strict=True):
        mean, std = statistics(means)
        divisor = {"std": std, "batch_std": batch_std, "none": 1.0}[scale]
        made = []
        for value, calls in zip(means, group, strict=True):
            base = {"group_mean": mean, "batch_mean": batch_mean}.get(baseline, 0.0)
            if baseline == "leave_one_out" and len(means) > 1:
                base = (mean * len(means) - value) / (len(means) - 1)
            made.append([(call - base) / divisor for call in calls])
        result.append(made)
    return result


def statistics(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and sample standard deviation plus epsilon (1.0 for fewer than two values)."""
    if not values:
        return 0.0, 1.0
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 1.0
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) + EPSILON


def has_variance(rewards: Rewards) -> bool:
    """Whether any two calls were rewarded differently (beyond rounding)."""
    flat = [call for calls in rewards for call in calls] or [0.0]
    return max(flat) - min(flat) > 1e-9 * max(1.0, *map(abs, flat))
