"""All of the example in one command: the model, the tasks, a server for the base model, `train.py`, and what came of it.

``python run.py`` writes everything it makes to ``data/`` and ``runs/``, and then ``RESULTS.json`` (the figures) and
``RESULTS.md`` (the same as tables). It does so for a run that failed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks

from leyden.memory import MemoryWatch
from leyden_lightningrl.serve import served

HERE = Path(__file__).resolve().parent
MODEL = HERE / "data" / "model"
PHASES = ("rollouts", "update", "sync", "validate")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the training tasks")
    parser.add_argument("--limit", type=float, help="seconds after which the training is told to end")
    options = parser.parse_args()
    tasks.write(HERE / "data", options.seed)
    subprocess.run([sys.executable, HERE.parent / "langgraph_calculator" / "model.py", MODEL], check=True)
    before = set(HERE.glob("runs/*"))
    started = time.monotonic()
    with served(MODEL, name="base", context=512, kv_bytes=64 << 20, log=HERE / "data" / "base.log") as url:
        environment = os.environ | {"BASE_URL": url, "BASE_MODEL": "base"}
        with MemoryWatch() as memory:
            status = train(environment, options.limit)
    made = sorted(set(HERE.glob("runs/*")) - before)
    results = {
        "command": " ".join(["python run.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "status": status,
        "seconds": round(time.monotonic() - started),
        "peak_memory_bytes": memory.peak,
        "base_server": url.removesuffix("/v1"),
        **(figures(made[-1]) if made else {}),
    }
    (HERE / "RESULTS.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (HERE / "RESULTS.md").write_text(page(results), encoding="utf-8")
    print(page(results))
    return status


def train(environment: Mapping[str, str], limit: float | None) -> int:
    """Run ``train.py`` to its end, or until it is interrupted after ``limit`` seconds; returns its exit status."""
    process = subprocess.Popen([sys.executable, "train.py"], cwd=HERE, env=environment)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.wait()


def figures(directory: Path) -> dict[str, Any]:
    """The summary and the steps of the run in ``directory``, as far as it came."""
    found: dict[str, Any] = {"steps": [], "summary": {}}
    if (directory / "metrics.jsonl").is_file():
        rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        found["steps"] = [{key: value for key, value in row.items() if key in SHOWN} for row in rows]
    if (directory / "summary.json").is_file():
        summary = json.loads((directory / "summary.json").read_text())
        found["summary"] = {key: summary.get(key) for key in ("status", "reason", "seconds", "scores", "capture")}
    return found


SETS = ("val/reward", "schemas/reward")
TRAIN = ("train/reward", "train/calls", "train/sampled_tokens", "train/groups_without_variance")
SHOWN = ("step", *SETS, *TRAIN, *(f"time/{phase}" for phase in (*PHASES, "step")))


def page(results: Mapping[str, Any]) -> str:
    """The results as a page."""
    summary = results.get("summary", {})
    outcome = summary.get("status") or f"ended with status {results['status']}"
    lines = ["# What the run did", "", "Written by `run.py`; the same figures are in `RESULTS.json`.", ""]
    lines += [
        f"`{results['command']}` on {results['cores']} cores, {results['date']}: {outcome}, {results['seconds']} s with all "
        f"starts, peak memory (PSS) of the training {results['peak_memory_bytes'] / 2**30:.1f} GiB."
    ]
    if summary.get("reason"):
        lines += ["", f"Reason: {summary['reason']}"]
    scores = [row for row in summary.get("scores") or () if row["held_out"]]
    if scores:
        cells = [
            (row["metric"].removesuffix("/reward"), percent(row["before"]), percent(row["after"])) for row in scores
        ]
        lines += ["", "Held-out scores, greedy:", "", *table(("set", "before", "after"), cells)]
    steps = [row for row in results.get("steps", ()) if "train/reward" in row]
    if steps:
        heads = ("step", "reward (sampled)", "calls", "tokens sampled", *(f"{phase} s" for phase in PHASES))
        lines += ["", *table(heads, [cells_of(row) for row in steps])]
    agents = (summary.get("capture") or {}).get("agents") or ()
    if agents:
        lines += [
            "",
            *table(("agent", "calls", "to", "in training rows or scores"), [calls(row, results) for row in agents]),
        ]
    return "\n".join(lines) + "\n"


def cells_of(row: Mapping[str, float]) -> list[str]:
    """One step as cells of the table."""
    counts = [f"{row.get(name, 0):.0f}" for name in ("train/calls", "train/sampled_tokens")]
    times = [f"{row.get(f'time/{phase}', 0):.0f}" for phase in PHASES]
    return [f"{row['step']:.0f}", percent(row["train/reward"]), *counts, *times]


def calls(row: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Where the calls of one agent went, as cells of the table."""
    where = "the base model's server" if row["server"] == results["base_server"] else "the policy's server"
    return [f"`{row['agent']}`", str(row["seen"]), where, str(row["trainable"])]


def percent(value: float) -> str:
    """A share as per cent."""
    return f"{value:.0%}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


if __name__ == "__main__":
    raise SystemExit(main())
