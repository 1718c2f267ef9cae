"""Who is calling in the SDK's own ways of running agents, and what its tools and handoffs leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OutputGuardrail,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    handoff,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.models.interface import Model
from agents.tool import LocalShellTool
from agents.tool_guardrails import ToolGuardrailFunctionOutput, ToolInputGuardrail
from agents.tracing import TracingProcessor
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_output_item import LocalShellCall, LocalShellCallAction

import leyden
from leyden import attributes
from leyden.scope import current_agent
from leyden.testing.recording import RecordedAttempt
from leyden.testing.server import FakeModelServer
from leyden.types import Span

Attempt = Callable[..., AbstractContextManager[RecordedAttempt]]

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("instrumented")]

Chat = OpenAIChatCompletionsModel


@function_tool
def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word} is warm, says {current_agent()}"


def callers(attempt: RecordedAttempt) -> list[str]:
    return [span.agent for span in attempt.llm]


def named(attempt: RecordedAttempt, name: str) -> list[Span]:
    return [span for span in attempt.spans if span.name == name]


def verdict(trips: bool = False) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips)


async def streamed(agent: Agent, question: str, **given: Any) -> Any:
    run = Runner.run_streamed(agent, question, **given)
    async for _ in run.stream_events():
        pass
    return run


@pytest.fixture(params=[Runner.run, streamed], ids=["plain", "streamed"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both ways to run an agent in a running event loop."""
    way: Callable[..., Any] = request.param
    return way


async def test_an_agent_as_a_tool_is_below_its_caller(run: Any, chat: Chat, attempt: Attempt) -> None:
    writer = Agent(name="writer", model=chat, tools=[lookup])
    planner = Agent(name="planner", model=chat, tools=[writer.as_tool("ask_writer", "Ask.")])
    with attempt("planner/writer") as recorded:
        await run(planner, "hi")
    assert callers(recorded) == ["planner", "planner/writer", "planner/writer", "planner"]
    assert [span.call.policy for span in recorded.llm if span.call] == [None, "default", "default", None]
    (asked,) = named(recorded, "execute_tool ask_writer")
    turns = named(recorded, "invoke_agent planner/writer")
    assert {turn.parent_id for turn in turns} == {asked.span_id}
    assert asked.parent_id == named(recorded, "invoke_agent planner")[0].span_id


async def test_an_agent_run_by_a_tools_function_is_below_its_caller(run: Any, chat: Chat, attempt: Attempt) -> None:
    writer = Agent(name="writer", model=chat)

    @function_tool
    async def ask(question: str) -> str:
        return str((await Runner.run(writer, question)).final_output)

    with attempt() as recorded:
        await run(Agent(name="planner", model=chat, tools=[ask]), "hi")
    assert callers(recorded) == ["planner", "planner/writer", "planner"]


async def test_after_a_handoff_the_other_agent_is_beside_the_first(run: Any, chat: Chat, attempt: Attempt) -> None:
    writer = Agent(name="writer", model=chat, tools=[lookup])
    planner = Agent(name="planner", model=chat, handoffs=[handoff(writer, tool_name_override="over_to_writer")])
    with attempt("writer") as recorded:
        result = await run(planner, "hi")
    assert result.last_agent is writer
    assert callers(recorded) == ["planner", "writer"]
    (over,) = named(recorded, "execute_tool over_to_writer")
    assert (over.agent, over.kind, over.attributes["leyden.handoff"]) == ("planner", "tool", "writer")
    assert json.loads(over.attributes[attributes.TOOL_RESULT]) == {"assistant": "writer"}
    assert over.attributes[attributes.TOOL_CALL_ID]


async def test_tools_are_recorded_and_know_their_agent(run: Any, chat: Chat, attempt: Attempt) -> None:
    with attempt() as recorded:
        await run(Agent(name="writer", model=chat, tools=[lookup]), "hi")
    (tool,) = named(recorded, "execute_tool lookup")
    assert tool.agent == "writer"
    assert tool.attributes[attributes.TOOL_RESULT] == "sample is warm, says writer"
    assert json.loads(tool.attributes[attributes.TOOL_ARGUMENTS]) == {"word": "sample"}


async def test_a_tool_that_raises_fails_its_span(run: Any, chat: Chat, attempt: Attempt) -> None:
    @function_tool(failure_error_function=None)
    def broken() -> str:
        raise ValueError("no ink")

    with attempt() as recorded, pytest.raises(Exception, match="no ink"):
        await run(Agent(name="writer", model=chat, tools=[broken]), "hi")
    (tool,) = named(recorded, "execute_tool broken")
    assert "no ink" in str(tool.error)


