"""What was sampled: the engine's own ids and log-probs, once for each answer, and a hole where there is none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from leyden.testing.adapter.app import AgentApp
from leyden.testing.adapter.base import QUESTION, REAL_SERVER, Base, needs, on_real_server, recorded_attempt
from leyden.testing.adapter.script import role_of
from leyden.testing.adapter.tap import Tap
from leyden.testing.recording import RecordedAttempt
from leyden.testing.server import FakeModelServer
from leyden.trajectories import transitions
from leyden.types import Endpoint


class CaptureRules(Base):
    """Recorded calls are what the server sent, and only whole ones train."""

    @pytest.fixture
    def tap(self, server: FakeModelServer) -> Iterator[Tap]:
        """The policy's server behind a recording proxy: the real one where there is one."""
        with Tap(os.environ.get(REAL_SERVER) or server.origin) as tap:
            yield tap

    async def _trained(self, app: AgentApp, tap: Tap, *, stream: bool = False) -> RecordedAttempt:
        sampling = {"temperature": 0.3, "max_tokens": 64, "seed": 3} if os.environ.get(REAL_SERVER) else {}
        endpoint = Endpoint(base_url=tap.base_url, model="policy", version=7, sampling=sampling)
        with recorded_attempt({"default": endpoint}, {self.app.writer: "default"}) as attempt:
            await (app.stream(QUESTION) if stream else app.run(QUESTION))
        return attempt

    def _check_equal_to_what_was_sent(self, attempt: RecordedAttempt, tap: Tap, *, streamed: bool) -> None:
        calls = [call for call in attempt.calls if call.policy is not None]
        assert len(calls) == len(tap.exchanges) >= 2
        for call, exchange in zip(calls, tap.exchanges, strict=True):
            prompt, sampled, logprobs = exchange.sent
            assert call.hole is None
            assert call.prompt_ids == prompt
            assert call.sampled_ids == sampled
            assert call.logprobs == pytest.approx(logprobs)
            assert call.streamed == streamed == bool(exchange.body.get("stream"))
            assert (call.policy, call.version) == ("default", 7)
        assert calls[0].finish_reason == "tool_calls"
        assert len(transitions(attempt.spans)) == len(calls)
        assert [span for span in attempt.spans if span.kind == "tool" and "lookup" in span.name], "no tool was called"

    @on_real_server
    async def test_ids_and_logprobs_are_the_servers(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer, tap: Tap
    ) -> None:
        async with self.made(provider, server) as app:
            attempt = await self._trained(app, tap)
        self._check_equal_to_what_was_sent(attempt, tap, streamed=False)

    @needs("stream")
    @on_real_server
    async def test_streamed_ids_and_logprobs_are_the_servers(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer, tap: Tap
    ) -> None:
        async with self.made(provider, server) as app:
            attempt = await self._trained(app, tap, stream=True)
        self._check_equal_to_what_was_sent(attempt, tap, streamed=True)

    @needs("stream")
    async def test_streamed_and_plain_calls_are_recorded_alike(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer, tap: Tap
    ) -> None:
        async with self.made(provider, server) as app:
            plain = await self._trained(app, tap)
        async with self.made(provider, server) as app:
            streamed = await self._trained(app, tap, stream=True)
        ours = [(call.sampled_ids, call.logprobs, call.finish_reason) for call in plain.calls if call.policy]
        theirs = [(call.sampled_ids, call.logprobs, call.finish_reason) for call in streamed.calls if call.policy]
        assert ours == theirs

    @needs("stream")
    async def test_a_stream_that_breaks_is_a_hole(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        server.break_stream_after = 2
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                await outcome(app.stream(QUESTION))
        routed = [call for call in attempt.calls if call.policy is not None]
        assert routed
        assert all(call.hole for call in routed)
        assert not transitions(attempt.spans)

    async def test_a_retry_commits_one_call(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        server.fail_first = 1
        async with self.made(provider, server, max_retries=2) as app:
            with self.marked(server, self.app.writer) as attempt:
                answer = await app.run(QUESTION)
        assert "word-17 is warm" in answer
        assert len(transitions(attempt.spans)) == len(server.bodies)
        assert len(server.requests) == len(server.bodies) + 1
        self.check_callers(attempt)

    @needs("cached")
    async def test_a_cached_answer_trains_once(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                first, second = await app.cached(QUESTION)
        assert first == second
        assert len(server.bodies) == len(transitions(attempt.spans)) == 1

    async def test_an_error_is_the_frameworks_own_and_a_hole(
        self, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        """An over-long prompt: the engine answers 400, and the app sees what it would see without the adapter."""
        from leyden.testing.adapter.base import instrumented

        provider.context_length = server.context_length = 5
        async with self.made(provider) as app:
            bare = await outcome(app.run(QUESTION))
        provider.context_length = 100_000
        async with self.made(provider, server) as app:
            with instrumented(), self.marked(server, self.app.writer) as attempt:
                ours = await outcome(app.run(QUESTION))
        assert type(ours) is type(bare)
        routed = [call for call in attempt.calls if call.policy is not None]
        assert routed
        assert all("context length" in str(call.hole) for call in routed)
        assert not transitions(attempt.spans)

    async def test_a_time_out_is_a_hole(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        server.hold = threading.Event()
        async with self.made(provider, server, timeout_s=0.5) as app:
            with self.marked(server, self.app.writer) as attempt:
                await outcome(app.run(QUESTION))
        server.hold.set()
        routed = [call for call in attempt.calls if call.policy is not None]
        assert routed
        assert all(call.hole for call in routed)
        assert not transitions(attempt.spans)

    @needs("structured")
    async def test_structured_output(self, adapters: None, provider: FakeModelServer, server: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt():
                own = await app.structured(QUESTION)
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                trained = await app.structured(QUESTION)
        assert own == trained
        assert set(trained) == {"colour", "count"}
        self.check_whole(attempt)
        assert {role_of(body["messages"]) for body in server.bodies} == {"writer"}


async def outcome(running: object) -> object:
    """What an awaitable returns or raises."""
    try:
        return await running  # type: ignore[misc]
    except Exception as error:
        return error
