"""Two fake servers: the agent's own provider, and the policy's endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest

from leyden.plugins import plugins
from leyden.testing.adapter import AdapterSuite
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint
from leyden_openai import adapter

Attempt = AbstractContextManager[RecordedAttempt]


@pytest.fixture(autouse=True)
def instrumented(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this plugin, taken out again after the test; the conformance suite installs what it needs itself."""
    if request.cls is not None and issubclass(request.cls, AdapterSuite):
        yield
        return
    monkeypatch.setenv("LEYDEN_PLUGINS", "")
    monkeypatch.setattr(plugins, "_loaded", False)
    undo = adapter.leyden_instrument()
    yield
    undo()


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
def client(provider: FakeModelServer) -> Iterator[openai.OpenAI]:
    """The agent's client."""
    with openai.OpenAI(base_url=provider.base_url, api_key="secret", max_retries=0) as made:
        yield made


@pytest.fixture
async def aclient(provider: FakeModelServer) -> Any:
    """The agent's asynchronous client."""
    async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="secret", max_retries=0) as made:
        yield made


@pytest.fixture
def marked(endpoint: Endpoint) -> Attempt:
    """An attempt in which the agent "writer" is marked for the policy."""
    return recorded_attempt({"default": endpoint}, {"writer": "default"})
