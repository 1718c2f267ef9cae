"""Use the team of `agent.py`: answer the held-out tasks and print how many are right."""

import asyncio
import json
from pathlib import Path

from agent import answer, score


async def solve(task):
    """Run the team on one task; returns 1.0 for the right number, else 0.0."""
    return score(await answer(task["question"]), task)


async def main(tasks):
    scores = [await solve(task) for task in tasks]
    print(f"right: {sum(scores):.0f} of {len(scores)}")


if __name__ == "__main__":
    asyncio.run(main([json.loads(line) for line in Path("data/val.jsonl").read_text().splitlines()]))
