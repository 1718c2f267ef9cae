"""Find the better prompt for the solver: `python train.py`. No GPU, no torch, no download; it takes seconds."""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

from agent import PROMPTS, run, score
from model import server
from prompt_choice import PromptChoice

import leyden


def sums(seed: int, count: int) -> list[dict[str, Any]]:
    """Sums of two numbers, a third of them easy ones."""
    chance = random.Random(seed)
    pairs = [[chance.randint(1, 9 if chance.random() < 1 / 3 else 99) for _ in range(2)] for _ in range(count)]
    return [{"question": f"What is {a} + {b}?", "answer": a + b} for a, b in pairs]


@leyden.rollout
async def solve(task: dict[str, Any]) -> float:
    """Run both agents on one task; the metric is the reward."""
    return score(await run(task["question"]), task)


def main() -> None:
    """Train, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="of the run (default: runs/train-<time>)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --directory")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    leyden.declare("solver", "host")
    leyden.trainable("solver")
    with server() as model:
        os.environ["OPENAI_BASE_URL"] = model.base_url
        leyden.train(
            solve,
            tasks=sums(1, 64),
            val_tasks=sums(2, 32),
            algorithm=PromptChoice(*PROMPTS, steps=given.steps),
            directory=given.directory,
            resume=given.resume,
            seed=given.seed,
            processes=given.processes,
        )


if __name__ == "__main__":
    main()
