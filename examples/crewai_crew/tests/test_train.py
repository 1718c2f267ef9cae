"""The training file: how little it differs from plain use, and that the mark does what it says."""

from __future__ import annotations

import ast
import difflib
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import leyden
from leyden import marks
from leyden.testing.server import FakeModelServer

HERE = Path(__file__).parents[1]
TASK = {"message": "My parcel 733 is not here yet.", "department": "delivery"}


def imported(path: Path) -> set[str]:
    """Names of the packages that a file imports anywhere."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


@pytest.mark.parametrize("name", ["agent.py", "plain.py", "tasks.py"])
def test_the_program_imports_nothing_of_leyden(name: str) -> None:
    assert not [package for package in imported(HERE / name) if package.startswith("leyden")]


def test_at_most_eight_lines_of_the_training_file_are_not_those_of_plain_use() -> None:
    plain, train = ((HERE / name).read_text().splitlines() for name in ("plain.py", "train.py"))
    new = [line for line in difflib.ndiff(plain, train) if line.startswith("+ ") and line[2:].strip()]
    assert 0 < len(new) <= 8, new


def test_the_process_that_trains_needs_no_crewai_and_the_one_that_runs_no_trainer() -> None:
    script = """
import sys
for name in ("crewai", "leyden_lightningrl", "torch"):
    sys.modules[name] = None  # an import of it fails
from leyden.target import load, parse_target
print(load(parse_target(sys.argv[1])).__name__)
"""
    command = [sys.executable, "-c", script, f"{HERE / 'train.py'}:solve"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "solve\n"), done.stderr


def test_the_settings_are_ones_that_exist() -> None:
    config = pytest.importorskip("leyden_lightningrl.config")
    namespace: dict[str, Any] = {}
    exec((HERE / "settings.py").read_text(), namespace)
    config.make_settings(namespace["LEARNING"])


class OneStep:
    """An algorithm that publishes an endpoint, asks for one rollout and keeps it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.episodes: list[Any] = []

    async def run(self, run: Any) -> None:
        await run.publish({"default": leyden.Endpoint(base_url=self.url, model="policy")})
        self.episodes = await run.rollout(run.tasks)


def test_the_mark_sends_the_sorter_to_the_policy_and_leaves_the_clerk_where_it_was(
    agent: ModuleType, script: Any, server: FakeModelServer, tmp_path: Path
) -> None:
    train = importlib.import_module("train")
    marks.registry.clear()
    leyden.trainable("sorter")
    try:
        with FakeModelServer(reply=script.reply) as policy:
            algorithm = OneStep(policy.base_url)
            leyden.train(train.solve, tasks=[TASK], algorithm=algorithm, processes=0, directory=tmp_path / "run")
    finally:
        marks.registry.clear()
    (episode,) = algorithm.episodes
    assert episode.reward == 1.0
    assert [body["model"] for body in policy.bodies if body] == ["policy"]
    assert TASK["message"] in policy.bodies[-1]["messages"][-1]["content"]
    (replying,) = server.bodies
    assert replying["messages"][0]["content"].startswith("You are clerk.")
