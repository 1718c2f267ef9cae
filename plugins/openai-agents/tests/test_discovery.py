"""Which agents are found before anything runs."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    Handoff,
    InputGuardrail,
    OutputGuardrail,
    Runner,
    function_tool,
    handoff,
)

from leyden import marks
from leyden.discovery import discover
from leyden.plugins import plugins
from leyden_openai_agents.adapter import leyden_bind, leyden_discover, leyden_run

judge = Agent(name="judge")
critic = Agent(name="critic")
helper = Agent(name="helper")


async def checked(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    await Runner.run(judge, "is it fine?")
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


async def criticised(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return await ask_critic()


async def ask_critic() -> GuardrailFunctionOutput:
    await Runner.run(critic, "is it fine?")
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


@function_tool
async def asks(question: str) -> str:
    """Ask somebody."""
    return str((await Runner.run(helper, question)).final_output)


def found(target: object) -> dict[str, Any]:
    return {agent.path: agent.target for agent in plugins.discover(target)}


def test_handoffs_are_beside_and_tools_below() -> None:
    reader = Agent(name="reader")
    editor = Agent(name="editor", handoffs=[handoff(reader)])
    writer = Agent(name="writer", tools=[editor.as_tool("edit", "Edit.")])
    planner = Agent(name="planner", handoffs=[writer, handoff(critic)], tools=[writer.as_tool("write", "Write.")])
    agents = found(planner)
    below = {"planner/writer", "planner/writer/editor", "planner/writer/reader"}
    assert set(agents) == {"planner", "writer", "writer/editor", "writer/reader", "critic", *below}
    assert agents["planner/writer/editor"] is editor


def test_guardrails_and_functions_are_looked_into() -> None:
    agent = Agent(
        name="writer",
        tools=[asks],
        input_guardrails=[InputGuardrail(guardrail_function=checked)],
        output_guardrails=[OutputGuardrail(guardrail_function=criticised)],
    )
    assert set(found(agent)) == {"writer", "writer/helper", "judge", "critic"}


def test_functions_that_hold_agents_in_their_closure_are_looked_into() -> None:
    inner = Agent(name="inner")

    @function_tool(failure_error_function=None)
    async def ask(question: str) -> str:
        return str((await Runner.run(inner, question)).final_output)

    assert set(found(Agent(name="writer", tools=[ask]))) == {"writer", "writer/inner"}


def test_cycles_end() -> None:
    planner, writer = Agent(name="planner"), Agent(name="writer")
    planner.handoffs, writer.handoffs = [writer], [planner]
    assert set(found(planner)) == {"planner", "writer"}
    writer.tools = [planner.as_tool("plan", "Plan.")]
    paths = set(found(planner))
    assert {"planner", "writer", "writer/planner", "writer/writer"} <= paths
    assert len(paths) < 10


def test_handoffs_of_ones_own_making() -> None:
    async def invoke(context: Any, arguments: str) -> Agent:
        return helper

    given: dict[str, Any] = {"tool_name": "over", "tool_description": "", "input_json_schema": {}}
    known = Handoff(on_invoke_handoff=invoke, agent_name="helper", **given)
    assert found(known) == {"helper": helper}

    async def chosen(context: Any, arguments: str) -> Agent:
        return Agent(name="late")

    unknown = Handoff(on_invoke_handoff=chosen, agent_name="late", **given)
    assert found(Agent(name="planner", handoffs=[unknown])).keys() == {"planner", "late"}


def test_a_mark_by_object_covers_every_path_of_the_agent() -> None:
    writer = Agent(name="writer")
    planner = Agent(name="planner", handoffs=[writer], tools=[writer.as_tool("write", "Write.")])
    registry = marks.Marks()
    registry.add(writer)
    assert {mark.selector for mark in registry.resolve(found(planner).items())} == {"writer", "planner/writer"}


def test_a_rollout_functions_agents_are_found() -> None:
    async def rollout(task: str) -> str:
        return str((await Runner.run(judge, task)).final_output)

    assert "judge" in discover(rollout)


def test_other_objects_are_none_of_its_business() -> None:
    assert leyden_discover(object()) is None
    assert leyden_run(object(), "hi") is None
    assert leyden_bind(object(), None) is None  # type: ignore[arg-type]
