"""Train the solver of the team of `agent.py`. What differs from `plain.py` is all there is to it."""

import leyden


async def solve(task):
    """Run the team on one task; returns 1.0 for the right number, else 0.0."""
    from agent import answer, score  # here: the process that trains has no AutoGen, it never calls this function

    return score(await answer(task["question"]), task)


if __name__ == "__main__":
    from settings import LEARNING, RUN

    from leyden_lightningrl import LightningRL

    leyden.trainable("solver")
    leyden.train(solve, algorithm=LightningRL(**LEARNING), **RUN)
