"""The example as a user runs it: it finds the better prompt, and goes on after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[1]


def train(folder: Path, *arguments: str, kill_after: str | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-u", str(HERE / "train.py"), "--directory", "run", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kill_after is not None:
        assert process.stdout is not None
        assert any(line.startswith(kill_after) for line in process.stdout)
        process.kill()
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def store(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", "from leyden.cli import main; main()", "export", "--store", "run", *arguments]
    out = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_better_prompt_is_found_and_the_host_keeps_its_own(tmp_path: Path, seed: str) -> None:
    code, _, err = train(tmp_path, "--seed", seed, "--processes", "0")
    assert (code, err) == (0, "")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    [held_out] = [row for row in summary["scores"] if row["metric"] == "val/reward"]
    assert held_out["before"] < 0.5
    assert held_out["after"] == 1.0
    assert (tmp_path / "run" / "prompts" / "default.txt").read_text() == "Answer with the number alone."
    policies = {row["agent"]: (row["policy"], row["seen"], row["trainable"]) for row in summary["capture"]["agents"]}
    rollouts = summary["capture"]["rollouts"]
    assert policies == {"solver": ("default", rollouts, rollouts), "host": (None, rollouts, 0)}
    hosts = [s for s in store(tmp_path, "--what", "spans") if s.get("agent") == "host" and "call" in s]
    assert {json.loads(s["attributes"]["gen_ai.input.messages"])[0]["content"] for s in hosts} == {
        "Say this in a kind way."
    }


@pytest.mark.slow
def test_after_kill_9_it_goes_on_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    train(tmp_path, kill_after="step 3/12")
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    done = [row for row in store(tmp_path, "--what", "rollouts", "--mode", "train") if row["status"] == "succeeded"]
    assert len(done) >= 8 * state["step"] >= 24
    code, _, err = train(tmp_path, "--resume")
    assert (code, err) == (0, "")
    steps = [row["step"] for row in metrics(tmp_path) if "train/reward" in row]
    assert sorted(set(steps)) == list(range(1, 13))
    assert len(steps) <= 13  # at most the step that the kill cut off is done again
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert sum(len(rewards) - 1 for rewards in state["rewards"]) == 12 * 8
    after = {row["id"]: row["status"] for row in store(tmp_path, "--what", "rollouts")}
    assert {after[row["id"]] for row in done} == {"succeeded"}
    assert not {"queued", "running"} & set(after.values())


def test_the_algorithm_runs_without_torch(tmp_path: Path) -> None:
    code = "import sys, train; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
