"""Messages of customers with the department that each is for, made by a generator: a training set and two held-out sets.

``python tasks.py --out DIR --seed N`` writes, one JSON object ``{"message", "department", "split"}`` a line:

- ``train.jsonl``: 160 messages of 20 phrasings, five for each department (``--seed`` changes these only);
- ``val.jsonl``: 40 messages with the same phrasings, but products and numbers that training never shows;
- ``phrasings.jsonl``: 40 messages whose phrasings are unseen too.

The held-out sets are the same whatever the seed, so that runs compare. Departments are equally frequent in every set.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

PHRASINGS = {
    "billing": (
        "I was charged twice for order {number}.",
        "Why is my invoice {number} so high?",
        "Please refund the {number} dollars you took.",
        "My card was debited {number} dollars by mistake.",
        "I paid {number} dollars too much for the {product}.",
    ),
    "delivery": (
        "My parcel {number} has not arrived.",
        "Where is package {number}?",
        "The courier left box {number} at the wrong house.",
        "Order {number} is three days late.",
        "The {product} I ordered never came.",
    ),
    "login": (
        "I forgot my password for account {number}.",
        "The site says user {number} is locked.",
        "I can't sign in as {number}.",
        "My reset code {number} does not work.",
        "The app does not know my user name {number}.",
    ),
    "repair": (
        "My {product} does not turn on.",
        "The {product} makes a strange noise.",
        "The screen of my {product} is cracked.",
        "My {product} stopped working.",
        "A button of the {product} fell off.",
    ),
}
UNSEEN_PHRASINGS = {
    "billing": ("The receipt for {number} shows a wrong amount.", "You billed me again for the {product}."),
    "delivery": ("Shipment {number} is still missing.", "When will my {product} come? It was sent weeks ago."),
    "login": ("Account {number} rejects my password.", "I am locked out of profile {number}."),
    "repair": (
        "My {product} is broken.",
        "The {product} gets too hot and shuts down.",
        "The {product} fell and has a dent.",
    ),
}
PRODUCTS = ("phone", "laptop", "kettle", "printer", "camera", "speaker", "drill", "watch", "heater", "scanner")
UNSEEN_PRODUCTS = ("toaster", "tablet", "mixer", "router")
NUMBERS = range(100, 1000)
SIZES = {"train": 160, "val": 40, "phrasings": 40}
HELD_OUT_SEED = 0


def is_unseen(number: int) -> bool:
    """Whether ``number`` is kept for the held-out sets."""
    return number % 4 == 3


def messages(rng: random.Random, size: int, phrasings: Mapping[str, Sequence[str]], split: str) -> list[dict[str, str]]:
    """``size`` different messages in random order, departments in turn, from the seen or the unseen products and numbers."""
    unseen = split != "train"
    products = UNSEEN_PRODUCTS if unseen else PRODUCTS
    numbers = [number for number in NUMBERS if is_unseen(number) == unseen]
    made: dict[str, dict[str, str]] = {}
    while len(made) < size:
        department = list(phrasings)[len(made) % len(phrasings)]
        phrasing = rng.choice(phrasings[department])
        text = phrasing.format(number=rng.choice(numbers), product=rng.choice(products))
        made.setdefault(text, {"message": text, "department": department, "split": split})
    shuffled = list(made.values())
    rng.shuffle(shuffled)
    return shuffled


def make(seed: int, sizes: Mapping[str, int] = SIZES) -> dict[str, list[dict[str, str]]]:
    """The three sets by name, of ``sizes``; ``seed`` decides the training set. Raises AssertionError when sets overlap."""
    held_out = random.Random(HELD_OUT_SEED)
    sets = {
        "train": messages(random.Random(f"train {seed}"), sizes["train"], PHRASINGS, "train"),
        "val": messages(held_out, sizes["val"], PHRASINGS, "val"),
        "phrasings": messages(held_out, sizes["phrasings"], UNSEEN_PHRASINGS, "phrasings"),
    }
    for held in ("val", "phrasings"):
        both = {task["message"] for task in sets["train"]} & {task["message"] for task in sets[held]}
        assert not both, f"messages in both train and {held}: {sorted(both)}"
    return sets


def write(out: Path, seed: int, sizes: Mapping[str, int] = SIZES) -> None:
    """Write the three task files, of ``sizes``, into the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    for name, tasks in make(seed, sizes).items():
        lines = "".join(json.dumps(task) + "\n" for task in tasks)
        (out / f"{name}.jsonl").write_text(lines, encoding="utf-8")


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
