"""Train the sorter of the crew of `agent.py`. What differs from `plain.py` is all there is to it."""

import leyden


async def solve(task):
    """Run the crew on one message; returns 1.0 for the right department, else 0.0."""
    from agent import handle, score  # here: the process that trains has no CrewAI, it never calls this function

    return score(await handle(task["message"]), task)


if __name__ == "__main__":
    from settings import LEARNING, RUN

    from leyden_lightningrl import LightningRL

    leyden.trainable("sorter")
    leyden.train(solve, algorithm=LightningRL(**LEARNING), **RUN)
