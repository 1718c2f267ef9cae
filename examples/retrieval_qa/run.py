"""All of the example in one command: the model, the tasks, a server for the base model, `train.py`, and what came of it.

``python run.py`` writes everything it makes to ``data/`` and ``runs/``; then it adds the run to ``RESULTS.json`` (the figures)
and writes ``RESULTS.md`` (those of all runs as tables). It does so for a run that failed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tasks
from settings import LEARNING, TOOLS

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
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    environment = os.environ | {"BASE_URL": url, "BASE_MODEL": "base"}
    with MemoryWatch() as memory, training(environment) as process:  # starts at once: it takes minutes, like the server
        log = HERE / "data" / "base.log"
        with served(MODEL, name="base", port=port, context=512, kv_bytes=64 << 20, log=log, arguments=TOOLS):
            status = finish(process, options.limit)
    made = sorted(set(HERE.glob("runs/*")) - before)
    results = {
        "command": " ".join(["python run.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "settings": {name: value for name, value in LEARNING.items() if name not in ("model", "server_arguments")},
        "status": status,
        "seconds": round(time.monotonic() - started),
        "peak_memory_bytes": memory.peak,
        "base_server": url.removesuffix("/v1"),
        **(figures(made[-1]) if made else {}),
    }
    file = HERE / "RESULTS.json"
    runs = [*(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []), results]
    file.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    (HERE / "RESULTS.md").write_text(page(runs), encoding="utf-8")
    return status


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def training(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """``train.py`` as a process, which is interrupted where the block ends before it does."""
    process = subprocess.Popen([sys.executable, "train.py"], cwd=HERE, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()


def finish(process: subprocess.Popen[bytes], limit: float | None) -> int:
    """Wait for the end of a process, which is interrupted after ``limit`` seconds; returns its exit status."""
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


SETS = ("val/reward",)
TRAIN = ("train/reward", "train/calls", "train/sampled_tokens", "train/groups_without_variance")
SHOWN = ("step", *SETS, *TRAIN, *(f"time/{phase}" for phase in (*PHASES, "step")))


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """All runs as a page, the newest one first."""
    lines = [
        "# What the runs did",
        "",
        "Written by `run.py` from `RESULTS.json`, which has the same figures; the newest run first.",
    ]
    for results in reversed(runs):
        lines += ["", f"## `{results['command']}`, {results['date']}", "", *section(results)]
    return "\n".join(lines) + "\n"


def section(results: Mapping[str, Any]) -> list[str]:
    """One run as lines of the page."""
    summary = results.get("summary", {})
    outcome = summary.get("status") or f"ended with status {results['status']}"
    settings = ", ".join(f"{name} {value}" for name, value in results["settings"].items())
    lines = [
        f"On {results['cores']} cores: {outcome}, {results['seconds']} s with all starts, peak memory (PSS) of all processes "
        f"{results['peak_memory_bytes'] / 2**30:.1f} GiB. Settings: {settings}."
    ]
    if summary.get("reason"):
        lines += ["", f"Reason: {summary['reason']}"]
    measured = [row for row in results.get("steps", ()) if any(name in row for name in SETS)]
    if measured:
        heads = ("after step", *(name.removesuffix("/reward") for name in SETS))
        cells = [[f"{row['step']:.0f}", *(percent(row[name]) for name in SETS)] for row in measured]
        lines += ["", "Held-out scores, greedy:", "", *table(heads, cells)]
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
    return lines


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
