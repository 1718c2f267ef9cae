"""Graphs of real `ChatOpenAI` calls: only the marked agent's reach the policy, and every call is recorded once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pydantic
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

import leyden
from leyden.errors import LeydenError
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer, logprob
from leyden.trajectories import transitions
from leyden.types import Endpoint

langchain_openai = pytest.importorskip("langchain_openai")

ASK: Any = {"messages": [("user", "hello")]}


@pytest.fixture
def provider() -> Iterator[FakeModelServer]:
    with FakeModelServer(return_token_ids=False) as server:
        yield server


@pytest.fixture
def policy() -> Iterator[FakeModelServer]:
    with FakeModelServer() as server:
        yield server


@pytest.fixture
def other_policy() -> Iterator[FakeModelServer]:
    with FakeModelServer() as server:
        yield server


@pytest.fixture
def endpoint(policy: FakeModelServer) -> Endpoint:
    return Endpoint(base_url=policy.base_url, model="policy", version=3)


@pytest.fixture
def chat(provider: FakeModelServer) -> Any:
    def make(name: str, **more: Any) -> Any:
        return langchain_openai.ChatOpenAI(
            model=name, base_url=provider.base_url, api_key="secret", max_retries=0, **more
        )

    return make


def speak(model: Any) -> Any:
    def node(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def anode(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(node, anode)


def build(**nodes: Any) -> Any:
    graph: Any = StateGraph(MessagesState)
    previous = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile()


def models(server: FakeModelServer) -> list[str]:
    return [body["model"] for body in server.bodies]


def check(attempt: RecordedAttempt, trained: list[str], left: list[str]) -> None:
    """Which agents' calls were routed and whole, and which were left alone, in their order."""
    assert [span.agent for span in attempt.llm if span.call and span.call.policy] == trained
    assert [span.agent for span in attempt.llm if span.call and not span.call.policy] == left
    steps = transitions(attempt.spans)
    assert [step.agent for step in steps] == trained
    for step in steps:
        assert step.call.version == 3
        assert step.call.logprobs == pytest.approx([logprob(token) for token in step.call.sampled_ids])
    assert not any(span.call.sampled_ids for span in attempt.llm if span.call and not span.call.policy)


async def test_only_the_marked_node_reaches_the_policy(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint
) -> None:
    app = build(planner=speak(chat("plan")), writer=speak(chat("write")), critic=speak(chat("judge")))
    for run in (app.ainvoke, asyncio.to_thread):
        with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
            answer = await (run(ASK) if run != asyncio.to_thread else run(app.invoke, ASK))
        assert [message.content.split(" to ")[0] for message in answer["messages"][1:]] == [
            "answer of plan",
            "answer of policy",
            "answer of judge",
        ]
        check(attempt, ["writer"], ["planner", "critic"])
        spans = {span.agent: span for span in attempt.spans if span.kind == "agent"}
        assert {span.parent_id for span in attempt.llm} == {span.span_id for span in spans.values()}
    assert models(policy) == ["policy"] * 2
    assert models(provider) == ["plan", "judge"] * 2
    assert {request.headers["x-leyden-agent"] for request in policy.requests} == {"writer"}
    assert not any(name.startswith("x-leyden") for request in provider.requests for name in request.headers)


async def test_two_policies_and_nested_graphs(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, other_policy: FakeModelServer, endpoint: Endpoint
) -> None:
    second = Endpoint(base_url=other_policy.base_url, model="second", version=3)
    team = build(writer=speak(chat("a")), critic=speak(chat("b")))
    app = build(planner=speak(chat("c")), team=team)
    marks = {"team/writer": "one", "critic": "two"}
    with recorded_attempt({"one": endpoint, "two": second}, marks) as attempt:
        await app.ainvoke(ASK)
    assert (models(policy), models(other_policy), models(provider)) == (["policy"], ["second"], ["c"])
    check(attempt, ["team/writer", "team/critic"], ["planner"])
    assert [call.policy for call in attempt.calls] == [None, "one", "two"]


