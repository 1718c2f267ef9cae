"""Word problems with one operation, made by a generator: the training set and two held-out sets.

``python tasks.py --out DIR --seed N`` writes, one JSON object ``{"question", "answer", "things", "kind", "split"}`` a line:

- ``train.jsonl``: 480 tasks of eight sentence phrasings, two for each operation (``--seed`` changes these only);
- ``val.jsonl``: 100 tasks with the same phrasings, but numbers, names and things that training never shows;
- ``phrasings.jsonl``: 96 tasks whose phrasings are unseen too.

The held-out sets are the same whatever the seed, so that runs compare. Kinds are equally frequent in every set.
``make`` checks that no question and no sum (operation and operands, in either order) of a held-out set is in the training
set, and that of the four operations only the right one gives the answer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("add", "subtract", "multiply", "divide")
PHRASINGS = {
    "add": (
        "{name} has {a} {things}. {name} buys {b} more. How many {things} does {name} have now?",
        "There are {a} red {things} and {b} blue {things}. How many {things} are there in total?",
    ),
    "subtract": (
        "{name} has {a} {things} and gives {b} to a friend. How many {things} are left?",
        "{name} had {a} {things} but lost {b} of them. How many {things} does {name} still have?",
    ),
    "multiply": (
        "Each box holds {a} {things}. How many {things} are in {b} boxes?",
        "{name} collects {a} {things} every day. How many {things} does {name} collect in {b} days?",
    ),
    "divide": (
        "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
        "{a} {things} are packed into bags of {b}. How many bags are needed?",
    ),
}
UNSEEN_PHRASINGS = {
    "add": (
        "{name} finds {a} {things} on Monday and {b} on Tuesday. How many {things} did {name} find?",
        "A shop sells {a} {things} in the morning and {b} in the afternoon. How many {things} does it sell?",
    ),
    "subtract": (
        "There are {a} {things} on a table. {name} takes {b} away. How many {things} stay on the table?",
        "A jar held {a} {things} until {name} used {b}. How many {things} remain in the jar?",
    ),
    "multiply": (
        "{name} buys {b} packs with {a} {things} in each pack. How many {things} does {name} get?",
        "There are {a} rows of {b} {things}. How many {things} are there?",
    ),
    "divide": (
        "{name} puts {a} {things} into {b} equal piles. How many {things} are in each pile?",
        "{a} {things} fill {b} jars evenly. How many {things} does one jar hold?",
    ),
}
NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Irene", "Jack")
THINGS = ("pens", "apples", "books", "coins", "cards", "eggs", "shells", "stamps")
UNSEEN_NAMES = ("Kate", "Leo", "Mia", "Noah", "Olga", "Paul")
UNSEEN_THINGS = ("marbles", "cookies", "tickets", "stickers")
SIZES = {"train": 480, "val": 100, "phrasings": 96}
SMALL_SIZES = {"train": 32, "val": 8, "phrasings": 8}
HELD_OUT_SEED = 0
# Two operands are seen in training or held out by their remainder, so that neither set lacks small or large numbers.
# A quotient or a divisor is too small to set a quarter aside: of a division only the dividend is unseen.
NUMBERS = range(2, 61)
FACTORS = range(2, 21)
DIVISORS = range(2, 13)


@dataclass(frozen=True)
class Problem:
    """One task: what is asked, the right answer, and the sum it was made from."""

    question: str
    answer: int
    kind: str
    things: str
    a: int
    b: int

    @property
    def sum(self) -> tuple[str, int, int]:
        """The operation and its operands; the order of summands and of factors does not count."""
        if self.kind in ("add", "multiply"):
            return self.kind, min(self.a, self.b), max(self.a, self.b)
        return self.kind, self.a, self.b

    def record(self, split: str) -> dict[str, Any]:
        """The line of the task file of the set `split`."""
        return {
            "question": self.question,
            "answer": self.answer,
            "things": self.things,
            "kind": self.kind,
            "split": split,
        }


def is_unseen(number: int) -> bool:
    """Whether ``number`` is kept for the held-out sets."""
    return number % 4 == 3


def results(a: int, b: int) -> dict[str, float]:
    """What each of the four operations makes of ``a`` and ``b``."""
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b}


def operands(rng: random.Random, kind: str, unseen: bool) -> tuple[int, int]:
    """Two operands for an operation of ``kind``: its result is a positive whole number and no other operation's."""
    while True:
        if kind == "divide":
            b = rng.choice(DIVISORS)
            a = b * rng.choice(DIVISORS)
            numbers = {a}
        else:
            a, b = rng.choice(NUMBERS), rng.choice(FACTORS if kind == "multiply" else NUMBERS)
            numbers = {a, b}
        values = results(a, b)
        alone = list(values.values()).count(values[kind]) == 1
        if alone and values[kind] > 0 and all(is_unseen(number) == unseen for number in numbers):
            return a, b


