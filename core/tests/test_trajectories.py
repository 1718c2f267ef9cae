"""Transitions and trajectories: what is merged, what is masked, what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden.testing.server import EOS, prompt_ids, token_ids
from leyden.trajectories import hole_of, trajectories, transitions
from leyden.types import LLMCall, Span


def call(prompt: Any, sampled: Any, **more: Any) -> LLMCall:
    logprobs = more.pop("logprobs", tuple(-0.5 - index for index in range(len(sampled))))
    given = {"policy": "default", "version": 1, **more}
    return LLMCall(prompt_ids=tuple(prompt), sampled_ids=tuple(sampled), logprobs=logprobs, **given)


def spans(*calls: LLMCall | tuple[str, LLMCall]) -> list[Span]:
    pairs = [item if isinstance(item, tuple) else ("writer", item) for item in calls]
    return [
        Span(
            rollout_id="r", attempt_id="a", span_id=str(n), sequence=n, name="chat", kind="llm", agent=agent, call=made
        )
        for n, (agent, made) in enumerate(pairs, 1)
    ]


def test_whole_calls_of_the_policy_are_transitions() -> None:
    whole = call([1], [2])
    found = spans(
        whole,
        call([1], [2], policy=None),
        call([1], [2], policy="other"),
        call([1], [2], hole="the call failed"),
        call([], [2]),
        call([1], []),
        call([1], [2, 3], logprobs=(-0.1,)),
    )
    assert [step.call for step in transitions(found, "default")] == [whole]
    assert len(transitions(found)) == 2
    assert [hole_of(span.call) is None for span in found if span.call] == [True, True, True, False, False, False, False]
    assert "2 sampled ids but 1 log-probs" in (hole_of(call([1], [2, 3], logprobs=(-0.1,))) or "")


def test_they_come_in_the_order_of_their_start() -> None:
    found = spans(call([1], [2]), call([3], [4]))
    assert [step.call.prompt_ids for step in transitions(reversed(found))] == [(1,), (3,)]


def test_an_exact_prefix_is_merged_and_what_lies_between_is_masked() -> None:
    steps = transitions(spans(call([1, 2], [3, 4]), call([1, 2, 3, 4, 5, 6], [7], version=2)))
    (merged,) = trajectories(steps)
    assert merged.prompt_ids == (1, 2)
    assert merged.response_ids == (3, 4, 5, 6, 7)
    assert merged.mask == (1, 1, 0, 0, 1)
    assert merged.logprobs == (-0.5, -1.5, 0.0, 0.0, -0.5)
    assert merged.versions == (1, 1, -1, -1, 2)
    assert merged.owner == (0, 0, 1, 1, 1)
    assert len(trajectories(steps, merge=False)) == 2


@pytest.mark.parametrize("prompt", [[1, 2, 3, 9, 5], [1, 2, 3], [1, 2], [0, 1, 2, 3, 4, 5]])
def test_anything_else_starts_anew(prompt: list[int]) -> None:
    found = trajectories(transitions(spans(call([1, 2], [3, 4]), call(prompt, [7]))))
    assert [item.prompt_ids for item in found] == [(1, 2), tuple(prompt)]


def test_agents_and_policies_are_never_merged() -> None:
    longer = [1, 2, 3]
    found = spans(("a", call([1], [2])), ("b", call(longer, [4])), ("a", call(longer, [4], policy="other")))
    assert len(trajectories(transitions(found))) == 3


def test_several_conversations_of_one_agent() -> None:
    found = trajectories(
        transitions(
            spans(
                call([1], [2]),
                call([8], [9]),
                call([1, 2, 3], [4]),
                call([8, 9, 10], [11]),
                call([1, 2, 3, 4, 5], [6]),
            )
        )
    )
    assert [(item.prompt_ids, item.response_ids) for item in found] == [((1,), (2, 3, 4, 5, 6)), ((8,), (9, 10, 11))]


def test_the_longest_history_wins() -> None:
    found = trajectories(
        transitions(spans(call([1], [2]), call([1, 2, 3], [4]), call([1], [2]), call([1, 2, 3, 4], [5])))
    )
    assert [len(item.transitions) for item in found] == [3, 1]


def test_a_conversation_with_the_fake_server_is_one_trajectory() -> None:
    messages: list[dict[str, Any]] = []
    calls = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"question {turn}"})
        answer = f"answer number {turn}"
        calls.append(call(prompt_ids(messages), (*token_ids(answer), EOS)))
        messages.append({"role": "assistant", "content": answer})
    (merged,) = trajectories(transitions(spans(*calls)))
    assert sum(merged.mask) == sum(len(item.sampled_ids) for item in calls)
    assert merged.prompt_ids + merged.response_ids == calls[-1].prompt_ids + calls[-1].sampled_ids


ids = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=6))
def test_no_sampled_token_is_lost_or_counted_twice(parts: list[tuple[list[int], list[int], bool]]) -> None:
    calls: list[LLMCall] = []
    for prompt, sampled, goes_on in parts:
        history = [*calls[-1].prompt_ids, *calls[-1].sampled_ids] if calls and goes_on else []
        calls.append(call([*history, *prompt], sampled))
    steps = transitions(spans(*calls))
    for merge in (True, False):
        found = trajectories(steps, merge=merge)
        assert sum(sum(item.mask) for item in found) == sum(len(item.sampled_ids) for item in calls)
        assert sorted(step.span.sequence for item in found for step in item.transitions) == list(
            range(1, len(calls) + 1)
        )
        for item in found:
            lengths = {len(row) for row in (item.response_ids, item.mask, item.logprobs, item.versions, item.owner)}
            assert lengths == {len(item.response_ids)}
            last = item.transitions[-1].call
            assert item.prompt_ids + item.response_ids == last.prompt_ids + last.sampled_ids
