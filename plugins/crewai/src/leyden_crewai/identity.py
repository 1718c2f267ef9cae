"""How CrewAI names an agent: by its role, below the agents that it works for.

The role is the one that was written down: where a crew's inputs are filled into it (`{topic} researcher`), the
placeholder stays, so that one agent has one path whatever the task. White space in a role counts as one space, and a
slash, which would make two levels of the path out of one, becomes a hyphen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from opentelemetry import context as otel_context

from leyden.scope import child_path, current_agent, with_agent

_TURN = otel_context.create_key("leyden-crewai-turn")
_HELPER = otel_context.create_key("leyden-crewai-helper")


class Turn:
    """What an agent is at work on: its name, and the task or the messages that it was given.

    A task is not kept alive: threads of a pool keep the context that they last worked in.
    """

    __slots__ = ("_work", "name")

    def __init__(self, name: str, work: object) -> None:
        self.name = name
        self._work: Callable[[], object]
        try:
            self._work = weakref.ref(work)
        except TypeError:  # text, a list of messages
            self._work = lambda: work

    def is_again(self, other: Turn | None) -> bool:
        """Whether this is `other` once more: CrewAI retries an agent by calling it inside its own, failed turn."""
        return other is not None and other.name == self.name and other._work() is self._work() is not None


def agent_name(agent: Any) -> str:
    """What an agent adds to the path; "" for a role of white space alone."""
    role = getattr(agent, "_original_role", None) or agent.role
    return " ".join(str(role).split()).replace("/", "-")


def current_turn() -> Turn | None:
    """The agent's turn that the calling code is part of."""
    return cast("Turn | None", otel_context.get_value(_TURN))


def with_turn(turn: Turn, context: otel_context.Context) -> otel_context.Context:
    """A context that belongs to the turn."""
    return otel_context.set_value(_TURN, turn, context)


def is_helper() -> bool:
    """Whether the calling code is CrewAI's own work, by none of the user's agents."""
    return bool(otel_context.get_value(_HELPER))


@contextmanager
def as_helper() -> Iterator[None]:
    """Run the enclosed code as no agent."""
    token = otel_context.attach(otel_context.set_value(_HELPER, True, with_agent("")))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def as_agent(name: str) -> Iterator[None]:
    """Run the enclosed code as agent `name` below the current one, without a turn (and a span) of its own."""
    token = otel_context.attach(with_agent(child_path(name, current_agent())))
    try:
        yield
    finally:
        otel_context.detach(token)
