"""One rollout of the marked agents on two fake servers, the base model's and the policy's: prints who was called where."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import leyden
from leyden.testing.server import FakeModelServer

TASK = {"question": "How do I recursively delete a directory tree in Python?", "answer": "shutil.rmtree"}


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


def reply(body: dict[str, Any]) -> Any:
    """The searcher, which has a tool, calls it; the answerer names what was found."""
    if body.get("tools"):
        return {"tool_calls": [{"name": "search", "arguments": {"query": "delete tree"}}]}
    return body["messages"][-1]["content"].split(":")[0]


if __name__ == "__main__":
    with FakeModelServer(reply=reply) as base, FakeModelServer(reply=reply) as policy:
        os.environ["BASE_URL"] = base.base_url
        from plain import solve

        leyden.trainable("searcher")
        leyden.train(solve, tasks=[TASK], algorithm=Once(policy.base_url), processes=0)
        for name, server in (("base", base), ("policy", policy)):
            print(json.dumps({name: [body["messages"][-1]["content"] for body in server.bodies if body]}))
