"""The conformance suite on plain Python agents: the `openai` client, and `leyden.agent` for the names."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pydantic

import leyden
from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess, lookup
from leyden.tracing import set_content, span
from leyden_openai.instrumentor import OpenAIInstrumentor

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
ASK_WRITER = {
    "type": "function",
    "function": {
        "name": "ask_writer",
        "description": "Ask the writer.",
        "parameters": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
    },
}


class Answer(pydantic.BaseModel):
    colour: str
    count: int


def asked(instructions: str, question: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": instructions}, {"role": "user", "content": question}]


class App(AgentApp):
    shareable = True

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.client = openai.AsyncOpenAI(
            base_url=model.base_url, api_key=model.api_key, timeout=model.timeout_s, max_retries=model.max_retries
        )

    async def close(self) -> None:
        await self.client.close()

    async def ask(self, messages: list[dict[str, Any]], **more: Any) -> Any:
        answer = await self.client.chat.completions.create(model=self.model.model, messages=messages, **more)  # type: ignore[call-overload]
        return answer.choices[0].message

    async def plan(self, question: str) -> str:
        with leyden.agent("planner"):
            return str((await self.ask(asked(PLANNER, question))).content)

    async def write(self, question: str) -> str:
        with leyden.agent("writer"):
            messages = asked(WRITER, question)
            message = await self.ask(messages, tools=[TOOL])
            messages += [message.model_dump(exclude_none=True), *map(call_tool, message.tool_calls)]
            return str((await self.ask(messages, tools=[TOOL])).content)

    async def run(self, question: str) -> str:
        await self.plan(question)
        return await self.write(question)

    async def stream(self, question: str) -> list[str]:
        with leyden.agent("planner"):
            await self.streamed(asked(PLANNER, question))
        with leyden.agent("writer"):
            messages = asked(WRITER, question)
            _, calls = await self.streamed(messages, tools=[TOOL])
            messages += [{"role": "assistant", "content": None, "tool_calls": calls}]
            messages += [
                {"role": "tool", "tool_call_id": one["id"], "content": use_tool(one["function"]["arguments"])}
                for one in calls
            ]
            pieces, _ = await self.streamed(messages, tools=[TOOL])
        return pieces

    async def streamed(self, messages: list[dict[str, Any]], **more: Any) -> tuple[list[str], list[dict[str, Any]]]:
        pieces: list[str] = []
        calls: list[dict[str, Any]] = []
        answer = await self.client.chat.completions.create(  # type: ignore[call-overload]
            model=self.model.model, messages=messages, stream=True, **more
        )
        async for chunk in answer:
            for choice in chunk.choices:
                if choice.delta.content:
                    pieces.append(choice.delta.content)
                for part in choice.delta.tool_calls or ():
                    if part.id:
                        function = {"name": part.function.name, "arguments": ""}
                        calls.append({"id": part.id, "type": "function", "function": function})
                    calls[-1]["function"]["arguments"] += part.function.arguments or ""
        return pieces, calls

    def run_sync(self, question: str) -> str:
        with openai.OpenAI(base_url=self.model.base_url, api_key=self.model.api_key, max_retries=0) as client:

            def ask(messages: list[Any], **more: Any) -> Any:
                return client.chat.completions.create(model="own", messages=messages, **more).choices[0].message

            with leyden.agent("planner"):
                ask(asked(PLANNER, question))
            with leyden.agent("writer"):
                messages = asked(WRITER, question)
                message = ask(messages, tools=[TOOL])
                messages += [message.model_dump(exclude_none=True), *map(call_tool, message.tool_calls)]
                return str(ask(messages, tools=[TOOL]).content)

    async def sub_agent(self, question: str) -> str:
        with leyden.agent("planner"):
            messages = asked(PLANNER, question)
            message = await self.ask(messages, tools=[ASK_WRITER])
            (call,) = message.tool_calls
            written = await self.write(json.loads(call.function.arguments)["task"])
            messages += [message.model_dump(exclude_none=True)]
            messages += [{"role": "tool", "tool_call_id": call.id, "content": written}]
            return str((await self.ask(messages, tools=[ASK_WRITER])).content)

    async def structured(self, question: str) -> dict[str, Any]:
        parse = getattr(self.client.chat.completions, "parse", None) or self.client.beta.chat.completions.parse
        with leyden.agent("writer"):
            answer = await parse(model="own", messages=asked(WRITER, question), response_format=Answer)
            return dict(answer.choices[0].message.parsed.model_dump())

    async def parallel(self, question: str) -> list[str]:
        async def write() -> str:
            with leyden.agent("writer"):
                return str((await self.ask(asked(WRITER, question))).content)

        return list(await asyncio.gather(self.plan(question), write()))

    async def helper(self, question: str) -> str:
        await self.ask(asked("Give the conversation a title.", question))
        return await self.write(question)


def use_tool(arguments: str) -> str:
    with span("execute_tool lookup", "tool", {"gen_ai.tool.call.arguments": arguments}) as opened:
        found = lookup(**json.loads(arguments))
        set_content(opened, "gen_ai.tool.call.result", found)
        return found


def call_tool(call: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": use_tool(call.function.arguments)}


class TestOpenAI(AdapterSuite):
    plugin = "openai"
    app = App
    instrumentor = OpenAIInstrumentor
    lacks = {
        "target": "a plain program has no object that holds its agents; names are given with leyden.agent",
        "handoff": "a plain program calls the other agent itself",
        "cached": "the SDK has no response cache",
        "foreign": "a client that is not the openai SDK is out of the transport's reach; the framework adapters swap such models",
    }
