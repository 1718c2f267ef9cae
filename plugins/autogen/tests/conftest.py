from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

import leyden
from leyden.testing.recording import RecordedAttempt
from leyden.testing.server import FakeModelServer

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family="unknown",
    multiple_system_messages=True,
)

Agents = Callable[..., AssistantAgent]


def calls(attempt: RecordedAttempt) -> list[str]:
    """The agents that called a model, in the order in which they did."""
    return [span.agent for span in attempt.llm]


def turns(attempt: RecordedAttempt) -> list[str]:
    """The turns of agents, in the order in which they began."""
    return [span.agent for span in attempt.spans if span.kind == "agent"]


def tools(attempt: RecordedAttempt) -> list[Any]:
    """The spans of tool calls."""
    return [span for span in attempt.spans if span.kind == "tool"]


@pytest.fixture
def instrumented() -> Iterator[None]:
    leyden.instrument()
    yield
    leyden.uninstrument()


@pytest.fixture
def provider() -> Iterator[FakeModelServer]:
    with FakeModelServer(return_token_ids=False) as server:
        yield server


@pytest.fixture
def policy() -> Iterator[FakeModelServer]:
    with FakeModelServer() as server:
        yield server


@pytest.fixture
async def client(provider: FakeModelServer) -> AsyncIterator[OpenAIChatCompletionClient]:
    made = OpenAIChatCompletionClient(
        model="own", base_url=provider.base_url, api_key="secret", max_retries=0, model_info=INFO
    )
    yield made
    await made.close()


@pytest.fixture
def assistant(client: OpenAIChatCompletionClient) -> Agents:
    def make(name: str, *, model: Any = None, **more: Any) -> AssistantAgent:
        return AssistantAgent(name, model_client=model or client, system_message=f"You are {name}.", **more)

    return make
