"""The replaced functions of the SDK: those that take a turn of an agent, and those that run its tools.

Why not its tracing: it is off in many programs (`RunConfig(tracing_disabled=True)`, `OPENAI_AGENTS_DISABLE_TRACING=1`), a
processor of ours would change what the program's own ones see, and it knows agents by name alone, after which the model
cannot be chosen. Why not `RunHooks`: they run in tasks of their own, so nothing that they make current stays so.
"""

from __future__ import annotations

import importlib.metadata

from leyden.patching import Patch, Patches
from leyden_openai_agents.models import resolved_model
from leyden_openai_agents.package import SUPPORTED
from leyden_openai_agents.tools import action_run, handoff_run, tool_run
from leyden_openai_agents.turns import turn

VERIFIED = "openai-agents 0.10.0, 0.14.0, 0.20.0, 0.24.0"
RUN = "agents.run"
LOOP = "agents.run_internal.run_loop"
EXECUTION = "agents.run_internal.tool_execution"
ACTIONS = "agents.run_internal.tool_actions"
RESOLUTION = "agents.run_internal.turn_resolution"
TOOLS = "spans of tools"

patches = Patches(
    adapter="openai-agents",
    requires=SUPPORTED,
    patches=[
        Patch(RUN, "run_single_turn", turn, "agents and their spans", VERIFIED),
        Patch(LOOP, "run_single_turn_streamed", turn, "agents and their spans in streamed runs", VERIFIED),
        Patch(RUN, "resolve_interrupted_turn", turn, "agents of resumed runs", VERIFIED),
        Patch(LOOP, "resolve_interrupted_turn", turn, "agents of resumed streamed runs", VERIFIED),
        Patch(LOOP, "get_model", resolved_model, "policies of models that are not chat completions", VERIFIED),
        # The first name is that of 0.19 and later, the second that of 0.10 to 0.18.
        Patch(EXECUTION, "_invoke_function_tool_with_metadata", tool_run, TOOLS, VERIFIED, optional=True),
        Patch(EXECUTION, "invoke_function_tool", tool_run, TOOLS, VERIFIED, optional=True),
        Patch(RESOLUTION, "execute_handoffs", handoff_run, "spans of handoffs", VERIFIED),
        Patch(ACTIONS, "ComputerAction.execute", action_run, TOOLS, VERIFIED),
        Patch(ACTIONS, "LocalShellAction.execute", action_run, TOOLS, VERIFIED),
        Patch(ACTIONS, "ShellAction.execute", action_run, TOOLS, VERIFIED),
        Patch(ACTIONS, "ApplyPatchAction.execute", action_run, TOOLS, VERIFIED),
        Patch(ACTIONS, "CustomToolAction.execute", action_run, TOOLS, VERIFIED, optional=True),
    ],
)


def installed() -> str:
    """The installed version of the SDK, "" for none."""
    try:
        return importlib.metadata.version("openai-agents")
    except importlib.metadata.PackageNotFoundError:
        return ""
