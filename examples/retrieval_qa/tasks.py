"""Questions about the standard library, made from the first sentence of the help texts: a training and a held-out set.

``python tasks.py --out DIR --seed N`` makes the index in ``DIR`` and writes, one JSON object
``{"question", "answer", "split"}`` a line:

- ``train.jsonl``: 240 questions (``--seed`` draws these only);
- ``val.jsonl``: 48 questions about functions that training never asks for, in the same three wordings.

The held-out set is the same whatever the seed. Which functions there are depends on the version of Python.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus

# The verb that a help text begins with, and the words before what it governs.
WORDINGS = {
    "Return": ("Which function tells me {}?", "How do I get {}?", "What do I call to obtain {}?"),
    "Get": ("Which function tells me {}?", "How do I get {}?", "What do I call to obtain {}?"),
}
VERBS = """
Add Append Apply Calculate Change Check Clear Close Compare Compile Compute Concatenate Convert Copy Count Create
Decode Delete Determine Disassemble Encode Escape Execute Extract Find Force Format Generate Guess Insert Iterate Join
Launch List Load Look Make Merge Move Normalize Open Parse Perform Pop Print Push Raise Read Recalculate Register
Remove Rename Replace Report Resume Reverse Round Run Search Send Serialize Set Shuffle Sort Split Strip Suspend Swap
Test Transform Translate Truncate Unregister Update Wait Wrap Write
"""
KNOWN = {verb: verb for verb in (*WORDINGS, *VERBS.split())} | {f"{verb}s": verb for verb in WORDINGS}
ACTIONS = ("Which function can {}?", "How do I {} in Python?", "I want to {}. What do I call?")
SENTENCE = re.compile(r"([A-Z][a-z]+) ((?:[\w',-]+ ){2,11}[\w'-]+)(?:\.(?=\s|$)|$|(?= [A-Z][a-z]))")
SIZES = {"train": 240, "val": 48}
HELD_OUT_SEED = 0


@dataclass(frozen=True)
class Question:
    """One task: what is asked, and the function that the help text is of."""

    question: str
    answer: str

    def record(self, split: str) -> dict[str, Any]:
        """The line of the task file of the set ``split``."""
        return {"question": self.question, "answer": self.answer, "split": split}


def is_held_out(name: str) -> bool:
    """Whether training never asks for the function ``name``: a quarter of all, the same in every process."""
    return zlib.crc32(name.encode()) % 4 == 3


def described(passages: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name to (verb, the rest) of the first sentence, of each function that no other one shares the sentence with."""
    found = {}
    for name, text in passages.items():
        match = SENTENCE.match(text)
        if match and (verb := KNOWN.get(match[1])):
            found[name] = (verb, match[2])
    shared = collections.Counter(found.values())
    return {name: sentence for name, sentence in found.items() if shared[sentence] == 1}


def questions(passages: Mapping[str, str]) -> list[Question]:
    """A question for each function that can be asked for, its wording drawn by the function's name."""
    made = []
    for name, (verb, rest) in sorted(described(passages).items()):
        wordings: Sequence[str] = WORDINGS.get(verb, ACTIONS)
        told = rest if verb in WORDINGS else f"{verb.lower()} {rest}"
        made.append(Question(wordings[zlib.crc32(f"{name}?".encode()) % len(wordings)].format(told), name))
    return made


def make(seed: int, sizes: Mapping[str, int] = SIZES) -> dict[str, list[Question]]:
    """The two sets by name, of ``sizes``; ``seed`` draws the training set."""
    asked = questions(corpus.passages())
    train = [question for question in asked if not is_held_out(question.answer)]
    val = [question for question in asked if is_held_out(question.answer)]
    return {
        "train": random.Random(f"train {seed}").sample(train, sizes["train"]),
        "val": random.Random(f"val {HELD_OUT_SEED}").sample(val, sizes["val"]),
    }


def lines(tasks: list[Question], split: str) -> Iterator[str]:
    """The lines of a task file."""
    for task in tasks:
        yield json.dumps(task.record(split)) + "\n"


def write(out: Path, seed: int, sizes: Mapping[str, int] = SIZES) -> None:
    """Make the index in the folder ``out`` and write the two task files, of ``sizes``, beside it."""
    corpus.make(out / "manual.db")
    for name, tasks in make(seed, sizes).items():
        (out / f"{name}.jsonl").write_text("".join(lines(tasks, name)), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the index, train.jsonl and val.jsonl.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training set")
    options = parser.parse_args()
    write(options.out, options.seed)
    print(f"wrote {', '.join(f'{name}.jsonl ({size})' for name, size in SIZES.items())} to {options.out}")


if __name__ == "__main__":
    main()
