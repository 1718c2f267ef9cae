from __future__ import annotations

from leyden.trajectories import transitions
from leyden.types import LLMCall, Span


def span(sequence: int, server: str, response: str) -> Span:
    call = LLMCall(
        server=server, response_id=response, policy="default", prompt_ids=(1,), sampled_ids=(2,), logprobs=(-0.5,)
    )
    return Span(rollout_id="r", attempt_id="a", span_id=f"{sequence}", sequence=sequence, name="chat", call=call)


def test_an_answer_trains_once_and_two_servers_may_use_one_id() -> None:
    spans = [span(4, "http://b", "id-1"), span(3, "http://a", "id-1"), span(1, "http://a", "id-1"), span(2, "", "")]
    assert [step.span.sequence for step in transitions(spans)] == [1, 2, 4]
