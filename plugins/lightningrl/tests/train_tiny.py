"""Runs LightningRL on a tiny model in a process of its own: `python train_tiny.py SPECIFICATION.json`.

A process of its own because a test kills it, and because verl and Ray keep state for as long as a process lives. Writes
`requests.jsonl` (mode and tasks of every request for rollouts) and, at the end, `record.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from stand_in import HttpRun

from leyden_lightningrl import LightningRL


async def main(specification: dict[str, Any]) -> None:
    directory = Path(specification["directory"])
    run = HttpRun(
        directory,
        tasks=list(range(12)),
        val_tasks=list(range(100, 104)),
        resumed=specification.get("resumed", False),
    )

    def on_log(step: int) -> None:
        with open(directory / "steps.txt", "a") as file:
            file.write(f"{step}\n")
        if step == specification.get("kill_after"):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_request(mode: str, tasks: list[Any]) -> None:
        with open(directory / "requests.jsonl", "a") as file:
            file.write(json.dumps([mode, tasks]) + "\n")

    run.on_log, run.on_request = on_log, on_request
    algorithm = LightningRL(**specification["settings"])
    await algorithm.run(run)
    calls = [
        {
            "version": call.version,
            "prompt": call.prompt_ids,
            "sampled": call.sampled_ids,
            "logprobs": call.logprobs,
            "mode": episode.rollout.mode,
        }
        for episode in run.episodes
        for call in (span.call for span in episode.spans)
        if call is not None
    ]
    record = {"calls": calls, "logged": run.logged, "summary": algorithm.summary()}
    (directory / "record.json").write_text(json.dumps(record))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
