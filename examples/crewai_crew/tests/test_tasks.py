"""The generated messages are balanced, repeatable, and the held-out sets share nothing with the training set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.parametrize("seed", range(5))
def test_sets_have_their_size_and_all_departments_evenly(tasks: ModuleType, seed: int) -> None:
    for name, made in tasks.make(seed).items():
        assert len({task["message"] for task in made}) == len(made) == tasks.SIZES[name]
        counts = [sum(task["department"] == department for task in made) for department in tasks.PHRASINGS]
        assert max(counts) - min(counts) <= 1
        assert {task["split"] for task in made} == {name}


@pytest.mark.parametrize("seed", range(5))
def test_held_out_sets_share_no_number_or_product_with_training(tasks: ModuleType, seed: int) -> None:
    sets = {name: " ".join(task["message"] for task in made) for name, made in tasks.make(seed).items()}
    seen = set(re.findall(r"\d+", sets["train"]))
    for name in ("val", "phrasings"):
        assert not seen & set(re.findall(r"\d+", sets[name]))
        assert not set(tasks.PRODUCTS) & set(re.findall(r"\w+", sets[name]))
    assert not set(tasks.UNSEEN_PRODUCTS) & set(re.findall(r"\w+", sets["train"]))


def test_unseen_phrasings_are_unseen(tasks: ModuleType) -> None:
    assert list(tasks.UNSEEN_PHRASINGS) == list(tasks.PHRASINGS)
    for department, phrasings in tasks.UNSEEN_PHRASINGS.items():
        assert not set(phrasings) & set(tasks.PHRASINGS[department])


def test_the_seed_decides_the_training_set_alone(tasks: ModuleType, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        tasks.write(tmp_path / folder, seed)
    texts = {
        (folder, name): Path(tmp_path, folder, f"{name}.jsonl").read_text() for folder in "abc" for name in tasks.SIZES
    }
    for name in tasks.SIZES:
        assert texts["a", name] == texts["b", name]
    assert texts["a", "train"] != texts["c", "train"]
    assert texts["a", "val"] == texts["c", "val"]
    assert texts["a", "phrasings"] == texts["c", "phrasings"]
    assert list(json.loads(texts["a", "train"].splitlines()[0])) == ["message", "department", "split"]
