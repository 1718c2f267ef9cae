"""Questions about the databases with the queries that answer them: the training set and two held-out sets.

``python tasks.py --out DIR --seed N`` makes the databases in ``DIR`` and writes, one JSON object
``{"database", "question", "gold", "split"}`` a line:

- ``train.jsonl``: 320 questions about the databases world, web and system (``--seed`` draws these only);
- ``val.jsonl``: 40 questions about the same databases, but rows and numbers that training never asks for;
- ``schemas.jsonl``: 20 questions about the databases america and python, which training never shows.

The held-out sets are the same whatever the seed. ``gold`` is a right query; its result is never empty or zero.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import databases

# (question, query that answers it, query that gives the values to ask for)
PATTERNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "world": (
        (
            "What is the capital of {}?",
            "SELECT capital FROM countries WHERE name = '{}'",
            "SELECT name FROM countries WHERE population > 2000000",
        ),
        (
            "What is the population of {}?",
            "SELECT population FROM countries WHERE name = '{}'",
            "SELECT name FROM countries WHERE population > 2000000",
        ),
        (
            "On which continent is {}?",
            "SELECT continent FROM countries WHERE name = '{}'",
            "SELECT name FROM countries WHERE population > 2000000",
        ),
        (
            "Which country has the capital {}?",
            "SELECT name FROM countries WHERE capital = '{}'",
            "SELECT capital FROM countries WHERE population > 2000000",
        ),
        (
            "In which country is the city {}?",
            "SELECT country FROM cities WHERE name = '{}'",
            "SELECT name FROM cities WHERE population > 1500000",
        ),
        (
            "How many cities are in {}?",
            "SELECT count(*) FROM cities WHERE country = '{}'",
            "SELECT DISTINCT country FROM cities",
        ),
        (
            "How many cities have more than {} people?",
            "SELECT count(*) FROM cities WHERE population > {}",
            "SELECT DISTINCT population / 100000 * 100000 FROM cities WHERE population < 9000000",
        ),
    ),
    "web": (
        (
            "What is the phrase of status {}?",
            "SELECT phrase FROM statuses WHERE code = {}",
            "SELECT code FROM statuses",
        ),
        (
            "Which kind of status is {}?",
            "SELECT kind FROM statuses WHERE code = {}",
            "SELECT code FROM statuses",
        ),
        (
            "Which code has the phrase {}?",
            "SELECT code FROM statuses WHERE phrase = '{}'",
            "SELECT phrase FROM statuses",
        ),
        (
            "How many statuses have a code above {}?",
            "SELECT count(*) FROM statuses WHERE code > {}",
            "SELECT code FROM statuses WHERE code < 511",
        ),
        (
            "What is the type of {} files?",
            "SELECT type FROM types WHERE extension = '{}'",
            "SELECT extension FROM types",
        ),
        (
            "How many extensions have the type {}?",
            "SELECT count(*) FROM types WHERE type = '{}'",
            "SELECT DISTINCT type FROM types WHERE length(type) < 18",
        ),
    ),
    "system": (
        (
            "What is the name of error {}?",
            "SELECT name FROM errors WHERE number = {}",
            "SELECT number FROM errors",
        ),
        (
            "What is the message of error {}?",
            "SELECT message FROM errors WHERE number = {}",
            "SELECT number FROM errors",
        ),
        (
            "Which number has the error {}?",
            "SELECT number FROM errors WHERE name = '{}'",
            "SELECT name FROM errors WHERE length(name) < 8",
        ),
        (
            "Which number has the signal {}?",
            "SELECT number FROM signals WHERE name = '{}'",
            "SELECT name FROM signals WHERE length(name) < 8",
        ),
        (
            "What is the name of signal {}?",
            "SELECT name FROM signals WHERE number = {}",
            "SELECT number FROM signals",
        ),
        (
            "How many errors have a number above {}?",
            "SELECT count(*) FROM errors WHERE number > {}",
            "SELECT number FROM errors WHERE number < 130",
        ),
    ),
    "america": (
        (
            "What is the code of {}?",
            "SELECT code FROM states WHERE name = '{}'",
            "SELECT name FROM states",
        ),
        (
            "Which state has the code {}?",
            "SELECT name FROM states WHERE code = '{}'",
            "SELECT code FROM states",
        ),
        (
            "How many counties are in {}?",
            "SELECT count(*) FROM counties WHERE state = '{}'",
            "SELECT name FROM states",
        ),
    ),
    "python": (
        (
            "What is the name of token {}?",
            "SELECT name FROM tokens WHERE number = {}",
            "SELECT number FROM tokens WHERE number > 0",
        ),
        (
            "What is the name of operation {}?",
            "SELECT name FROM operations WHERE number = {}",
            "SELECT number FROM operations WHERE number > 0",
        ),
        (
            "How many tokens have a number above {}?",
            "SELECT count(*) FROM tokens WHERE number > {}",
            "SELECT number FROM tokens WHERE number BETWEEN 1 AND 50",
        ),
    ),
}
SEEN, UNSEEN = ("world", "web", "system"), ("america", "python")
SIZES = {"train": 320, "val": 40, "schemas": 20}
HELD_OUT_SEED = 0


@dataclass(frozen=True)
class Question:
    """One task: the database, what is asked about it, and a query that answers it."""

    database: str
    question: str
    gold: str
    value: str

    def record(self, split: str) -> dict[str, Any]:
        """The line of the task file of the set ``split``."""
        return {"database": self.database, "question": self.question, "gold": self.gold, "split": split}


def is_held_out(value: str) -> bool:
    """Whether nothing in training asks for ``value``: a quarter of all values, the same in every process."""
    return zlib.crc32(value.encode()) % 4 == 3


def questions(folder: Path, database: str) -> list[list[Question]]:
    """Every question about a database that has an answer: a list for each pattern."""
    path = folder / f"{database}.db"
    made = []
    for question, query, values in PATTERNS[database]:
        texts = [str(value) for (value,) in databases.run(path, values) if "'" not in str(value)]
        asked = [Question(database, question.format(text), query.format(text), text) for text in texts]
        made.append([one for one in asked if databases.run(path, one.gold) not in ([], [(0,)])])
    return made


def draw(rng: random.Random, patterns: list[list[Question]], size: int) -> list[Question]:
    """``size`` different questions in random order, the patterns in turn as long as they have some left."""
    left = [rng.sample(asked, len(asked)) for asked in patterns]
    drawn: list[Question] = []
    while len(drawn) < size:
        turn = [asked.pop() for asked in left if asked]
        if not turn:
            raise ValueError(f"there are {len(drawn)} questions, not {size}")
        drawn += turn
    return rng.sample(drawn[:size], size)


def make(folder: Path, seed: int, sizes: Mapping[str, int] = SIZES) -> dict[str, list[Question]]:
    """The three sets by name, of ``sizes``, about the databases in ``folder``; ``seed`` draws the training set."""
    known = [asked for database in SEEN for asked in questions(folder, database)]
    train = [[one for one in asked if not is_held_out(one.value)] for asked in known]
    val = [[one for one in asked if is_held_out(one.value)] for asked in known]
    schemas = [asked for database in UNSEEN for asked in questions(folder, database)]
    return {
        "train": draw(random.Random(f"train {seed}"), train, sizes["train"]),
        "val": draw(random.Random(f"val {HELD_OUT_SEED}"), val, sizes["val"]),
        "schemas": draw(random.Random(f"schemas {HELD_OUT_SEED}"), schemas, sizes["schemas"]),
    }


def lines(tasks: list[Question], split: str) -> Iterator[str]:
    """The lines of a task file."""
    for task in tasks:
        yield json.dumps(task.record(split)) + "\n"


def write(out: Path, seed: int, sizes: Mapping[str, int] = SIZES) -> None:
    """Make the databases in the folder ``out`` and write the three task files, of ``sizes``, beside them."""
    databases.make(out)
    for name, tasks in make(out, seed, sizes).items():
        (out / f"{name}.jsonl").write_text("".join(lines(tasks, name)), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the databases, train.jsonl, val.jsonl and schemas.jsonl.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training set")
    options = parser.parse_args()
    write(options.out, options.seed)
    print(f"wrote {', '.join(f'{name}.jsonl ({size})' for name, size in SIZES.items())} to {options.out}")


if __name__ == "__main__":
    main()
