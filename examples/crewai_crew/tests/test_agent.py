"""The crew on a fake model server, and the metric."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

# CrewAI's clients are kept for all messages: they must live in one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="session")
TASK = {"message": "My parcel 733 is not here yet.", "department": "delivery"}


async def test_the_sorter_names_the_department_and_the_clerk_is_told_it(agent: ModuleType, server: Any) -> None:
    output = await agent.handle(TASK["message"])
    assert [(part.agent, part.raw) for part in output.tasks_output] == [
        ("sorter", "delivery"),
        ("clerk", "Thank you, delivery will help."),
    ]
    sorting, replying = server.bodies
    (whole,) = (message["content"] for message in sorting["messages"])
    turns = whole.split("<|im_start|>")[1:]
    assert [turn.split("\n")[0] for turn in turns] == ["system", *["user", "assistant"] * 9]
    assert turns[0] == "system\nYou are sorter. You sort the messages of customers.<|im_end|>\n"
    assert turns[-2].startswith(f"user\n{TASK['message']}\n")
    boilerplate = {turn.split("\n", 2)[2] for turn in turns[1:-1:2]}
    assert len(boilerplate) == 1, "the shown messages are put as the real one is"
    system, user = (message["content"] for message in replying["messages"])
    assert system.startswith("You are clerk.")
    assert "context you're working with:\ndelivery\n" in user
    assert [(body["model"], body["temperature"], body["max_tokens"]) for body in server.bodies] == [
        ("base", 0, 5),
        ("base", 0, 16),
    ]


@pytest.mark.parametrize("said", ["delivery", " Delivery.\n", "DELIVERY"])
async def test_the_right_department_scores_one(agent: ModuleType, script: Any, said: str) -> None:
    script.sorts = said
    assert agent.score(await agent.handle(TASK["message"]), TASK) == 1.0


@pytest.mark.parametrize("said", ["billing", "delivery team", "sales", "delivery or billing", "-> delivery"])
async def test_anything_else_scores_nothing(agent: ModuleType, script: Any, said: str) -> None:
    script.sorts = said
    assert agent.score(await agent.handle(TASK["message"]), TASK) == 0.0


async def test_no_agent_sees_the_right_answer(agent: ModuleType, script: Any, server: Any) -> None:
    script.sorts = "login"
    output = await agent.handle("My parcel 733 is not here yet.")
    assert agent.department(output) == "login"
    assert "for delivery" not in str(server.bodies)


async def test_the_program_prints_what_each_agent_made_of_the_message(
    agent: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await agent.main(TASK["message"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["sorter: delivery", "clerk: Thank you, delivery will help."]
