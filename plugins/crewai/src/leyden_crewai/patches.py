"""The replaced methods of CrewAI.

Why not its events: handlers of the event bus run in a thread pool, so whatever they made current would be current there
and not where the agent works. The public hooks before and after an LLM call run in the right place, but around one call
only, and not around those that CrewAI makes past them (conversion, the forced last answer); there is none around a turn.
"""

from __future__ import annotations

from collections.abc import Callable

from leyden.patching import Function, Patch, Patches
from leyden_crewai.models import instructor, models
from leyden_crewai.package import SUPPORTED
from leyden_crewai.spans import (
    agent_turn,
    conversion,
    helper,
    in_event_loop,
    inside,
    inside_async,
    tool_arun,
    tool_run,
)

VERIFIED = "crewai 1.10.0, 1.15.30"

_TURN = "the turn of an agent"
_CONVERSION = "whose call the conversion of an answer is"
_HELPER = "that CrewAI's own calls are by no agent"
_TOOL = "spans of tools"

_HELPERS = (
    ("crewai.utilities.planning_handler", "CrewPlanner._handle_crew_planning"),
    ("crewai.tasks.llm_guardrail", "LLMGuardrail.__call__"),
)
_HELPERS_OF_SOME_VERSIONS = (
    ("crewai.utilities.evaluators.task_evaluator", "TaskEvaluator.evaluate"),
    ("crewai.memory.unified_memory", "Memory.extract_memories"),
    ("crewai.memory.unified_memory", "Memory.recall"),
    ("crewai.memory.unified_memory", "Memory._encode_batch"),
)


def _patch(
    module: str, symbol: str, make: Callable[[Function], Function], reason: str, optional: bool = False
) -> Patch:
    return Patch(module, symbol, make, reason, VERIFIED, optional=optional)


patches = Patches(
    adapter="crewai",
    requires=SUPPORTED,
    patches=[
        _patch("crewai.agent.core", "Agent.execute_task", inside(agent_turn), _TURN),
        _patch("crewai.agent.core", "Agent.aexecute_task", inside_async(agent_turn), _TURN),
        _patch("crewai.agent.core", "Agent.kickoff", inside(agent_turn, unless=in_event_loop), _TURN),
        _patch("crewai.agent.core", "Agent.kickoff_async", inside_async(agent_turn), _TURN),
        _patch("crewai.lite_agent", "LiteAgent.kickoff", inside(agent_turn), _TURN),
        _patch("crewai.task", "Task._export_output", inside(conversion), _CONVERSION),
        _patch("crewai.task", "Task._aexport_output", inside_async(conversion), _CONVERSION, optional=True),
        _patch("crewai.utilities.converter", "Converter._create_instructor", instructor, _CONVERSION),
        _patch("crewai.tools.base_tool", "BaseTool.run", tool_run, _TOOL),
        _patch("crewai.tools.base_tool", "BaseTool.arun", tool_arun, _TOOL),
        _patch("crewai.tools.base_tool", "Tool.run", tool_run, _TOOL),
        _patch("crewai.tools.base_tool", "Tool.arun", tool_arun, _TOOL),
        _patch("crewai.tools.structured_tool", "CrewStructuredTool.invoke", tool_run, _TOOL),
        _patch("crewai.tools.structured_tool", "CrewStructuredTool.ainvoke", tool_arun, _TOOL),
        *(_patch(module, symbol, helper, _HELPER) for module, symbol in _HELPERS),
        *(_patch(module, symbol, helper, _HELPER, optional=True) for module, symbol in _HELPERS_OF_SOME_VERSIONS),
    ],
)


def install() -> Callable[[], None]:
    """Install all of it, model classes included; returns what takes this use back."""
    models.install()
    undo = patches.install()

    def remove() -> None:
        undo()
        if not patches.active:
            models.remove()

    return remove
