"""Running a team or an agent on a task, where the user gave no rollout function.

AutoGen's teams and agents remember what was said, and run once at a time. So the runs of one object follow each other,
and each begins in the state that the object had before the first one.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken

from leyden.errors import InvalidInput
from leyden_autogen.discovery import Discovery

_known: weakref.WeakKeyDictionary[Any, _Fresh] = weakref.WeakKeyDictionary()


async def run(target: Any, task: Any) -> Any:
    """`target.run(task=task)` from the state that it began in; returns AutoGen's `TaskResult`.

    Raises `InvalidInput` for a task that is neither text nor messages, and where a state can neither be kept nor restored.
    """
    listed = isinstance(task, (list, tuple)) and bool(task)
    if not isinstance(task, (str, BaseChatMessage)) and not (
        listed and all(isinstance(m, BaseChatMessage) for m in task)
    ):
        raise InvalidInput(
            f"AutoGen runs on a text, a message or a list of messages, and this task is a {type(task).__name__}: give a "
            f"rollout function that makes a text of it and runs the team"
        )
    fresh = _known.setdefault(target, _Fresh())
    async with fresh.turn():
        await fresh.restore(target)
        return await target.run(task=list(task) if listed else task)


class _Fresh:
    """The state in which a team or an agent is to begin each run, with that of every team and agent inside it."""

    def __init__(self) -> None:
        self._states: list[tuple[weakref.ref[Any], Any]] | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def turn(self) -> asyncio.Lock:
        """What one run holds; of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def restore(self, target: Any) -> None:
        """Put the states back, or keep them if this is the first run."""
        try:
            if self._states is None:
                walk = Discovery()
                walk.agents(target)
                # Teams first: to reset one resets its members, whose own states are put back after.
                members = sorted(walk.runners.values(), key=lambda member: not isinstance(member, Team))
                self._states = [(weakref.ref(member), await member.save_state()) for member in members]
                return
            for reference, state in self._states:
                member: Any = reference()
                if member is None:  # it was taken out of the team
                    continue
                await (member.reset() if isinstance(member, Team) else member.on_reset(CancellationToken()))
                await member.load_state(state)
        except Exception as error:
            raise InvalidInput(
                f"{type(target).__name__} cannot be run again from where it began ({type(error).__name__}: {error}): "
                f"give a rollout function that makes a new one for each task"
            ) from error