@pytest.mark.parametrize("parallel", [True, False])
async def test_the_agent_of_an_input_guardrail_has_its_own_name(
    run: Any, chat: Chat, attempt: Attempt, parallel: bool
) -> None:
    judge = Agent(name="judge", model=chat)

    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await Runner.run(judge, "is it fine?")
        return verdict()

    guardrail = InputGuardrail(guardrail_function=check, run_in_parallel=parallel)
    with attempt("judge") as recorded:
        await run(Agent(name="writer", model=chat, input_guardrails=[guardrail]), "hi")
    policies = {span.agent: span.call.policy for span in recorded.llm if span.call}
    assert policies == {"judge": "default", "writer": None}


async def test_the_agent_of_an_output_guardrail_has_its_own_name(run: Any, chat: Chat, attempt: Attempt) -> None:
    judge = Agent(name="judge", model=chat)

    async def check(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        await Runner.run(judge, "is it fine?")
        return verdict()

    guardrail = OutputGuardrail(guardrail_function=check)
    with attempt("judge") as recorded:
        await run(Agent(name="writer", model=chat, output_guardrails=[guardrail]), "hi")
    assert callers(recorded) == ["writer", "judge"]


async def test_the_agent_of_a_tools_guardrail_is_below_its_caller(run: Any, chat: Chat, attempt: Attempt) -> None:
    judge = Agent(name="judge", model=chat)

    async def check(data: Any) -> ToolGuardrailFunctionOutput:
        await Runner.run(judge, "is it fine?")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool
    def look() -> str:
        return "warm"

    look.tool_input_guardrails = [ToolInputGuardrail(guardrail_function=check)]
    with attempt() as recorded:
        await run(Agent(name="writer", model=chat, tools=[look]), "hi")
    assert callers(recorded) == ["writer", "writer/judge", "writer"]


async def test_a_tripwire_stops_the_run_as_ever(run: Any, chat: Chat, attempt: Attempt) -> None:
    def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return verdict(trips=True)

    guardrail = InputGuardrail(guardrail_function=check, run_in_parallel=False)
    agent = Agent(name="writer", model=chat, input_guardrails=[guardrail])
    with attempt("writer") as recorded, pytest.raises(InputGuardrailTripwireTriggered):
        await run(agent, "hi")
    assert not recorded.llm
    assert not recorded.scope.failures


@pytest.mark.parametrize("how", ["run_config", "globally"])
async def test_tracing_may_be_disabled(run: Any, chat: Chat, attempt: Attempt, how: str) -> None:
    writer = Agent(name="writer", model=chat, tools=[lookup])
    planner = Agent(name="planner", model=chat, tools=[writer.as_tool("ask_writer", "Ask.")])
    given = {"run_config": RunConfig(tracing_disabled=True)} if how == "run_config" else {}
    set_tracing_disabled(how == "globally")
    try:
        with attempt("planner/writer") as recorded:
            await run(planner, "hi", **given)
    finally:
        set_tracing_disabled(False)
    assert callers(recorded) == ["planner", "planner/writer", "planner/writer", "planner"]
    assert len(named(recorded, "execute_tool lookup")) == 1


async def test_the_programs_own_trace_processors_see_what_they_saw(run: Any, chat: Chat, attempt: Attempt) -> None:
    writer = Agent(name="writer", model=chat, tools=[lookup])
    planner = Agent(name="planner", model=chat, handoffs=[writer])
    seen: list[tuple[str, ...]] = []

    class Processor(TracingProcessor):
        def on_trace_start(self, trace: Any) -> None:
            seen.append(("trace", trace.name))

        def on_trace_end(self, trace: Any) -> None:
            seen.append(("trace ends", trace.name))

        def on_span_start(self, span: Any) -> None:
            seen.append(("span", span.span_data.type))

        def on_span_end(self, span: Any) -> None:
            seen.append(("span ends", span.span_data.type, str(span.error)))

        def shutdown(self) -> None:
            """Nothing to let go of."""

        def force_flush(self) -> None:
            """Nothing is held back."""

    set_trace_processors([Processor()])
    leyden.uninstrument()
    await run(planner, "hi")
    bare = [*seen]
    seen.clear()
    leyden.instrument()
    with attempt():
        await run(planner, "hi")
    assert seen == bare
    assert len(bare) > 6


async def test_a_blocking_run_in_a_thread(chat: Chat, provider: FakeModelServer, attempt: Attempt) -> None:
    with attempt("writer") as recorded:
        result = await asyncio.to_thread(blocking, provider.base_url)
    assert result == "answer of policy to 3 messages"
    assert callers(recorded) == ["writer", "writer"]
    assert {span.call.policy for span in recorded.llm if span.call} == {"default"}


def blocking(base_url: str) -> str:
    """A program with a loop of its own, as `run_sync` makes one for each thread."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base_url, api_key="secret")
    agent = Agent(name="writer", model=OpenAIChatCompletionsModel("own", client), tools=[lookup])
    try:
        return str(Runner.run_sync(agent, "hi").final_output)
    finally:
        loop = asyncio.get_event_loop_policy().get_event_loop()
        loop.run_until_complete(client.close())
        loop.close()


async def test_runs_at_once_never_mix(run: Any, chat: Chat, provider: FakeModelServer, attempt: Attempt) -> None:
    provider.delay_s = 0.02
    provider.reply = lambda body: f"said to {body['messages'][0]['content']}"
    agents = [Agent(name=f"agent-{number}", instructions=f"agent-{number}", model=chat) for number in range(8)]
    with attempt() as recorded:
        await asyncio.gather(*(run(agent, "hi") for agent in agents))
    for span in recorded.llm:
        assert json.loads(span.attributes[attributes.INPUT_MESSAGES])[0]["content"] == span.agent
    assert len(recorded.llm) == 8
    assert current_agent() == ""


async def test_an_abandoned_stream_leaves_nothing_current(chat: Chat, attempt: Attempt) -> None:
    with attempt("writer") as recorded:
        run = Runner.run_streamed(Agent(name="writer", model=chat), "hi")
        async for event in run.stream_events():
            if event.type == "raw_response_event":
                break
        run.cancel()
        async for _ in run.stream_events():
            pass
        if run.run_loop_task is not None:
            await asyncio.wait([run.run_loop_task])
        assert current_agent() == ""
    assert {span.agent for span in recorded.spans} == {"writer"}
    assert len(recorded.llm) == 1


async def test_a_tool_that_was_approved_later_runs_as_its_agent(run: Any, chat: Chat, attempt: Attempt) -> None:
    helper = Agent(name="helper", model=chat)
    agent = Agent(name="writer", model=chat)

    @function_tool(needs_approval=True)
    async def risky() -> str:
        await Runner.run(helper, "how?")
        return f"done by {current_agent()}"

    agent.tools = [risky]
    with attempt() as recorded:
        first = await run(agent, "hi")
        (waiting,) = first.interruptions
        state = first.to_state()
        state.approve(waiting)
        await run(agent, state)
    (tool,) = named(recorded, "execute_tool risky")
    assert tool.attributes[attributes.TOOL_RESULT] == "done by writer"
    assert callers(recorded) == ["writer", "writer/helper", "writer"]


class Scripted(Model):
    """A local model that runs a command, then says that it is done."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        given = args[1] if len(args) > 1 else kwargs["input"]
        if any(isinstance(item, dict) and item.get("type") == "local_shell_call_output" for item in given):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            item: Any = ResponseOutputMessage(
                id="m1", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            action = LocalShellCallAction(command=["ls", "-l"], env={}, type="exec")
            item = LocalShellCall(id="s1", call_id="c1", action=action, status="completed", type="local_shell_call")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def test_tools_that_act_on_a_machine_are_recorded(attempt: Attempt) -> None:
    shell = LocalShellTool(executor=lambda request: f"ran as {current_agent()}")
    with attempt() as recorded:
        result = await Runner.run(Agent(name="writer", model=Scripted(), tools=[shell]), "hi")
    assert result.final_output == "done"
    (tool,) = named(recorded, "execute_tool local_shell")
    assert tool.attributes[attributes.TOOL_RESULT] == "ran as writer"
    assert "ls" in tool.attributes[attributes.TOOL_ARGUMENTS]
    assert tool.attributes[attributes.TOOL_CALL_ID] == "c1"


async def test_what_goes_wrong_in_recording_a_tool_is_only_logged(
    run: Any, chat: Chat, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("leyden.tracing.set_content", broken)
    with attempt() as recorded:
        result = await run(Agent(name="writer", model=chat, tools=[lookup]), "hi")
    assert result.final_output == "answer of own to 3 messages"
    assert len(named(recorded, "execute_tool lookup")) == 1
    assert "could not be recorded" in caplog.text
    monkeypatch.setattr("leyden_openai_agents.tools._attributes", broken)
    with attempt() as recorded:
        await run(Agent(name="writer", model=chat, tools=[lookup]), "hi")
    assert callers(recorded) == ["writer", "writer"]
    assert "it runs without a span" in caplog.text
