"""The conformance suite on miniflow."""

from __future__ import annotations

from typing import Any

import openai
from leyden_miniflow.instrumentor import MiniflowInstrumentor
from miniflow import Agent, Chain, Group

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess, lookup


class App(AgentApp):
    shareable = True

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.client = openai.AsyncOpenAI(
            base_url=model.base_url, api_key=model.api_key, timeout=model.timeout_s, max_retries=model.max_retries
        )
        self.chain = Chain([self.agent("planner", PLANNER), self.agent("writer", WRITER, lookup)])

    def agent(self, name: str, instructions: str, *tools: Any) -> Agent:
        return Agent(name, instructions, self.client, self.model.model, list(tools))

    async def run(self, question: str) -> str:
        return await self.chain.run(question)

    @property
    def target(self) -> Chain:
        return self.chain

    def run_sync(self, question: str) -> str:
        return self.chain.run_sync(question)

    async def stream(self, question: str) -> list[str]:
        planner, writer = self.chain.agents
        assert [piece async for piece in planner.stream(question)]
        return [piece async for piece in writer.stream(question)]

    async def sub_agent(self, question: str) -> str:
        return await self.agent("planner", PLANNER, self.chain.agents[1].as_tool()).run(question)

    async def parallel(self, question: str) -> list[str]:
        return await Group([self.agent("planner", PLANNER), self.agent("writer", WRITER)]).run(question)

    async def close(self) -> None:
        await self.client.close()


class TestMiniflow(AdapterSuite):
    plugin = "miniflow"
    app = App
    instrumentor = MiniflowInstrumentor
    lacks = {
        "handoff": "miniflow's agents cannot hand a conversation over",
        "structured": "miniflow has no structured output",
        "cached": "miniflow has no response cache",
        "helper": "miniflow makes no model call of its own",
        "foreign": "miniflow takes OpenAI clients alone",
    }
