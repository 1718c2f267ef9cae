"""The generated tasks are right, balanced, repeatable, and the held-out sets share nothing with the training set."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tasks as module
from calculator import evaluate
from tasks import KINDS, SIZES, make, results, write

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_right_and_of_one_operation_alone(seed: int) -> None:
    for tasks in make(seed).values():
        for task in tasks:
            assert evaluate(f"{task.a}{SIGNS[task.kind]}{task.b}") == task.answer > 0
            assert {str(task.a), str(task.b)} == set(re.findall(r"\d+", task.question))
            assert list(results(task.a, task.b).values()).count(task.answer) == 1


@pytest.mark.parametrize("seed", range(5))
def test_sets_have_their_size_and_all_kinds_evenly(seed: int) -> None:
    for name, tasks in make(seed).items():
        assert len({task.question for task in tasks}) == len(tasks) == SIZES[name]
        counts = [sum(task.kind == kind for task in tasks) for kind in KINDS]
        assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_held_out_sets_share_no_number_name_thing_or_sum_with_training(seed: int) -> None:
    sets = make(seed)
    train = sets["train"]
    for name in ("val", "phrasings"):
        words = set(re.findall(r"\w+", " ".join(task.question for task in sets[name])))
        assert not words & {*module.NAMES, *module.THINGS}
        assert not {task.sum for task in train} & {task.sum for task in sets[name]}
        seen = {number for task in train for number in (task.a, task.b) if task.kind != "divide"}
        assert not seen & {number for task in sets[name] for number in (task.a, task.b) if task.kind != "divide"}
        dividends = {task.a for task in train if task.kind == "divide"}
        assert not dividends & {task.a for task in sets[name] if task.kind == "divide"}
    words = set(re.findall(r"\w+", " ".join(task.question for task in train)))
    assert not words & {*module.UNSEEN_NAMES, *module.UNSEEN_THINGS}


def test_unseen_phrasings_are_unseen_and_two_for_each_operation() -> None:
    known = {phrasing for kind in KINDS for phrasing in module.PHRASINGS[kind]}
    new = {phrasing for kind in KINDS for phrasing in module.UNSEEN_PHRASINGS[kind]}
    assert not known & new
    assert [len(module.UNSEEN_PHRASINGS[kind]) for kind in KINDS] == [2, 2, 2, 2]


def test_the_seed_decides_the_training_set_alone(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / folder, seed)
    texts = {
        (folder, name): Path(tmp_path, folder, f"{name}.jsonl").read_text(encoding="utf-8")
        for folder in "abc"
        for name in SIZES
    }
    for name in SIZES:
        assert texts["a", name] == texts["b", name]
    assert texts["a", "train"] != texts["c", "train"]
    assert texts["a", "val"] == texts["c", "val"]
    assert texts["a", "phrasings"] == texts["c", "phrasings"]
    first = json.loads(texts["a", "train"].splitlines()[0])
    assert list(first) == ["question", "answer", "things", "kind", "split"]
    assert first["split"] == "train"
