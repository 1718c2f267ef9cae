"""The team on a fake model server, and the metric."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

TASK = {"question": "Tom has 8 cups. Tom buys 4 more. How many cups has he now?", "answer": 12, "kind": "add"}


async def test_the_solver_calls_the_calculator_and_the_reporter_words_the_result(
    agent: ModuleType, solver: Any, server: Any
) -> None:
    solver.calculates("8+4")
    said = await agent.answer(TASK["question"])
    assert [(message.source, type(message).__name__) for message in said.messages] == [
        ("user", "TextMessage"),
        ("solver", "ToolCallRequestEvent"),
        ("solver", "ToolCallExecutionEvent"),
        ("solver", "ToolCallSummaryMessage"),
        ("reporter", "TextMessage"),
    ]
    assert [message.content for message in said.messages[3:]] == ["12", "He has 12 cups."]
    solving, reporting = server.bodies
    assert solving["messages"][0] == {"role": "system", "content": agent.SOLVER}
    assert solving["messages"][-1]["content"] == TASK["question"]
    assert [tool["function"]["name"] for tool in solving["tools"]] == ["calculate"]
    assert solving["tool_choice"] == "auto"
    assert reporting["messages"][0] == {"role": "system", "content": agent.REPORTER}
    assert [message["content"] for message in reporting["messages"][-2:]] == [TASK["question"], "12"]
    assert "tools" not in reporting
    assert [(body["model"], body["temperature"], body["max_tokens"]) for body in server.bodies] == [
        ("base", 0, 24),
        ("base", 0, 12),
    ]


async def test_every_call_that_the_solver_is_shown_has_its_right_result(
    agent: ModuleType, calculator: ModuleType, solver: Any, server: Any
) -> None:
    solver.calculates("8+4")
    await agent.answer(TASK["question"])
    shown = server.bodies[0]["messages"][1:-1]
    assert [message["role"] for message in shown] == ["user", "assistant", "tool"] * 4
    for _, call, result in zip(shown[::3], shown[1::3], shown[2::3], strict=True):
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert [message["content"] for message in shown[2::3]] == ["9", "78", "11", "3"]


async def test_no_agent_sees_the_right_answer_and_a_team_remembers_no_other_question(
    agent: ModuleType, solver: Any, server: Any
) -> None:
    solver.calculates("1+1")
    await agent.answer("What is 987654?")
    del server.requests[:]
    await agent.answer(TASK["question"])
    assert "987654" not in str(server.bodies)


@pytest.mark.parametrize("expressions", [("8-4",), ("12",), ("8+",), ("x+y",), ("8/0",), ("",), ("8+4", "8+4"), ()])
async def test_anything_but_one_right_sum_scores_nothing(
    agent: ModuleType, solver: Any, expressions: tuple[str, ...]
) -> None:
    if expressions:
        solver.calculates(*expressions)
    else:
        solver.says = "[calculate(8+4)]"  # text that the server did not take for a call
    assert agent.score(await agent.answer(TASK["question"]), TASK) == 0.0


@pytest.mark.parametrize("expression", ["8+4", "4+8", " 8 + 4", "6*2", "24/2"])
async def test_the_right_value_scores_one(agent: ModuleType, solver: Any, expression: str) -> None:
    solver.calculates(expression)
    assert agent.score(await agent.answer(TASK["question"]), TASK) == 1.0


async def test_a_tool_that_does_not_exist_scores_nothing(agent: ModuleType, solver: Any) -> None:
    solver.says = {"tool_calls": [{"name": "guess", "arguments": {"expression": "8+4"}}]}
    assert agent.score(await agent.answer(TASK["question"]), TASK) == 0.0


async def test_the_program_prints_what_each_agent_made_of_the_question(
    agent: ModuleType, solver: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    solver.calculates("8+4")
    await agent.main(TASK["question"])
    assert capsys.readouterr().out.splitlines()[-2:] == ["solver: 12", "reporter: He has 12 cups."]
