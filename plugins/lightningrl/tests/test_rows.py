"""Episodes → rows: what is trained on, with which advantage, and what is left out and counted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from leyden.episode import Episode
from leyden.errors import InvalidInput
from leyden.types import Attempt, LLMCall, Reward, Rollout, Span
from leyden_lightningrl.config import make_settings
from leyden_lightningrl.rows import Batch, make_batch, validation_metrics


def call(prompt: tuple[int, ...], sampled: tuple[int, ...], *, version: int = 3, **values: Any) -> LLMCall:
    fields = {"policy": "default", "finish_reason": "stop", **values}
    logprobs = tuple(-0.1 * token for token in sampled)
    return LLMCall(version=version, prompt_ids=prompt, sampled_ids=sampled, logprobs=logprobs, **fields)


def episode(
    calls: list[LLMCall], reward: float | None, *, group: str = "g", name: str = "r", status: str = "succeeded"
) -> Episode:
    common: dict[str, Any] = {"rollout_id": name, "attempt_id": name}
    spans = [
        Span(span_id=f"{name}-{i}", sequence=i, name="chat", kind="llm", agent="writer", call=item, **common)
        for i, item in enumerate(calls)
    ]
    if reward is not None:
        given = Reward(value=reward)
        spans.append(Span(span_id=f"{name}-r", sequence=99, name="reward", kind="reward", reward=given, **common))
    rollout = Rollout(id=name, task=None, status=status, created_at=0.0, group=group)  # type: ignore[arg-type]
    attempt = Attempt(
        id=name, rollout_id=name, number=1, worker="w", status="succeeded", started_at=0.0, lease_until=0.0
    )
    return Episode(rollout=rollout, attempt=attempt, spans=tuple(spans))


def batch(*episodes: Episode, **settings: Any) -> Batch:
    return make_batch(episodes, make_settings({"model": "m", **settings}), policy="default", version=3)


def test_one_row_per_trajectory_with_advantages_under_the_mask() -> None:
    first = call((1, 2), (3, 4))
    second = call((1, 2, 3, 4, 9, 9), (5,))
    made = batch(episode([first, second], 1.0, name="a"), episode([call((1, 2), (6,))], 0.0, name="b"), scale="none")
    merged, other = made.rows
    assert merged.prompt_ids == (1, 2)
    assert merged.response_ids == (3, 4, 9, 9, 5)
    assert merged.mask == (1, 1, 0, 0, 1)
    assert merged.logprobs == pytest.approx((-0.3, -0.4, 0, 0, -0.5))
    assert merged.advantages == (0.5, 0.5, 0, 0, 0.5)
    assert merged.turns == 2
    assert other.advantages == (-0.5,)
    assert made.metrics["train/reward"] == 0.5
    assert made.metrics["train/calls"] == 3
    assert made.metrics["train/sampled_tokens"] == 4


def test_only_calls_of_the_policy_and_of_these_weights() -> None:
    mixed = [
        call((1,), (2,)),
        call((1,), (3,), policy="other"),
        call((1,), (4,), version=2),
        call((1,), (5,), hole="cut"),
    ]
    made = batch(episode(mixed, 1.0, name="a"), episode([call((1,), (6,))], 0.0, name="b"))
    assert [row.response_ids for row in made.rows] == [(2,), (6,)]
    assert made.metrics["dropped/calls_stale"] == 1


def test_rewards_that_the_credit_scheme_passes_over_are_counted() -> None:
    def added(to: Episode, *rewards: Reward) -> Episode:
        common: dict[str, Any] = {
            "rollout_id": to.rollout.id,
            "attempt_id": to.rollout.id,
            "name": "reward",
            "kind": "reward",
        }
        spans = [Span(span_id=f"x{i}", sequence=i, reward=reward, **common) for i, reward in enumerate(rewards)]
        return replace(to, spans=(*spans, *to.spans))

    def total(episode: Episode, transitions: Any, reward: float) -> list[float]:
        return [sum(given.value for given in episode.rewards)] * len(transitions)

    targeted = Reward(value=1.0, agent="writer"), Reward(value=1.0, span="s"), Reward(value=1.0, response="r")
    both = [
        added(episode([call((1,), (2,))], 1.0, name="a"), *targeted, Reward(value=0.5)),
        added(episode([call((1,), (3,))], None, name="b"), *targeted),
        episode([call((1,), (4,))], 0.0, name="c"),
    ]
    made = batch(*both)
    assert made.metrics["dropped/rewards"] == 4 + 3
    assert made.metrics["dropped/rollouts_without_reward"] == 1  # a reward of an agent is not the rollout's
    assert [row.reward for row in made.rows] == [1.0, 0.0]
    own = batch(*both, credit=total, missing_reward=0.0, scale="none")
    assert own.metrics["dropped/rewards"] == 0
    assert [row.advantages[0] for row in own.rows] == pytest.approx([4.5 - 2.5, 3 - 2.5, 0 - 2.5])


def test_failed_and_rewardless_rollouts_are_left_out_and_counted() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, name="a"),
        episode([call((1,), (3,))], 0.0, name="b"),
        episode([call((1,), (4,))], None, name="c", status="failed"),
        episode([call((1,), (5,))], None, name="d"),
        episode([], 1.0, name="e"),
    )
    assert [row.rollout for row in made.rows] == ["a", "b"]
    counted = {name: value for name, value in made.metrics.items() if name.startswith("dropped/rollouts")}
    assert counted == {
        "dropped/rollouts_failed": 1,
        "dropped/rollouts_without_reward": 1,
        "dropped/rollouts_without_calls": 1,
    }
    assert made.metrics["train/reward"] == 0.5  # the missing one is not 0


def test_a_failed_rollout_that_kept_its_reward_is_used() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, name="a"),
        episode([call((1,), (3,))], 0.25, name="b", status="failed"),  # as with leyden.train(on_failed="keep")
        failed_reward=-1.0,
    )
    assert [row.reward for row in made.rows] == [1.0, 0.25]


def test_failed_and_missing_rewards_can_be_filled() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, name="a"),
        episode([call((1,), (3,))], None, name="b", status="failed"),
        episode([call((1,), (4,))], None, name="c"),
        failed_reward=-1.0,
        missing_reward=0.25,
    )
    assert [row.reward for row in made.rows] == [1.0, -1.0, 0.25]


def test_groups_are_compared_within_themselves() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, group="x", name="a"),
        episode([call((1,), (3,))], 0.0, group="x", name="b"),
        episode([call((1,), (4,))], 11.0, group="y", name="c"),
        episode([call((1,), (5,))], 10.0, group="y", name="d"),
        scale="none",
    )
    assert [row.advantages for row in made.rows] == [(0.5,), (-0.5,), (0.5,), (-0.5,)]


def test_a_group_that_shrank_to_one_is_left_out() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, name="a"), episode([call((1,), (3,))], None, name="b", status="failed")
    )
    assert made.rows == ()
    assert made.metrics["dropped/groups_too_small"] == 1


@pytest.mark.parametrize(("zero_variance", "kept"), [("drop", ["a", "b"]), ("keep", ["a", "b", "c", "d"])])
def test_groups_of_equal_rewards(zero_variance: str, kept: list[str]) -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, group="x", name="a"),
        episode([call((1,), (3,))], 0.0, group="x", name="b"),
        episode([call((1,), (4,))], 0.3, group="y", name="c"),
        episode([call((1,), (5,))], 0.1 + 0.2, group="y", name="d"),
        zero_variance=zero_variance,
    )
    assert [row.rollout for row in made.rows] == kept
    assert made.metrics["train/groups_without_variance"] == 1
    assert all(row.advantages == (0.0,) for row in made.rows[2:])


def test_a_step_without_any_variance_keeps_one_row_that_teaches_nothing() -> None:
    made = batch(episode([call((1,), (2,))], 1.0, name="a"), episode([call((1,), (3,))], 1.0, name="b"))
    assert len(made.rows) == 1
    assert not made.teaches
    assert made.metrics["train/rows"] == 0


def test_equal_groups_teach_against_the_step() -> None:
    made = batch(
        episode([call((1,), (2,))], 1.0, group="x", name="a"),
        episode([call((1,), (3,))], 1.0, group="x", name="b"),
        episode([call((1,), (4,))], 0.0, group="y", name="c"),
        episode([call((1,), (5,))], None, group="y", name="d", status="failed"),
        baseline="batch_mean",
        scale="none",
    )
    assert [row.advantages for row in made.rows] == [(pytest.approx(1 / 3),)] * 2 + [(pytest.approx(-2 / 3),)]


def test_a_users_credit() -> None:
    def last_only(episode: Episode, transitions: list[Any], reward: float) -> list[float]:
        return [0.0] * (len(transitions) - 1) + [reward]

    made = batch(
        episode([call((1,), (2,)), call((7,), (3,))], 2.0, name="a"),
        episode([call((1,), (4,))], 0.0, name="b"),
        credit=last_only,
        scale="none",
    )
    # rollout values 1 and 0, baseline 0.5
    assert [row.advantages for row in made.rows] == [(-0.5,), (1.5,), (-0.5,)]


@pytest.mark.parametrize(
    ("given", "message"), [([1.0], "1 rewards for 2 calls"), ([1.0, float("nan")], "not a finite")]
)
def test_a_broken_credit_is_an_error(given: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        batch(
            episode([call((1,), (2,)), call((7,), (3,))], 2.0, name="a"),
            episode([call((1,), (4,))], 0.0, name="b"),
            credit=lambda episode, transitions, reward: given,
        )


def test_validation_counts_what_has_no_reward() -> None:
    episodes = [
        episode([], 1.0, name="a"),
        episode([], 0.0, name="b"),
        episode([], None, name="c"),
        episode([], 1.0, name="d", status="failed"),
    ]
    assert validation_metrics(episodes, "val") == {
        "val/reward": 0.5,
        "val/rollouts": 4,
        "val/failed": 1,
        "val/without_reward": 1,
    }
