"""The tasks are right, repeatable, and the held-out ones ask for nothing that training asks for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize("seed", range(3))
def test_sets_have_their_size_and_gold_queries_find_something(example: SimpleNamespace, data: Path, seed: int) -> None:
    for name, made in example.tasks.make(data, seed).items():
        assert len({task.question for task in made}) == len(made) == example.tasks.SIZES[name]
        for task in made:
            assert task.value in task.question
            assert example.databases.run(data / f"{task.database}.db", task.gold) not in ([], [(0,)])


@pytest.mark.parametrize("seed", range(3))
def test_the_sets_are_disjoint(example: SimpleNamespace, data: Path, seed: int) -> None:
    sets = example.tasks.make(data, seed)
    asked = {name: {(task.database, task.value) for task in made} for name, made in sets.items()}
    assert not asked["train"] & asked["val"]
    databases = {name: {task.database for task in made} for name, made in sets.items()}
    assert databases["train"] == databases["val"] == {"world", "web", "system"}
    assert databases["schemas"] == {"america", "python"}


def test_the_seed_draws_the_training_set_alone(example: SimpleNamespace, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        example.tasks.write(tmp_path / folder, seed)
    texts = {
        (folder, name): (tmp_path / folder / f"{name}.jsonl").read_text()
        for folder in "abc"
        for name in example.tasks.SIZES
    }
    for name in example.tasks.SIZES:
        assert texts["a", name] == texts["b", name]
        assert (texts["a", name] == texts["c", name]) == (name != "train")
    first = json.loads(texts["a", "val"].splitlines()[0])
    assert list(first) == ["database", "question", "gold", "split"]


def test_too_few_questions_are_an_error(example: SimpleNamespace, data: Path) -> None:
    with pytest.raises(ValueError, match=r"there are [0-9]+ questions, not 10000"):
        example.tasks.make(data, 0, {"train": 1, "val": 1, "schemas": 10000})
