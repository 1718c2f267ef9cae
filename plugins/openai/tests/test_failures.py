"""Calls that go wrong: the agent sees the SDK's own exception, and the attempt has exactly one record that says why."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest

import leyden
from leyden.errors import RoutingError
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer, prompt_ids
from leyden.trajectories import transitions
from leyden.types import Endpoint

Attempt = AbstractContextManager[RecordedAttempt]
MESSAGES: Any = [{"role": "user", "content": "say something nice"}]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's pauses between two tries."""
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *args, **kwargs: 0.0)


def test_a_retry_commits_one_call(provider: FakeModelServer, policy_server: FakeModelServer, marked: Attempt) -> None:
    policy_server.fail_first = 2
    client = openai.OpenAI(base_url=provider.base_url, api_key="x", max_retries=2)
    with client, marked as attempt, leyden.agent("writer"):
        client.chat.completions.create(model="own", messages=MESSAGES)
    assert [request.status for request in policy_server.requests] == [500, 500, 200]
    assert not provider.requests
    (call,) = attempt.calls
    assert (call.hole, call.retries) == (None, 2)


async def test_an_async_retry_commits_one_call(
    provider: FakeModelServer, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.fail_first = 1
    async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="x", max_retries=1) as client:
        with marked as attempt, leyden.agent("writer"):
            stream = await client.chat.completions.create(model="own", messages=MESSAGES, stream=True)
            _ = [chunk async for chunk in stream]
    (call,) = attempt.calls
    assert (call.hole, call.retries) == (None, 1)
    assert len(policy_server.requests) == 2


