"""An episode: everything that is known of one ended rollout, with its reward and its trainable calls."""

from __future__ import annotations

from typing import Any

from leyden.trajectories import Trajectory, Transition, trajectories, transitions
from leyden.types import Attempt, Reward, Rollout, Span, Struct


class Episode(Struct, frozen=True):
    """A terminal rollout with the attempt that decided it and that attempt's spans in their order."""

    rollout: Rollout
    attempt: Attempt | None
    """None where the rollout was cancelled before any attempt."""
    spans: tuple[Span, ...] = ()

    @property
    def task(self) -> Any:
        """The task that the agent was run on."""
        return self.rollout.task

    @property
    def group(self) -> str:
        """Id shared by all rollouts of one task at one step."""
        return self.rollout.group or self.rollout.id

    @property
    def succeeded(self) -> bool:
        """Whether the rollout function returned. It says nothing about the reward."""
        return self.rollout.status == "succeeded"

    @property
    def rewards(self) -> list[Reward]:
        """Every reward in the order of emission."""
        return [span.reward for span in self.spans if span.reward is not None]

    @property
    def reward(self) -> float | None:
        """The rollout's reward: the last one without a target. None is a missing reward, which is not 0.0."""
        final = [reward.value for reward in self.rewards if not reward.targeted]
        return final[-1] if final else None

    def transitions(self, policy: str | None = None) -> list[Transition]:
        """The trainable LLM calls, of one policy if given."""
        return transitions(self.spans, policy)

    def trajectories(self, policy: str | None = None, *, merge: bool = True) -> list[Trajectory]:
        """The trainable calls merged by exact token prefix."""
        return trajectories(self.transitions(policy), merge=merge)
