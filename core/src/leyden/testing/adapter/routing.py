"""Where calls go: a marked agent's to its policy, every other where it always went, and nothing leaks between the two."""

from __future__ import annotations

from typing import Any

from leyden.testing.adapter.base import POLICY_KEY, QUESTION, Base, instrumented, needs, policy, recorded_attempt
from leyden.testing.adapter.capture import outcome
from leyden.testing.adapter.script import role_of
from leyden.testing.server import FakeModelServer, ModelRequest


def callers(server: FakeModelServer) -> set[str | None]:
    """The roles whose calls a server answered."""
    return {role_of(body["messages"]) for body in server.bodies}


def check_untouched(requests: list[ModelRequest], secret: str) -> None:
    """Requests that went where they always went: signed as always, and nothing of Leyden's or the policy's in them."""
    for request in requests:
        assert request.headers["authorization"] == f"Bearer {secret}"
        assert not [name for name in request.headers if name.startswith("x-leyden") or name == "traceparent"]
        assert POLICY_KEY not in str(request)
        assert "return_token_ids" not in request.body


def said(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """A conversation's content: who says what, and which tools are called with what."""
    return [
        (
            message["role"],
            _text(message.get("content")),
            [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


class RoutingRules(Base):
    """Marks decide, and only marks."""

    async def test_a_marked_agent_goes_to_its_policy_and_the_other_to_its_own_endpoint(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                answer = await app.run(QUESTION)
        assert "word-17 is warm" in answer
        assert callers(provider) == {"planner"}
        assert callers(server) == {"writer"}
        self.check_callers(attempt)
        self.check_whole(attempt)
        check_untouched(provider.requests, app.model.api_key)
        for request in server.requests:
            assert request.headers["authorization"] == f"Bearer {POLICY_KEY}"
            assert app.model.api_key not in str(request)
            assert request.headers["x-leyden-agent"] == self.app.writer
            assert request.body["model"] == "policy"

    @needs("stream")
    async def test_streams_are_routed(self, adapters: None, provider: FakeModelServer, server: FakeModelServer) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                pieces = await app.stream(QUESTION)
        assert "word-17 is warm" in "".join(pieces)
        assert callers(provider) == {"planner"}
        assert callers(server) == {"writer"}
        self.check_whole(attempt)
        check_untouched(provider.requests, app.model.api_key)

    async def test_two_policies_at_once(
        self,
        adapters: None,
        provider: FakeModelServer,
        server: FakeModelServer,
        second_server: FakeModelServer,
    ) -> None:
        policies = {"a": policy(server, "model-a", 3), "b": policy(second_server, "model-b", 4)}
        async with self.made(provider, server, second_server) as app:
            with recorded_attempt(policies, {self.app.planner: "a", self.app.writer: "b"}) as attempt:
                await app.run(QUESTION)
        assert not provider.requests
        assert (callers(server), callers(second_server)) == ({"planner"}, {"writer"})
        self.check_whole(attempt)
        for span in attempt.llm:
            assert span.call is not None
            given = ("a", 3, "model-a") if span.agent == self.app.planner else ("b", 4, "model-b")
            assert (span.call.policy, span.call.version) == given[:2]
        assert {body["model"] for body in server.bodies} == {"model-a"}

    @needs("sub_agent")
    async def test_a_sub_agent_is_marked_by_itself_or_with_its_caller(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.nested_writer):
                await app.sub_agent(QUESTION)
        assert (callers(provider), callers(server)) == ({"planner"}, {"writer"})
        provider.requests.clear()
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.planner) as attempt:
                await app.sub_agent(QUESTION)
        assert not provider.requests
        self.check_whole(attempt)

    @needs("handoff")
    async def test_after_a_handoff_only_the_marked_agent_is_routed(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                await app.handoff(QUESTION)
        assert (callers(provider), callers(server)) == ({"planner"}, {"writer"})
        self.check_whole(attempt)

    @needs("parallel")
    async def test_of_two_agents_at_work_at_once_only_the_marked_one_is_routed(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        provider.delay_s = server.delay_s = 0.05
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                await app.parallel(QUESTION)
        assert (callers(provider), callers(server)) == ({"planner"}, {"writer"})
        self.check_whole(attempt)

    async def test_a_policy_that_was_not_published_fails_loudly(
        self, adapters: None, provider: FakeModelServer
    ) -> None:
        async with self.made(provider) as app:
            with recorded_attempt({}, {self.app.writer: "default"}) as attempt:
                await outcome(app.run(QUESTION))
        assert attempt.scope.failures, "the attempt does not know that a marked agent was not routed"
        assert "writer" not in callers(provider)

    @needs("foreign")
    async def test_a_model_that_speaks_another_protocol_is_stood_in_for(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer, second_server: FakeModelServer
    ) -> None:
        async with self.made(provider, second_server) as app:
            with self.marked(second_server, self.app.writer):
                await app.run(QUESTION)
        async with self.made(provider, server) as app:
            with self.marked(server, self.app.writer) as attempt:
                answer = await app.foreign(QUESTION)
        assert not attempt.scope.failures
        assert "word-17 is warm" in answer
        self.check_callers(attempt)
        self.check_whole(attempt)
        stood_in, plain = server.bodies, second_server.bodies
        assert [said(body["messages"]) for body in stood_in] == [said(body["messages"]) for body in plain]
        names = [[tool["function"]["name"] for tool in body.get("tools") or ()] for body in (*stood_in, *plain)]
        assert names[: len(stood_in)] == names[len(stood_in) :]

    @needs("foreign")
    async def test_an_unmarked_model_of_another_protocol_is_left_alone(
        self, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        async with self.made(provider) as app:
            bare = await outcome(app.foreign(QUESTION))
        async with self.made(provider, server) as app:
            with instrumented(), self.marked(server, self.app.planner) as attempt:
                left = await outcome(app.foreign(QUESTION))
        assert isinstance(bare, Exception), "the local model raises when it is called; it was not called"
        assert type(left) is type(bare)
        assert not attempt.scope.failures
        assert "writer" not in callers(server) | callers(provider)
