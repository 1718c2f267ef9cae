"""Train the searcher of `agent.py`. What differs from `plain.py` is all there is to it."""

from agent import ask, score
from settings import LEARNING, RUN

import leyden
from leyden_lightningrl import LightningRL


async def solve(task):
    """Run the agents on one task; returns 1.0 when they name the right function, else 0.0."""
    return score(await ask(task["question"]), task)


if __name__ == "__main__":
    leyden.trainable("searcher")
    leyden.train(solve, algorithm=LightningRL(**LEARNING), **RUN)
