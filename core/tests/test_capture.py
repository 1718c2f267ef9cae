"""Answers → records: exact where they are whole, a hole in plain words where they are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden import capture
from leyden.capture import Answer, hole, missing, read_chunks, read_response, to_call
from leyden.routing import Route
from leyden.testing import answers
from leyden.testing.server import EOS, logprob, prompt_ids, token_ids
from leyden.trajectories import hole_of
from leyden.types import Endpoint, Prompt

ROUTE = Route("default", Endpoint(base_url="http://p/v1", model="policy", version=5))
MESSAGES = [{"role": "user", "content": "hello there"}]
TOOL: answers.Reply = {"content": "let me see", "tool_calls": [{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}]}


def answer(
    reply: answers.Reply = "fine and you", *, ids: bool = True, logprobs: bool = True, **body: Any
) -> answers.Answer:
    prompt = prompt_ids(MESSAGES)
    return answers.Answer.make(
        "id-1", {"model": "policy", **body}, reply, prompt=prompt, with_ids=ids, with_logprobs=logprobs
    )


def streamed(made: answers.Answer, *, usage: bool = True, drop: bool = False) -> list[dict[str, Any]]:
    return list(made.chunks(include_usage=usage, drop_tool_ids=drop))


def test_a_plain_answer() -> None:
    found = to_call(read_response(answer().plain()), ROUTE, server="http://p", retries=2)
    sampled = (*token_ids("fine and you"), EOS)
    assert found.prompt_ids == prompt_ids(MESSAGES)
    assert found.sampled_ids == sampled
    assert found.logprobs == tuple(map(logprob, sampled))
    assert (found.hole, found.policy, found.version, found.model) == (None, "default", 5, "policy")
    assert (found.response_id, found.server, found.retries, found.streamed) == ("id-1", "http://p", 2, False)
    assert (found.finish_reason, found.prompt_tokens, found.completion_tokens) == ("stop", 5, 4)
    assert hole_of(found) is None


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=40)
tools = st.lists(
    st.fixed_dictionaries({"name": st.just("f"), "arguments": st.dictionaries(texts, st.integers())}), max_size=3
)


@given(st.one_of(texts, st.fixed_dictionaries({"content": texts, "tool_calls": tools})), st.booleans())
def test_a_stream_gives_the_same_as_the_plain_answer(reply: answers.Reply, usage: bool) -> None:
    made = answer(reply)
    plain = read_response(made.plain())
    chunked = read_chunks(json.loads(json.dumps(streamed(made, usage=usage))))
    assert list(chunked.prompt_ids or ()) == list(plain.prompt_ids or ())
    assert list(chunked.sampled_ids or ()) == list(plain.sampled_ids or ())
    assert list(chunked.logprobs or ()) == list(plain.logprobs or ())
    assert (chunked.id, chunked.model, chunked.finish_reason) == (plain.id, plain.model, plain.finish_reason)
    assert chunked.messages[0].get("tool_calls") == plain.messages[0].get("tool_calls")
    if not plain.calls_tools:
        assert (chunked.messages[0].get("content") or "") == (plain.messages[0].get("content") or "")
    if usage:
        assert chunked.completion_tokens == plain.completion_tokens
    if usage or not plain.calls_tools:
        assert hole(chunked) is hole(plain) is None


def test_an_answer_that_was_cut_by_its_length_is_whole() -> None:
    found = to_call(read_response(answer("one two three", max_tokens=2).plain()), ROUTE)
    assert (found.finish_reason, found.hole, found.sampled_ids) == ("length", None, token_ids("one two"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("given", "option"), [({"ids": False}, "return_token_ids"), ({"logprobs": False}, "logprobs: true")]
)
def test_what_the_server_left_out_is_named(given: dict[str, bool], option: str, stream: bool) -> None:
    made = answer(**given)  # type: ignore[arg-type]
    found = read_chunks(streamed(made)) if stream else read_response(made.plain())
    assert option in (missing(found) or "")
    assert hole(found) == missing(found)
    assert option in (to_call(found, ROUTE).hole or "")


def changed(**more: Any) -> Answer:
    found = read_response(answer().plain())
    for name, value in more.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (changed(choices=0), "holds no choice"),
        (changed(choices=3), "n=3"),
        (changed(sampled_ids=[]), "no token was sampled"),
        (changed(prompt_ids=[]), "prompt token ids is empty"),
        (changed(sampled_ids=[1, 2, 3]), "counted 4 sampled tokens but sent the ids of 3"),
        (changed(logprobs=[-1.0] * 3), "4 sampled ids but 3 log-probs"),
        (changed(logprobs=[-1.0, None, -1.0, -1.0]), "log-prob of sampled token 1 is missing"),
        (changed(prompt_ids=[1, 2]), "counted 5 prompt tokens but sent the ids of 2"),
        (changed(finish_reasons=["abort"]), "aborted"),
        (changed(cut="the stream was closed early"), "closed early"),
    ],
)
def test_holes_in_plain_words(broken: Answer, words: str) -> None:
    assert missing(broken) is None
    assert words in (hole(broken) or "")
    assert words in (to_call(broken, ROUTE).hole or "")


def test_streamed_tool_calls_that_lack_ids() -> None:
    lacking = read_chunks(streamed(answer(TOOL), drop=True))
    assert "streamed tool calls can lack ids" in (hole(lacking) or "")
    assert missing(lacking) is None
    unchecked = read_chunks(streamed(answer(TOOL), usage=False))
    assert "include_usage" in (hole(unchecked) or "")
    assert hole(read_chunks(streamed(answer("text"), usage=False))) is None


def test_a_stream_that_was_cut_off() -> None:
    chunks = streamed(answer())
    early = read_chunks(chunks[:3], cut="the stream was closed early")
    assert hole(early) == "the stream was closed early"
    assert list(early.sampled_ids or ()) == list(token_ids("fine and"))
    assert hole(read_chunks(chunks[:3])) == "the stream ended without a finish reason"
    assert hole(read_chunks([], cut="the stream broke: ReadError: ")) == "the stream broke: ReadError: "
    late = read_chunks(chunks[:-1], cut="the stream was closed early")  # only the usage was not read
    assert hole(late) is None


def test_several_choices_keep_their_texts_but_no_ids() -> None:
    found = to_call(read_response(answer(n=2).plain()), ROUTE)
    assert (found.hole or "").startswith("n=2")
    assert found.sampled_ids == found.logprobs == found.prompt_ids == ()
    assert found.completion_tokens == 8


def test_an_unmarked_agents_answer_needs_no_ids() -> None:
    found = to_call(read_response(answer(ids=False, logprobs=False).plain()), None)
    assert (found.policy, found.version, found.hole, found.sampled_ids) == (None, None, None, ())
    found = to_call(read_response(answer().plain()), None)
    assert found.sampled_ids == ()


def test_a_prompt_policys_answer_needs_no_ids() -> None:
    found = to_call(read_response(answer(ids=False).plain()), Route("style", Prompt(text="Be brief.", version=2)))
    assert (found.policy, found.version, found.hole) == ("style", 2, None)


def test_a_failed_call() -> None:
    found = capture.failed_call(ValueError("x" * 1000), ROUTE, model="m", server="http://p", retries=1)
    assert (found.hole or "").startswith("the call failed: ValueError: xxx")
    assert len(found.hole or "") == 500
    assert (found.policy, found.version, found.model, found.server, found.retries) == ("default", 5, "m", "http://p", 1)


@pytest.mark.parametrize(
    "body", [{}, {"choices": None}, {"choices": [{}]}, {"choices": [{"message": None}], "usage": None}]
)
def test_odd_bodies_are_holes_not_crashes(body: dict[str, Any]) -> None:
    assert to_call(read_response(body), ROUTE).hole
    assert to_call(read_chunks([body]), ROUTE).hole


def test_attributes_follow_the_conventions() -> None:
    body = {"model": "m", "messages": MESSAGES, "temperature": 0.5, "max_completion_tokens": 9, "tools": [{"a": 1}]}
    given = capture.request_attributes(body)
    assert json.loads(given.pop("gen_ai.input.messages")) == MESSAGES
    assert json.loads(given.pop("gen_ai.tool.definitions")) == [{"a": 1}]
    assert given == {"gen_ai.request.model": "m", "gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 9}
    found = capture.answer_attributes(read_response(answer(TOOL).plain()))
    (message,) = json.loads(found.pop("gen_ai.output.messages"))
    assert message["tool_calls"][0]["function"]["name"] == "add"
    assert found == {
        "gen_ai.response.id": "id-1",
        "gen_ai.response.model": "policy",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": len(answer(TOOL).sampled),
    }


def test_what_json_does_not_know_becomes_text() -> None:
    assert json.loads(capture.json_text({"a": object, "b": ("ü", {1})})) == {"a": str(object), "b": ["ü", [1]]}
