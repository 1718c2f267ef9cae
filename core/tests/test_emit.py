"""Rewards, messages, objects, exceptions and spans of the user's code."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

import leyden
from leyden.errors import InvalidInput
from leyden.testing.recording import recorded_attempt
from leyden.types import Reward


def test_rewards_are_recorded_in_their_order() -> None:
    with recorded_attempt() as attempt, leyden.agent("writer"):
        leyden.emit_reward(0.5)
        leyden.emit_reward(dimensions={"format": 1, "answer": 0.25})
        leyden.emit_reward(2, dimensions={"format": 1}, name="quality")
        leyden.emit_reward(-1, agent="team/*")
        leyden.emit_reward(1, span="ab12")
        leyden.emit_reward(True, response="chatcmpl-1")
    rewards = [span.reward for span in attempt.spans if span.kind == "reward"]
    assert rewards == [
        Reward(value=0.5),
        Reward(value=1.25, dimensions={"format": 1.0, "answer": 0.25}),
        Reward(value=2.0, dimensions={"format": 1.0}, name="quality"),
        Reward(value=-1.0, agent="team/*"),
        Reward(value=1.0, span="ab12"),
        Reward(value=1.0, response="chatcmpl-1"),
    ]
    assert [reward.targeted for reward in rewards if reward] == [False, False, False, True, True, True]
    assert {span.agent for span in attempt.spans} == {"writer"}


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", "good", [1], object()])
def test_a_reward_must_be_a_finite_number(value: Any) -> None:
    with recorded_attempt() as attempt, pytest.raises(InvalidInput, match="finite number"):
        leyden.emit_reward(value)
    assert attempt.spans == []


def test_other_kinds_of_numbers_are_fine() -> None:
    assert leyden.emit_reward(Fraction(1, 2)).value == 0.5  # type: ignore[arg-type]


def test_a_reward_needs_a_value_and_at_most_one_target() -> None:
    with pytest.raises(InvalidInput, match="value or dimensions"):
        leyden.emit_reward()
    with pytest.raises(InvalidInput, match="one target"):
        leyden.emit_reward(1, agent="a", span="b")
    with pytest.raises(InvalidInput, match="'style'"):
        leyden.emit_reward(1, dimensions={"style": math.nan})


def test_messages_objects_and_exceptions() -> None:
    with recorded_attempt() as attempt:
        leyden.emit_message("halfway", step=3)
        leyden.emit_object("plan", {"when": object, "steps": [1]})
        leyden.emit_exception(KeyError("gone"))
    message, thing, exception = attempt.spans
    assert message.kind == "message"
    assert json.loads(message.attributes["leyden.value"]) == {"text": "halfway", "step": 3}
    assert (thing.kind, thing.name) == ("object", "object plan")
    assert json.loads(thing.attributes["leyden.value"]) == {"when": str(object), "steps": [1]}
    assert (exception.kind, exception.error) == ("exception", "KeyError: 'gone'")


def test_outside_an_attempt_they_do_nothing() -> None:
    assert leyden.emit_reward(1.0) == Reward(value=1.0)
    leyden.emit_message("nobody listens")
    leyden.emit_object("a", 1)
    leyden.emit_exception(ValueError())