def problems(rng: random.Random, size: int, phrasings: Mapping[str, Sequence[str]], unseen: bool) -> list[Problem]:
    """``size`` different problems in random order, the phrasings in turn, from the seen or the unseen vocabulary."""
    names, things = (UNSEEN_NAMES, UNSEEN_THINGS) if unseen else (NAMES, THINGS)
    turns = [(kind, phrasing) for kind in KINDS for phrasing in phrasings[kind]]
    made: dict[str, Problem] = {}
    while len(made) < size:
        kind, phrasing = turns[len(made) % len(turns)]
        a, b = operands(rng, kind, unseen)
        question = phrasing.format(a=a, b=b, name=rng.choice(names), things=rng.choice(things))
        counted = re.split(r"[Hh]ow many ", question)[1].split()[0]
        made.setdefault(question, Problem(question, int(results(a, b)[kind]), kind, counted, a, b))
    shuffled = list(made.values())
    rng.shuffle(shuffled)
    return shuffled


def make(seed: int, sizes: Mapping[str, int] = SIZES) -> dict[str, list[Problem]]:
    """The three sets by name, of ``sizes``; ``seed`` decides the training set. Raises AssertionError when sets overlap."""
    held_out = random.Random(HELD_OUT_SEED)
    sets = {
        "train": problems(random.Random(f"train {seed}"), sizes["train"], PHRASINGS, unseen=False),
        "val": problems(held_out, sizes["val"], PHRASINGS, unseen=True),
        "phrasings": problems(held_out, sizes["phrasings"], UNSEEN_PHRASINGS, unseen=True),
    }
    for left, right in (("train", "val"), ("train", "phrasings"), ("val", "phrasings")):
        questions = {problem.question for problem in sets[left]} & {problem.question for problem in sets[right]}
        assert not questions, f"questions in both {left} and {right}: {sorted(questions)}"
    for held in ("val", "phrasings"):
        sums = {problem.sum for problem in sets["train"]} & {problem.sum for problem in sets[held]}
        assert not sums, f"sums in both train and {held}: {sorted(sums)}"
    return sets


def lines(tasks: list[Problem], split: str) -> Iterator[str]:
    """The lines of a task file."""
    for task in tasks:
        yield json.dumps(task.record(split)) + "\n"


def write(out: Path, seed: int, sizes: Mapping[str, int] = SIZES) -> None:
    """Write the three task files, of ``sizes``, into the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    for name, tasks in make(seed, sizes).items():
        (out / f"{name}.jsonl").write_text("".join(lines(tasks, name)), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write train.jsonl, val.jsonl and phrasings.jsonl.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training set")
    options = parser.parse_args()
    write(options.out, options.seed)
    print(f"wrote {', '.join(f'{name}.jsonl ({size})' for name, size in SIZES.items())} to {options.out}")


if __name__ == "__main__":
    main()
