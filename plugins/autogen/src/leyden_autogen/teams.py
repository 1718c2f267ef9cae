"""The run of a team: its members' message handlers run in the context in which the team was run.

AutoGen's runtime handles messages in tasks of its own, in the context of who started the runtime; a runtime that teams
share was started by somebody else, perhaps in another attempt. And a message must not bring its sender's context along:
the next speaker is not below the last one, and the manager that chooses it is neither.
"""

from __future__ import annotations

import functools
from typing import Any

from opentelemetry import context as otel_context

from leyden import tracing
from leyden.generators import Carried, carry_async
from leyden.patching import Function
from leyden_autogen import identity
from leyden_autogen.spans import entered

_runs: dict[str, otel_context.Context] = {}
"""The context of each team that runs, by the team's id (the key of its members' agent ids). A team runs once at a time."""


def team_run(original: Function) -> Function:
    """`BaseGroupChat.run_stream`, which `run` uses too."""

    @functools.wraps(original)
    def run_stream(team: Any, *args: Any, **kwargs: Any) -> Any:
        if not tracing.recording():
            return original(team, *args, **kwargs)
        start = functools.partial(_Run, str(team._team_id), otel_context.get_current())
        return carry_async(original(team, *args, **kwargs), start)

    return run_stream


class _Run(Carried):
    """The caller's context for the steps of a team's stream; it is known by the team's id until the stream ends."""

    def __init__(self, team: str, caller: otel_context.Context) -> None:
        super().__init__(caller)
        self._team = team
        self._first = team not in _runs
        if self._first:  # else AutoGen is about to say that the team runs already, and that run goes on
            _runs[team] = caller

    def ended(self) -> None:
        if self._first:
            _runs.pop(self._team, None)


def member_message(original: Function) -> Function:
    """`SequentialRoutedAgent.on_message_impl`: what the actors of a team do with a message."""

    @functools.wraps(original)
    async def on_message_impl(actor: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        context = _runs.get(actor.id.key)
        if context is None:
            return await original(actor, message, *args, **kwargs)
        participant = getattr(actor, "_agent", None)  # the manager has none
        token = otel_context.attach(identity.as_nobody(context) if participant is None else context)
        try:
            if participant is not None and type(message).__name__ == "GroupChatRequestPublish":
                with entered(participant):
                    return await original(actor, message, *args, **kwargs)
            return await original(actor, message, *args, **kwargs)
        finally:
            otel_context.detach(token)

    return on_message_impl
