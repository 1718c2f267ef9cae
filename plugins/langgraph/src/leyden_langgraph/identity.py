"""How LangGraph names an agent: the name of the node that runs, below the nodes and agents that it runs in.

`create_agent(name="helper")` puts its name into the metadata of everything that it runs, nested graphs included. It is
a level of the path where it changes; a plain graph inside does not repeat it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

from opentelemetry import context as otel_context

from leyden.scope import current_agent

HIDDEN = frozenset({"__start__", "__end__"})
"""LangGraph's own nodes, which are no agents."""

_NAMED = otel_context.create_key("leyden-langgraph-agent-name")


def agent_name(config: Mapping[str, Any] | None) -> str | None:
    """The name given to `create_agent` in the config of a graph or a task, or None."""
    name = ((config or {}).get("metadata") or {}).get("lc_agent_name")
    return name if isinstance(name, str) and name.strip("/ ") else None


def below(name: str | None, inherited: str | None, parent: str) -> bool:
    """Whether the agent name of a graph is a level of its own under the agent `parent`."""
    return name is not None and name != inherited and name != parent.rsplit("/", 1)[-1]


def node_name(task: Any) -> str | None:
    """What the task of a graph adds to the agent path; None for LangGraph's own nodes."""
    if task.name in HIDDEN:
        return None
    name = agent_name(task.config)
    inherited = cast("str | None", otel_context.get_value(_NAMED))
    return f"{name}/{task.name}" if below(name, inherited, current_agent()) else str(task.name)


def with_agent_name(task: Any, context: otel_context.Context) -> otel_context.Context:
    """A context that remembers which agent name the path holds already."""
    name = agent_name(task.config)
    return context if name is None else otel_context.set_value(_NAMED, name, context)


def running_node() -> str | None:
    """The path of the node that runs, by LangGraph's own record of it: the checkpoint namespace.

    Only for versions of LangGraph in which the nodes could not be entered. It knows nothing of `leyden.agent`.
    """
    module = sys.modules.get("langchain_core.runnables.config")
    config = module.var_child_runnable_config.get() if module else None
    namespace = ((config or {}).get("metadata") or {}).get("langgraph_checkpoint_ns")
    return "/".join(part.split(":", 1)[0] for part in namespace.split("|")) if namespace else None
