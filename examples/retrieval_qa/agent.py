"""An OpenAI Agents program that answers questions about Python's standard library: searcher and answerer.

The searcher (a language model) calls the tool ``search``, full-text search in the help texts, with words of its own; the
answerer (a language model) reads what was found and names the function. This is an ordinary program: it knows nothing of
how, or that, one of its agents is trained. ``ask`` is the program and ``score`` the metric.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
from agents import Agent, ModelBehaviorError, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
from agents.items import ToolCallOutputItem, TResponseInputItem
from openai import AsyncOpenAI

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1")
BASE_MODEL = os.environ.get("BASE_MODEL", "base")
DATA = Path(os.environ.get("DATA", "data"))

UNKNOWN = "I do not know."
LONGEST_PASSAGE = 120


@dataclass(frozen=True)
class Answer:
    """What became of a question."""

    passage: str  # what the search found; empty: nothing, or there was no search
    reply: str  # what the user reads: "shutil.rmtree"


client = AsyncOpenAI(base_url=BASE_URL, api_key=os.environ.get("BASE_API_KEY", "none"), timeout=120)
model = OpenAIChatCompletionsModel(model=BASE_MODEL, openai_client=client)


@function_tool
def search(query: str) -> str:
    """Find a help text that holds all words of the query."""
    found = corpus.search(DATA / "manual.db", query, limit=1)
    return "\n".join(f"{name}: {text[:LONGEST_PASSAGE]}" for name, text in found)


def called(question: str, query: str) -> list[TResponseInputItem]:
    """A question and the call that it was answered with, shown to the searcher."""
    call_id, arguments = f"call-{query.replace(' ', '-')}", json.dumps({"query": query})
    return [
        {"role": "user", "content": question},
        {"type": "function_call", "call_id": call_id, "name": "search", "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "found"},
    ]


SEARCHES = [
    *called("Which function tells me the size of a file?", "size file"),
    *called("How do I delete a folder in Python?", "delete folder"),
    *called("I want to draw a line from x to y. What do I call?", "draw line"),
]
searcher = Agent(
    name="searcher",
    instructions="Search for the words that matter.",
    model=model,
    model_settings=ModelSettings(temperature=0, max_tokens=24),
    tools=[search],
    tool_use_behavior="stop_on_first_tool",
)

ANSWERS: list[TResponseInputItem] = [
    {"role": "user", "content": "turtle.forward: Move the turtle forward by the specified distance."},
    {"role": "assistant", "content": "turtle.forward"},
    {"role": "user", "content": "tkinter.mainloop: Run the main loop of Tcl."},
    {"role": "assistant", "content": "tkinter.mainloop"},
]
answerer = Agent(
    name="answerer",
    instructions="Name the function.",
    model=model,
    model_settings=ModelSettings(temperature=0, max_tokens=12),
)


async def ask(question: str) -> Answer:
    """Search for the question, and answer it from what was found."""
    try:
        found = await Runner.run(searcher, [*SEARCHES, {"role": "user", "content": question}])
    except ModelBehaviorError:  # the searcher called a tool that does not exist
        return Answer("", UNKNOWN)
    passage = "".join(str(item.output) for item in found.new_items if isinstance(item, ToolCallOutputItem))
    if not passage:
        return Answer("", UNKNOWN)
    told = await Runner.run(answerer, [*ANSWERS, {"role": "user", "content": passage}])
    named = re.match(r"\s*([\w.]*\w)", str(told.final_output))
    return Answer(passage, named[1] if named else UNKNOWN)


def score(answer: Answer, task: Mapping[str, Any]) -> float:
    """1.0 when the answer names the function that ``task`` asks for, else 0.0."""
    return float(answer.reply == task["answer"])
