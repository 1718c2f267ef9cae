"""Ask the graph of `agent.py` the questions of a task file, and print how many answers are right."""

import asyncio
import json
from pathlib import Path

from agent import app, score


async def solve(task):
    """Run the graph on one task; returns 1.0 when its query has the right result, else 0.0."""
    return score(await app.ainvoke({"database": task["database"], "question": task["question"]}), task)


async def main(tasks):
    """Ask one question after the other."""
    scores = [await solve(task) for task in tasks]
    print(f"right: {sum(scores):.0f} of {len(scores)}")


if __name__ == "__main__":
    asyncio.run(main([json.loads(line) for line in Path("data/val.jsonl").read_text().splitlines()]))
