"""How AutoGen names an agent: by its name, below the agents that it runs in.

A team has no level of its own in the path, except where it is a participant of another team: there it takes turns under
a name, like an agent.
"""

from __future__ import annotations

import sys
from typing import Any

from opentelemetry import context as otel_context

from leyden.scope import with_agent

_RUNNING = otel_context.create_key("leyden-autogen-agent")

_MANAGERS = ("Manager", "Orchestrator")
"""How the names of the actors end by which AutoGen's own teams choose who speaks next."""


def as_agent(agent: object, path: str, context: otel_context.Context | None = None) -> otel_context.Context:
    """A context in which `agent` is the one that runs, under `path`."""
    return otel_context.set_value(_RUNNING, agent, with_agent(path, context))


def as_nobody(context: otel_context.Context) -> otel_context.Context:
    """A context in which no agent runs: a team's manager calls a model on behalf of none of them."""
    return as_agent(None, "", context)


def runs_already(agent: Any) -> bool:
    """Whether `agent` is the one that runs here: one of its methods calls another, or a filter of its name passes on to it."""
    running: Any = otel_context.get_value(_RUNNING)
    return running is agent or (inner(running) is agent and running.name == agent.name)


def inner(agent: Any) -> Any:
    """The agent to which a `MessageFilterAgent` passes messages on; None for any other agent."""
    return getattr(agent, "_wrapped_agent", None)


def handling_agent(teams_too: bool = False) -> str | None:
    """The name of the core agent whose message handler runs, by AutoGen's own record of it; None outside handlers.

    The members of a team enter by themselves and are left out, unless `teams_too`: for versions in which they could not
    be hooked.
    """
    module = sys.modules.get("autogen_core._message_handler_context")
    if module is None:
        return None
    try:
        agent = module.MessageHandlerContext.agent_id()
    except RuntimeError:
        return None
    name = str(agent.type).removesuffix(f"_{agent.key}")
    if name == agent.type:
        return name
    return name if teams_too and not name.endswith(_MANAGERS) else None
