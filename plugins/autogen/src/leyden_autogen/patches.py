"""The replaced methods of AutoGen.

Why not its events: a logger gets them after the fact and without the agent of an agent in a tool; its own spans go to the
application's provider, name no tool arguments and results, and are current in who consumes a stream too.
"""

from __future__ import annotations

from leyden.patching import Patch, Patches
from leyden_autogen.clients import openai_create
from leyden_autogen.package import SUPPORTED
from leyden_autogen.spans import native_span, streamed_turn, turn
from leyden_autogen.teams import member_message, team_run
from leyden_autogen.tools import assistant_tool_call, tool_run

VERIFIED = "0.6.0, 0.7.5"

_AGENTS = "autogen_agentchat.agents"
_TEAMS = "autogen_agentchat.teams._group_chat"
_CALLED_DIRECTLY = {
    f"{_AGENTS}._assistant_agent": "AssistantAgent",
    f"{_AGENTS}._society_of_mind_agent": "SocietyOfMindAgent",
    f"{_AGENTS}._code_executor_agent": "CodeExecutorAgent",
    f"{_AGENTS}._message_filter_agent": "MessageFilterAgent",
}
"""Agents with a model whose `on_messages` people call themselves, say from an agent of their own."""
_NATIVE = {
    f"{_AGENTS}._base_chat_agent": "trace_invoke_agent_span",
    f"{_TEAMS}._chat_agent_container": "trace_invoke_agent_span",
    "autogen_core.tools._base": "trace_tool_span",
}

patches = Patches(
    adapter="autogen",
    requires=SUPPORTED,
    patches=[
        Patch(f"{_AGENTS}._base_chat_agent", "BaseChatAgent.run", turn, "agents and their spans", VERIFIED),
        Patch(f"{_AGENTS}._base_chat_agent", "BaseChatAgent.run_stream", streamed_turn, "streamed agents", VERIFIED),
        *(
            Patch(module, f"{name}.{method}", make, f"{name} called by its {method}", VERIFIED)
            for module, name in _CALLED_DIRECTLY.items()
            for method, make in (("on_messages", turn), ("on_messages_stream", streamed_turn))
        ),
        Patch(f"{_TEAMS}._base_group_chat", "BaseGroupChat.run_stream", team_run, "whose run a team's is", VERIFIED),
        Patch(
            f"{_TEAMS}._sequential_routed_agent",
            "SequentialRoutedAgent.on_message_impl",
            member_message,
            "agents of teams",
            VERIFIED,
        ),
        Patch(
            f"{_AGENTS}._assistant_agent",
            "AssistantAgent._execute_tool_call",
            assistant_tool_call,
            "spans of tools",
            VERIFIED,
        ),
        Patch("autogen_core.tools._base", "BaseTool.run_json", tool_run, "spans of tools without assistant", VERIFIED),
        Patch(
            "autogen_ext.models.openai._openai_client",
            "BaseOpenAIChatCompletionClient.create",
            openai_create,
            "answers of a policy without a warning of its name",
            VERIFIED,
        ),
        *(
            Patch(module, name, native_span, "one span of a thing instead of two", "0.7.5", optional=True)
            for module, name in _NATIVE.items()
        ),
    ],
)
