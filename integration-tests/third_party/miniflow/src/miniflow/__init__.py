"""A small agent framework: agents with tools, chains and groups of agents, on the `openai` SDK.

It knows nothing of Leyden. Made up to show how an adapter is written: see docs/adapters.md.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import openai

Tool = Callable[..., Any]


@dataclass
class Agent:
    """A model with instructions and tools. A tool is a function of texts, or a coroutine function."""

    name: str
    instructions: str
    client: openai.AsyncOpenAI
    model: str
    tools: list[Tool] = field(default_factory=list)

    async def run(self, question: str) -> str:
        """Ask the model, and call the tools that it wants, until it answers."""
        messages = self._first(question)
        while True:
            answer = await self.client.chat.completions.create(messages=messages, **self._settings())
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
            messages += await self._use_tools(calls)

    async def stream(self, question: str) -> AsyncIterator[str]:
        """`run`, which yields the pieces of each text as the model says them."""
        messages = self._first(question)
        while True:
            calls: list[tuple[str, str, str]] = []
            answer = await self.client.chat.completions.create(messages=messages, stream=True, **self._settings())
            async for chunk in answer:
                for choice in chunk.choices:
                    if choice.delta.content:
                        yield choice.delta.content
                    for part in choice.delta.tool_calls or ():
                        if part.id:
                            calls.append((part.id, part.function.name, ""))
                        calls[-1] = (*calls[-1][:2], calls[-1][2] + (part.function.arguments or ""))
            if not calls:
                return
            messages += await self._use_tools(calls)

    def as_tool(self) -> Tool:
        """This agent as another one's tool."""

        async def ask(task: str) -> str:
            return await self.run(task)

        ask.__name__, ask.__doc__ = f"ask_{self.name}", f"Ask the {self.name}."
        ask.__dict__["agent"] = self
        return ask

    def _first(self, question: str) -> list[dict[str, Any]]:
        return [{"role": "system", "content": self.instructions}, {"role": "user", "content": question}]

    def _settings(self) -> dict[str, Any]:
        described = [{"type": "function", "function": describe(tool)} for tool in self.tools]
        return {"model": self.model, **({"tools": described} if described else {})}

    async def _use_tools(self, calls: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
        """What follows in the conversation: the assistant's wish, and a result for each call."""
        known = {tool.__name__: tool for tool in self.tools}
        results = await asyncio.gather(*(call_tool(known[name], arguments) for _, name, arguments in calls))
        wished = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
        told = [
            {"role": "tool", "tool_call_id": id, "content": text}
            for (id, _, _), text in zip(calls, results, strict=True)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": wished}, *told]


@dataclass
class Chain:
    """Agents that are asked the same question one after the other; the last one's answer counts."""

    agents: list[Agent]

    async def run(self, question: str) -> str:
        """The last agent's answer."""
        return [await agent.run(question) for agent in self.agents][-1]

    def run_sync(self, question: str) -> str:
        """`run` for programs without an event loop; closes the agents' clients, whose connections end with it."""

        async def once() -> str:
            try:
                return await self.run(question)
            finally:
                for agent in self.agents:
                    await agent.client.close()

        return asyncio.run(once())


@dataclass
class Group:
    """Agents that are asked the same question at the same time."""

    agents: list[Agent]

    async def run(self, question: str) -> list[str]:
        """All answers, in the order of the agents."""
        return list(await asyncio.gather(*(agent.run(question) for agent in self.agents)))


async def call_tool(tool: Tool, arguments: str) -> str:
    """Call a tool with arguments in JSON."""
    result = tool(**json.loads(arguments))
    return str(await result if inspect.isawaitable(result) else result)


def describe(tool: Tool) -> dict[str, Any]:
    """A tool as the model sees it: all its parameters are texts."""
    names = list(inspect.signature(tool).parameters)
    shape = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    return {"name": tool.__name__, "description": (tool.__doc__ or "").split("\n")[0], "parameters": shape}
