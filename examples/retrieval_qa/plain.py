"""Ask the agents of `agent.py` the questions of a task file, and print how many answers are right."""

import asyncio
import json
from pathlib import Path

from agent import ask, score


async def solve(task):
    """Run the agents on one task; returns 1.0 when they name the right function, else 0.0."""
    return score(await ask(task["question"]), task)


async def main(tasks):
    """Ask one question after the other."""
    scores = [await solve(task) for task in tasks]
    print(f"right: {sum(scores):.0f} of {len(scores)}")


if __name__ == "__main__":
    asyncio.run(main([json.loads(line) for line in Path("data/val.jsonl").read_text().splitlines()]))
