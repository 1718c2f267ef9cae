"""Train the writer and the rewriter of `agent.py` as one policy. What differs from `plain.py` is all there is to it."""

from agent import app, score
from settings import LEARNING, RUN

import leyden
from leyden_lightningrl import LightningRL


async def solve(task):
    """Run the graph on one task; returns 1.0 when its query has the right result, else 0.0."""
    return score(await app.ainvoke({"database": task["database"], "question": task["question"]}), task)


if __name__ == "__main__":
    leyden.trainable("writer")
    leyden.trainable("rewriter")
    leyden.train(solve, algorithm=LightningRL(**LEARNING), **RUN)
