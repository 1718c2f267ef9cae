"""With the adapters installed and nothing marked, graphs do exactly what they do without them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import _runner
from langgraph.types import interrupt

import leyden
from leyden.plugins import plugins
from leyden.testing.recording import recorded_attempt
from leyden_langgraph.adapter import leyden_doctor, leyden_info
from leyden_langgraph.patches import patches


class State(TypedDict, total=False):
    messages: list[Any]
    text: str


@tool
def add(a: int, b: int) -> int:
    """Add."""
    if a < 0:
        raise ToolException(f"{a} is negative")
    return a + b


def app(*, fails: bool = False, asks: bool = False) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three", id=f"m{i}") for i in range(20)]))

    def planner(state: State) -> Any:
        text = str(model.with_config(run_name="poet").invoke("x").content)
        return {"text": f"{text} {add.invoke({'a': 1, 'b': 2})}"}

    def caller(state: State) -> Any:
        get_stream_writer()("working")
        calls = [{"name": "add", "args": {"a": -1, "b": 2}, "id": "1", "type": "tool_call"}]
        return {"messages": [AIMessage("", tool_calls=calls, id="call")]}

    def writer(state: State) -> Any:
        if asks:
            return {"text": interrupt("name?")}
        if fails:
            raise KeyError("writer")
        return {"text": state["text"] + "!"}

    inner: Any = StateGraph(State)
    inner.add_node("writer", writer)
    inner.add_edge(START, "writer")
    graph: Any = StateGraph(State)
    graph.add_node("planner", planner)
    graph.add_node("caller", caller)
    graph.add_node("tools", ToolNode([add], handle_tool_errors=True))
    graph.add_node("team", inner.compile())
    shout: Any = RunnableLambda(lambda state: {"text": state["text"].upper()})
    graph.add_node("last", shout.with_config(run_name="shout"))
    for before, after in zip([START, "planner", "caller", "tools", "team"], [*graph.nodes], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=InMemorySaver())


def plain(value: Any) -> str:
    """`value` as text without the ids and times that differ from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "<time>", repr(value))
    text = re.sub(r"0x[0-9a-f]+", "<address>", text)
    return re.sub(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{32}", "<id>", text)


async def outcome(run: Callable[[], AsyncIterator[Any]]) -> list[str]:
    """Everything that a run gives: its items, or the exception that ended it with its notes."""
    seen = []
    try:
        async for item in run():
            seen.append(plain(item))  # noqa: PERF401  what came before an exception counts
    except Exception as error:
        notes = [plain(note) for note in getattr(error, "__notes__", [])]
        seen.append(f"{type(error).__module__}.{type(error).__name__}: {error} {notes} {plain(error.__cause__)}")
    return seen


CONFIG: Any = {"configurable": {"thread_id": "1"}}
MODES: list[Any] = ["values", "updates", "messages", "debug", "tasks", "checkpoints", "custom", ["values", "messages"]]


async def runs(make: Callable[[], Any]) -> list[list[str]]:
    async def invoke() -> AsyncIterator[Any]:
        yield make().invoke({"text": "hi"}, CONFIG)

    async def ainvoke() -> AsyncIterator[Any]:
        yield await make().ainvoke({"text": "hi"}, CONFIG)

    async def events() -> AsyncIterator[Any]:
        async for event in make().astream_events({"text": "hi"}, CONFIG, version="v2"):
            yield event

    def stream(mode: Any) -> Callable[[], AsyncIterator[Any]]:
        async def run() -> AsyncIterator[Any]:
            for item in make().stream({"text": "hi"}, CONFIG, stream_mode=mode, subgraphs=True):
                yield item

        return run

    def astream(mode: Any) -> Callable[[], AsyncIterator[Any]]:
        async def run() -> AsyncIterator[Any]:
            async for item in make().astream({"text": "hi"}, CONFIG, stream_mode=mode, subgraphs=True):
                yield item

        return run

    ways = [invoke, ainvoke, events, *(way(mode) for mode in MODES for way in (stream, astream))]
    return [await outcome(way) for way in ways]


@pytest.mark.parametrize("kind", [{}, {"fails": True}, {"asks": True}], ids=["works", "fails", "asks"])
async def test_outputs_exceptions_and_streams_are_the_same(kind: Any) -> None:
    leyden.uninstrument()
    without = await runs(lambda: app(**kind))
    leyden.instrument()
    outside = await runs(lambda: app(**kind))
    with recorded_attempt() as attempt:
        inside = await runs(lambda: app(**kind))
    assert attempt.spans
    assert len(without) == 19
    assert all(without)
    for number, expected in enumerate(without):
        assert outside[number] == expected
        assert inside[number] == expected


def test_the_graph_itself_is_the_same() -> None:
    leyden.uninstrument()
    before = app().get_graph(xray=True).draw_mermaid()
    leyden.instrument()
    assert app().get_graph(xray=True).draw_mermaid() == before


def test_uninstrument_puts_both_functions_back() -> None:
    leyden.uninstrument()
    originals = _runner.run_with_retry, _runner.arun_with_retry
    leyden.instrument()
    installed = _runner.run_with_retry
    leyden.instrument()
    assert _runner.run_with_retry is installed
    assert installed is not originals[0]
    leyden.uninstrument()
    assert (_runner.run_with_retry, _runner.arun_with_retry) == originals


def test_it_is_found_and_fits_what_is_installed() -> None:
    assert plugins.info()["langgraph"] == leyden_info()
    assert patches.missing == []
    assert [check.ok for check in leyden_doctor()] == [True]


def test_importing_loads_no_framework() -> None:
    code = (
        "import sys, leyden, leyden_langgraph; leyden.instrument();"
        "found = [name for name in sys.modules if name.split('.')[0] in ('langgraph', 'langchain_core', 'openai')];"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_imported_after_instrument() -> None:
    code = (
        "import leyden; leyden.instrument()\n"
        "from langgraph.graph import StateGraph, START\n"
        "from leyden.scope import current_agent\n"
        "from leyden.testing.recording import recorded_attempt\n"
        "graph = StateGraph(dict); graph.add_node('writer', lambda state: {'who': current_agent()})\n"
        "graph.add_edge(START, 'writer')\n"
        "with recorded_attempt(): assert graph.compile().invoke({}) == {'who': 'writer'}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_version_without_the_functions_is_told_and_falls_back_on_langgraphs_own_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from leyden.plugins import calling_agent

    def who(state: State) -> Any:
        return {"text": calling_agent()}

    inner: Any = StateGraph(State)
    inner.add_node("writer", who)
    inner.add_edge(START, "writer")
    graph: Any = StateGraph(State)
    graph.add_node("team", inner.compile())
    graph.add_edge(START, "team")
    leyden.uninstrument()
    monkeypatch.setattr(patches, "missing", [])
    with monkeypatch.context() as patch:
        patch.delattr(_runner, "run_with_retry")
        leyden.instrument()
    assert "run_with_retry is not there" in caplog.text
    assert "Install a supported version: langgraph>=" in caplog.text
    assert [check.ok for check in leyden_doctor()] == [False]
    with recorded_attempt():
        assert graph.compile().invoke({"text": ""}) == {"text": "team/writer"}
