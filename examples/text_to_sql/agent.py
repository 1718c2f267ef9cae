"""A LangGraph program that answers questions about SQLite databases: writer, checker, rewriter.

The writer (a language model) writes a query, which is run; the checker (a language model) says whether query and result
look right; where they do not, or where the query failed or found nothing, the rewriter (a language model) is told so and
writes another one. This is an ordinary program: it knows nothing of how, or that, some of its agents are trained.
``app`` is the graph and ``score`` the metric.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import databases
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from prompts import CHECKS, SHOTS, TABLES, Shots
from pydantic import SecretStr

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1")
BASE_MODEL = os.environ.get("BASE_MODEL", "base")
DATA = Path(os.environ.get("DATA", "data"))

NOTHING = "no rows"
DOUBT = "wrong"


class State(TypedDict, total=False):
    """What the nodes hand on."""

    database: str
    question: str
    query: str  # the last one that was written
    rows: databases.Rows | None  # its result; None: SQLite refused it
    finding: str  # SQLite's error, that there are no rows, or the start of the result
    verdict: str  # the checker's word: "yes" or "no"
    drafts: int  # queries written so far


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


def chat(system: str, shots: Shots) -> list[BaseMessage]:
    """The start of a chat that shows the model some questions with their replies."""
    shown = [message for ask, reply in shots for message in (HumanMessage(ask), AIMessage(reply))]
    return [SystemMessage(system), *shown]


def asked(state: State) -> list[BaseMessage]:
    """The writer's chat: the tables, four examples and the question."""
    database = state["database"]
    system = f"Write SQL for the question. Tables:\n{TABLES[database]}"
    return [*chat(system, SHOTS[database]), HumanMessage(state["question"])]


writer_model = model(max_tokens=24)
checker_model = model(max_tokens=2)
rewriter_model = model(max_tokens=24)


async def writer(state: State) -> State:
    """Write a query for the question, with a language model."""
    reply = await writer_model.ainvoke(asked(state))
    return {"query": reply.text, "drafts": 1}


async def execute(state: State) -> State:
    """Run the query on the database, which it can only read."""
    try:
        rows = databases.run(DATA / f"{state['database']}.db", state["query"])
    except sqlite3.Error as error:
        return {"rows": None, "finding": str(error)}
    found = ", ".join(str(value) for value in rows[0]) if rows else NOTHING
    return {"rows": rows, "finding": found[:60]}


async def checker(state: State) -> State:
    """Say whether the query and its result look right, with a language model; what failed needs no asking."""
    if not state["rows"]:
        return {"verdict": "no"}
    shown = HumanMessage(f"{state['question']}\n{state['query']}\n{state['finding']}")
    reply = await checker_model.ainvoke([*chat("Is the query right? Say yes or no.", CHECKS), shown])
    return {"verdict": "no" if reply.text.strip().lower().startswith("no") else "yes"}


async def rewriter(state: State) -> State:
    """Write another query, knowing the first one and what became of it, with a language model."""
    finding = DOUBT if state["rows"] else state["finding"]
    again = [AIMessage(state["query"]), HumanMessage(f"Error: {finding}. {state['question']}")]
    reply = await rewriter_model.ainvoke([*asked(state), *again])
    return {"query": reply.text, "drafts": 2}


def build() -> Any:
    """The compiled graph."""
    graph = StateGraph(State)
    for node in (writer, execute, checker, rewriter):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "execute")
    graph.add_conditional_edges("execute", lambda state: "checker" if state["drafts"] == 1 else END, ["checker", END])
    graph.add_conditional_edges(
        "checker", lambda state: "rewriter" if state["verdict"] == "no" else END, ["rewriter", END]
    )
    graph.add_edge("rewriter", "execute")
    return graph.compile()


app = build()


def score(result: Mapping[str, Any], task: Mapping[str, Any]) -> float:
    """1.0 when the last query's result is that of the gold query of ``task``, in whatever order, else 0.0."""
    if result["rows"] is None:
        return 0.0
    gold = databases.run(DATA / f"{task['database']}.db", task["gold"])
    return float(sorted(map(repr, result["rows"])) == sorted(map(repr, gold)))
