"""The hooks of a Leyden plugin (pluggy project "leyden", entry-point group "leyden.plugins").

An adapter implements what its framework needs and no more. Every call of a hook is guarded: an exception is logged
once, counted, and treated as None, so an adapter never breaks the user's agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pluggy

from leyden.types import Endpoint, Span

hookspec = pluggy.HookspecMarker("leyden")
hookimpl = pluggy.HookimplMarker("leyden")

Undo = Callable[[], None]


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is for. `requires`: the framework versions that it supports, as PEP 508 requirements."""

    name: str
    version: str
    framework: str = ""
    requires: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    """Top-level modules of the framework; the adapter instruments nothing until one of them is there."""


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that was found in a user's object: its path, and the object that a mark may name."""

    path: str
    target: Any = None
    framework: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `leyden doctor`."""

    name: str
    ok: bool
    detail: str = ""
    remedy: str = ""


class LeydenSpec:
    """The hooks."""

    @hookspec
    def leyden_info(self) -> PluginInfo:  # type: ignore[empty-body]
        """Say what the plugin is for."""

    @hookspec
    def leyden_instrument(self) -> Undo | None:
        """Install the framework's hooks, now or when the framework is imported; returns what takes them out again.

        Called once per process and `leyden.instrument()`; the plugin manager makes it idempotent.
        """

    @hookspec(firstresult=True)
    def leyden_identify(self) -> str | None:
        """The path of the agent that is making the LLM call right now, or None if this framework is not calling.

        Under 0.1 ms, no I/O, no imports. Asked only where the OTel context names no agent (see
        `leyden.plugins.calling_agent`), so give the whole path.
        """

    @hookspec
    def leyden_discover(self, target: object) -> list[AgentInfo] | None:
        """The agents inside `target` (a graph, a crew, a team), or None if it is not this framework's."""

    @hookspec(firstresult=True)
    def leyden_bind(self, model: object, endpoint: Endpoint) -> object | None:
        """A model object of this framework that stands in for `model` and speaks chat completions to `endpoint`.

        Asked by `leyden.binding.bound` where a marked agent's own model object is not on the `openai` SDK. It is called with
        the same arguments as `model` would be, so the conversation's content stays what it was. Build it on the framework's
        own OpenAI class: the transport then routes and records its calls. None for a model of another framework; a
        `RoutingError` says why this one has no stand-in, and what to do.
        """

    @hookspec(firstresult=True)
    def leyden_run(self, target: object, task: Any) -> Awaitable[Any] | None:
        """Run the framework's own object on a task, for programs that run any framework's object."""

    @hookspec
    def leyden_span(self, span: Span) -> None:
        """See a finished span before it goes to the store. Must be quick."""

    @hookspec
    def leyden_commands(self) -> list[Any]:  # type: ignore[empty-body]
        """`click.Command`s to add to `leyden`."""

    @hookspec
    def leyden_doctor(self) -> list[Check]:  # type: ignore[empty-body]
        """Checks of what the plugin needs at run time, each with a remedy."""
