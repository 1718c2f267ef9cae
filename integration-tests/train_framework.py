"""A short real training of one agent of a framework's app: `python train_framework.py FRAMEWORK PYTHON RESULT.json`.

Runs in the environment with torch, vLLM and verl. The app runs beside it, in the framework's own environment (PYTHON), by
`leyden runner` on the same store. The writer is marked; the planner stays on a model server of its own. Writes what was
seen to RESULT.json, and ends with 1 where that is not what must be seen.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("VERL_PLATFORM", "cpu")  # verl chooses its platform when it is first imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from framework_agents import LETTERS, solve
from scripted_model import make_scripted_model

import leyden
from leyden.testing.adapter import AgentApp, ModelAccess
from leyden.testing.adapter.script import role_of, scripted
from leyden.testing.server import FakeModelServer

SETTINGS: dict[str, Any] = {
    "group_size": 6,
    "tasks_per_step": 2,
    "steps": 4,
    "learning_rate": 7e-3,
    "max_prompt_tokens": 4096,
    "max_response_tokens": 64,
    "val_before": False,
    "server_kv_bytes": 256 << 20,
    "server_max_sequences": 16,
    "server_arguments": ("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    "device": "cpu",
}


def train(framework: str, python: str, directory: Path) -> dict[str, Any]:
    """Run the training; what was seen of it."""
    from leyden_lightningrl import LightningRL

    model = make_scripted_model(directory / "model", letters=LETTERS)
    leyden.trainable("writer")
    began = time.monotonic()
    with FakeModelServer(return_token_ids=False) as provider:
        provider.reply = functools.partial(scripted, AgentApp(ModelAccess("")))
        with running(framework, python, directory, provider.base_url):
            result = asyncio.run(
                leyden.train_async(
                    solve,
                    tasks=list(range(10, 20)),
                    algorithm=LightningRL(model=str(model), **SETTINGS),
                    directory=directory / "run",
                    store=store_url(directory),
                    external_runners=True,
                    timeout_s=60,
                )
            )
        asked = [role_of(body["messages"]) for body in provider.bodies]
    steps = [metrics for _, metrics in sorted(result.history) if "train/reward" in metrics]
    return {
        "framework": framework,
        "seconds": round(time.monotonic() - began),
        "rewards": [round(metrics["train/reward"], 4) for metrics in steps],
        "calls_trained_on": int(sum(metrics["train/calls"] for metrics in steps)),
        "rows": int(sum(metrics["train/rows"] for metrics in steps)),
        "provider": {"origin": provider.origin, "calls": len(asked), "by": sorted({str(role) for role in asked})},
        "capture": result.summary["capture"],
    }


def store_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'store.db'}"


@contextmanager
def running(framework: str, python: str, directory: Path, provider: str) -> Iterator[None]:
    """The app's runner, in its own environment."""
    target = f"{Path(__file__).with_name('framework_agents.py')}:solve"
    command = [
        python,
        "-m",
        "leyden",
        "runner",
        target,
        "--store",
        store_url(directory),
        "--concurrency",
        "12",
        "--lease",
        "90",
    ]
    added = {"LEYDEN_TEST_FRAMEWORK": framework, "LEYDEN_TEST_PROVIDER": provider}
    with open(directory / "runner.txt", "w") as log:
        runner = subprocess.Popen(command, env={**os.environ, **added}, stdout=log, stderr=log)
        try:
            yield
        finally:
            runner.terminate()
            runner.wait()


def problems(seen: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    rewards, provider = seen["rewards"], seen["provider"]
    rows = {row["agent"]: row for row in seen["capture"]["agents"]}
    planner, writer = rows.get("planner"), rows.get("writer")
    checks = {
        "every step gave a reward": len(rewards) == SETTINGS["steps"],
        "the reward rises": len(rewards) > 2 and sum(rewards[-2:]) / 2 > rewards[0] + 0.1,
        "no rollout failed": not seen["capture"]["failed"],
        "two agents called, each on one server": set(rows) == {"planner", "writer"}
        and len(seen["capture"]["agents"]) == 2,
        "all calls of the planner, and only they, went to its own server": planner is not None
        and provider["by"] == ["planner"]
        and provider["calls"] == planner["seen"]
        and planner["server"] == provider["origin"],
        "no call of the planner was trained on": planner is not None and planner["policy"] is None,
        "all calls of the writer went to the policy and were trained on": writer is not None
        and writer["policy"] == "default"
        and writer["server"] != provider["origin"]
        and writer["seen"] == writer["trainable"] == seen["calls_trained_on"],
    }
    return [name for name, holds in checks.items() if not holds]


def main() -> int:
    """The command line; the exit status."""
    framework, python, result = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix=f"leyden-{framework}-") as place:
        try:
            seen = train(framework, python, Path(place))
        except BaseException:
            print((Path(place) / "runner.txt").read_text()[-5000:], file=sys.stderr)
            raise
    seen["wrong"] = problems(seen)
    Path(result).parent.mkdir(parents=True, exist_ok=True)
    Path(result).write_text(json.dumps(seen, indent=1) + "\n")
    for name in seen["wrong"]:
        print(f"{framework}: it does not hold that {name}")
    print(f"{framework}: mean rewards {seen['rewards']} in {seen['seconds']} s")
    return 1 if seen["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
