"""Train the writer of the LangGraph program in `agent.py`. `demo.py` makes the model, the tasks and the base server."""

from agent import app, score
from settings import SETTINGS

import leyden
from leyden_lightningrl import LightningRL


@leyden.rollout
async def solve(task):
    """Run the program on one task; the metric is the reward."""
    return score(await app.ainvoke({"question": task["question"]}), task)


if __name__ == "__main__":
    leyden.trainable("writer")
    leyden.train(
        solve,
        tasks="data/train.jsonl",
        val_tasks={"val": "data/val.jsonl", "phrasings": "data/phrasings.jsonl"},
        algorithm=LightningRL(model="data/model", **SETTINGS),
    )
