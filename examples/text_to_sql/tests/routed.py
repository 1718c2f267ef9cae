"""One rollout of the marked graph on two fake servers, the base model's and the policy's: prints who was called where."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import leyden
from leyden.testing.server import FakeModelServer

GOLD = "SELECT code FROM statuses WHERE phrase = 'Not Found'"
TASK = {"database": "web", "question": "Which code has the phrase Not Found?", "gold": GOLD}


class Once:
    """An algorithm of one rollout."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, run: leyden.TrainingRun) -> None:
        """Publish the policy's endpoint, run each task once."""
        await run.publish({"default": leyden.Endpoint(base_url=self.url, model="policy", version=1)})
        episodes = await run.rollout(run.tasks)
        rows = [one.agent for episode in episodes for one in episode.transitions("default")]
        print(json.dumps({"rewards": [episode.reward for episode in episodes], "rows": rows}))


def reply(body: dict[str, Any]) -> str:
    """The writer is wrong, the checker sees it, the rewriter is right."""
    if body["messages"][0]["content"].startswith("Is the query right?"):
        return "no"
    return GOLD if body["messages"][-1]["content"].startswith("Error: ") else "SELECT phrase FROM statuses"


if __name__ == "__main__":
    with FakeModelServer(reply=reply) as base, FakeModelServer(reply=reply) as policy:
        os.environ["BASE_URL"] = base.base_url
        from plain import solve

        leyden.trainable("writer")
        leyden.trainable("rewriter")
        leyden.train(solve, tasks=[TASK], algorithm=Once(policy.base_url), processes=0)
        for name, server in (("base", base), ("policy", policy)):
            print(json.dumps({name: [body["messages"][-1]["content"] for body in server.bodies if body]}))
