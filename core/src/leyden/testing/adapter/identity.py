"""Who is calling: plain, streamed, nested, after a handoff, at the same time, in threads."""

from __future__ import annotations

import asyncio
import threading

import leyden
from leyden import attributes, marks
from leyden.plugins import plugins
from leyden.testing.adapter.base import QUESTION, Base, messages_of, needs, paths, recorded_attempt
from leyden.testing.adapter.script import role_of
from leyden.testing.recording import RecordedAttempt
from leyden.testing.server import FakeModelServer
from leyden.types import Span


def above(span: Span, spans: list[Span]) -> list[Span]:
    """The spans that a span hangs below, the nearest first."""
    known = {one.span_id: one for one in spans}
    found: list[Span] = []
    while span.parent_id in known:
        span = known[span.parent_id]
        found.append(span)
    return found


class IdentityRules(Base):
    """Every call is recorded for the agent that makes it, and for no other."""

    async def test_each_call_is_its_agents(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                answer = await app.run(QUESTION)
        assert "word-17 is warm" in answer
        self.check_callers(attempt)
        self.check_own_words(attempt, "word-17")
        assert len(attempt.llm) == len(provider.bodies)

    async def test_agents_and_tools_are_spans(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                await app.run(QUESTION)
        assert {self.app.planner, self.app.writer} <= paths(attempt, "agent")
        tools = [span for span in attempt.spans if span.kind == "tool" and "lookup" in span.name]
        (tool,) = tools
        assert tool.agent == self.app.writer
        assert "word-17" in str(tool.attributes[attributes.TOOL_ARGUMENTS])
        assert "word-17 is warm" in str(tool.attributes[attributes.TOOL_RESULT])
        for span in [*attempt.llm, tool]:
            around = [one.agent for one in above(span, attempt.spans) if one.kind == "agent"]
            assert span.agent in around, f"{span.name} does not hang below its agent's span"
        assert all(span.end_ns >= span.start_ns for span in attempt.spans)

    @needs("stream")
    async def test_streams(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                pieces = await app.stream(QUESTION)
        assert "word-17 is warm" in "".join(pieces)
        assert len(pieces) > 1
        assert all(body.get("stream") for body in provider.bodies)
        self.check_callers(attempt)

    @needs("sub_agent")
    async def test_a_sub_agent_is_below_its_caller(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                await app.sub_agent(QUESTION)
        self.check_callers(attempt, nested=True)
        callers = [role_of(messages_of(span)) for span in attempt.llm]
        assert callers[0] == callers[-1] == "planner", "after the sub-agent its caller is current again"

    @needs("handoff")
    async def test_after_a_handoff_the_other_agent_calls(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                answer = await app.handoff(QUESTION)
        assert "word-17" in answer
        self.check_callers(attempt)

    @needs("parallel")
    async def test_agents_at_work_at_once(self, adapters: None, provider: FakeModelServer) -> None:
        provider.delay_s = 0.05
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                await app.parallel(QUESTION)
        self.check_callers(attempt)

    @needs("helper")
    async def test_a_helper_call_is_reported_and_is_no_agents(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, "*") as attempt:
                await app.helper(QUESTION)
        helpers = [span for span in attempt.llm if role_of(messages_of(span)) is None]
        assert helpers, "the app made no helper call, or it was not recorded"
        for span in helpers:
            assert span.agent == ""
            assert span.call is not None
            assert span.call.policy is None
        assert not [body for body in server.bodies if role_of(body["messages"]) is None]

    async def test_rollouts_at_once(self, adapters: None, provider: FakeModelServer) -> None:
        provider.delay_s = 0.02
        async with self.made(provider) as shared:

            async def rollout(number: int) -> RecordedAttempt:
                with recorded_attempt() as attempt:
                    if self.app.shareable:
                        answer = await shared.run(f"Tell me of word-{number}.")
                    else:
                        async with self.made(provider) as app:
                            answer = await app.run(f"Tell me of word-{number}.")
                assert f"word-{number} is warm" in answer
                return attempt

            attempts = await asyncio.gather(*(rollout(number) for number in range(100, 112)))
        for number, attempt in enumerate(attempts, 100):
            self.check_callers(attempt)
            self.check_own_words(attempt, f"word-{number}")

    @needs("run_sync")
    async def test_blocking_runs_in_bare_threads(self, adapters: None, provider: FakeModelServer) -> None:
        """Threads that are started inside an attempt belong to it, however they are started."""
        attempts: dict[int, RecordedAttempt] = {}
        failures: list[BaseException] = []

        def blocking(number: int) -> None:
            try:
                app = self.app(apps.model)
                assert f"word-{number} is warm" in app.run_sync(f"Tell me of word-{number}.")
            except BaseException as error:
                failures.append(error)

        def rollout(number: int) -> None:
            with recorded_attempt() as attempts[number]:
                thread = threading.Thread(target=blocking, args=(number,))
                thread.start()
                thread.join(60)

        async with self.made(provider) as apps:
            await asyncio.gather(*(asyncio.to_thread(rollout, number) for number in range(200, 204)))
        assert not failures
        for number, attempt in attempts.items():
            self.check_callers(attempt)
            self.check_own_words(attempt, f"word-{number}")

    @needs("target")
    async def test_agents_are_found_before_they_run(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            found = {agent.path: agent.target for agent in plugins.discover(app.target)}
        assert {self.app.planner, self.app.writer} <= set(found)

    @needs("target")
    async def test_a_mark_may_be_the_frameworks_object(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            found = {agent.path: agent.target for agent in plugins.discover(app.target)}
            registry = marks.Marks()
            writer = found[self.app.writer]
            assert writer is not None
            registry.add(writer)
            resolved = registry.resolve(found.items())
        assert self.app.writer in [mark.selector for mark in resolved]

    @needs("target")
    async def test_the_frameworks_object_runs_on_a_task(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                running = plugins.first("leyden_run", target=app.target, task=QUESTION)
                assert running is not None, "leyden_run does not know its framework's own object"
                await running
        self.check_callers(attempt)

    async def test_plain_agents_around_the_framework(self, adapters: None, provider: FakeModelServer) -> None:
        """`leyden.agent` around the app is a level above the framework's agents."""
        async with self.made(provider) as app:
            with recorded_attempt() as attempt, leyden.agent("outer"):
                await app.run(QUESTION)
        assert paths(attempt) == {f"outer/{self.app.planner}", f"outer/{self.app.writer}"}
