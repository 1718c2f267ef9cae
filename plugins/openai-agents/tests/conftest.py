"""Two fake servers, the agent's own provider and the policy's endpoint, and the SDK's models on the provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel, set_trace_processors
from openai import AsyncOpenAI

import leyden
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint
from leyden_openai_agents import clients

Attempt = Callable[..., AbstractContextManager[RecordedAttempt]]


def pytest_configure(config: pytest.Config) -> None:
    """Two calls of `run_sync` in one thread: the first one shuts the generators of the loop down that the second one uses."""
    config.addinivalue_line("filterwarnings", "ignore:asynchronous generator .* was scheduled after:ResourceWarning")


@pytest.fixture(autouse=True)
def _no_export() -> None:
    """The SDK's own exporter would send traces to its maker."""
    set_trace_processors([])


@pytest.fixture(autouse=True)
async def _no_connection_is_left() -> AsyncIterator[None]:
    """Close what the stand-ins have opened."""
    yield
    await clients.close()


@pytest.fixture
def instrumented() -> Iterator[None]:
    """All installed adapters, for one test."""
    leyden.instrument()
    yield
    leyden.uninstrument()


@pytest.fixture
def provider() -> Iterator[FakeModelServer]:
    """The agent's own provider: knows nothing of token ids."""
    with FakeModelServer(return_token_ids=False) as server:
        yield server


@pytest.fixture
def policy_server() -> Iterator[FakeModelServer]:
    """The policy's endpoint."""
    with FakeModelServer() as server:
        yield server


@pytest.fixture
def endpoint(policy_server: FakeModelServer) -> Endpoint:
    """The policy, as an algorithm publishes it."""
    return Endpoint(base_url=policy_server.base_url, model="policy", version=7, api_key="policy-key")


@pytest.fixture
def attempt(endpoint: Endpoint) -> Attempt:
    """Makes attempts in which the agents that are named are marked for the policy."""

    def make(*marked: str) -> AbstractContextManager[RecordedAttempt]:
        return recorded_attempt({"default": endpoint}, dict.fromkeys(marked, "default"))

    return make


@pytest.fixture
async def client(provider: FakeModelServer) -> AsyncIterator[AsyncOpenAI]:
    """The agents' client."""
    async with AsyncOpenAI(base_url=provider.base_url, api_key="secret", max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture
def chat(client: AsyncOpenAI) -> OpenAIChatCompletionsModel:
    """A chat-completions model at the provider."""
    return OpenAIChatCompletionsModel("own", client)


@pytest.fixture
def responses(client: AsyncOpenAI) -> OpenAIResponsesModel:
    """A Responses model at the provider: what the SDK makes of a model that is named by text."""
    return OpenAIResponsesModel("own", client)
