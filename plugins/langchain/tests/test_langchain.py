from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Annotated, Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import (
    RunnableBranch,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException, tool
from opentelemetry import context as otel_context

import leyden
from leyden.plugins import plugins
from leyden.scope import current_agent
from leyden.types import Resources
from leyden_langchain.adapter import leyden_doctor, leyden_info
from leyden_langchain.patches import patches

Attempt = Callable[..., AbstractContextManager[Any]]

who: RunnableLambda[Any, str] = RunnableLambda(lambda _: current_agent())
chain = who | (lambda text: f"{text}>{current_agent()}")
named = chain.with_config(run_name="writer")
expected = "writer>writer"


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    yield
    assert otel_context.get_current() == {}


def test_importing_loads_no_framework() -> None:
    code = (
        "import sys, leyden, leyden_langchain; leyden.instrument();"
        "assert not [m for m in sys.modules if m.startswith('langchain_core')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_found_and_fits_what_is_installed() -> None:
    assert plugins.info()["langchain"] == leyden_info()
    import langchain_core.runnables.fallbacks  # noqa: F401

    assert patches.missing == []
    assert [check.ok for check in leyden_doctor()] == [True]


def test_uninstrument_puts_every_method_back() -> None:
    before = vars(BaseTool)["run"]
    leyden.instrument()
    assert vars(BaseTool)["run"] is before
    leyden.uninstrument()
    assert not hasattr(vars(BaseTool)["run"], "_self_wrapper")
    assert not hasattr(vars(type(chain))["invoke"], "_self_wrapper")
    leyden.instrument()
    assert hasattr(vars(BaseTool)["run"], "_self_wrapper")


def test_outside_an_attempt_nothing_is_named() -> None:
    assert named.invoke(1) == ">"


async def test_a_run_name_names_the_agent_in_every_way_of_calling(attempt: Attempt, sink: Any) -> None:
    with attempt():
        base = otel_context.get_current()
        assert named.invoke(1) == expected
        assert await named.ainvoke(1) == expected
        assert list(named.stream(1)) == [expected]
        assert [chunk async for chunk in named.astream(1)] == [expected]
        assert named.batch([1, 2]) == [expected] * 2
        assert await named.abatch([1, 2]) == [expected] * 2
        assert list(named.transform(iter([1]))) == [expected]
        assert chain.invoke(1, config={"run_name": "writer"}) == expected
        assert chain.batch([1, 2], config=[{"run_name": "writer"}, {"run_name": "writer"}]) == [expected] * 2
        assert chain.invoke(1) == ">"
        assert current_agent() == ""
        assert otel_context.get_current() == base
    agents = sink.of("agent")
    assert {(span.agent, span.attributes["leyden.framework"]) for span in agents} == {("writer", "langchain")}
    assert len(agents) == 9


async def test_names_nest_and_the_same_name_is_one_level(attempt: Attempt) -> None:
    team = (who | named).with_config(run_name="team")
    with attempt():
        with leyden.agent("x"):
            assert team.invoke(1) == "x/team/writer>x/team/writer"
        with leyden.agent("writer"):
            assert await named.ainvoke(1) == expected
        both = RunnableParallel(a=named, b=who.with_config(run_name="b"), c=who)
        assert both.invoke(1) == {"a": expected, "b": "b", "c": ""}
        assert await both.ainvoke(1) == {"a": expected, "b": "b", "c": ""}
        branch = RunnableBranch((lambda _: True, who), who).with_config(run_name="branch")
        assert branch.invoke(1) == "branch"
        failing = RunnableLambda(lambda _: 1 / 0)
        assert failing.with_fallbacks([who]).with_config(run_name="spare").invoke(1) == "spare"
        assigned = RunnablePassthrough.assign(by=who).with_config(run_name="assign")
        assert assigned.invoke({"x": 1}) == {"x": 1, "by": "assign"}


def _shout(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield f"{text}>{current_agent()}"


async def _ashout(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    async for text in texts:
        yield f"{text}>{current_agent()}"


async def test_in_a_stream_an_agent_does_not_own_what_comes_before_it(attempt: Attempt) -> None:
    first = RunnableLambda(lambda _: current_agent() or "nobody")
    second: Any = RunnableGenerator(_shout, _ashout) | RunnableGenerator(_shout, _ashout)
    pipeline = first | who.with_config(run_name="planner") | second.with_config(run_name="writer")
    lazy = RunnableGenerator(_shout, _ashout).with_config(run_name="planner") | second.with_config(run_name="writer")
    with attempt():
        assert list(pipeline.stream(1)) == ["planner>writer>writer"]
        assert [item async for item in pipeline.astream(1)] == ["planner>writer>writer"]
        assert list(lazy.transform(iter(["x"]))) == ["x>planner>writer>writer"]

        async def source() -> AsyncIterator[str]:
            yield f"<{current_agent()}>"

        assert [item async for item in lazy.atransform(source())] == ["<>>planner>writer>writer"]


async def test_an_abandoned_stream_leaks_nothing_and_ends_its_span(attempt: Attempt, sink: Any) -> None:
    def spell(_: Any) -> Iterator[str]:
        yield from "abc"

    async def aspell(_: Any) -> AsyncIterator[str]:
        for letter in "abc":
            yield letter

    letters = RunnableGenerator(spell, aspell).with_config(run_name="writer")
    with attempt():
        stream = letters.stream(1)
        assert next(stream) == "a"
        assert current_agent() == ""
        stream.close()
        astream = letters.astream(1)
        async for _ in astream:
            break
        await astream.aclose()
        assert current_agent() == ""
        del astream
        for _ in range(1000):  # what LangChain drops is closed by the event loop
            if len(sink.of("agent")) == 2:
                break
            await asyncio.sleep(0)
    assert [span.agent for span in sink.of("agent")] == ["writer", "writer"]


async def test_a_chat_model_can_carry_the_name(attempt: Attempt, sink: Any) -> None:
    class Model(GenericFakeChatModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(current_agent())
            return super()._generate(*args, **kwargs)

    seen: list[str] = []
    model = Model(messages=iter([AIMessage("one"), AIMessage("two"), AIMessage("three"), AIMessage("four")]))
    with attempt(resources=Resources()):  # no marks: this model has no stand-in
        assert model.with_config(run_name="writer").invoke("x").content == "one"
        assert (await model.ainvoke("x", config={"run_name": "critic"})).content == "two"
        assert model.invoke("x").content == "three"
        assert "".join(str(chunk.content) for chunk in model.stream("x", config={"run_name": "poet"})) == "four"
    assert seen == ["writer", "critic", "", "poet"]
    assert [span.agent for span in sink.of("agent")] == ["writer", "critic", "poet"]


async def test_concurrent_runs_keep_their_names(attempt: Attempt) -> None:
    async def slow(_: Any) -> str:
        before = current_agent()
        await asyncio.sleep(0)
        return f"{before}={current_agent()}"

    run = RunnableLambda(slow)
    with attempt():
        answers = await asyncio.gather(*(run.ainvoke(1, config={"run_name": f"agent{i}"}) for i in range(50)))
    assert answers == [f"agent{i}=agent{i}" for i in range(50)]


async def test_errors_pass_and_are_on_the_span(attempt: Attempt, sink: Any) -> None:
    def broken(_: Any) -> None:
        raise KeyError("gone")

    async def abroken(_: Any) -> None:
        raise KeyError("gone")

    run = RunnableLambda(broken, abroken).with_config(run_name="writer")
    with attempt():
        with pytest.raises(KeyError, match="gone"):
            run.invoke(1)
        with pytest.raises(KeyError, match="gone"):
            await run.ainvoke(1)
    assert [span.error for span in sink.of("agent")] == ["KeyError: 'gone'"] * 2


@tool
def add(a: int, b: int, hidden: Annotated[str, InjectedToolArg] = "secret") -> int:
    """Add."""
    leyden.emit_message("inside")
    return a + b


async def test_tools_are_spans_with_arguments_and_result(attempt: Attempt, sink: Any) -> None:
    with attempt():
        assert add.invoke({"a": 1, "b": 2, "hidden": "secret"}) == 3
        call = {"type": "tool_call", "id": "call-7", "name": "add", "args": {"a": 3, "b": 4}}
        answer = await add.ainvoke(call)
        assert isinstance(answer, ToolMessage)
        assert answer.content == "7"
    first, second = sink.of("tool")
    assert first.name == "execute_tool add"
    assert first.attributes["gen_ai.operation.name"] == "execute_tool"
    assert first.attributes["gen_ai.tool.call.arguments"] == '{"a": 1, "b": 2}'
    assert first.attributes["gen_ai.tool.call.result"] == "3"
    assert (second.attributes["gen_ai.tool.call.id"], second.attributes["gen_ai.tool.call.result"]) == ("call-7", "7")
    assert [span.parent_id for span in sink.of("message")] == [first.span_id, second.span_id]
    assert first.parent_id is None


async def test_failing_tools(attempt: Attempt, sink: Any) -> None:
    def fail(x: int) -> int:
        """Fail."""
        raise ToolException(f"no {x}")

    raising = StructuredTool.from_function(fail)
    polite = StructuredTool.from_function(fail, name="polite", handle_tool_error=True)
    call = {"type": "tool_call", "id": "1", "name": "fail", "args": {"x": 5}}
    with attempt():
        with pytest.raises(ToolException, match="no 5"):
            await raising.ainvoke({"x": 5})
        assert polite.invoke(call).status == "error"
        with pytest.raises(ValueError, match="validation error"):
            add.invoke({"a": "word"})
    raised, handled, invalid = sink.of("tool")
    assert raised.error == "ToolException: no 5"
    assert handled.error == "no 5"
    assert "validation error" in str(invalid.error)
    with attempt("2"):
        assert add.invoke({"a": 1, "b": 1}) == 2


def test_a_tool_with_a_strange_result_is_recorded(attempt: Attempt, sink: Any) -> None:
    @tool
    def strange() -> Any:
        """Return what JSON does not know."""
        return {(1, 2): {3}}

    with attempt():
        assert strange.invoke({}) == {(1, 2): {3}}
    assert sink.of("tool")[0].attributes["gen_ai.tool.call.result"] == "{(1, 2): {3}}"


def test_what_cannot_be_shown_does_not_fail_the_tool(attempt: Attempt, sink: Any) -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError("not shown")

        __repr__ = __str__

    @tool
    def shy() -> Any:
        """Return what cannot be shown."""
        return answer

    answer = Shy()
    with attempt():
        assert shy.invoke({}) is answer
    assert sink.of("tool")[0].attributes["gen_ai.tool.call.result"] == "<Shy>"


def test_a_stream_that_is_a_value_stays_itself(attempt: Attempt) -> None:
    given = iter([1])
    same: Any = RunnableLambda(lambda value: value is given)
    with attempt():
        assert same.with_config(run_name="writer").invoke(given) is True


def test_discovery_finds_run_names_and_objects() -> None:
    inner = who.with_config(run_name="poet")
    team = (chain | {"a": inner, "b": who}).with_config(run_name="team")
    found = plugins.discover(team)
    assert [agent.path for agent in found] == ["team", "team/poet"]
    assert found[0].target is team
    assert found[1].target is inner
    assert plugins.discover(chain) == []
    assert plugins.discover(object()) == []


async def test_run() -> None:
    assert await plugins.first("leyden_run", target=RunnableLambda(lambda x: x + 1), task=1) == 2
    assert plugins.first("leyden_run", target=object(), task=1) is None


def test_methods_keep_their_looks() -> None:
    import inspect

    assert inspect.iscoroutinefunction(chain.ainvoke)
    assert inspect.isasyncgenfunction(chain.astream)
    assert inspect.isgeneratorfunction(chain.stream)
    assert not inspect.isgeneratorfunction(RunnableGenerator(_shout).stream)
    assert inspect.iscoroutinefunction(add.arun)
    nested = RunnableLambda(chain.ainvoke)
    assert asyncio.run(nested.ainvoke(1)) == ">"
