"""The suite that every adapter passes, with two agents on the SDK's chat-completions model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
from agents import Agent, Model, ModelResponse, OpenAIChatCompletionsModel, Runner, RunResultStreaming, function_tool
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess, lookup
from leyden_openai_agents import clients
from leyden_openai_agents.instrumentor import OpenAIAgentsInstrumentor

HTTP_CLIENT: Any = getattr(openai, "DefaultAsyncHttpx2Client", DefaultAsyncHttpxClient)
"""The kind of HTTP client that the installed `openai` uses."""


class Note(BaseModel):
    """What the writer answers where it answers by a schema."""

    colour: str
    count: int


class Foreign(Model):
    """A model that speaks no OpenAI protocol."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise AssertionError("the writer's own model was called")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise AssertionError("the writer's own model was called")


class App(AgentApp):
    """Planner and writer, run one after the other, or one by means of the other."""

    shareable = True

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.client = AsyncOpenAI(
            base_url=model.base_url,
            api_key=model.api_key,
            timeout=model.timeout_s,
            max_retries=model.max_retries,
            http_client=HTTP_CLIENT(verify=False),  # no certificates are read: that takes longer than a whole rollout
        )
        self.chat = OpenAIChatCompletionsModel(model.model, self.client)
        self.lookup = function_tool(lookup)

    def agent_planner(self, **more: Any) -> Agent:
        return Agent(name="planner", instructions=PLANNER, model=self.chat, **more)

    def agent_writer(self, **more: Any) -> Agent:
        return Agent(**{"name": "writer", "instructions": WRITER, "model": self.chat, "tools": [self.lookup], **more})

    @property
    def target(self) -> Agent:
        return self.agent_planner(handoffs=[self.agent_writer()])

    async def run(self, question: str) -> str:
        return await self._both(question, self.agent_writer())

    async def _both(self, question: str, writer: Agent) -> str:
        plan = await Runner.run(self.agent_planner(), question)
        answer = await Runner.run(writer, f"{question}\n{plan.final_output}")
        return str(answer.final_output)

    async def stream(self, question: str) -> list[str]:
        plan = Runner.run_streamed(self.agent_planner(), question)
        await _pieces(plan)
        return await _pieces(Runner.run_streamed(self.agent_writer(), f"{question}\n{plan.final_output}"))

    def run_sync(self, question: str) -> str:
        loop = asyncio.new_event_loop()  # `run_sync` uses the thread's own; this one can be closed again
        asyncio.set_event_loop(loop)
        try:
            plan = Runner.run_sync(self.agent_planner(), question)
            answer = Runner.run_sync(self.agent_writer(), f"{question}\n{plan.final_output}")
            loop.run_until_complete(self.close())
            return str(answer.final_output)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    async def sub_agent(self, question: str) -> str:
        tool = self.agent_writer().as_tool("ask_writer", "Ask the writer.")
        return str((await Runner.run(self.agent_planner(tools=[tool]), question)).final_output)

    async def handoff(self, question: str) -> str:
        return str((await Runner.run(self.target, question)).final_output)

    async def structured(self, question: str) -> dict[str, Any]:
        result = await Runner.run(self.agent_writer(tools=[], output_type=Note), question)
        return result.final_output_as(Note).model_dump()

    async def parallel(self, question: str) -> list[str]:
        agents = [self.agent_planner(), self.agent_writer(tools=[])]
        results = await asyncio.gather(*(Runner.run(agent, question) for agent in agents))
        return [str(result.final_output) for result in results]

    async def foreign(self, question: str) -> str:
        return await self._both(question, self.agent_writer(model=Foreign()))

    async def close(self) -> None:
        await self.client.close()
        await clients.close()


async def _pieces(run: RunResultStreaming) -> list[str]:
    """The pieces of the last text of a run."""
    pieces: list[str] = []
    async for event in run.stream_events():
        if event.type == "raw_response_event":
            if event.data.type == "response.created":
                pieces.clear()
            elif event.data.type == "response.output_text.delta":
                pieces.append(event.data.delta)
    return pieces


class TestOpenAIAgents(AdapterSuite):
    plugin = "openai-agents"
    app = App
    instrumentor = OpenAIAgentsInstrumentor
    lacks = {
        "cached": "the SDK has no response cache",
        "helper": "the SDK makes no model call of its own: guardrails and tools call a model only where the user's code does",
    }
