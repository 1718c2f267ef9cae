"""`leyden run` with an untouched LangGraph program: its agents are named by its nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leyden.testing.server import FakeModelServer

pytest.importorskip("langchain_openai")
pytestmark = pytest.mark.slow

PYTHON = sys.executable
LEYDEN = [PYTHON, "-c", "from leyden.cli import main; main()"]

APP = """
import asyncio
import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

llm = ChatOpenAI(model="own", max_retries=0)


def planner(state):
    return {"messages": [llm.invoke([("system", "Plan."), *state["messages"]])]}


async def writer(state):
    return {"messages": [await llm.ainvoke([("system", "Write."), *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node(planner)
graph.add_node(writer)
graph.add_edge(START, "planner")
graph.add_edge("planner", "writer")
graph.add_edge("writer", END)
app = graph.compile()


async def main():
    found = await asyncio.gather(*(app.ainvoke({"messages": [("user", word)]}) for word in sys.argv[1:]))
    for state in found:
        print(state["messages"][-1].content)


asyncio.run(main())
"""


def leyden(folder: Path, provider: FakeModelServer, *arguments: str) -> tuple[int, str, str]:
    env = {
        **os.environ, "OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "secret",
        "LEYDEN_PLUGINS": "openai,langchain,langgraph",
    }  # fmt: skip
    done = subprocess.run(
        [*LEYDEN, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_untouched_graph_is_recorded_by_its_nodes_and_the_marked_one_is_routed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with FakeModelServer(return_token_ids=False) as provider, FakeModelServer() as policy:
        words = ["one", "two", "three"]
        code, out, err = leyden(tmp_path, provider, "run", "--", PYTHON, "app.py", *words)
        assert (code, out) == (0, "answer of own to 3 messages\n" * 3), err
        assert "LLM calls: 6 seen (planner 3, writer 3), 6 of a known agent, 0 routed" in err
        mark = ["--train", "writer", "--policy", f"default=policy@{policy.base_url}"]
        code, out, err = leyden(tmp_path, provider, "run", "--store", "two.db", *mark, "--", PYTHON, "app.py", *words)
        assert (code, out) == (0, "answer of policy to 3 messages\n" * 3), err
        assert "6 of a known agent, 3 routed to a policy, 3 usable for training" in err
        posts = [request for request in policy.requests if request.method == "POST"]
        assert sorted(request.body["messages"][1]["content"] for request in posts) == sorted(words)
        assert {request.headers["x-leyden-agent"] for request in posts} == {"writer"}
        code, out, err = leyden(tmp_path, provider, "export", "--store", "two.db", "--what", "spans")
    spans: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    routed = [span for span in spans if span.get("call", {}).get("policy") == "default"]
    assert {span["agent"] for span in routed} == {"writer"}
    assert all(span["call"]["sampled_ids"] and span["call"]["logprobs"] for span in routed)
    assert {span["agent"] for span in spans if span["kind"] == "agent"} >= {"planner", "writer"}
