"""What the short training runs must show, and that each thing which is not so is found."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from framework_agents import reward
from train_framework import SETTINGS, problems

SEEN: dict[str, Any] = {
    "rewards": [0.5, 0.55, 0.6, 0.7, 0.8][: SETTINGS["steps"]],
    "calls_trained_on": 120,
    "provider": {"origin": "http://127.0.0.1:1", "calls": 60, "by": ["planner"]},
    "capture": {
        "failed": {},
        "agents": [
            {"agent": "planner", "server": "http://127.0.0.1:1", "policy": None, "seen": 60, "trainable": 0},
            {"agent": "writer", "server": "http://127.0.0.1:2", "policy": "default", "seen": 120, "trainable": 120},
        ],
    },
}


def changed(**parts: Any) -> dict[str, Any]:
    """`SEEN` with changes; `planner` and `writer` are those of the agents' rows."""
    seen = copy.deepcopy(SEEN)
    planner, writer = seen["capture"]["agents"]
    planner |= parts.pop("planner", {})
    writer |= parts.pop("writer", {})
    for name, part in parts.items():
        seen[name] = seen[name] | part if isinstance(part, dict) else part
    return seen


def test_what_must_be_seen_is_enough() -> None:
    assert problems(SEEN) == []


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (changed(rewards=[0.5] * SETTINGS["steps"]), "the reward rises"),
        (changed(rewards=[0.5, 0.9, 0.9]), "every step gave a reward"),
        (changed(capture={"failed": {"Error": 1}}), "no rollout failed"),
        (changed(provider={"by": ["planner", "writer"]}), "all calls of the planner, and only they, went to its own"),
        (changed(provider={"calls": 59}), "all calls of the planner, and only they, went to its own"),
        (changed(planner={"server": "http://127.0.0.1:2"}), "all calls of the planner, and only they, went to its own"),
        (changed(planner={"policy": "default"}), "no call of the planner was trained on"),
        (changed(writer={"trainable": 119}), "all calls of the writer went to the policy"),
        (changed(calls_trained_on=121), "all calls of the writer went to the policy"),
        (changed(writer={"agent": "somebody"}), "two agents called, each on one server"),
    ],
)
def test_each_thing_that_is_not_so_is_found(seen: dict[str, Any], wrong: str) -> None:
    assert any(problem.startswith(wrong) for problem in problems(seen))


def test_the_reward_is_the_share_of_the_first_half_of_the_alphabet() -> None:
    assert reward("Answer: word-17 is warm. abcdefnopqrs") == 0.5
    assert reward("Answer: word-17 is warm. nopqrstuvwxy\n") == 0.0
