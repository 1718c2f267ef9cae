"""The app that an adapter supplies: two agents and a tool, built of the framework's own parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from leyden.testing.answers import Reply

PLANNER_NAME = "planner"
WRITER_NAME = "writer"
PLANNER = "You are the planner. Say in one line what to look up."
"""The planner's instructions; they must reach the model as they are, in the agent's system prompt."""
WRITER = "You are the writer. Look the word up, then answer in one line."
"""The writer's instructions."""


def lookup(word: str) -> str:
    """Look a word up.

    Args:
        word: the word
    """
    return f"{word} is warm"


@dataclass(frozen=True)
class ModelAccess:
    """How the app reaches its model: what it must give to the framework's OpenAI-compatible client."""

    base_url: str
    api_key: str = "app-secret"
    model: str = "own"
    timeout_s: float = 60.0
    max_retries: int = 0
    """Retries by the `openai` SDK after a failed request."""


class AgentApp:
    """Base of the apps. `question` is a text like "Tell me of word-17."; the agents are named `planner` and `writer`.

    Only `run` must be implemented; what else is, counts as a capability of the framework. An app is made for one rollout at a
    time, unless it is `shareable`.
    """

    planner: ClassVar[str] = PLANNER_NAME
    """Path of the planner in `run`."""
    writer: ClassVar[str] = WRITER_NAME
    """Path of the writer in `run`."""
    nested_writer: ClassVar[str] = f"{PLANNER_NAME}/{WRITER_NAME}"
    """Path of the writer in `sub_agent`."""
    shareable: ClassVar[bool] = False
    """Whether one app may run many questions at once."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model

    async def run(self, question: str) -> str:
        """The planner is asked the question, then the writer, who calls `lookup` once and answers. Returns the answer."""
        raise NotImplementedError

    @property
    def target(self) -> Any:
        """The framework's object for `leyden_discover` and `leyden_run`: run on a question, it does what `run` does."""
        raise NotImplementedError

    async def stream(self, question: str) -> list[str]:
        """`run` with the model's answers streamed from the server; returns the pieces of the writer's last text."""
        raise NotImplementedError

    def run_sync(self, question: str) -> str:
        """`run` through the framework's blocking entry point."""
        raise NotImplementedError

    async def sub_agent(self, question: str) -> str:
        """The planner has the writer as a tool (or nested graph, team), and answers after it."""
        raise NotImplementedError

    async def handoff(self, question: str) -> str:
        """The planner hands the conversation over to the writer."""
        raise NotImplementedError

    async def structured(self, question: str) -> dict[str, Any]:
        """The writer, without tools, answers by the schema {"colour": string, "count": integer}."""
        raise NotImplementedError

    async def parallel(self, question: str) -> list[str]:
        """Planner and writer, without tools, at work at the same time by the framework's own concurrency."""
        raise NotImplementedError

    async def cached(self, question: str) -> list[str]:
        """The writer, without tools, is asked the same twice through the framework's response cache; both answers."""
        raise NotImplementedError

    async def helper(self, question: str) -> str:
        """The framework makes a model call of its own, by none of the agents, around the writer's."""
        raise NotImplementedError

    async def foreign(self, question: str) -> str:
        """`run` with the writer's model a local class of the framework's model interface, which raises if it is called."""
        raise NotImplementedError

    def reply(self, body: dict[str, Any]) -> Reply | None:
        """What the scripted model says to a request; None leaves it to the suite's script."""
        return None

    async def close(self) -> None:
        """Let go of what the app holds."""


CAPABILITIES: tuple[str, ...] = (
    "target",
    "stream",
    "run_sync",
    "sub_agent",
    "handoff",
    "structured",
    "parallel",
    "cached",
    "helper",
    "foreign",
)
"""What an app may implement beside `run`."""


def capabilities(app: type[AgentApp]) -> set[str]:
    """What `app` implements."""
    return {name for name in CAPABILITIES if getattr(app, name) is not getattr(AgentApp, name)}
