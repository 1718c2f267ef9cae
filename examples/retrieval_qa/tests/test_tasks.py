"""The questions can be answered, repeat, and the held-out ones ask for no function that training asks for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize("seed", range(3))
def test_sets_have_their_size_and_are_disjoint(example: SimpleNamespace, seed: int) -> None:
    sets = example.tasks.make(seed)
    for name, made in sets.items():
        assert len({task.question for task in made}) == len({task.answer for task in made}) == example.tasks.SIZES[name]
    assert not {task.answer for task in sets["train"]} & {task.answer for task in sets["val"]}
    passages = example.corpus.passages()
    texts = {name: {passages[task.answer] for task in made} for name, made in sets.items()}
    assert not texts["train"] & texts["val"]


def test_a_question_never_names_its_function_by_its_full_name(example: SimpleNamespace) -> None:
    for made in example.tasks.make(0).values():
        assert not [task for task in made if task.answer in task.question]


def test_the_words_of_a_question_alone_find_nothing_but_those_that_matter_do(
    example: SimpleNamespace, data: Path
) -> None:
    tasks = example.tasks.make(0)["val"]
    filler = {"Which", "What", "How", "do", "I", "call", "function", "tells", "me", "get", "obtain", "want", "Python"}
    whole = matter = 0
    for task in tasks:
        words = example.corpus.WORD.findall(task.question)
        whole += task.answer in dict(example.corpus.search(data / "manual.db", task.question, 1))
        kept = " ".join(word for word in words if word not in filler and len(word) > 3)
        matter += task.answer in dict(example.corpus.search(data / "manual.db", kept, 1))
    assert whole == 0
    assert matter > 0.7 * len(tasks)


def test_no_shown_question_is_a_task(example: SimpleNamespace) -> None:
    shown = {item["content"] for item in example.agent.SEARCHES if item.get("role") == "user"}
    assert len(shown) == 3
    assert not shown & {task.question for made in example.tasks.make(0).values() for task in made}


def test_the_seed_draws_the_training_set_alone(example: SimpleNamespace, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        example.tasks.write(tmp_path / folder, seed)
    files = [(folder, name) for folder in "abc" for name in example.tasks.SIZES]
    texts = {(folder, name): (tmp_path / folder / f"{name}.jsonl").read_text() for folder, name in files}
    for name in example.tasks.SIZES:
        assert texts["a", name] == texts["b", name]
        assert (texts["a", name] == texts["c", name]) == (name != "train")
    assert list(json.loads(texts["a", "val"].splitlines()[0])) == ["question", "answer", "split"]
