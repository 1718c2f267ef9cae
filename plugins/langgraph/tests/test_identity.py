"""Which agent is current in the code of a node, in every way in which a graph can be built and run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from opentelemetry import context as otel_context

import leyden
from leyden.scope import current_agent

Attempt = Callable[..., AbstractContextManager[Any]]


class State(TypedDict):
    seen: Annotated[list[str], add]


def who(state: Any) -> dict[str, list[str]]:
    return {"seen": [current_agent()]}


async def awho(state: Any) -> dict[str, list[str]]:
    before = current_agent()
    await asyncio.sleep(0)
    assert current_agent() == before
    return {"seen": [before]}


def build(*nodes: tuple[str, Any], name: str | None = None) -> Any:
    graph = StateGraph(State)
    for previous, (node, function) in zip([START, *(node for node, _ in nodes)], nodes, strict=False):
        graph.add_node(node, function)
        graph.add_edge(previous, node)
    graph.add_edge(nodes[-1][0], END)
    return graph.compile(name=name)


EMPTY: State = {"seen": []}


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    yield
    assert otel_context.get_current() == {}


async def test_every_node_is_an_agent(attempt: Attempt, sink: Any) -> None:
    app = build(("planner", who), ("writer", awho))
    sync = build(("planner", who), ("writer", who))
    with attempt():
        base = otel_context.get_current()
        assert (await app.ainvoke(EMPTY))["seen"] == ["planner", "writer"]
        assert sync.invoke(EMPTY)["seen"] == ["planner", "writer"]
        assert otel_context.get_current() == base
    spans = sink.of("agent")
    assert [span.agent for span in spans] == ["planner", "writer"] * 2
    assert {span.error for span in spans} == {None}
    assert spans[1].name == "invoke_agent writer"
    assert spans[1].attributes["gen_ai.agent.name"] == "writer"
    assert spans[1].attributes["leyden.framework"] == "langgraph"


def test_outside_an_attempt_nothing_is_named(sink: Any) -> None:
    assert build(("writer", who)).invoke(EMPTY)["seen"] == [""]
    assert sink.spans == []


async def test_graphs_nest(attempt: Attempt, sink: Any) -> None:
    inner = build(("writer", awho), ("critic", who))
    called = build(("poet", awho))

    async def call(state: State) -> Any:
        return await called.ainvoke(EMPTY)

    app = build(("planner", awho), ("team", inner), ("caller", call))
    expected = ["planner", "team/writer", "team/critic", "caller/poet"]
    with attempt():
        answer = await app.ainvoke(EMPTY)  # a subgraph adds what it was given once more
    assert list(dict.fromkeys(answer["seen"])) == expected
    spans = {span.agent: span for span in sink.of("agent")}
    assert list(spans) == ["planner", "team", "team/writer", "team/critic", "caller", "caller/poet"]
    assert spans["team/critic"].parent_id == spans["team"].span_id
    assert spans["caller/poet"].parent_id == spans["caller"].span_id


def test_plain_agents_around_and_inside(attempt: Attempt) -> None:
    def node(state: State) -> Any:
        with leyden.agent("y"):
            return who(state)

    app = build(("writer", node), ("critic", who))
    with attempt(), leyden.agent("x"):
        assert app.invoke(EMPTY)["seen"] == ["x/writer/y", "x/critic"]
        assert current_agent() == "x"


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "debug", "custom", ["values", "updates"]])
async def test_streams(attempt: Attempt, mode: Any) -> None:
    seen: list[str] = []

    def note(state: State) -> Any:
        seen.append(current_agent())
        return who(state)

    app = build(("planner", note), ("writer", note))
    with attempt():
        for _ in app.stream(EMPTY, stream_mode=mode):
            assert current_agent() == ""
        async for _ in app.astream(EMPTY, stream_mode=mode):
            assert current_agent() == ""
    assert seen == ["planner", "writer"] * 2


async def test_abandoned_streams_leak_nothing(attempt: Attempt, sink: Any) -> None:
    app = build(("planner", who), ("writer", who))
    with attempt():
        base = otel_context.get_current()
        for mode in ("values", "messages", "updates"):
            stream = app.stream(EMPTY, stream_mode=mode)
            next(stream, None)
            stream.close()
            astream = app.astream(EMPTY, stream_mode=mode)
            await anext(astream, None)
            await astream.aclose()
        assert otel_context.get_current() == base
    from leyden.tracing import processor

    assert processor.forget("a1") == 0


async def test_send_and_parallel_branches(attempt: Attempt) -> None:
    def fan(state: State) -> list[Send]:
        return [Send("writer", EMPTY) for _ in range(10)] + [Send("poet", EMPTY)]

    graph = StateGraph(State)
    graph.add_node("planner", who)
    graph.add_node("writer", awho)
    graph.add_node("poet", build(("inner", awho)))
    graph.add_edge(START, "planner")
    graph.add_conditional_edges("planner", fan, ["writer", "poet"])
    with attempt():
        answer = await graph.compile().ainvoke(EMPTY)
    assert sorted(answer["seen"]) == ["planner", "poet/inner", *["writer"] * 10]


def test_parallel_sync_nodes_in_threads(attempt: Attempt) -> None:
    barrier = threading.Barrier(3, timeout=10)

    def meet(state: State) -> Any:
        barrier.wait()
        return who(state)

    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, meet)
        graph.add_edge(START, name)
    with attempt():
        assert graph.compile().invoke(EMPTY)["seen"] == ["a", "b", "c"]


def test_routers_belong_to_the_node_before_them(attempt: Attempt) -> None:
    routed: list[str] = []

    def router(state: State) -> str:
        routed.append(current_agent())
        return "writer"

    graph = StateGraph(State)
    graph.add_node("planner", who)
    graph.add_node("writer", who)
    graph.add_edge(START, "planner")
    graph.add_conditional_edges("planner", router, ["writer"])
    with attempt():
        graph.compile().invoke(EMPTY)
    assert routed == ["planner"]


def test_bare_threads_inside_a_node(attempt: Attempt, sink: Any) -> None:
    def node(state: State) -> Any:
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.append(current_agent()))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(current_agent).result())
            seen.extend(pool.map(lambda _: current_agent(), range(2)))
            with leyden.agent("deep"):
                seen.append(pool.submit(current_agent).result())
            seen.append(pool.submit(current_agent).result())
        return {"seen": seen}

    with attempt():
        assert build(("writer", node)).invoke(EMPTY)["seen"] == [*["writer"] * 4, "writer/deep", "writer"]


async def test_tasks_and_executors_inside_a_node(attempt: Attempt) -> None:
    async def node(state: State) -> Any:
        loop = asyncio.get_running_loop()
        made = asyncio.create_task(awho(state))
        return {
            "seen": [
                *(await made)["seen"],
                await asyncio.to_thread(current_agent),
                await loop.run_in_executor(None, current_agent),
            ]
        }

    with attempt():
        assert (await build(("writer", node)).ainvoke(EMPTY))["seen"] == ["writer"] * 3


async def test_functional_api(attempt: Attempt, sink: Any) -> None:
    @task
    def write(text: str) -> str:
        return f"{text}:{current_agent()}"

    @task
    async def awrite(text: str) -> str:
        return f"{text}:{current_agent()}"

    @entrypoint()
    def flow(text: str) -> list[str]:
        futures = [write(f"{text}{number}") for number in range(3)]
        return [current_agent(), *(future.result() for future in futures), current_agent()]

    @entrypoint()
    async def aflow(text: str) -> list[str]:
        return [current_agent(), *await asyncio.gather(*(awrite(f"{text}{i}") for i in range(3))), current_agent()]

    with attempt():
        assert flow.invoke("t") == ["flow", *(f"t{i}:flow/write" for i in range(3)), "flow"]
        assert await aflow.ainvoke("t") == ["aflow", *(f"t{i}:aflow/awrite" for i in range(3)), "aflow"]


async def test_retries_of_a_node_are_one_agent(attempt: Attempt, sink: Any) -> None:
    calls: list[str] = []

    def flaky(state: State) -> Any:
        calls.append(current_agent())
        if len(calls) % 3:
            raise ConnectionError("again")
        return who(state)

    async def aflaky(state: State) -> Any:
        return flaky(state)

    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    for function in (flaky, aflaky):
        graph = StateGraph(State)
        graph.add_node("writer", function, retry_policy=policy)
        graph.add_edge(START, "writer")
        with attempt():
            assert (await graph.compile().ainvoke(EMPTY))["seen"] == ["writer"]
    assert calls == ["writer"] * 6
    assert [(span.agent, span.error) for span in sink.of("agent")] == [("writer", None)] * 2


async def test_a_failing_node_is_on_its_span_and_nothing_leaks(attempt: Attempt, sink: Any) -> None:
    def bad(state: State) -> Any:
        raise ValueError("node exploded")

    async def abad(state: State) -> Any:
        raise ValueError("node exploded")

    with attempt():
        base = otel_context.get_current()
        with pytest.raises(ValueError, match="node exploded"):
            build(("planner", who), ("team", build(("bad", bad)))).invoke(EMPTY)
        with pytest.raises(ValueError, match="node exploded"):
            await build(("planner", awho), ("bad", abad)).ainvoke(EMPTY)
        assert otel_context.get_current() == base
    errors = {span.agent: span.error for span in sink.of("agent")}
    assert errors == {
        "planner": None,
        "team": "ValueError: node exploded",
        "team/bad": "ValueError: node exploded",
        "bad": "ValueError: node exploded",
    }


async def test_interrupts_and_commands_to_the_parent_are_no_errors(attempt: Attempt, sink: Any) -> None:
    def ask(state: State) -> Any:
        return {"seen": [interrupt("name?"), current_agent()]}

    def leave(state: State) -> Any:
        return Command(graph=Command.PARENT, goto="last", update={"seen": [current_agent()]})

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("team", build(("leave", leave)))
    graph.add_node("last", who)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "team")
    app = graph.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    with attempt():
        app.invoke(EMPTY, config)
        answer = await app.ainvoke(Command(resume="Ada"), config)
    assert answer["seen"] == ["Ada", "ask", "team/leave", "last"]
    assert [span.error for span in sink.of("agent")] == [None] * 5


async def test_a_cancelled_run_ends_its_spans(attempt: Attempt, sink: Any) -> None:
    started = asyncio.Event()

    async def hang(state: State) -> Any:
        started.set()
        await asyncio.Event().wait()

    with attempt():
        base = otel_context.get_current()
        run = asyncio.create_task(build(("writer", hang)).ainvoke(EMPTY))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert otel_context.get_current() == base
    assert [span.error for span in sink.of("agent")] == ["CancelledError: "]


async def test_many_rollouts_in_one_loop_never_mix() -> None:
    from leyden.scope import AttemptScope, attempt_scope, current_attempt
    from leyden.types import Resources, Rollout

    class Sink:
        def __init__(self) -> None:
            self.spans: list[Any] = []

        def emit(self, span: Any) -> None:
            self.spans.append(span)

    async def note(state: State) -> Any:
        await asyncio.sleep(0)
        scope = current_attempt()
        assert scope is not None
        answer = [f"{scope.attempt_id}:{current_agent()}"]
        await asyncio.sleep(0)
        return {"seen": answer}

    inner = build(("writer", note))
    graph = StateGraph(State)
    graph.add_node("planner", note)
    graph.add_node("left", inner)
    graph.add_node("right", note)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "left")
    graph.add_edge("planner", "right")
    app = graph.compile()

    async def one(number: int) -> None:
        sink = Sink()
        scope = AttemptScope(
            Rollout(id=f"r{number}", task=None, status="running", created_at=0.0), f"a{number}", Resources(), sink
        )
        with attempt_scope(scope):
            answer = await app.ainvoke(EMPTY)
        expected = [f"a{number}:{path}" for path in ("planner", "left/writer", "right")]
        assert list(dict.fromkeys(answer["seen"])) == expected
        assert sorted(span.agent for span in sink.spans) == ["left", "left/writer", "planner", "right"]
        assert {span.attempt_id for span in sink.spans} == {f"a{number}"}

    await asyncio.gather(*(one(number) for number in range(64)))


def test_a_node_that_is_a_named_chain_is_one_level(attempt: Attempt) -> None:
    from langchain_core.runnables import RunnableLambda

    chain: Any = RunnableLambda(who)
    app = build(("writer", chain.with_config(run_name="writer")), ("poet", chain.with_config(run_name="verse")))
    with attempt():
        assert app.invoke(EMPTY)["seen"] == ["writer", "poet/verse"]


def test_a_naming_failure_does_not_break_the_graph(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("leyden_langgraph.spans.node_name", lambda task: 1 / 0)
    with attempt():
        assert build(("writer", who)).invoke(EMPTY)["seen"] == [""]
    assert "could not be named" in caplog.text


def test_timing_is_the_nodes_own(attempt: Attempt, sink: Any) -> None:
    def slow(state: State) -> Any:
        time.sleep(0.01)
        return who(state)

    with attempt():
        build(("writer", slow)).invoke(EMPTY)
    (span,) = sink.of("agent")
    assert span.end_ns - span.start_ns >= 10_000_000
