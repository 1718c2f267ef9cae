"""The adapter suite on a RoundRobin team of two assistants."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess, lookup
from leyden.testing.answers import Reply, text_of
from leyden_autogen.instrumentor import AutogenInstrumentor

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family="unknown",
    multiple_system_messages=True,
)


class LocalClient(ChatCompletionClient):
    """A model client of the user's own that speaks no protocol at all."""

    component_type = "model"

    async def create(self, messages: Sequence[Any], **kwargs: Any) -> CreateResult:
        raise AssertionError("the local model was called")

    async def create_stream(self, messages: Sequence[Any], **kwargs: Any) -> AsyncGenerator[Any, None]:
        raise AssertionError("the local model was called")
        yield

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


class Answer(BaseModel):
    colour: str
    count: int


class App(AgentApp):
    shareable = True  # every run makes agents of its own

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.client = OpenAIChatCompletionClient(
            model=model.model,
            base_url=model.base_url,
            api_key=model.api_key,
            timeout=model.timeout_s,
            max_retries=model.max_retries,
            model_info=INFO,
        )
        self._target = self.team()

    def planner_agent(self, **more: Any) -> AssistantAgent:
        return AssistantAgent("planner", model_client=self.client, system_message=PLANNER, **more)

    def writer_agent(self, model: ChatCompletionClient | None = None, **more: Any) -> AssistantAgent:
        more = {"tools": [lookup], "reflect_on_tool_use": True, **more}
        return AssistantAgent("writer", model_client=model or self.client, system_message=WRITER, **more)

    def team(self, model: ChatCompletionClient | None = None, **more: Any) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([self.planner_agent(**more), self.writer_agent(model, **more)], max_turns=2)

    @property
    def target(self) -> Any:
        return self._target

    async def run(self, question: str) -> str:
        return last(await self.team().run(task=question))

    async def stream(self, question: str) -> list[str]:
        team = self.team(model_client_stream=True)
        return [
            event.content
            async for event in team.run_stream(task=question)
            if isinstance(event, ModelClientStreamingChunkEvent) and event.source == "writer"
        ]

    async def sub_agent(self, question: str) -> str:
        planner = self.planner_agent(tools=[AgentTool(self.writer_agent())], reflect_on_tool_use=True)
        return last(await planner.run(task=question))

    async def handoff(self, question: str) -> str:
        swarm = Swarm([self.planner_agent(handoffs=["writer"]), self.writer_agent()], max_turns=2)
        return last(await swarm.run(task=question))

    async def structured(self, question: str) -> dict[str, Any]:
        writer = self.writer_agent(tools=None, reflect_on_tool_use=False, output_content_type=Answer)
        result = await writer.run(task=question)
        content: Answer = result.messages[-1].content  # type: ignore[union-attr,assignment]
        return content.model_dump()

    async def parallel(self, question: str) -> list[str]:
        both = [self.planner_agent(), self.writer_agent(tools=None)]
        graph = DiGraphBuilder()
        for agent in both:
            graph.add_node(agent)
        result = await GraphFlow(both, graph.build()).run(task=question)
        return [text(message) for message in result.messages if message.source in ("planner", "writer")]

    async def cached(self, question: str) -> list[str]:
        client = ChatCompletionCache(self.client)
        return [last(await self.writer_agent(client, tools=None).run(task=question)) for _ in range(2)]

    async def helper(self, question: str) -> str:
        team = SelectorGroupChat([self.planner_agent(), self.writer_agent()], model_client=self.client, max_turns=1)
        return last(await team.run(task=question))

    async def foreign(self, question: str) -> str:
        return last(await self.team(LocalClient()).run(task=question))

    def reply(self, body: dict[str, Any]) -> Reply | None:
        messages: list[Mapping[str, Any]] = body.get("messages") or [{}]
        return "writer" if "select the next role" in text_of(messages[0]) else None

    async def close(self) -> None:
        await self.client.close()


def text(message: Any) -> str:
    return str(message.content)


def last(result: Any) -> str:
    return text(result.messages[-1])


# AutoGen logs a parsed answer with a model_dump() of which newer versions of pydantic warn, with or without Leyden.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
class TestAutogen(AdapterSuite):
    plugin = "autogen"
    app = App
    instrumentor = AutogenInstrumentor
    lacks = {"run_sync": "AutoGen has no blocking entry point"}
