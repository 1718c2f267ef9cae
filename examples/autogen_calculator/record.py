"""Write what a run of `train.py` did, from the files that the run left behind and from its store.

    python record.py runs/train-… --into .      adds RESULTS.json (the figures) and RESULTS.md (the same as tables)

The example of a CrewAI crew uses it too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SETTINGS = ("tasks_per_step", "group_size", "steps", "learning_rate", "baseline", "scale", "temperature")
COLUMNS = {
    "step": ("step", "{:.0f}"),
    "reward (sampled)": ("train/reward", "{:.0%}"),
    "groups all alike": ("train/groups_without_variance", "{:.0f}"),
    "answers cut off": ("train/answers_cut", "{:.0f}"),
    "tokens sampled": ("train/sampled_tokens", "{:.0f}"),
    "rollouts s": ("time/rollouts", "{:.0f}"),
    "update s": ("time/update", "{:.0f}"),
    "sync s": ("time/sync", "{:.0f}"),
}
SAMPLES = 6


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--into", type=Path, required=True, help="folder to write into")
    options = parser.parse_args()
    results = figures(options.run)
    (options.into / "RESULTS.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (options.into / "RESULTS.md").write_text(page(results), encoding="utf-8")


def figures(run: Path) -> dict[str, Any]:
    """The figures of a run: settings, scores, each step, where the calls of each agent went, some answers."""
    described = json.loads((run / "run.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    settings = described["settings"]["algorithm"]["settings"]
    command = [sys.executable, "-m", "leyden", "export", "--mode", "val", "--store", described["store"]]
    exported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {
        "date": described["created"][:10],
        "cores": len(os.sched_getaffinity(0)),
        "status": summary["status"],
        "seconds": summary["seconds"],
        "seed": described["settings"]["seed"],
        "marks": described["settings"]["marks"],
        "settings": {name: settings[name] for name in SETTINGS},
        "scores": summary["scores"],
        "steps": [json.loads(line) for line in lines],
        "agents": summary["capture"]["agents"],
        "failed_rollouts": summary["capture"]["failed"],
        "answers": answers([json.loads(line) for line in exported])[:SAMPLES],
    }


def answers(episodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each held-out task: its text, and what the marked agent said before and after the training."""
    said: dict[str, dict[str, Any]] = {}
    for episode in sorted(episodes, key=lambda one: one["rollout"]["created_at"]):
        task = episode["rollout"]["task"]
        found = said.setdefault(json.dumps(task), {"task": task, "said": []})
        for span in episode["spans"]:
            if span["kind"] == "llm" and span["call"].get("policy"):
                (message,) = json.loads(span["attributes"]["gen_ai.output.messages"])
                reward = next((other["reward"]["value"] for other in episode["spans"] if other.get("reward")), None)
                found["said"].append({"text": text(message), "reward": reward})
    return [found for found in said.values() if found["said"]]


def text(message: Mapping[str, Any]) -> str:
    """A message, as it came from the server, as one line: its text, its calls of tools."""
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls") or ()]
    return " ".join([*([message["content"]] if message.get("content") else []), *calls]).replace("\n", " ")


def table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Lines of a table; every row has the same keys."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return [*lines, *("| " + " | ".join(row.values()) + " |" for row in rows), ""]


def page(results: Mapping[str, Any]) -> str:
    """The figures as a page."""
    settings = ", ".join(f"{name} {value}" for name, value in results["settings"].items())
    how = f"{results['date']}, {results['cores']} cores, seed {results['seed']}: {results['status']}"
    lines = [
        "# What the run did",
        "",
        "Written by `record.py` from the files of the run; `RESULTS.json` has the same.",
        "",
    ]
    lines += [f"{how}, {results['seconds']:.0f} s with all starts. {settings}.", ""]
    held_out = [row for row in results["scores"] if row["held_out"]]
    names = {row["metric"].split("/")[0]: row for row in held_out}
    first, last = results["steps"][0], results["steps"][-1]
    lines += table(
        [
            {
                "held out, greedy": name,
                "tasks": f"{first.get(f'{name}/rollouts', last.get(f'{name}/rollouts', 0)):.0f}",
                "before": f"{row['before']:.1%}",
                "after": f"{row['after']:.1%}",
            }
            for name, row in names.items()
        ]
    )
    trained = [step for step in results["steps"] if "train/reward" in step]
    lines += table([{name: form.format(step.get(key, 0)) for name, (key, form) in COLUMNS.items()} for step in trained])
    lines += table(
        [
            {
                "agent": f"`{agent['agent']}`",
                "calls": str(agent["seen"]),
                "went to": "the policy" if agent["policy"] else "its own endpoint",
                "usable for training": str(agent["trainable"]),
            }
            for agent in results["agents"]
        ]
    )
    lines += [f"Rollouts that failed: {results['failed_rollouts'] or 'none'}.", ""]
    lines += ["The first held-out tasks, and what the marked agent said before and after:", ""]
    lines += table([sample(one) for one in results["answers"]])
    return "\n".join(lines).rstrip() + "\n"


def sample(answer: Mapping[str, Any]) -> dict[str, str]:
    """One held-out task as a row."""
    task = str(next(iter(answer["task"].values())))
    before, after = answer["said"][0], answer["said"][-1]
    said = {name: f"{one['text']} ({one['reward']:g})" for name, one in (("before", before), ("after", after))}
    return {"task": task, **{name: words.replace("|", "\\|") for name, words in said.items()}}


if __name__ == "__main__":
    main()
