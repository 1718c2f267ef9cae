"""Use the crew of `agent.py`: handle the held-out messages and print how many were sorted right."""

import asyncio
import json
from pathlib import Path

from agent import handle, score


async def solve(task):
    """Run the crew on one message; returns 1.0 for the right department, else 0.0."""
    return score(await handle(task["message"]), task)


async def main(tasks):
    scores = [await solve(task) for task in tasks]
    print(f"right: {sum(scores):.0f} of {len(scores)}")


if __name__ == "__main__":
    asyncio.run(main([json.loads(line) for line in Path("data/val.jsonl").read_text().splitlines()]))
