"""The conformance suite on CrewAI."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from crewai import LLM, Agent, Crew, Process, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from pydantic import BaseModel

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess, lookup
from leyden_crewai.instrumentor import CrewAIInstrumentor


class Silent(BaseLLM):
    """A local model class: it speaks no OpenAI protocol, and must not be called."""

    def call(self, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the local model was called")

    async def acall(self, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the local model was called")

    def supports_function_calling(self) -> bool:
        return True


class Answer(BaseModel):
    """What the writer answers by schema."""

    colour: str
    count: int


class App(AgentApp):
    """A crew of two."""

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.models: list[Any] = []
        self.planner_agent = self.agent("planner", PLANNER)
        self.writer_agent = self.agent("writer", WRITER)

    def llm(self) -> Any:
        access = self.model
        made = LLM(
            model=access.model,
            provider="openai",
            base_url=access.base_url,
            api_key=access.api_key,
            timeout=access.timeout_s,
            max_retries=access.max_retries,
        )
        self.models.append(made)
        return made

    def agent(self, role: str, instructions: str, **given: Any) -> Agent:
        # Without retries of a whole turn: they would call an async client in a second loop, which httpx does not bear.
        given = {"llm": self.llm(), "max_retry_limit": 0, **given}
        return Agent(role=role, backstory=instructions, goal="Be of help.", **given)

    def task(self, agent: Agent, tools: bool = False, **given: Any) -> Task:
        return Task(
            description="{task}",
            expected_output="One line.",
            agent=agent,
            **({"tools": [tool(lookup)]} if tools else {}),
            **given,
        )

    def crew(self, *tasks: Task, **given: Any) -> Crew:
        return Crew(agents=[task.agent for task in tasks if task.agent], tasks=list(tasks), **given)

    @property
    def target(self) -> Crew:
        return self.crew(self.task(self.planner_agent), self.task(self.writer_agent, tools=True))

    async def run(self, question: str) -> str:
        return str((await self.target.akickoff(inputs={"task": question})).raw)

    def run_sync(self, question: str) -> str:
        return str(self.target.kickoff(inputs={"task": question}).raw)

    async def stream(self, question: str) -> list[str]:
        crew = self.target
        crew.stream = True
        return [
            chunk.content
            async for chunk in await crew.akickoff(inputs={"task": question})
            if chunk.chunk_type.value == "text" and chunk.agent_role == "writer"
        ]

    async def sub_agent(self, question: str) -> str:
        manager = self.agent("planner", PLANNER, allow_delegation=True)
        self.writer_agent.tools = [tool(lookup)]
        task = Task(description=question, expected_output="One line.")
        crew = Crew(agents=[self.writer_agent], tasks=[task], process=Process.hierarchical, manager_agent=manager)
        return str((await crew.kickoff_async()).raw)

    async def structured(self, question: str) -> dict[str, Any]:
        task = self.task(self.writer_agent, output_pydantic=Answer)
        output = await self.crew(task).akickoff(inputs={"task": question})
        return dict(output.pydantic.model_dump())

    async def parallel(self, question: str) -> list[str]:
        tasks = [self.task(agent, async_execution=True) for agent in (self.planner_agent, self.writer_agent)]
        last = self.task(self.writer_agent, context=tasks)
        output = await asyncio.to_thread(self.crew(*tasks, last).kickoff, inputs={"task": question})
        return [str(one.raw) for one in output.tasks_output]

    async def helper(self, question: str) -> str:
        crew = self.crew(self.task(self.writer_agent), planning=True, planning_llm=self.llm())
        return str((await crew.kickoff_async(inputs={"task": question})).raw)

    async def foreign(self, question: str) -> str:
        self.writer_agent = self.agent("writer", WRITER, llm=Silent(model="silent"))
        return await self.run(question)

    async def close(self) -> None:
        for model in self.models:
            with contextlib.suppress(RuntimeError):  # CrewAI has used it in a loop of its own, which is closed
                await (getattr(model, "_async_client", None) or model.async_client).close()


class TestCrewAI(AdapterSuite):
    plugin = "crewai"
    app = App
    instrumentor = CrewAIInstrumentor
    # A rollout takes half a second of processor time, nearly all of it CrewAI's own; 1,000 on request.
    rollouts = AdapterSuite.rollouts if "LEYDEN_TEST_ROLLOUTS" in os.environ else 300
    lacks = {
        "handoff": "agents of a crew do not hand a conversation over; they delegate tasks, see sub_agent",
        "cached": "CrewAI caches results of tools, not answers of models",
    }
