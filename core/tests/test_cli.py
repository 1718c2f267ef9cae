"""The reading commands, on a run that was made here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import leyden
from leyden import agents, marks
from leyden.algorithm import TrainingRun
from leyden.cli import main
from leyden.cli.train import _task_sets
from leyden.errors import ConfigError
from leyden.stores import file_url, open_store
from leyden.types import Prompt


async def solve(task: str) -> float:
    with leyden.agent("writer"):
        text = leyden.prompt("default")
        leyden.emit_message(f"{text} {task}")
        if task == "bad":
            raise KeyError("no tool")
    return 0.5


class Once:
    async def run(self, run: TrainingRun) -> None:
        await run.publish({"default": Prompt(text="hello", version=1)})
        await run.rollout(run.tasks)
        await run.rollout(["held out"], mode="val")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(agents, "_DECLARED", {})
    monkeypatch.chdir(tmp_path)
    leyden.declare("writer")
    leyden.trainable("writer")
    leyden.train(solve, tasks=["good", "bad"], algorithm=Once(), processes=0, directory="runs/one")
    yield tmp_path / "runs" / "one"
    marks.registry.clear()


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("store", [None, "runs/one", "runs/one/store.db", "sqlite:///runs/one/store.db"])
def test_rollouts_are_listed_from_the_newest_run_a_directory_a_file_or_a_url(
    run: Path, capsys: pytest.CaptureFixture[str], store: str | None
) -> None:
    code, out, _ = command(capsys, "rollouts", *(["--store", store] if store else []))
    assert code == 0
    _, _, good, bad, held_out, count = out.splitlines()
    assert good.split()[1:5] == ["train", "succeeded", "1", "0.5"]
    assert "KeyError: 'no tool'" in bad
    assert held_out.split()[1] == "val"
    assert count == "3 of 3 rollouts"


def test_rollouts_are_filtered(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command(capsys, "rollouts", "--status", "failed")
    assert out.splitlines()[-1] == "1 of 1 rollouts"
    _, out, _ = command(capsys, "rollouts", "--mode", "train", "--limit", "1", "--last")
    assert "KeyError" in out
    assert out.splitlines()[-1] == "1 of 2 rollouts"
    code, _, err = command(capsys, "rollouts", "--status", "lost")
    assert code == 2
    assert "'lost'" in err


def test_a_rollout_is_shown_as_a_tree_with_its_reward(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, listed, _ = command(capsys, "rollouts")
    good, bad = (line.split()[0] for line in listed.splitlines()[2:4])
    code, out, _ = command(capsys, "show", good)
    assert code == 0
    assert 'task "good"' in out
    assert "└─ reward 0.5" in out
    assert "invoke_agent writer" in out
    assert 'value {"text": "hello good"}' in out
    _, out, _ = command(capsys, "show", bad)
    assert "✗ KeyError: 'no tool'" in out


def test_the_report_is_text_or_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command(capsys, "report")
    assert "rollouts: 3, 1 failed, 0 without a reward" in out
    _, out, _ = command(capsys, "report", "--json", "--mode", "val")
    assert json.loads(out)["rollouts"] == 1


@pytest.mark.parametrize(("what", "count"), [("episodes", 3), ("rollouts", 3), ("spans", 15)])
def test_everything_can_be_exported(run: Path, capsys: pytest.CaptureFixture[str], what: str, count: int) -> None:
    code, _, err = command(capsys, "export", "--what", what, "-o", "out.jsonl")
    assert code == 0
    assert err == f"{count} {what} written\n"
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert len(rows) == count


@pytest.mark.parametrize("what", [("rollouts",), ("report",), ("export",), ("show", "x")])
@pytest.mark.parametrize("store", ["none.db", "sqlite:///none.db", "none", "runs/none", "none/"])
def test_a_store_that_is_missing_is_one_clear_line_and_is_not_made(
    run: Path, capsys: pytest.CaptureFixture[str], what: tuple[str, ...], store: str
) -> None:
    code, out, err = command(capsys, *what, "--store", store)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: there is no store {store!r}: give ")
    assert [path.name for path in Path().iterdir()] == ["runs"]


@pytest.mark.parametrize("what", [("rollouts",), ("report",), ("export",)])
def test_an_empty_store_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: tuple[str, ...]) -> None:
    async def make() -> None:
        async with open_store(file_url(tmp_path / "empty.db")):
            pass

    asyncio.run(make())
    code, _, _ = command(capsys, *what, "--store", str(tmp_path / "empty.db"))
    assert code == 0


@pytest.mark.parametrize("name", ["with space", "50%20off", "what?", "a#b", "a:b", "é 漢", "x=y"])
def test_a_run_may_have_any_name(run: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    leyden.train(solve, tasks=["good"], algorithm=Once(), processes=0, directory=f"runs/{name}")
    assert (run.parent / name / "store.db").is_file()
    for store in (f"runs/{name}", f"runs/{name}/store.db", str(run.parent / name / "store.db")):
        code, out, _ = command(capsys, "rollouts", "--store", store)
        assert (code, out.splitlines()[-1]) == (0, "2 of 2 rollouts")


def test_a_resumed_run_finds_the_store_that_it_was_started_with(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"tasks": ["good"], "algorithm": Once(), "processes": 0, "directory": run.parent / "two"}
    leyden.train(solve, store="sqlite:///mine.db", **given)
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    leyden.train(solve, resume=True, **given)
    assert not (run.parent / "two" / "store.db").exists()
    _, out, _ = command(capsys, "rollouts", "--store", str(run.parent / "two"))
    assert out.splitlines()[-1] == "4 of 4 rollouts"


def test_an_unknown_rollout_is_one_clear_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "show", "nothing")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert "'nothing'" in err


def test_plugins_and_doctor_say_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "plugins")
    assert code == 0
    assert "stores: " in out
    _, out, _ = command(capsys, "doctor")
    assert "ok   python: " in out
    assert "ok   sqlite: " in out


def test_held_out_sets_are_named_on_the_command_line() -> None:
    assert _task_sets(["a.jsonl"]) == {"val": "a.jsonl"}
    assert _task_sets(["near=a.jsonl", "far=b.jsonl"]) == {"near": "a.jsonl", "far": "b.jsonl"}
    with pytest.raises(ConfigError, match="given twice"):
        _task_sets(["a.jsonl", "b.jsonl"])


def test_two_models_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "train", "x.py:f", "--tasks", "t", "--model", "a", "--set", "model=b")
    assert code == 2
    assert "--model a and --set model=b contradict each other" in err
