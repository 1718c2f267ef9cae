"""The conformance suite on chains: agents are runnables with a run name."""

from __future__ import annotations

from typing import Any

from langchain_core.caches import InMemoryCache
from langchain_core.runnables import Runnable, RunnableLambda, RunnableParallel
from langchain_core.tools import StructuredTool

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess
from leyden_langchain import testing as parts
from leyden_langchain.instrumentor import LangChainInstrumentor


class App(AgentApp):
    shareable = True

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.chat = parts.chat(model)
        self.tools = [parts.lookup_tool()]

    def chain(self, writer_model: Any) -> Runnable[Any, Any]:
        async def plan(question: str) -> str:
            await self.chat.ainvoke(parts.asked(PLANNER, question))
            return question

        async def write(question: str) -> str:
            messages = await parts.with_tools(writer_model, self.tools, parts.asked(WRITER, question))
            return str(messages[-1].content)

        planner = RunnableLambda(plan).with_config(run_name="planner")
        writer = RunnableLambda(write).with_config(run_name="writer")
        return planner | writer

    @property
    def target(self) -> Any:
        return self.chain(self.chat)

    async def run(self, question: str) -> str:
        return str(await self.chain(self.chat).ainvoke(question))

    async def foreign(self, question: str) -> str:
        return str(await self.chain(parts.Foreign()).ainvoke(question))

    def run_sync(self, question: str) -> str:
        def plan(text: str) -> str:
            self.chat.invoke(parts.asked(PLANNER, text))
            return text

        def write(text: str) -> str:
            able, messages = self.chat.bind_tools(self.tools), parts.asked(WRITER, text)
            answer = able.invoke(messages)
            results = [
                parts.ToolMessage(self.tools[0].invoke(one["args"]), tool_call_id=one["id"])
                for one in answer.tool_calls
            ]
            return str(able.invoke([*messages, answer, *results]).content)

        chain = RunnableLambda(plan).with_config(run_name="planner") | RunnableLambda(write).with_config(
            run_name="writer"
        )
        return str(chain.invoke(question))

    async def stream(self, question: str) -> list[str]:
        async for _ in self.chat.with_config(run_name="planner").astream(parts.asked(PLANNER, question)):
            pass
        messages = parts.asked(WRITER, question)
        able = self.chat.bind_tools(self.tools).with_config(run_name="writer")
        whole: Any = None
        async for chunk in able.astream(messages):
            whole = chunk if whole is None else whole + chunk
        messages.append(whole)

        async def look(call: Any) -> str:
            return str(await self.tools[0].ainvoke(call["args"]))

        looking = RunnableLambda(look).with_config(run_name="writer")
        messages += [parts.ToolMessage(await looking.ainvoke(one), tool_call_id=one["id"]) for one in whole.tool_calls]
        return [str(chunk.content) async for chunk in able.astream(messages) if chunk.content]

    async def sub_agent(self, question: str) -> str:
        async def ask_writer(task: str) -> str:
            """Ask the writer."""
            return str(await self.chain(self.chat).steps[-1].ainvoke(task))  # type: ignore[attr-defined]

        async def plan(text: str) -> str:
            asking = StructuredTool.from_function(coroutine=ask_writer, name="ask_writer")
            messages = await parts.with_tools(self.chat, [asking], parts.asked(PLANNER, text))
            return str(messages[-1].content)

        return str(await RunnableLambda(plan).with_config(run_name="planner").ainvoke(question))

    async def structured(self, question: str) -> dict[str, Any]:
        writer = self.chat.with_structured_output(parts.Answer, method="json_schema").with_config(run_name="writer")
        return dict((await writer.ainvoke(parts.asked(WRITER, question))).model_dump())

    async def parallel(self, question: str) -> list[str]:
        planner, writer = (
            RunnableLambda(lambda text, said=said: parts.asked(said, text)) | self.chat for said in (PLANNER, WRITER)
        )
        both = RunnableParallel(a=planner.with_config(run_name="planner"), b=writer.with_config(run_name="writer"))
        found = await both.ainvoke(question)
        return [str(found["a"].content), str(found["b"].content)]

    async def cached(self, question: str) -> list[str]:
        writer = parts.chat(self.model, cache=InMemoryCache()).with_config(run_name="writer")
        return [str((await writer.ainvoke(parts.asked(WRITER, question))).content) for _ in range(2)]

    async def helper(self, question: str) -> str:
        await self.chat.ainvoke(parts.asked("Give the conversation a title.", question))
        return str(await self.chain(self.chat).steps[-1].ainvoke(question))  # type: ignore[attr-defined]


class TestLangChain(AdapterSuite):
    plugin = "langchain"
    app = App
    instrumentor = LangChainInstrumentor
    lacks = {"handoff": "chains have no handoff; LangGraph has"}
