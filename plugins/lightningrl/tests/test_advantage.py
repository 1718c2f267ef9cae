"""Group advantages against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden_lightningrl.advantage import EPSILON, Baseline, Rewards, Scale, advantages, has_variance


def group_advantages(rewards: Rewards, *, baseline: Baseline = "group_mean", scale: Scale = "std") -> list[list[float]]:
    return advantages([rewards], baseline=baseline, scale=scale)[0]


def test_group_mean_and_sample_standard_deviation() -> None:
    # rewards 0, 0, 1, 1: mean 0.5, sample standard deviation sqrt(4 * 0.25 / 3)
    std = math.sqrt(1 / 3)
    expected = [-0.5 / (std + EPSILON)] * 2 + [0.5 / (std + EPSILON)] * 2
    assert group_advantages([[0.0], [0.0], [1.0], [1.0]]) == [[pytest.approx(value)] for value in expected]


def test_leave_one_out() -> None:
    # the other two's mean: 1.5, 1.0, 0.5
    assert group_advantages([[0.0], [1.0], [2.0]], baseline="leave_one_out", scale="none") == [[-1.5], [0.0], [1.5]]


def test_no_baseline_and_no_scale_is_the_reward() -> None:
    assert group_advantages([[0.3], [-2.0]], baseline="none", scale="none") == [[0.3], [-2.0]]


def test_a_rollout_of_ten_calls_weighs_as_much_as_one_of_one_call() -> None:
    long = group_advantages([[1.0] * 10, [0.0], [0.0]])
    short = group_advantages([[1.0], [0.0], [0.0]])
    assert long[0] == short[0] * 10
    assert long[1:] == short[1:]


def test_calls_of_a_rollout_may_differ() -> None:
    # rollout means 1 and 0: mean 0.5
    assert group_advantages([[2.0, 0.0], [0.0, 0.0]], scale="none") == [[1.5, -0.5], [-0.5, -0.5]]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16))
def test_group_mean_advantages_sum_to_zero(rewards: list[float]) -> None:
    advantages = group_advantages([[reward] for reward in rewards], scale="none")
    assert sum(value for (value,) in advantages) == pytest.approx(0, abs=1e-9)


def test_against_the_whole_step() -> None:
    # values 1, 1, 0, 0, 0, 0: mean 1/3; a group of equal rewards keeps its signal
    made = advantages([[[1.0], [1.0]], [[0.0], [0.0]], [[0.0], [0.0]]], baseline="batch_mean", scale="none")
    assert made == [[[pytest.approx(2 / 3)]] * 2, [[pytest.approx(-1 / 3)]] * 2, [[pytest.approx(-1 / 3)]] * 2]


def test_step_standard_deviation() -> None:
    # values 2, 0, 1, 1 over two groups: sample standard deviation sqrt(2 / 3)
    made = advantages([[[2.0], [0.0]], [[1.0], [1.0]]], scale="batch_std")
    assert made[0] == [
        [pytest.approx(1 / (math.sqrt(2 / 3) + EPSILON))],
        [pytest.approx(-1 / (math.sqrt(2 / 3) + EPSILON))],
    ]
    assert made[1] == [[0.0], [0.0]]


def test_variance_ignores_rounding() -> None:
    assert not has_variance([[0.1 + 0.2], [0.3]])
    assert has_variance([[0.0, 0.1], [0.0]])
