"""Credit: how the reward of a rollout becomes the reward of each of its calls (the first level of LightningRL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from leyden.episode import Episode
from leyden.errors import ConfigError, InvalidInput
from leyden.trajectories import Transition

Credit: TypeAlias = Callable[[Episode, Sequence[Transition], float], Sequence[float]]
"""credit(episode, transitions, reward) -> one reward per transition.

`transitions` are the trainable calls of the policy in their order (never empty), `reward` is the rollout's reward, or
what the settings put in its place. Must be pure: same input, same output.
"""


def uniform(episode: Episode, transitions: Sequence[Transition], reward: float) -> Sequence[float]:
    """Every call gets the rollout's reward: identical assignment, arXiv 2508.03680, section 3.3."""
    return [reward] * len(transitions)


CREDITS: dict[str, Credit] = {"uniform": uniform}


def credit_named(credit: str | Credit) -> Credit:
    """The credit scheme of that name, or the function itself. Raises `ConfigError` for anything else."""
    if callable(credit):
        return credit
    if isinstance(credit, str) and credit in CREDITS:
        return CREDITS[credit]
    raise ConfigError(f"unknown credit {credit!r}: use {' or '.join(map(repr, CREDITS))}, or a function")


def unused_rewards(credit: Credit, episode: Episode) -> int:
    """How many of the episode's rewards the scheme passes over: `uniform` knows the rollout's own (last) reward alone, not
    the ones before it and not those of an agent, a span or a response. A function of the user's sees all of them."""
    if credit is not uniform:
        return 0
    return len(episode.rewards) - (episode.reward is not None)


def assign(credit: Credit, episode: Episode, transitions: Sequence[Transition], reward: float) -> list[float]:
    """Apply a credit scheme. Raises `InvalidInput` unless it gives one finite number per transition."""
    values = [float(value) for value in credit(episode, transitions, reward)]
    name = getattr(credit, "__name__", repr(credit))
    if len(values) != len(transitions):
        raise InvalidInput(
            f"credit {name} gave {len(values)} rewards for {len(transitions)} calls; it must give one each"
        )
    if not all(value - value == 0 for value in values):
        raise InvalidInput(f"credit {name} gave a reward that is not a finite number: {values}")
    return values
