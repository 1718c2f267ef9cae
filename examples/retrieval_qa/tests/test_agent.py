"""The two agents on a fake model server, and the metric."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

# The agents share one client: it must live in one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")
TASK = {"question": "How do I recursively delete a directory tree in Python?", "answer": "shutil.rmtree"}


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def client(example: SimpleNamespace) -> AsyncIterator[None]:
    """Close the agents' client in the loop that it was used in."""
    yield
    await example.agent.client.close()


async def test_the_searcher_searches_and_the_answerer_reads_what_was_found(
    example: SimpleNamespace, script: Any
) -> None:
    script.calls("recursively delete tree")
    script.answer = "shutil.rmtree"
    answer = await example.agent.ask(TASK["question"])
    assert answer.passage.startswith("shutil.rmtree: Recursively delete a directory tree.")
    assert example.agent.score(answer, TASK) == 1.0
    [search], [read] = script.requests["searcher"], script.requests["answerer"]
    assert [message["role"] for message in search["messages"]] == ["system", *["user", "assistant", "tool"] * 3, "user"]
    assert search["messages"][-1] == {"role": "user", "content": TASK["question"]}
    assert [tool["function"]["name"] for tool in search["tools"]] == ["search"]
    assert read["messages"][-1]["content"] == answer.passage
    assert "tools" not in read


@pytest.mark.parametrize(
    "search",
    [
        "recursively delete tree",
        {"tool_calls": [{"name": "search", "arguments": {"query": "how do I recursively delete a directory tree"}}]},
        {"tool_calls": [{"name": "search", "arguments": {"query": "?!"}}]},
        {"tool_calls": [{"name": "find", "arguments": {"query": "recursively delete tree"}}]},
    ],
)
async def test_no_search_or_nothing_found_is_no_answer(example: SimpleNamespace, script: Any, search: Any) -> None:
    script.search, script.answer = search, "shutil.rmtree"
    assert await example.agent.ask(TASK["question"]) == example.agent.Answer("", example.agent.UNKNOWN)
    assert "answerer" not in script.requests
    assert await example.plain.solve(TASK) == 0.0


@pytest.mark.parametrize("reply", ["rmtree", "It is shutil.rmtree", "os.remove", "?", ""])
async def test_anything_but_the_name_scores_nothing(example: SimpleNamespace, script: Any, reply: str) -> None:
    script.calls("recursively delete tree")
    script.answer = reply
    assert await example.plain.solve(TASK) == 0.0


@pytest.mark.parametrize("reply", ["shutil.rmtree: Recursively delete", " shutil.rmtree.", "shutil.rmtree()"])
async def test_what_follows_the_name_does_not_count(example: SimpleNamespace, script: Any, reply: str) -> None:
    script.calls("recursively delete tree")
    script.answer = reply
    assert await example.plain.solve(TASK) == 1.0


async def test_no_agent_sees_the_right_answer(example: SimpleNamespace, script: Any) -> None:
    script.calls("hyperbolic sine")
    script.answer = "math.sinh"
    await example.plain.solve({**TASK, "answer": "secret.name"})
    assert "secret.name" not in str(script.requests)
