"""What the parts of the adapter suite share: servers, apps, attempts, and what a recorded attempt must look like."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, TypeVar

import pytest

import leyden
from leyden import attributes
from leyden.hookspecs import PluginInfo
from leyden.plugins import plugins
from leyden.testing.adapter.app import AgentApp, ModelAccess, capabilities
from leyden.testing.adapter.script import role_of, scripted, words_in
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.trajectories import transitions
from leyden.types import Endpoint, Span

F = TypeVar("F", bound=Callable[..., Any])

REAL_SERVER = "LEYDEN_TEST_VLLM"
QUESTION = "Tell me of word-17."
POLICY_KEY = "policy-secret"


def needs(*names: str) -> Callable[[F], F]:
    """A test for apps that implement `names`; skipped, with the reason that the adapter gives, for others."""

    def mark(test: F) -> F:
        test.__dict__["leyden_needs"] = names
        return test

    return mark


def on_real_server(test: F) -> F:
    """A test that runs on a real vLLM server too."""
    test.__dict__["leyden_real"] = True
    return test


@contextmanager
def instrumented() -> Iterator[None]:
    """All installed adapters, taken out again."""
    leyden.instrument()
    try:
        yield
    finally:
        leyden.uninstrument()


def policy(server: FakeModelServer, name: str = "policy", version: int = 7) -> Endpoint:
    """A policy at a fake server, as an algorithm publishes it."""
    return Endpoint(base_url=server.base_url, model=name, version=version, api_key=POLICY_KEY)


def paths(attempt: RecordedAttempt, kind: str = "llm") -> set[str]:
    """Agent paths of the attempt's spans of one kind."""
    return {span.agent for span in attempt.spans if span.kind == kind}


def messages_of(span: Span) -> list[dict[str, Any]]:
    """The conversation that an LLM call was made with."""
    found: list[dict[str, Any]] = json.loads(span.attributes[attributes.INPUT_MESSAGES])
    return found


class Base:
    """Class attributes that an adapter sets, and fixtures."""

    pytestmark = pytest.mark.asyncio

    plugin: ClassVar[str]
    """Name of the adapter's entry point in the group `leyden.plugins`."""
    app: ClassVar[type[AgentApp]]
    instrumentor: ClassVar[type[Any] | None] = None
    """The adapter's OpenTelemetry instrumentor."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Capability → why the framework or the app has none."""
    volatile: ClassVar[tuple[str, ...]] = ()
    """Names of request fields that differ from run to run in this framework (ids, dates)."""
    rollouts: ClassVar[int] = int(os.environ.get("LEYDEN_TEST_ROLLOUTS") or 1000)
    """Length of the endurance test, which is skipped on a real server."""

    @pytest.fixture(autouse=True)
    def _applicable(self, request: pytest.FixtureRequest) -> None:
        """Skip what the app cannot do and, on a real server, what only a scripted one can serve."""
        test = getattr(request.function, "__dict__", {})
        if os.environ.get(REAL_SERVER) and not test.get("leyden_real"):
            pytest.skip("needs a scripted server")
        for name in test.get("leyden_needs", ()):
            if name not in capabilities(self.app):
                pytest.skip(f"no {name}: {self.lacks.get(name, 'the app does not implement it')}")

    @pytest.fixture
    def info(self) -> PluginInfo:
        """What the adapter says of itself."""
        return plugins.info()[self.plugin]

    @pytest.fixture
    def adapters(self) -> Iterator[None]:
        """All installed adapters, for one test."""
        with instrumented():
            yield

    @pytest.fixture
    def provider(self) -> Iterator[FakeModelServer]:
        """The app's own provider, which knows nothing of token ids."""
        with FakeModelServer(return_token_ids=False) as server:
            yield server

    @pytest.fixture
    def server(self) -> Iterator[FakeModelServer]:
        """The server of the trained policy."""
        with FakeModelServer(name="first-") as server:
            yield server

    @pytest.fixture
    def second_server(self) -> Iterator[FakeModelServer]:
        """The server of another policy."""
        with FakeModelServer(name="second-") as server:
            yield server

    @asynccontextmanager
    async def made(
        self, provider: FakeModelServer, *servers: FakeModelServer, **access: Any
    ) -> AsyncIterator[AgentApp]:
        """An app on `provider`; all servers say what the script says."""
        app = self.app(ModelAccess(base_url=provider.base_url, **access))
        for one in (provider, *servers):
            one.reply = functools.partial(scripted, app)
        try:
            yield app
        finally:
            await app.close()
            await asyncio.sleep(0)

    @contextmanager
    def marked(self, server: FakeModelServer, *selectors: str) -> Iterator[RecordedAttempt]:
        """An attempt in which the agents are marked for the policy at `server`."""
        with recorded_attempt({"default": policy(server)}, dict.fromkeys(selectors, "default")) as attempt:
            yield attempt

    def expected(self, role: str | None, nested: bool = False) -> str:
        """The path of the agent with a role."""
        if role == "writer":
            return self.app.nested_writer if nested else self.app.writer
        return self.app.planner if role == "planner" else ""

    def check_callers(self, attempt: RecordedAttempt, *, nested: bool = False, roles: set[str] | None = None) -> None:
        """Each LLM call was recorded for the agent whose instructions it was made with."""
        assert attempt.llm, "no LLM call was recorded"
        for span in attempt.llm:
            role = role_of(messages_of(span))
            assert span.agent == self.expected(role, nested), f"a call of {role} was recorded for {span.agent!r}"
        seen = {role_of(messages_of(span)) for span in attempt.llm} - {None}
        assert seen == (roles or {"planner", "writer"})

    def check_own_words(self, attempt: RecordedAttempt, word: str) -> None:
        """Every call of the attempt is of its own question."""
        for span in attempt.llm:
            assert words_in(span.attributes[attributes.INPUT_MESSAGES]) == {word}

    def check_whole(self, attempt: RecordedAttempt) -> None:
        """Every call that went to a policy is a transition."""
        routed = [span for span in attempt.llm if span.call is not None and span.call.policy is not None]
        holes = [span.call.hole for span in routed if span.call is not None and span.call.hole]
        assert not holes
        assert len(transitions(attempt.spans)) == len(routed) > 0


__all__ = [
    "POLICY_KEY",
    "QUESTION",
    "Base",
    "instrumented",
    "needs",
    "on_real_server",
    "paths",
    "policy",
    "recorded_attempt",
]
