"""A LangGraph program that answers word problems: planner, writer, calculator, checker.

The planner (a language model) names the things that are counted, the writer (a language model) writes the sum as a
calculator expression, the calculator works it out and the checker words the reply. This is an ordinary program: it knows
nothing of how, or that, one of its agents is trained. ``app`` is the graph and ``score`` the metric.

    BASE_URL=http://127.0.0.1:8000/v1 BASE_MODEL=base python agent.py "Tom has 5 cups and buys 4 more. How many has he?"
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TypedDict

from calculator import calculate
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import SecretStr

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1")
BASE_MODEL = os.environ.get("BASE_MODEL", "base")

UNKNOWN = "I could not work that out."
EXPRESSION = re.compile(r"\s*<<(.+?)>>\s*")


class State(TypedDict, total=False):
    """What the nodes hand on."""

    question: str
    things: str  # the planner's word for what is counted: "cups"
    written: str  # the writer's whole reply: "<<5+4>>"
    value: float | None  # the calculator's result; None: there was no expression it could work out
    reply: str  # what the user reads: "9 cups"


def chat(system: str, shots: list[tuple[str, str]], question: str) -> list[BaseMessage]:
    """A chat that shows the model some questions with their replies and then asks ``question``."""
    shown = [message for ask, reply in shots for message in (HumanMessage(ask), AIMessage(reply))]
    return [SystemMessage(system), *shown, HumanMessage(question)]


def model(max_tokens: int) -> ChatOpenAI:
    """The language model of one agent, greedy; the key is not used by a server of one's own."""
    return ChatOpenAI(
        base_url=BASE_URL,
        model=BASE_MODEL,
        api_key=SecretStr(os.environ.get("BASE_API_KEY", "none")),
        temperature=0,
        max_completion_tokens=max_tokens,
        timeout=120,
    )


PLANNER_SYSTEM = "Name what is counted."
PLANNER_SHOTS = [
    ("How many cups does he have?", "How many cups"),
    ("How many crates are needed?", "How many crates"),
    ("How many birds are in 9 trees?", "How many birds"),
]
planner_model = model(max_tokens=4)


async def planner(state: State) -> State:
    """Name the things that the last sentence of the question asks for, with a language model."""
    asked = re.split(r"(?<=[.?!])\s+", state["question"].strip())[-1]
    reply = await planner_model.ainvoke(chat(PLANNER_SYSTEM, PLANNER_SHOTS, asked))
    named = re.match(r"\s*how many (\w+)", reply.text, re.IGNORECASE)
    return {"things": named[1] if named else "things"}


WRITER_SYSTEM = "Write the calculator expression for the question."
WRITER_SHOTS = [
    ("Tom has 5 cups and buys 4 more. How many cups does he have?", "<<5+4>>"),
    ("A bag holds 6 nuts. How many nuts are in 13 bags?", "<<6*13>>"),
    ("Sue had 18 keys but lost 7 of them. How many keys does she have?", "<<18-7>>"),
    ("24 balls are shared equally among 8 children. How many does each child get?", "<<24/8>>"),
]
writer_model = model(max_tokens=16)


async def writer(state: State) -> State:
    """Write the expression that answers the question, as ``<<expression>>``, with a language model."""
    reply = await writer_model.ainvoke(chat(WRITER_SYSTEM, WRITER_SHOTS, state["question"]))
    return {"written": reply.text}


async def calculator(state: State) -> State:
    """Work out the written expression; the whole of the writer's reply must be one."""
    match = EXPRESSION.fullmatch(state["written"])
    if match is None:
        return {"value": None}
    try:
        return {"value": await calculate.ainvoke({"expression": match[1]})}
    except ValueError:
        return {"value": None}


async def checker(state: State) -> State:
    """Word the reply, unless the result can be no number of things."""
    value = state["value"]
    if value is None or value < 0 or not float(value).is_integer():
        return {"reply": UNKNOWN}
    return {"reply": f"{int(value)} {state['things']}"}


def build() -> Any:
    """The compiled graph: planner, writer, calculator, checker, one after the other."""
    graph = StateGraph(State)
    for node in (planner, writer, calculator, checker):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "writer")
    graph.add_edge("writer", "calculator")
    graph.add_edge("calculator", "checker")
    graph.add_edge("checker", END)
    return graph.compile()


app = build()


def score(result: Mapping[str, Any], task: Mapping[str, Any]) -> float:
    """1.0 when the graph's ``result`` holds the value that answers ``task``, else 0.0."""
    value = result.get("value")
    return float(value is not None and abs(value - task["answer"]) < 1e-6)


def names_things(result: Mapping[str, Any], task: Mapping[str, Any]) -> float:
    """1.0 when the planner named the things that ``task`` asks for, else 0.0: the metric of the planner alone."""
    return float(result.get("things") == task["things"])


async def main(question: str) -> None:
    """Ask the graph one question and print what each agent made of it."""
    result = await app.ainvoke({"question": question})
    print(f"{result['written']}  ->  {result['reply']}")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
