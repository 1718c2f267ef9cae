"""The conformance suite on graphs: agents are nodes."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from leyden.testing.adapter import PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess
from leyden_langchain import testing as parts
from leyden_langgraph.instrumentor import LangGraphInstrumentor


class State(TypedDict, total=False):
    question: str
    plan: str
    answer: Any


class App(AgentApp):
    shareable = True

    def __init__(self, model: ModelAccess) -> None:
        super().__init__(model)
        self.chat = parts.chat(model)
        self.tools = [parts.lookup_tool()]

    def write_with(self, model: Any) -> Any:
        async def awrite(state: State) -> State:
            messages = await parts.with_tools(model, self.tools, parts.asked(WRITER, state["question"]))
            return {"answer": str(messages[-1].content)}

        def write(state: State) -> State:
            able, messages = model.bind_tools(self.tools), parts.asked(WRITER, state["question"])
            said = able.invoke(messages)
            found = [ToolMessage(self.tools[0].invoke(one["args"]), tool_call_id=one["id"]) for one in said.tool_calls]
            return {"answer": str(able.invoke([*messages, said, *found]).content)}

        return RunnableLambda(write, awrite)

    def plan_with(self, model: Any) -> Any:
        async def aplan(state: State) -> State:
            return {"plan": str((await model.ainvoke(parts.asked(PLANNER, state["question"]))).content)}

        def plan(state: State) -> State:
            return {"plan": str(model.invoke(parts.asked(PLANNER, state["question"])).content)}

        return RunnableLambda(plan, aplan)

    def graph(self, planner_model: Any = None, writer_model: Any = None) -> Any:
        builder: Any = StateGraph(State)
        builder.add_node("planner", self.plan_with(planner_model or self.chat))
        builder.add_node("writer", self.write_with(writer_model or self.chat))
        builder.add_edge(START, "planner")
        builder.add_edge("planner", "writer")
        builder.add_edge("writer", END)
        return builder.compile()

    @property
    def target(self) -> Any:
        class TextIn(type(self.graph())):  # type: ignore[misc]
            """A graph that takes the question itself, as the suite's `leyden_run` gives it."""

            async def ainvoke(self, input: Any, *args: Any, **kwargs: Any) -> Any:
                return await super().ainvoke({"question": input} if isinstance(input, str) else input, *args, **kwargs)

        graph = self.graph()
        graph.__class__ = TextIn
        return graph

    async def run(self, question: str) -> str:
        return str((await self.graph().ainvoke({"question": question}))["answer"])

    def run_sync(self, question: str) -> str:
        return str(self.graph().invoke({"question": question})["answer"])

    async def foreign(self, question: str) -> str:
        return str((await self.graph(writer_model=parts.Foreign()).ainvoke({"question": question}))["answer"])

    async def stream(self, question: str) -> list[str]:
        pieces: list[str] = []
        async for chunk, meta in self.graph().astream({"question": question}, stream_mode="messages"):
            of_writer = isinstance(chunk, AIMessageChunk) and meta["langgraph_node"] == "writer"
            if of_writer and chunk.content:
                pieces.append(str(chunk.content))
        return pieces

    async def sub_agent(self, question: str) -> str:
        inner: Any = StateGraph(State)
        inner.add_node("writer", self.write_with(self.chat))
        inner.add_edge(START, "writer")
        team = inner.compile()

        async def ask_writer(task: str) -> str:
            """Ask the writer."""
            return str((await team.ainvoke({"question": task}))["answer"])

        asking = StructuredTool.from_function(coroutine=ask_writer, name="ask_writer")

        async def plan(state: State) -> State:
            messages = await parts.with_tools(self.chat, [asking], parts.asked(PLANNER, state["question"]))
            return {"answer": str(messages[-1].content)}

        builder: Any = StateGraph(State)
        builder.add_node("planner", plan)
        builder.add_edge(START, "planner")
        return str((await builder.compile().ainvoke({"question": question}))["answer"])

    async def handoff(self, question: str) -> str:
        @tool
        def transfer_to_writer(task: str) -> str:
            """Hand over to the writer."""
            return task

        async def plan(state: State) -> Command[Literal["writer"]]:
            said = await self.chat.bind_tools([transfer_to_writer]).ainvoke(parts.asked(PLANNER, state["question"]))
            assert said.tool_calls
            return Command(goto="writer", update={"question": said.tool_calls[0]["args"]["task"]})

        builder: Any = StateGraph(State)
        builder.add_node("planner", plan)
        builder.add_node("writer", self.write_with(self.chat))
        builder.add_edge(START, "planner")
        return str((await builder.compile().ainvoke({"question": question}))["answer"])

    async def structured(self, question: str) -> dict[str, Any]:
        able = self.chat.with_structured_output(parts.Answer, method="json_schema")

        async def write(state: State) -> State:
            return {"answer": await able.ainvoke(parts.asked(WRITER, state["question"]))}

        return dict((await self.one("writer", write).ainvoke({"question": question}))["answer"].model_dump())

    def one(self, name: str, node: Any) -> Any:
        builder: Any = StateGraph(State)
        builder.add_node(name, node)
        builder.add_edge(START, name)
        return builder.compile()

    async def parallel(self, question: str) -> list[str]:
        async def write(state: State) -> State:
            return {"answer": str((await self.chat.ainvoke(parts.asked(WRITER, state["question"]))).content)}

        builder: Any = StateGraph(State)
        builder.add_node("planner", self.plan_with(self.chat))
        builder.add_node("writer", write)
        builder.add_edge(START, "planner")
        builder.add_edge(START, "writer")
        found = await builder.compile().ainvoke({"question": question})
        return [str(found["plan"]), str(found["answer"])]

    async def cached(self, question: str) -> list[str]:
        model = parts.chat(self.model, cache=InMemoryCache())

        async def write(state: State) -> State:
            asked = parts.asked(WRITER, state["question"])
            return {"answer": [str((await model.ainvoke(asked)).content) for _ in range(2)]}

        return list((await self.one("writer", write).ainvoke({"question": question}))["answer"])

    async def helper(self, question: str) -> str:
        async def route(state: State) -> str:
            await self.chat.ainvoke(parts.asked("Choose who is to begin.", state["question"]))
            return "writer"

        builder: Any = StateGraph(State)
        builder.add_node("writer", self.write_with(self.chat))
        builder.add_conditional_edges(START, route, ["writer"])
        return str((await builder.compile().ainvoke({"question": question}))["answer"])


class TestLangGraph(AdapterSuite):
    plugin = "langgraph"
    app = App
    instrumentor = LangGraphInstrumentor
