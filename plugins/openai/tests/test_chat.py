"""Every way to make a chat completion, sync and async: routed when marked, untouched when not, recorded once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import openai
import pydantic
import pytest

import leyden
from leyden import attributes
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import EOS, FakeModelServer, logprob, prompt_ids, token_ids
from leyden.types import Endpoint

Attempt = AbstractContextManager[RecordedAttempt]

MESSAGES: Any = [{"role": "user", "content": "say something nice"}]
TOOL = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOLS: Any = [{"type": "function", "function": TOOL}]


class Place(pydantic.BaseModel):
    """A structured output."""

    name: str
    number: int


def create(client: openai.OpenAI, **more: Any) -> str:
    return _text(client.chat.completions.create(model="own", messages=MESSAGES, **more))


def parse(client: openai.OpenAI, **more: Any) -> str:
    answer = client.beta.chat.completions.parse(model="own", messages=MESSAGES, response_format=Place, **more)
    assert answer.choices[0].message.parsed == Place(name="sample", number=3)
    return _text(answer)


def chunks(client: openai.OpenAI, **more: Any) -> str:
    stream = client.chat.completions.create(model="own", messages=MESSAGES, stream=True, **more)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def helper(client: openai.OpenAI, **more: Any) -> str:
    with client.beta.chat.completions.stream(model="own", messages=MESSAGES, **more) as stream:
        list(stream)
        return _text(stream.get_final_completion())


def raw(client: openai.OpenAI, **more: Any) -> str:
    answer = client.chat.completions.with_raw_response.create(model="own", messages=MESSAGES, **more)
    assert answer.headers["content-type"] == "application/json"
    return _text(answer.parse())


def raw_chunks(client: openai.OpenAI, **more: Any) -> str:
    answer = client.chat.completions.with_raw_response.create(model="own", messages=MESSAGES, stream=True, **more)
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse())


def streaming_response(client: openai.OpenAI, **more: Any) -> str:
    completions = client.chat.completions.with_streaming_response
    with completions.create(model="own", messages=MESSAGES, **more) as answer:
        return _text(answer.parse())


def streaming_lines(client: openai.OpenAI, **more: Any) -> str:
    completions = client.chat.completions.with_streaming_response
    with completions.create(model="own", messages=MESSAGES, stream=True, **more) as answer:
        data = [line[6:] for line in answer.iter_lines() if line.startswith("data: ") and "[DONE]" not in line]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in data)


async def acreate(client: openai.AsyncOpenAI, **more: Any) -> str:
    return _text(await client.chat.completions.create(model="own", messages=MESSAGES, **more))


async def aparse(client: openai.AsyncOpenAI, **more: Any) -> str:
    answer = await client.beta.chat.completions.parse(model="own", messages=MESSAGES, response_format=Place, **more)
    assert answer.choices[0].message.parsed == Place(name="sample", number=3)
    return _text(answer)


async def achunks(client: openai.AsyncOpenAI, **more: Any) -> str:
    stream = await client.chat.completions.create(model="own", messages=MESSAGES, stream=True, **more)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def ahelper(client: openai.AsyncOpenAI, **more: Any) -> str:
    async with client.beta.chat.completions.stream(model="own", messages=MESSAGES, **more) as stream:
        async for _ in stream:
            pass
        return _text(await stream.get_final_completion())


async def araw(client: openai.AsyncOpenAI, **more: Any) -> str:
    return _text(
        (await client.chat.completions.with_raw_response.create(model="own", messages=MESSAGES, **more)).parse()
    )


async def astreaming_response(client: openai.AsyncOpenAI, **more: Any) -> str:
    completions = client.chat.completions.with_streaming_response
    async with completions.create(model="own", messages=MESSAGES, **more) as answer:
        return _text(await answer.parse())


def _text(answer: Any) -> str:
    return str(answer.choices[0].message.content)


SYNC = [create, parse, chunks, helper, raw, raw_chunks, streaming_response, streaming_lines]
ASYNC = [acreate, aparse, achunks, ahelper, araw, astreaming_response]
STREAMED = {chunks, helper, raw_chunks, streaming_lines, achunks, ahelper}
Way = Callable[..., Any]


@pytest.fixture(params=[*SYNC, *ASYNC], ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def go(way: Way, client: openai.OpenAI, aclient: openai.AsyncOpenAI) -> Callable[..., Any]:
    async def run(**more: Any) -> str:
        if inspect.iscoroutinefunction(way):
            return str(await way(aclient, **more))
        return str(way(client, **more))

    return run


async def test_a_marked_call_reaches_the_policy_and_is_recorded_exactly(
    way: Way, go: Way, marked: Attempt, endpoint: Endpoint, policy_server: FakeModelServer, provider: FakeModelServer
) -> None:
    with marked as attempt, leyden.agent("writer"):
        text = await go()
    assert not provider.requests
    (request,) = policy_server.requests
    assert request.body["model"] == "policy"
    assert request.headers["authorization"] == "Bearer policy-key"
    (span,), (call,) = attempt.llm, attempt.calls
    assert call.prompt_ids == prompt_ids(MESSAGES)
    assert call.sampled_ids == (*token_ids(text), EOS)
    assert call.logprobs == tuple(logprob(token) for token in call.sampled_ids)
    assert (call.hole, call.policy, call.version, call.finish_reason) == (None, "default", 7, "stop")
    assert (call.server, call.model, call.retries) == (policy_server.origin, "policy", 0)
    assert call.streamed == (way in STREAMED)
    assert (call.prompt_tokens, call.completion_tokens) == (len(call.prompt_ids), len(call.sampled_ids))
    assert span.agent == "writer"
    assert json.loads(span.attributes[attributes.INPUT_MESSAGES]) == MESSAGES
    assert json.loads(span.attributes[attributes.OUTPUT_MESSAGES])[0]["content"] == text
    assert span.attributes[attributes.RESPONSE_ID] == call.response_id
    assert not attempt.scope.failures


async def test_an_unmarked_call_is_only_observed(go: Way, way: Way, marked: Attempt, provider: FakeModelServer) -> None:
    before = await go()
    with marked as attempt, leyden.agent("planner"):
        assert await go() == before
    bare, observed = provider.requests
    assert bare.body == observed.body
    random = {"idempotency-key": ""}
    assert bare.headers | random == observed.headers | random
    (span,), (call,) = attempt.llm, attempt.calls
    assert (span.agent, call.policy, call.version, call.sampled_ids, call.hole) == ("planner", None, None, (), None)
    assert call.server == provider.origin
    assert json.loads(span.attributes[attributes.OUTPUT_MESSAGES])[0]["content"] == before
    if way not in STREAMED:
        assert call.completion_tokens == len(token_ids(before)) + 1


async def test_outside_an_attempt_nothing_happens(go: Way, provider: FakeModelServer) -> None:
    with leyden.agent("writer"):
        await go()
    assert "traceparent" not in provider.requests[0].headers


async def test_a_server_without_token_ids_fails_the_first_call(
    go: Way, marked: Attempt, policy_server: FakeModelServer
) -> None:
    policy_server.return_token_ids = False
    with (
        marked as attempt,
        leyden.agent("writer"),
        pytest.raises(leyden.errors.MissingTokenIds, match="return_token_ids"),
    ):
        await go()
    assert [type(error).__name__ for error in attempt.scope.failures] == ["MissingTokenIds"]
    assert "return_token_ids" in (attempt.calls[0].hole or "")
    assert attempt.llm[0].error


async def test_a_server_without_logprobs_fails_the_first_call(
    go: Way, marked: Attempt, policy_server: FakeModelServer
) -> None:
    policy_server.return_logprobs = False
    with marked as attempt, leyden.agent("writer"), pytest.raises(leyden.errors.MissingTokenIds, match="logprobs"):
        await go()
    assert len(attempt.scope.failures) == len(attempt.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_have_their_ids(client: openai.OpenAI, marked: Attempt, stream: bool) -> None:
    with marked as attempt, leyden.agent("writer"):
        answer: Any = client.chat.completions.create(model="own", messages=MESSAGES, tools=TOOLS, stream=stream)
        if stream:
            list(answer)
    (call,) = attempt.calls
    assert call.hole is None
    assert call.finish_reason == "tool_calls"
    assert call.sampled_ids == (*token_ids('add {"a": 3}'), EOS)
    (message,) = json.loads(attempt.llm[0].attributes[attributes.OUTPUT_MESSAGES])
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 3}'}
    assert json.loads(attempt.llm[0].attributes[attributes.TOOL_DEFINITIONS]) == TOOLS


def test_streamed_tool_calls_that_lack_ids_are_a_hole(
    client: openai.OpenAI, marked: Attempt, policy_server: FakeModelServer
) -> None:
    policy_server.drop_streamed_tool_ids = True
    with marked as attempt, leyden.agent("writer"):
        list(client.chat.completions.create(model="own", messages=MESSAGES, tools=TOOLS, stream=True))
    assert "counted 4 sampled tokens but sent the ids of 1" in (attempt.calls[0].hole or "")
    assert not attempt.scope.failures


def test_usage_reaches_the_agent_only_if_it_asked(client: openai.OpenAI, marked: Attempt) -> None:
    with marked as attempt, leyden.agent("writer"):
        quiet = list(client.chat.completions.create(model="own", messages=MESSAGES, stream=True))
        options: Any = {"include_usage": True}
        asked = list(
            client.chat.completions.create(model="own", messages=MESSAGES, stream=True, stream_options=options)
        )
    assert all(chunk.choices and chunk.usage is None for chunk in quiet)
    assert asked[-1].usage is not None
    assert len(asked) == len(quiet) + 1
    assert attempt.calls[0].completion_tokens == attempt.calls[1].completion_tokens == asked[-1].usage.completion_tokens


def test_several_choices_are_a_hole(client: openai.OpenAI, marked: Attempt) -> None:
    with marked as attempt, leyden.agent("writer"):
        assert len(client.chat.completions.create(model="own", messages=MESSAGES, n=2).choices) == 2
    assert (attempt.calls[0].hole or "").startswith("n=2")
    assert not attempt.scope.failures


def test_the_policys_sampling_replaces_the_agents_own(
    client: openai.OpenAI, endpoint: Endpoint, policy_server: FakeModelServer
) -> None:
    sampling = {"temperature": 1.0, "max_tokens": 3, "seed": None}
    policy = leyden.Endpoint(
        base_url=endpoint.base_url, model="m", sampling=sampling, extra_body={"top_k": 5}, headers={"X-Pool": "a"}
    )
    extra = {"return_token_ids": False, "min_p": 0.5, "max_completion_tokens": 99}
    with recorded_attempt({"default": policy}, {"writer": "default"}) as attempt, leyden.agent("writer"):
        client.chat.completions.create(
            model="own", messages=MESSAGES, temperature=0.1, seed=4, stop=["x"], extra_body=extra
        )
    (request,) = policy_server.requests
    assert request.body == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 1.0,
        "max_tokens": 3,
        "stop": ["x"],
        "min_p": 0.5,
        "top_k": 5,
        "return_token_ids": True,
        "logprobs": True,
    }
    assert request.headers["x-pool"] == "a"
    assert attempt.calls[0].finish_reason == "length"
    assert len(attempt.calls[0].sampled_ids) == 3


def test_a_prompt_policy_replaces_the_system_message_and_nothing_else(
    client: openai.OpenAI, provider: FakeModelServer
) -> None:
    policy = leyden.Prompt(text="Be brief.", version=3)
    own: Any = [{"role": "system", "content": "Be long."}, *MESSAGES]
    with recorded_attempt({"default": policy}, {"writer": "default"}) as attempt, leyden.agent("writer"):
        for messages in (own, MESSAGES):
            client.chat.completions.create(model="own", messages=messages)
        client.responses.create(model="own", input="hi") if hasattr(client, "responses") else None
    expected = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    assert own[0]["content"] == "Be long."
    assert [request.body for request in provider.requests[:2]] == [{"model": "own", "messages": expected}] * 2
    assert "traceparent" not in provider.requests[0].headers
    assert [(call.policy, call.version, call.hole) for call in attempt.calls[:2]] == [("default", 3, None)] * 2
    if hasattr(client, "responses"):
        assert provider.requests[2].body["instructions"] == "Be brief."


def test_azure_clients_are_routed_too(policy_server: FakeModelServer, marked: Attempt) -> None:
    client = openai.AzureOpenAI(
        azure_endpoint="http://127.0.0.1:9",
        azure_deployment="d",
        api_version="v",
        api_key="azure-secret",
        max_retries=0,
    )
    with marked as attempt, leyden.agent("writer"), client:
        create(client)
    (request,) = policy_server.requests
    assert request.path == "/v1/chat/completions"
    assert "azure-secret" not in str(request.headers)
    assert attempt.calls[0].hole is None


def test_a_routed_request_says_who_calls_and_signs_for_the_policy_only(
    provider: FakeModelServer, policy_server: FakeModelServer, marked: Attempt
) -> None:
    client = openai.OpenAI(
        base_url=provider.base_url,
        api_key="secret",
        organization="org-secret",
        project="project-secret",
        default_headers={"Authorization": "Bearer secret-2"},
        default_query={"key": "secret-3"},
    )
    with marked as attempt, leyden.agent("team/ä b"), leyden.agent("writer"), client:
        create(client)
    (request,) = policy_server.requests
    assert "secret" not in str(request)
    assert request.headers["x-leyden-agent"] == "team/%C3%A4 b/writer"
    assert request.headers["x-leyden-attempt"] == attempt.scope.attempt_id
    assert request.headers["x-leyden-rollout"] == attempt.scope.rollout.id
    (span,) = attempt.llm
    assert request.headers["traceparent"] == f"00-{span.trace_id}-{span.span_id}-01"
