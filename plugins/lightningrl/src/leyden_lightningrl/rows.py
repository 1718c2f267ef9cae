"""Pure: the episodes of a step → rows for the trainer, with an account of everything that was left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from leyden.episode import Episode
from leyden.trajectories import Trajectory, Transition, trajectories
from leyden_lightningrl.advantage import advantages, has_variance
from leyden_lightningrl.config import Settings
from leyden_lightningrl.credit import assign, credit_named, unused_rewards


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory as the trainer takes it. The last five fields have one entry per token after the prompt."""

    rollout: str
    group: str
    reward: float
    """The rollout's reward."""
    turns: int
    """Calls that were merged into this row."""
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 for a sampled token, 0 for what the environment put between two answers."""
    logprobs: tuple[float, ...]
    """Log-probs of the sampled tokens as the server gave them; 0.0 under mask 0."""
    advantages: tuple[float, ...]
    """0.0 under mask 0."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one step, and the metrics that account for every rollout and group."""

    rows: tuple[Row, ...]
    metrics: dict[str, float]

    @property
    def teaches(self) -> bool:
        """Whether any token has an advantage other than zero."""
        return any(advantage for row in self.rows for advantage in row.advantages)


class Usable(NamedTuple):
    """A rollout that can be trained on."""

    episode: Episode
    reward: float
    transitions: list[Transition]


def make_batch(episodes: Sequence[Episode], settings: Settings, *, policy: str, version: int) -> Batch:
    """Rows of the policy's calls that were made with weights `version`.

    One row per trajectory. Advantages are those of `leyden_lightningrl.advantage`, spread over the call's sampled tokens.
    A batch of equal rewards everywhere keeps at least one row (with advantages of zero), so that the trainer still has
    something to count.
    """
    credit = credit_named(settings.credit)
    counts = dict.fromkeys(("failed", "without_reward", "without_calls", "stale"), 0)
    groups: dict[str, list[Usable]] = {}
    for episode in episodes:
        usable = use(episode, settings, policy, version, counts)
        groups.setdefault(episode.group, [])
        if isinstance(usable, Usable):
            groups[episode.group].append(usable)
        else:
            counts[usable] += 1
    own_baseline = settings.baseline in ("group_mean", "leave_one_out")
    least = 2 if own_baseline else 1
    compared = [group for group in groups.values() if len(group) >= least]
    rewards = [[assign(credit, item.episode, item.transitions, item.reward) for item in group] for group in compared]
    rows: list[Row] = []
    spare: list[Row] = []
    equal = 0
    values = advantages(rewards, baseline=settings.baseline, scale=settings.scale)
    nothing = settings.baseline == "batch_mean" and not has_variance([calls for given in rewards for calls in given])
    for group, given, computed in zip(compared, rewards, values, strict=True):
        flat = not has_variance(given)
        equal += flat
        if nothing or (flat and own_baseline):  # what is left is rounding, which must not teach
            computed = [[0.0] * len(calls) for calls in given]
        made = [row for item, parts in zip(group, computed, strict=True) for row in rows_of(item, parts)]
        if flat and settings.zero_variance == "drop" and settings.baseline != "batch_mean":
            spare += made[: 1 if not spare else 0]
        else:
            rows += made
    used = [item for group in groups.values() for item in group]
    metrics = {
        "train/rollouts": len(episodes),
        **{f"dropped/rollouts_{name}": counts[name] for name in ("failed", "without_reward", "without_calls")},
        "dropped/calls_stale": counts["stale"],
        "dropped/rewards": sum(unused_rewards(credit, episode) for episode in episodes),
        "train/groups": len(groups),
        "train/groups_without_variance": equal,
        "dropped/groups_too_small": len(groups) - len(compared),
        "train/rows": len(rows),
        **summary("train/reward", [item.reward for item in used]),
        **tokens([call for item in used for call in item.transitions]),
    }
    return Batch(rows=tuple(rows or spare), metrics={name: float(value) for name, value in metrics.items()})


def use(episode: Episode, settings: Settings, policy: str, version: int, counts: dict[str, int]) -> Usable | str:
    """The episode's trainable part, or the name of the reason why there is none; counts calls of other weights."""
    reward = episode.reward
    if reward is None and not episode.succeeded:  # a failed rollout has its rewards only with on_failed="keep"
        if settings.failed_reward is None:
            return "failed"
        reward = settings.failed_reward
    elif reward is None:
        if settings.missing_reward is None:
            return "without_reward"
        reward = settings.missing_reward
    calls = episode.transitions(policy)
    current = [call for call in calls if call.call.version == version]
    counts["stale"] += len(calls) - len(current)
    return Usable(episode, reward, current) if current else "without_calls"


def rows_of(item: Usable, values: Sequence[float]) -> list[Row]:
    """The rows of one rollout; `values` has one advantage per transition."""
    by_span = {step.span.span_id: value for step, value in zip(item.transitions, values, strict=True)}
    return [row_of(item, trajectory, by_span) for trajectory in trajectories(item.transitions)]


def row_of(item: Usable, trajectory: Trajectory, by_span: Mapping[str, float]) -> Row:
    values = [by_span[step.span.span_id] for step in trajectory.transitions]
    return Row(
        rollout=item.episode.rollout.id,
        group=item.episode.group,
        reward=item.reward,
        turns=len(trajectory.transitions),
        prompt_ids=trajectory.prompt_ids,
        response_ids=trajectory.response_ids,
        mask=trajectory.mask,
        logprobs=trajectory.logprobs,
        advantages=tuple(
            values[owner] if trained else 0.0 for owner, trained in zip(trajectory.owner, trajectory.mask, strict=True)
        ),
    )


def validation_metrics(episodes: Iterable[Episode], name: str) -> dict[str, float]:
    """Mean reward of a held-out set's rollouts that have one; the others are counted, never taken for 0."""
    episodes = list(episodes)
    rewards = [episode.reward for episode in episodes if episode.succeeded and episode.reward is not None]
    failed = sum(not episode.succeeded for episode in episodes)
    return {
        **({f"{name}/reward": math.fsum(rewards) / len(rewards)} if rewards else {}),
        f"{name}/rollouts": float(len(episodes)),
        f"{name}/failed": float(failed),
        f"{name}/without_reward": float(len(episodes) - failed - len(rewards)),
    }


def summary(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, least and greatest, where there is any value."""
    if not values:
        return {}
    return {name: math.fsum(values) / len(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def tokens(steps: Sequence[Transition]) -> dict[str, float]:
    """How many calls and tokens were read and sampled, and how many answers were cut by the length limit."""
    calls = [step.call for step in steps]
    return {
        "train/calls": float(len(calls)),
        "train/prompt_tokens": float(sum(len(call.prompt_ids) for call in calls)),
        "train/sampled_tokens": float(sum(len(call.sampled_ids) for call in calls)),
        "train/answers_cut": float(sum(call.finish_reason == "length" for call in calls)),
    }
