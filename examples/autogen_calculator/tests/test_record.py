"""What is written of a run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parents[1]


@pytest.fixture
def record(modules: None) -> ModuleType:
    """The module that writes the results."""
    return importlib.import_module("record")


def test_the_page_is_what_the_recorded_figures_give(record: ModuleType) -> None:
    results = json.loads((HERE / "RESULTS.json").read_text())
    assert (HERE / "RESULTS.md").read_text() == record.page(results)


def test_the_answers_before_and_after_are_the_marked_agents(record: ModuleType) -> None:
    def episode(at: int, text: str, reward: float) -> dict[str, Any]:
        calls = [{"function": {"name": "calculate", "arguments": text}}]
        said = json.dumps([{"content": None, "tool_calls": calls}])
        other = json.dumps([{"content": "so much"}])
        return {
            "rollout": {"created_at": at, "task": {"question": "How much?"}},
            "spans": [
                {"kind": "llm", "call": {"policy": "default"}, "attributes": {"gen_ai.output.messages": said}},
                {"kind": "llm", "call": {}, "attributes": {"gen_ai.output.messages": other}},
                {"kind": "reward", "reward": {"value": reward}},
            ],
        }

    (answer,) = record.answers([episode(2, "b", 1.0), episode(1, "a", 0.0)])
    assert record.sample(answer) == {"task": "How much?", "before": "calculate(a) (0)", "after": "calculate(b) (1)"}
