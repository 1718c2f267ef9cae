"""The graph on a fake model server, and the metric."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

# LangChain shares one async client among all models of a process: it must live in one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")
TASK = {"question": "Tom has 8 cups. Tom buys 4 more. How many cups has he now?", "answer": 12, "kind": "add"}


async def test_the_four_agents_work_one_after_the_other(agent: ModuleType, models: Any) -> None:
    models.write("<<8+4>>")
    result = await agent.app.ainvoke(TASK)
    assert result["things"] == "cups"
    assert result["value"] == 12
    assert result["reply"] == "12 cups"
    planner, writer = models.requests
    assert planner["messages"][-1] == {"role": "user", "content": "How many cups has he now?"}
    assert writer["messages"][-1] == {"role": "user", "content": TASK["question"]}
    assert [message["role"] for message in writer["messages"]] == ["system", *["user", "assistant"] * 4, "user"]
    assert {request["model"] for request in models.requests} == {"base"}
    assert (planner["max_completion_tokens"], writer["max_completion_tokens"]) == (4, 16)


async def test_no_agent_sees_the_right_answer(agent: ModuleType, models: Any) -> None:
    models.write("<<1+1>>")
    result = await agent.app.ainvoke({**TASK, "answer": 987654})
    assert "987654" not in str(models.requests)
    assert "answer" not in result


@pytest.mark.parametrize(
    "written", ["<<8-4>>", "8+4", "<<8+4>> cups", "<<12>>", "<<8+>>", "<<x+y>>", "<<8/0>>", "", "<<>>"]
)
async def test_anything_but_the_right_sum_scores_nothing(agent: ModuleType, models: Any, written: str) -> None:
    models.write(written)
    assert agent.score(await agent.app.ainvoke(TASK), TASK) == 0.0


@pytest.mark.parametrize("written", ["<<8+4>>", "<<4+8>>", " <<8 + 4>>\n", "<<6*2>>"])
async def test_the_right_value_scores_one(agent: ModuleType, models: Any, written: str) -> None:
    models.write(written)
    assert agent.score(await agent.app.ainvoke(TASK), TASK) == 1.0


@pytest.mark.parametrize("written", ["<<4-8>>", "<<1/8>>", "no idea"])
async def test_the_checker_rejects_what_cannot_be_a_count(agent: ModuleType, models: Any, written: str) -> None:
    models.write(written)
    assert (await agent.app.ainvoke(TASK))["reply"] == agent.UNKNOWN


async def test_a_planner_that_names_nothing_costs_only_the_word(agent: ModuleType, models: Any) -> None:
    models.write("<<8+4>>")
    before = dict(models.replies)
    models.replies[agent.PLANNER_SYSTEM] = "I do not know"
    result = await agent.app.ainvoke(TASK)
    models.replies.update(before)
    assert result["reply"] == "12 things"


async def test_the_planner_has_a_metric_of_its_own(agent: ModuleType, models: Any) -> None:
    models.write("<<1+1>>")
    result = await agent.app.ainvoke(TASK)
    assert agent.names_things(result, {"things": "cups"}) == 1.0
    assert agent.names_things(result, {"things": "books"}) == 0.0
