"""Train the planner instead: the same program, another mark, and the metric of what the planner does."""

from agent import app, names_things

import leyden


@leyden.rollout
async def solve(task):
    """Run the program on one task; whether the planner named the right things is the reward."""
    return names_things(await app.ainvoke({"question": task["question"]}), task)
