"""The demo: makes the model, the tasks and a server for the base model, trains one agent, and shows what changed.

    python demo.py                     one seed, the whole training (about ten minutes on two cores)
    python demo.py --seeds 0,1,2       three seeds, one after the other
    python demo.py --mark planner      train the planner instead of the writer
    python demo.py --control           training rewards shuffled: nothing may be learned
    python demo.py --small             every part, with too few steps to learn much

Writes `demo.md` (a table: before, after, time by phase, memory, tokens) and `demo.svg` (the learning curves) into the
output folder, beside the folder of each run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model
import tasks
from settings import SETTINGS, SMALL

from leyden import curve
from leyden.memory import MemoryWatch
from leyden_lightningrl.serve import served

HERE = Path(__file__).resolve().parent
TARGETS = {"writer": "train.py", "planner": "train_planner.py"}
PHASES = ("rollouts", "update", "sync", "validate", "checkpoint")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"))
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="folder of the model, made once")
    parser.add_argument("--seeds", default="0", help="comma-separated")
    parser.add_argument("--mark", choices=sorted(TARGETS), default="writer", help="the agent to train")
    parser.add_argument("--control", action="store_true", help="shuffle the training rewards")
    parser.add_argument("--small", action="store_true", help="two steps on a handful of tasks")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of LightningRL")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    base = options.cache.resolve() / "model"
    model.make(base)
    weights = fingerprint(base)
    print(f"starting a server for the untouched base model {base}", flush=True)
    server = served(base, name="base", context=512, kv_bytes=64 << 20, max_sequences=64, log=options.out / "base.log")
    with server as url:
        runs = [train(options, int(seed), base, url) for seed in options.seeds.split(",")]
        report(options.out, [run for run in runs if run is not None], url, weights == fingerprint(base))
    return 0 if all(run is not None for run in runs) else 1


def fingerprint(folder: Path) -> str:
    """SHA-256 of the weights."""
    with open(folder / "model.safetensors", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def train(options: argparse.Namespace, seed: int, base: Path, url: str) -> dict[str, Any] | None:
    """One run of `leyden train`; returns its figures, or None where it failed."""
    name = "control" if options.control else options.mark
    directory, data = options.out / f"{name}-seed{seed}", options.out / f"tasks-seed{seed}"
    sizes = tasks.SMALL_SIZES if options.small else tasks.SIZES
    tasks.write(data, seed, sizes)
    settings = {**SETTINGS, **(SMALL if options.small else {})}
    command = [
        sys.executable,
        "-m",
        "leyden",
        "train",
        f"{'control.py' if options.control else TARGETS[options.mark]}:solve",
    ]
    command += ["--train", options.mark, "--tasks", str(data / "train.jsonl")]
    command += ["--val-tasks", f"val={data / 'val.jsonl'}", "--val-tasks", f"phrasings={data / 'phrasings.jsonl'}"]
    command += ["--algorithm", "lightningrl", "--model", str(base), "--seed", str(seed), "--directory", str(directory)]
    command += ["--concurrency", "80"]
    texts = {key: json.dumps(value) for key, value in settings.items()}
    texts |= {key: value for key, _, value in (setting.partition("=") for setting in options.set)}
    for key, value in texts.items():
        command += ["--set", f"{key}={value}"]
    environment = os.environ | {"BASE_URL": url, "BASE_MODEL": "base"}
    print("$", " ".join(command[1:]), flush=True)
    started = time.monotonic()
    with MemoryWatch() as memory:
        status = subprocess.run(command, cwd=HERE, env=environment, check=False).returncode
    if status:
        print(f"seed {seed} failed with status {status}", flush=True)
        return None
    summary = json.loads((directory / "summary.json").read_text())
    metrics = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {
        "seed": seed,
        "name": name,
        "scores": {row["metric"]: row for row in summary["scores"]},
        "metrics": metrics,
        "capture": summary["capture"],
        "seconds": time.monotonic() - started,
        "memory": memory.peak,
    }


def report(out: Path, runs: list[Mapping[str, Any]], base_url: str, untouched: bool) -> None:
    """Write and print the table and the picture."""
    if not runs:
        return
    rows = [figures(run) for run in runs]
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(str(row[head]) for head in heads) + " |" for row in rows]
    lines += ["", f"Base model's weights bit-identical after the run: {'yes' if untouched else 'NO'}."]
    for run in runs:
        lines += selectivity(run, base_url)
    text = "\n".join(lines) + "\n"
    (out / "demo.md").write_text("# Demo\n\n![learning curves](demo.svg)\n\n" + text)
    curves = {
        f"{run['name']} seed {run['seed']} {name}": [
            (row["step"], row[key]) for row in run["metrics"] if (key := f"{name}/reward") in row
        ]
        for run in runs
        for name in ("val", "phrasings")
    }
    (out / "demo.svg").write_text(
        curve.svg({name: points for name, points in curves.items() if points}, "held-out score")
    )
    print(f"\n{text}\nwritten to {out / 'demo.md'} and {out / 'demo.svg'}", flush=True)


def figures(run: Mapping[str, Any]) -> dict[str, str]:
    """One run as a row of the table."""
    total: dict[str, float] = {}
    for row in run["metrics"]:
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + value
    row = {"run": f"{run['name']}, seed {run['seed']}"}
    for metric in ("val/reward", "phrasings/reward"):
        if metric in run["scores"]:
            found = run["scores"][metric]
            row[metric.replace("reward", "score")] = f"{found['before']:.0%} → {found['after']:.0%}"
    for phase in PHASES:
        row[f"{phase} s"] = f"{total.get(f'time/{phase}', 0.0):.0f}"
    row["training s"] = f"{total.get('time/step', 0.0):.0f}"
    row["whole run s"] = f"{run['seconds']:.0f}"
    row["peak memory (PSS)"] = f"{run['memory'] / 2**30:.1f} GiB"
    row["tokens read"] = f"{total.get('train/prompt_tokens', 0.0):.0f}"
    row["tokens sampled"] = f"{total.get('train/sampled_tokens', 0.0):.0f}"
    return row


def selectivity(run: Mapping[str, Any], base_url: str) -> list[str]:
    """Lines on where the calls of each agent went: who was trained, and who stayed at the base model."""
    base = base_url.removesuffix("/v1")
    lines = ["", f"{run['name']}, seed {run['seed']}:", ""]
    for row in run["capture"]["agents"]:
        where = "the base model's endpoint" if row["server"] == base else "the policy's endpoint"
        lines.append(
            f"- `{row['agent']}`: {row['seen']} calls to {where}, {row['trainable']} of them in training rows or scores"
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