async def test_a_mark_on_a_node_covers_an_agent_inside_with_its_tools(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint
) -> None:
    pytest.importorskip("langchain", minversion="1.2.6", reason="create_agent keeps its name to itself before")
    from langchain import agents

    helper = agents.create_agent(chat("help"), [], name="helper")

    @tool
    async def ask(text: str) -> str:
        """Ask the helper."""
        answer = await helper.ainvoke({"messages": [("user", text)]})
        return str(answer["messages"][-1].content)

    app = build(planner=speak(chat("plan")), writer=agents.create_agent(chat("write"), [ask]))
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        answer = await app.ainvoke(ASK)
    check(attempt, ["writer/model", "writer/tools/helper/model", "writer/model"], ["planner"])
    assert answer["messages"][-1].content.startswith("answer of policy")
    (called,) = [span for span in attempt.spans if span.kind == "tool"]
    assert called.agent == "writer/tools"
    assert called.attributes["gen_ai.tool.name"] == "ask"
    inner = next(span for span in attempt.spans if span.agent == "writer/tools/helper/model" and span.kind == "agent")
    assert inner.parent_id == called.span_id
    with recorded_attempt({"default": endpoint}, {"helper": "default"}) as attempt:
        await app.ainvoke(ASK)
    check(attempt, ["writer/tools/helper/model"], ["planner", "writer/model", "writer/model"])


async def test_middleware_calls_belong_to_their_agent(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint
) -> None:
    pytest.importorskip("langchain", minversion="1.0", reason="there is no create_agent before")
    from langchain import agents
    from langchain.agents.middleware import AgentMiddleware

    summariser = chat("summary")

    class Summarise(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> Any:
            summariser.invoke("shorten")

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(model=chat("chosen")))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(model=chat("chosen")))

    app = build(planner=speak(chat("plan")), writer=agents.create_agent(chat("w"), [], middleware=[Summarise()]))
    with recorded_attempt({"default": endpoint}, {"writer/model": "default"}) as attempt:
        await app.ainvoke(ASK)
    check(attempt, ["writer/model"], ["planner", "writer/Summarise.before_model"])
    assert models(provider) == ["plan", "summary"]
    with recorded_attempt() as attempt:
        app.invoke(ASK)
    assert models(provider)[2:] == ["plan", "summary", "chosen"]


class Place(pydantic.BaseModel):
    name: str
    number: int


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # langchain-openai 1.0 on openai 2.54
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_structured_output(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint, method: Any
) -> None:
    found: list[Any] = []
    model = chat("write").with_structured_output(Place, method=method)

    async def writer(state: MessagesState) -> Any:
        found.append(await model.ainvoke("where?"))
        found.append(model.invoke("where?"))
        return {"messages": []}

    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        await build(writer=writer).ainvoke(ASK)
    assert found == [Place(name="sample", number=3)] * 2
    check(attempt, ["writer"] * 2, [])
    assert models(provider) == []


async def test_streams(chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint) -> None:
    model = chat("write")

    async def writer(state: MessagesState) -> Any:
        whole = None
        async for chunk in model.astream(state["messages"]):
            whole = chunk if whole is None else whole + chunk
        return {"messages": [whole]}

    app = build(planner=speak(chat("plan")), writer=writer)
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        await app.ainvoke(ASK)
    check(attempt, ["writer"], ["planner"])
    assert attempt.calls[1].streamed
    app = build(planner=speak(chat("plan")), writer=speak(model))
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        shown = [
            (details["langgraph_node"], message.content)
            async for message, details in app.astream(ASK, stream_mode="messages")
        ]
    check(attempt, ["writer"], ["planner"])
    assert "".join(text for node, text in shown if node == "writer").startswith("answer of policy")
    assert "".join(text for node, text in shown if node == "planner").startswith("answer of plan")
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        list(app.stream(ASK, stream_mode="messages"))
    check(attempt, ["writer"], ["planner"])


async def test_retries_of_a_node_train_what_was_answered(
    chat: Any, policy: FakeModelServer, endpoint: Endpoint
) -> None:
    graph: Any = StateGraph(MessagesState)
    retry = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=Exception)
    graph.add_node("writer", speak(chat("write")), retry_policy=retry)
    graph.add_edge(START, "writer")
    policy.fail_first = 2
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        await graph.compile().ainvoke(ASK)
    assert [span.agent for span in attempt.llm] == ["writer"] * 3
    assert [bool(call.hole) for call in attempt.calls] == [True, True, False]
    assert [step.agent for step in transitions(attempt.spans)] == ["writer"]


