"""An AutoGen team that answers word problems with a calculator: a solver, then a reporter.

The solver is given the tool ``calculate`` and calls it by the protocol's own function calls; the reporter reads what came
out and words the answer. This is an ordinary program: it knows nothing of how, or that, one of its agents is trained.
``answer`` runs the team on one question and ``score`` is the metric.

    BASE_URL=http://127.0.0.1:8000/v1 BASE_MODEL=base python agent.py "Tom has 5 cups and buys 4 more. How many has he?"
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseTextChatMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    UserMessage,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from calculator import calculate

SOLVER = "Answer with a calculation."
SOLVER_SHOTS = [
    ("Tom has 5 cups and buys 4 more. How many cups does he have?", "5+4"),
    ("A bag holds 6 nuts. How many nuts are in 13 bags?", "6*13"),
    ("Sue had 18 keys but lost 7 of them. How many keys does she have?", "18-7"),
    ("24 balls are shared equally among 8 children. How many does each child get?", "24/8"),
]
REPORTER = "Say the result in a few words."
REPORTER_SHOTS = [
    ("Tom has 5 cups and buys 4 more. How many cups does he have?", "9", "He has 9 cups."),
    ("A bag holds 6 nuts. How many nuts are in 13 bags?", "78", "There are 78 nuts."),
]


@functools.cache
def model(max_tokens: int) -> OpenAIChatCompletionClient:
    """The language model of one agent, greedy; the key is not used by a server of one's own."""
    return OpenAIChatCompletionClient(
        base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1"),
        model=os.environ.get("BASE_MODEL", "base"),
        api_key=os.environ.get("BASE_API_KEY", "none"),
        model_info=ModelInfo(
            vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown"
        ),
        temperature=0,
        max_tokens=max_tokens,
        timeout=120,
    )


def solver_context() -> UnboundedChatCompletionContext:
    """What the solver remembers as it starts: some questions, each with its call of the tool and the result."""
    shown: list[LLMMessage] = []
    for number, (question, expression) in enumerate(SOLVER_SHOTS):
        call = FunctionCall(id=f"shown-{number}", name="calculate", arguments=f'{{"expression": "{expression}"}}')
        result = FunctionExecutionResult(call_id=call.id, name=call.name, content=calculate(expression), is_error=False)
        shown += [UserMessage(content=question, source="user"), AssistantMessage(content=[call], source="solver")]
        shown += [FunctionExecutionResultMessage(content=[result])]
    return UnboundedChatCompletionContext(initial_messages=shown)


def reporter_context() -> UnboundedChatCompletionContext:
    """What the reporter remembers as it starts: some questions with their results and the words for them."""
    shown: list[LLMMessage] = []
    for question, result, words in REPORTER_SHOTS:
        shown += [UserMessage(content=question, source="user"), UserMessage(content=result, source="solver")]
        shown += [AssistantMessage(content=words, source="reporter")]
    return UnboundedChatCompletionContext(initial_messages=shown)


def team() -> RoundRobinGroupChat:
    """A new team for one question: each of the two agents speaks once, the solver first."""
    solver = AssistantAgent(
        "solver",
        model_client=model(max_tokens=24),
        system_message=SOLVER,
        tools=[calculate],
        reflect_on_tool_use=False,  # the tool's result is the answer: one call of the model for each question
        model_context=solver_context(),
    )
    reporter = AssistantAgent(
        "reporter",
        model_client=model(max_tokens=12),
        system_message=REPORTER,
        model_context=reporter_context(),
    )
    return RoundRobinGroupChat([solver, reporter], max_turns=2)


async def answer(question: str) -> TaskResult:
    """Everything that the team said about one question."""
    return await team().run(task=question)


def results(said: TaskResult) -> Sequence[str]:
    """What the solver's calls of the calculator gave; a call that failed gave nothing."""
    events = [message for message in said.messages if isinstance(message, ToolCallExecutionEvent)]
    return [result.content for event in events for result in event.content if not result.is_error]


def score(said: TaskResult, task: Mapping[str, Any]) -> float:
    """1.0 when the solver used the calculator once and got the number that answers ``task``, else 0.0."""
    found = results(said)
    return float(len(found) == 1 and abs(float(found[0]) - task["answer"]) < 1e-6)


async def main(question: str) -> None:
    """Ask the team one question and print what each agent made of it."""
    said = await answer(question)
    for message in said.messages[1:]:
        text = message.to_text() if isinstance(message, BaseTextChatMessage) else message.content
        print(f"{message.source}: {text}")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
