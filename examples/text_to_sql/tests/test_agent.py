"""The graph on a fake model server, and the metric."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

# LangChain shares one async client among all models of a process: it must live in one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")
RIGHT = "SELECT code FROM statuses WHERE phrase = 'Not Found'"
TASK = {"database": "web", "question": "Which code has the phrase Not Found?", "gold": RIGHT}


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def client(example: SimpleNamespace) -> AsyncIterator[None]:
    """Close the agents' client in the loop that it was used in."""
    yield
    await example.agent.writer_model.root_async_client.close()


async def ask(example: SimpleNamespace) -> Any:
    return await example.agent.app.ainvoke({"database": TASK["database"], "question": TASK["question"]})


async def test_a_query_that_the_checker_takes_for_right_is_not_rewritten(example: SimpleNamespace, script: Any) -> None:
    result = await ask(example)
    assert result["rows"] == [(404,)]
    assert example.agent.score(result, TASK) == 1.0
    assert {name: len(requests) for name, requests in script.requests.items()} == {"writer": 1, "checker": 1}
    [writer], [checker] = script.requests["writer"], script.requests["checker"]
    assert writer["messages"][0]["content"] == f"Write SQL for the question. Tables:\n{example.prompts.TABLES['web']}"
    assert writer["messages"][-1] == {"role": "user", "content": TASK["question"]}
    assert checker["messages"][-1]["content"] == f"{TASK['question']}\n{RIGHT}\n404"
    assert (writer["max_completion_tokens"], checker["max_completion_tokens"]) == (24, 2)


@pytest.mark.parametrize(
    ("query", "finding"),
    [
        ("SELECT number FROM statuses", "no such column: number"),
        ("The code is 404.", 'near "The": syntax error'),
        ("SELECT code FROM statuses WHERE phrase = 'Lost'", "no rows"),
        ("DROP TABLE statuses", "not authorized"),
        ("ATTACH 'other.db' AS other", "not authorized"),
    ],
)
async def test_what_fails_or_finds_nothing_goes_to_the_rewriter_with_the_reason(
    example: SimpleNamespace, script: Any, query: str, finding: str
) -> None:
    script.says |= {"writer": query, "rewriter": RIGHT}
    result = await ask(example)
    assert "checker" not in script.requests
    [request] = script.requests["rewriter"]
    assert request["messages"][-2:] == [
        {"role": "assistant", "content": query},
        {"role": "user", "content": f"Error: {finding}. {TASK['question']}"},
    ]
    assert request["messages"][:-2] == script.requests["writer"][0]["messages"]
    assert (result["query"], example.agent.score(result, TASK)) == (RIGHT, 1.0)


async def test_what_the_checker_doubts_is_rewritten_once(example: SimpleNamespace, script: Any) -> None:
    script.says |= {"writer": "SELECT phrase FROM statuses", "checker": " No", "rewriter": "SELECT kind FROM statuses"}
    result = await ask(example)
    assert {name: len(requests) for name, requests in script.requests.items()} == {
        "writer": 1,
        "checker": 1,
        "rewriter": 1,
    }
    assert script.requests["rewriter"][0]["messages"][-1]["content"].startswith("Error: wrong. ")
    assert example.agent.score(result, TASK) == 0.0


async def test_no_agent_sees_the_gold_query(example: SimpleNamespace, script: Any) -> None:
    script.says["writer"] = "SELECT 1"
    task = {**TASK, "gold": "SELECT 987654"}
    await example.plain.solve(task)
    assert "987654" not in str(script.requests)


@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("select code from statuses where phrase like 'not found'", 1.0),
        ("SELECT max(code) FROM statuses WHERE code < 405", 1.0),
        ("SELECT code, code FROM statuses WHERE phrase = 'Not Found'", 0.0),
        ("SELECT '404'", 0.0),
        ("SELECT code FROM statuses WHERE phrase IN ('Not Found', 'Gone')", 0.0),
        ("SELECT 404; SELECT 404", 0.0),
    ],
)
async def test_the_result_counts_and_not_the_wording(
    example: SimpleNamespace, script: Any, query: str, score: float
) -> None:
    script.says |= {"writer": query, "rewriter": query}
    assert await example.plain.solve(TASK) == score