async def test_a_cached_answer_trains_once(chat: Any, policy: FakeModelServer, endpoint: Endpoint) -> None:
    model = chat("write", cache=InMemoryCache())

    async def writer(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke("same"), await model.ainvoke("same")]}

    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        await build(writer=writer).ainvoke(ASK)
    check(attempt, ["writer"], [])
    assert len(policy.bodies) == 1


async def test_raw_clients_threads_and_plain_agents_inside_a_node(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, endpoint: Endpoint
) -> None:
    model = chat("write")
    messages: Any = [{"role": "user", "content": "x"}]

    def writer(state: MessagesState) -> Any:
        with openai.OpenAI(base_url=provider.base_url, api_key="secret") as client:
            client.chat.completions.create(model="raw", messages=messages)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(model.invoke, "in a pool").result()
            thread = threading.Thread(
                target=client.chat.completions.create, kwargs={"model": "t", "messages": messages}
            )
            thread.start()
            thread.join()
            with leyden.agent("draft"):
                client.chat.completions.create(model="raw", messages=messages)
        return {"messages": []}

    app = build(planner=speak(chat("plan")), writer=writer)
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        app.invoke(ASK)
    check(attempt, ["writer", "writer", "writer", "writer/draft"], ["planner"])
    with recorded_attempt({"default": endpoint}, {"writer/draft": "default"}) as attempt:
        app.invoke(ASK)
    check(attempt, ["writer/draft"], ["planner", "writer", "writer", "writer"])


async def test_run_names_inside_and_outside_graphs(chat: Any, policy: FakeModelServer, endpoint: Endpoint) -> None:
    from langchain_core.prompts import ChatPromptTemplate

    prompt = ChatPromptTemplate.from_messages([("user", "{text}")])
    chain = prompt | chat("write").with_config(run_name="writer")
    whole = (prompt | chat("plan")).with_config(run_name="planner")
    with recorded_attempt({"default": endpoint}, {"writer": "default"}) as attempt:
        await chain.ainvoke({"text": "a"})
        await whole.ainvoke({"text": "b"})
        _ = [chunk async for chunk in chain.astream({"text": "c"})]
        list(whole.stream({"text": "d"}))
    assert [span.agent for span in attempt.llm] == ["writer", "planner", "writer", "planner"]
    check(attempt, ["writer", "writer"], ["planner", "planner"])


async def test_a_marked_agent_without_its_policy_fails_loudly(chat: Any) -> None:
    app = build(writer=speak(chat("write")))
    with recorded_attempt({}, {"writer": "default"}) as attempt:
        with pytest.raises(LeydenError, match="must publish it first"):
            await app.ainvoke(ASK)
        assert len(attempt.scope.failures) == 1


async def test_64_rollouts_of_two_policies_in_one_loop_never_mix(
    chat: Any, provider: FakeModelServer, policy: FakeModelServer, other_policy: FakeModelServer, endpoint: Endpoint
) -> None:
    second = Endpoint(base_url=other_policy.base_url, model="second", version=3)
    graph: Any = StateGraph(MessagesState)
    for name in ("planner", "writer", "critic"):
        graph.add_node(name, speak(chat(name)))
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "writer")
    graph.add_edge("planner", "critic")
    app = graph.compile()

    async def one(number: int) -> RecordedAttempt:
        marks = {"writer": "one", "critic": "two"}
        with recorded_attempt({"one": endpoint, "two": second}, marks) as attempt:
            await app.ainvoke({"messages": [("user", f"task-{number}")]})
        return attempt

    attempts = await asyncio.gather(*(one(number) for number in range(64)))
    for number, attempt in enumerate(attempts):
        assert sorted((span.agent, span.call.policy) for span in attempt.llm if span.call) == [
            ("critic", "two"),
            ("planner", None),
            ("writer", "one"),
        ]
        for span in attempt.llm:
            assert f'"task-{number}"' in span.attributes["gen_ai.input.messages"]
    own = {attempt.scope.attempt_id for attempt in attempts}
    for server, agent in ((policy, "writer"), (other_policy, "critic")):
        assert len(server.bodies) == 64
        assert {request.headers["x-leyden-attempt"] for request in server.requests} == own
        assert {request.headers["x-leyden-agent"] for request in server.requests} == {agent}
    assert models(provider) == ["planner"] * 64