def test_an_over_long_prompt_is_the_sdks_error_and_a_hole(
    client: openai.OpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.context_length = 3
    with (
        marked as attempt,
        leyden.agent("writer"),
        pytest.raises(openai.BadRequestError, match="maximum context length"),
    ):
        client.chat.completions.create(model="own", messages=MESSAGES)
    (span,), (call,) = attempt.llm, attempt.calls
    assert "maximum context length is 3 tokens" in (call.hole or "")
    assert call.hole is not None
    assert call.hole.startswith("the call failed: BadRequestError")
    assert (call.policy, call.version, call.server) == ("default", 7, policy_server.origin)
    assert "BadRequestError" in (span.error or "")
    assert not attempt.scope.failures


def test_an_unreachable_endpoint_is_the_sdks_error_and_a_hole(client: openai.OpenAI) -> None:
    gone = Endpoint(base_url="http://127.0.0.1:9/v1", model="m")
    policies, refused = {"default": gone}, pytest.raises(openai.APIConnectionError)
    with recorded_attempt(policies, {"writer": "default"}) as attempt, leyden.agent("writer"), refused:
        client.chat.completions.create(model="own", messages=MESSAGES)
    assert "APIConnectionError" in (attempt.calls[0].hole or "")
    assert attempt.calls[0].server == "http://127.0.0.1:9"


def test_a_time_out_commits_one_call(
    provider: FakeModelServer, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.hold = threading.Event()
    client = openai.OpenAI(base_url=provider.base_url, api_key="x", max_retries=1, timeout=0.1)
    with client, marked as attempt, leyden.agent("writer"), pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="own", messages=MESSAGES)
    (call,) = attempt.calls
    assert "APITimeoutError" in (call.hole or "")
    assert call.retries == 1


async def test_a_cancelled_call_is_recorded_and_stays_cancelled(
    aclient: openai.AsyncOpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.hold = threading.Event()
    with marked as attempt, leyden.agent("writer"):
        task = asyncio.create_task(aclient.chat.completions.create(model="own", messages=MESSAGES))
        await asyncio.to_thread(policy_server.received.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "CancelledError" in (attempt.calls[0].hole or "")
    assert len(attempt.calls) == 1


def test_a_stream_closed_early_is_a_hole(client: openai.OpenAI, marked: Attempt) -> None:
    with marked as attempt, leyden.agent("writer"):
        stream = client.chat.completions.create(model="own", messages=MESSAGES, stream=True)
        next(iter(stream))
        assert not attempt.calls
        stream.close()
    (call,) = attempt.calls
    assert call.hole == "the stream was closed early"
    assert call.prompt_ids == prompt_ids(MESSAGES)
    assert not attempt.scope.failures


def test_a_stream_left_after_its_finish_reason_is_whole(client: openai.OpenAI, marked: Attempt) -> None:
    with marked as attempt, leyden.agent("writer"):
        stream = client.chat.completions.create(model="own", messages=MESSAGES, stream=True)
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
        stream.close()
    assert [call.hole for call in attempt.calls] == [None]


@pytest.mark.parametrize("read", [0, 2])
def test_a_stream_that_is_dropped_is_still_recorded(client: openai.OpenAI, marked: Attempt, read: int) -> None:
    with marked as attempt, leyden.agent("writer"):
        stream = client.chat.completions.create(model="own", messages=MESSAGES, stream=True)
        for _ in range(read):
            next(stream)
        stream.response.close()  # what the garbage collector does in its own time
        del stream
        gc.collect()
    assert [call.hole for call in attempt.calls] == ["the stream was closed early"]


async def test_an_async_stream_closed_early_is_a_hole(aclient: openai.AsyncOpenAI, marked: Attempt) -> None:
    with marked as attempt, leyden.agent("writer"):
        async with await aclient.chat.completions.create(model="own", messages=MESSAGES, stream=True) as stream:
            await stream.__anext__()
    assert [call.hole for call in attempt.calls] == ["the stream was closed early"]


async def test_a_cancelled_stream_is_a_hole(
    aclient: openai.AsyncOpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.hold_chunk = threading.Event()
    first = asyncio.Event()

    async def read() -> None:
        async for _ in await aclient.chat.completions.create(model="own", messages=MESSAGES, stream=True):
            first.set()

    with marked as attempt, leyden.agent("writer"):
        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (call,) = attempt.calls
    assert "the stream" in (call.hole or "")


def test_a_broken_stream_is_the_sdks_error_and_a_hole(
    provider: FakeModelServer, policy_server: FakeModelServer, client: openai.OpenAI, marked: Attempt
) -> None:
    provider.break_stream_after = policy_server.break_stream_after = 2
    with pytest.raises(Exception) as bare:
        list(client.chat.completions.create(model="own", messages=MESSAGES, stream=True))
    with marked as attempt, leyden.agent("writer"), pytest.raises(type(bare.value)) as hooked:
        list(client.chat.completions.create(model="own", messages=MESSAGES, stream=True))
    (call,) = attempt.calls
    assert str(hooked.value) == str(bare.value)
    assert (call.hole or "").startswith("the stream broke")
    assert len(call.sampled_ids) == 1


def test_chunks_are_passed_on_as_they_come(
    client: openai.OpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.hold_chunk = threading.Event()
    with marked as attempt, leyden.agent("writer"):
        stream = iter(client.chat.completions.create(model="own", messages=MESSAGES, stream=True))
        next(stream)  # comes although the server holds the rest back
        policy_server.hold_chunk.set()
        list(stream)
    assert attempt.calls[0].hole is None


def test_a_cached_answer_is_not_trained_twice(
    client: openai.OpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.response_id = "cached"
    with marked as attempt, leyden.agent("writer"):
        for _ in range(2):
            client.chat.completions.create(model="own", messages=MESSAGES)
    assert len(attempt.calls) == 2
    assert len(transitions(attempt.spans)) == 1


@pytest.mark.parametrize("api", ["/responses", "/completions"])
def test_a_marked_agent_on_another_api_fails_loudly(client: openai.OpenAI, marked: Attempt, api: str) -> None:
    with marked as attempt, leyden.agent("writer"), pytest.raises(RoutingError, match="chat completions"):
        client.post(api, cast_to=object, body={"model": "own", "prompt": "a", "input": "a"})
    (error,) = attempt.scope.failures
    assert "'writer'" in str(error)
    assert attempt.llm[0].error


@pytest.mark.parametrize("api", ["/responses", "/completions"])
def test_an_unmarked_agent_on_another_api_is_observed(
    client: openai.OpenAI, provider: FakeModelServer, marked: Attempt, api: str
) -> None:
    body = {"model": "own", "prompt": "a", "input": "a"}
    with marked as attempt, leyden.agent("planner"):
        client.post(api, cast_to=object, body=body)
    assert provider.requests[0].body == body
    assert attempt.calls[0].hole is None
    assert attempt.calls[0].completion_tokens > 0
    assert "answer of own" in attempt.llm[0].attributes["gen_ai.output.messages"]


def test_a_policy_that_was_not_published_fails_loudly(client: openai.OpenAI, provider: FakeModelServer) -> None:
    unknown = pytest.raises(RoutingError, match="'other'")
    with recorded_attempt({}, {"writer": "other"}) as attempt, leyden.agent("writer"), unknown:
        client.chat.completions.create(model="own", messages=MESSAGES)
    assert len(attempt.scope.failures) == 1
    assert "'other'" in (attempt.calls[0].hole or "")
    assert not provider.requests


def test_a_call_after_the_attempt_never_reaches_a_model(
    client: openai.OpenAI, provider: FakeModelServer, policy_server: FakeModelServer, marked: Attempt
) -> None:
    with marked as attempt, leyden.agent("writer"):
        attempt.scope.closed = True
        with pytest.raises(RoutingError, match="ended"):
            client.chat.completions.create(model="own", messages=MESSAGES)
    assert not provider.requests
    assert not policy_server.requests


def test_a_failure_of_our_own_is_counted_and_the_agent_goes_on(
    client: openai.OpenAI, marked: Attempt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from leyden.plugins import plugins

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr("leyden.capture.read_response", broken)
    before = sum(plugins.errors.values())
    with marked as attempt:
        for name in ("planner", "writer"):
            with leyden.agent(name):
                assert client.chat.completions.create(model="own", messages=MESSAGES).choices
    assert sum(plugins.errors.values()) == before + 2
    assert [bool(call.hole) for call in attempt.calls] == [True, True]


def test_an_agent_that_hides_the_error_still_fails_its_attempt(
    client: openai.OpenAI, policy_server: FakeModelServer, marked: Attempt
) -> None:
    policy_server.return_token_ids = False
    with marked as attempt, leyden.agent("writer"):
        try:
            client.chat.completions.create(model="own", messages=MESSAGES)
        except Exception:
            pass
    assert len(attempt.scope.failures) == 1
