from __future__ import annotations

from leyden.episode import Episode
from leyden.report import UNKNOWN_AGENT, capture_report, render
from leyden.tree import render_tree
from leyden.types import LLMCall, Reward, Rollout, Span


def call(number: int, agent: str = "writer", error: str | None = None, **given: object) -> Span:
    whole = {
        "model": "m",
        "server": "http://a:1",
        "response_id": f"r{number}",
        "policy": "default",
        "version": 2,
        "prompt_ids": (1, 2, 3),
        "sampled_ids": (4, 5),
        "logprobs": (-0.5, -0.25),
        "finish_reason": "stop",
    }
    made = LLMCall(**{**whole, **given})  # type: ignore[arg-type]
    return Span(
        rollout_id="r", attempt_id="a", span_id=f"s{number}", sequence=number, name="chat", kind="llm", agent=agent,
        error=error, call=made,
    )  # fmt: skip


def episode(*spans: Span, status: str = "succeeded", reason: str | None = None) -> Episode:
    rollout = Rollout(id="r", task=1, status=status, created_at=0.0, reason=reason)  # type: ignore[arg-type]
    return Episode(rollout=rollout, attempt=None, spans=spans)


def reward(number: int, value: float) -> Span:
    return Span(
        rollout_id="r", attempt_id="a", span_id=f"w{number}", sequence=number, name="reward", kind="reward",
        parent_id="s1", reward=Reward(value=value, dimensions={"format": 1.0}),
    )  # fmt: skip


PLAIN = {"policy": None, "version": None, "prompt_ids": (), "sampled_ids": (), "logprobs": (), "server": "http://b:2"}

EPISODES = [
    episode(
        call(1),
        call(2, logprobs=()),
        call(3, response_id="r1"),
        call(4, sampled_ids=(), logprobs=(), hole="the stream was cut", error="APIError: cut"),
        call(5, "planner", prompt_tokens=7, completion_tokens=2, **PLAIN),
        call(6, "", **PLAIN),
        reward(7, 0.5),
    ),
    episode(status="failed", reason="KeyError: 'x'"),
    episode(call(1)),
]


def test_every_call_is_counted_once_with_its_owner_and_its_reason() -> None:
    report = capture_report(EPISODES)
    assert report.total("seen") == 7
    assert report.attributed == 6
    assert report.routed == 5
    assert report.total("trainable") == 2
    assert report.dropped == {
        "2 sampled ids but 0 log-probs": 1,
        "a repeated (cached) answer": 1,
        "the stream was cut": 1,
    }
    assert report.agents == {"writer": 5, "planner": 1, UNKNOWN_AGENT: 1}
    writer = report.rows["writer", "http://a:1", "default"]
    assert (writer.seen, writer.failed, writer.prompt_tokens, writer.sampled_tokens) == (5, 1, 15, 8)
    planner = report.rows["planner", "http://b:2", ""]
    assert (planner.prompt_tokens, planner.sampled_tokens) == (7, 2)
    assert (report.episodes, report.failed, report.no_reward) == (3, {"KeyError: 'x'": 1}, 1)


def test_the_table_names_servers_helper_calls_and_reasons() -> None:
    text = render(capture_report(EPISODES))
    assert "(no known agent)  http://b:2  - (left alone)" in text
    assert "calls: 7 seen, 6 of a known agent, 5 routed to a policy, 2 usable" in text
    assert "left out 1 of writer at http://a:1: the stream was cut" in text
    assert "failed 1: KeyError: 'x'" in text


def test_calls_of_a_prompt_policy_need_no_token_ids() -> None:
    made = capture_report([episode(call(1, prompt_ids=(), sampled_ids=(), logprobs=()))], prompts={"default"})
    assert made.total("trainable") == 1


def test_an_empty_report_says_that_nothing_was_seen() -> None:
    assert "no LLM call was seen" in render(capture_report([]))


def test_a_rollout_is_shown_as_a_tree() -> None:
    lines = render_tree(EPISODES[0].spans, tokens=True)
    assert lines[0] == "├─ llm call by writer"
    assert (
        lines[1].strip("│ ") == "m at http://a:1, policy 'default' version 2, 3 → 2 tokens, mean log-prob -0.375, stop"
    )
    assert lines[2].strip("│ ") == "prompt ids [1, 2, 3]"
    assert lines[3].strip("│ ") == "sampled ids [4, 5]"
    assert "│  └─ reward 0.5, format 1" in lines
    assert any("not trainable: the stream was cut" in line for line in lines)
    assert any("✗ APIError: cut" in line for line in lines)
