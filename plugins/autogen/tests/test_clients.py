"""Model clients that do not speak the OpenAI protocol: stood in for where the agent is marked, left alone elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage, UserMessage
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import leyden
from leyden.errors import RoutingError
from leyden.testing.recording import recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint, Prompt

from .conftest import INFO, Agents, calls


class Answer(BaseModel):
    colour: str
    count: int


def make_local() -> type[ChatCompletionClient]:
    """A class that says "local", made anew: one that was not there when the adapter was installed."""

    class Local(ChatCompletionClient):
        component_type = "model"

        async def create(self, messages: Sequence[Any], **kwargs: Any) -> CreateResult:
            return CreateResult(finish_reason="stop", content="local", usage=self.actual_usage(), cached=False)

        async def create_stream(self, messages: Sequence[Any], **kwargs: Any) -> AsyncGenerator[Any, None]:
            yield "local"
            yield await self.create(messages)

        async def close(self) -> None: ...

        def actual_usage(self) -> RequestUsage:
            return RequestUsage(prompt_tokens=0, completion_tokens=0)

        total_usage = actual_usage

        def count_tokens(self, messages: Sequence[Any], **kwargs: Any) -> int:
            return 0

        remaining_tokens = count_tokens

        @property
        def capabilities(self) -> Any:
            return INFO

        @property
        def model_info(self) -> ModelInfo:
            return INFO

    return Local


class Holder(make_local()):  # type: ignore[misc]
    """A client of the user's own around another one."""

    def __init__(self, inner: ChatCompletionClient) -> None:
        self.inner = inner

    async def create(self, messages: Sequence[Any], **kwargs: Any) -> CreateResult:
        result = await self.inner.create(messages, **kwargs)
        result.content = f"held: {result.content}"
        return result


class Plain(BaseChatAgent):
    """An agent of the user's own that calls its client itself."""

    def __init__(self, client: ChatCompletionClient) -> None:
        super().__init__("writer", "calls a client")
        self.client = client

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        answer = await self.client.create([UserMessage(content="hello", source="user")])
        return Response(chat_message=TextMessage(content=str(answer.content), source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


@pytest.fixture
def marked(policy: FakeModelServer, instrumented: None) -> Callable[[], Any]:
    endpoint = Endpoint(base_url=policy.base_url, model="policy", version=3)
    return lambda: recorded_attempt({"default": endpoint}, marks={"writer": "default"})


@pytest.fixture
def local() -> ChatCompletionClient:
    return make_local()()  # type: ignore[abstract]


async def ask(agent: Any) -> str:
    return str((await agent.run(task="hello")).messages[-1].content)


async def test_a_custom_agents_own_call(local: Any, marked: Any, policy: FakeModelServer) -> None:
    with marked() as attempt:
        assert await ask(Plain(local)) == "answer of policy to 1 messages"
    assert attempt.calls[0].policy == "default"
    assert attempt.calls[0].sampled_ids
    with recorded_attempt():
        assert await ask(Plain(local)) == "local"
    assert await ask(Plain(local)) == "local"


async def test_streams_and_schemas_survive(assistant: Agents, local: Any, marked: Any, policy: FakeModelServer) -> None:
    with marked() as attempt:
        assert await ask(assistant("writer", model=local, model_client_stream=True)) == "answer of policy to 2 messages"
    assert policy.bodies[0]["stream"] is True
    assert [message["content"] for message in policy.bodies[0]["messages"]] == ["You are writer.", "hello"]
    assert attempt.calls[0].sampled_ids


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # of AutoGen's own log of parsed answers
async def test_schemas_survive(assistant: Agents, local: Any, marked: Any, policy: FakeModelServer) -> None:
    with marked():
        result = await assistant("writer", model=local, output_content_type=Answer).run(task="hello")
    assert result.messages[-1].content == Answer(colour="sample", count=3)  # type: ignore[union-attr]


async def test_a_societys_own_call(assistant: Agents, local: Any, marked: Any, policy: FakeModelServer) -> None:
    som = SocietyOfMindAgent("writer", team=RoundRobinGroupChat([assistant("critic")], max_turns=1), model_client=local)
    with marked() as attempt:
        assert "of policy" in await ask(som)
    routed = [(span.agent, span.call.policy) for span in attempt.llm if span.call is not None]
    assert routed == [("writer/critic", "default"), ("writer", "default")]


async def test_a_cache_and_a_wrapper_around_an_openai_client_are_left_as_they_are(
    assistant: Agents, client: OpenAIChatCompletionClient, marked: Any, policy: FakeModelServer
) -> None:
    with marked() as attempt:
        assert await ask(assistant("writer", model=Holder(client))) == "held: answer of policy to 2 messages"
        cache = ChatCompletionCache(client)
        first, second = [await ask(assistant("writer", model=cache)) for _ in range(2)]
    assert first == second
    assert len(attempt.calls) == len(policy.bodies) == 2


async def test_a_wrapper_around_a_foreign_client_is_stood_in_for(assistant: Agents, local: Any, marked: Any) -> None:
    with marked() as attempt:
        assert await ask(assistant("writer", model=Holder(local))) == "answer of policy to 2 messages"
        assert await ask(assistant("planner", model=Holder(local))) == "held: local"
    assert calls(attempt) == ["writer"]


async def test_a_prompt_policy_on_a_foreign_client_fails_loudly(
    assistant: Agents, local: Any, instrumented: None
) -> None:
    prompt, refused = Prompt(text="Write well."), pytest.raises(RoutingError, match="not called through the openai SDK")
    with recorded_attempt({"default": prompt}, marks={"writer": "default"}) as attempt, refused:
        await ask(assistant("writer", model=local))
    assert attempt.scope.failures


async def test_the_users_class_is_put_back(local: Any) -> None:
    cls = type(local)
    originals = dict(vars(cls))
    leyden.instrument()
    with recorded_attempt():
        await ask(Plain(local))
        assert vars(cls)["create"] is not originals["create"]
    leyden.uninstrument()
    assert vars(cls)["create"] is originals["create"]
    assert vars(cls)["create_stream"] is originals["create_stream"]


@pytest.mark.filterwarnings("ignore:Claude models may not work with reflection:UserWarning")  # AutoGen 0.6
@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropics_client(assistant: Agents, marked: Any, policy: FakeModelServer, streamed: bool) -> None:
    pytest.importorskip("anthropic")
    from autogen_ext.models.anthropic import AnthropicChatCompletionClient

    def look(word: str) -> str:
        """Look a word up."""
        return f"{word} is warm"

    claude = AnthropicChatCompletionClient(
        model="claude-3-5-sonnet-latest", api_key="secret", base_url="http://127.0.0.1:9"
    )
    writer = assistant("writer", model=claude, tools=[look], reflect_on_tool_use=True, model_client_stream=streamed)
    with marked() as attempt:
        assert await ask(writer) == "answer of policy to 4 messages"
    first, second = policy.bodies
    assert first["tools"][0]["function"]["name"] == "look"
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert all(call.sampled_ids for call in attempt.calls)
    assert not any("secret" in str(request.headers) for request in policy.requests)
    await claude.close()
