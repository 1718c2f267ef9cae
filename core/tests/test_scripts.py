"""Training scripts as users write them: run by Python or by the command, stopped by Ctrl-C, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = textwrap.dedent(
    """
    import asyncio, os, sys
    import leyden
    from grow import Grow

    print("loaded", file=open(os.environ["LOADS"], "a"))

    @leyden.rollout
    async def solve(task):
        with leyden.agent("writer"):
            await asyncio.sleep(float(os.environ.get("SECONDS", "0")))
        return task * len(leyden.prompt("default"))

    leyden.declare("writer")
    leyden.trainable("writer")
    leyden.train(solve, tasks="tasks.jsonl", val_tasks=[5], algorithm=Grow(), directory="run",
                 resume="--resume" in sys.argv, method=os.environ.get("METHOD", "spawn"))
    print("after train")
    """
)
GROW = textwrap.dedent(
    """
    import leyden

    class Grow:
        def __init__(self, steps=6):
            self.settings = {"steps": steps}
            self.steps = steps

        async def run(self, run):
            first = (run.load_state() or {"step": 0})["step"]
            for step in range(first, self.steps):
                await run.publish({"default": leyden.Prompt(text="x" * (step + 1), version=step)})
                episodes = await run.rollout(run.tasks)
                run.log({"train/reward": sum(e.reward for e in episodes) / len(episodes)}, step=step + 1)
                run.save_state({"step": step + 1, "rollouts": [e.rollout.id for e in episodes]})
                run.progress(step + 1, self.steps)
    """
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "grow.py").write_text(GROW)
    (tmp_path / "tasks.jsonl").write_text("1\n2\n3\n")
    return tmp_path


def start(
    folder: Path, command: Sequence[str], *, cwd: Path | None = None, background: bool = False, **environment: str
) -> subprocess.Popen[str]:
    """`background`: with SIGINT ignored, as a shell without job control starts its background jobs."""
    env = {**os.environ, "LEYDEN_PLUGINS": "", "LOADS": str(folder / "loads"), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(
        command,
        cwd=cwd or folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if background else signal.SIG_DFL),
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: one failure must not become those of later tests
        process.communicate()
        raise
    return process.returncode, out, err


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(text):
            return
    raise AssertionError(f"{text!r} never came: {process.stderr.read() if process.stderr else ''}")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_script_without_a_main_guard_trains_once_under_both_methods(folder: Path, method: str) -> None:
    code, out, err = finish(start(folder, [sys.executable, "train.py"], METHOD=method))
    assert (code, err) == (0, "")
    assert "step 6/6  train/reward 12" in out
    assert out.rstrip().endswith("after train")
    assert (folder / "loads").read_text().split() == ["loaded"] * (2 if method == "spawn" else 1)


def test_the_command_trains_the_function_of_a_file_that_trains_itself(folder: Path) -> None:
    entry = folder / "leyden_entry.py"
    entry.write_text("from leyden.cli import main\nmain()\n")
    _installed_algorithm(folder)
    command = [sys.executable, str(entry), "train", "train.py:solve", "--train", "writer", "--tasks", "tasks.jsonl"]
    code, out, err = finish(
        start(folder, [*command, "--algorithm", "grow", "--set", "steps=2", "--directory", "mine", "--seed", "3"])
    )
    assert (code, err) == (0, "")
    assert "step 2/2  train/reward 4" in out
    assert "after train" not in out
    summary = json.loads((folder / "mine" / "summary.json").read_text())
    assert summary["status"] == "finished"

    code, _, err = finish(start(folder, [*command, "--algorithm", "grow", "--set", "step=2"]))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: algorithm 'grow' has no setting 'step'. Did you mean 'steps'?")

    elsewhere = folder / "else where"
    elsewhere.mkdir()
    mine = str(folder / "mine")
    code, out, err = finish(start(folder, [sys.executable, str(entry), "train", "--resume", mine], cwd=elsewhere))
    assert (code, err) == (0, "")  # everything is taken from the run; there is nothing left to do
    assert "resuming writer" in out
    assert not list(elsewhere.iterdir())
    code, out, err = finish(start(folder, [sys.executable, str(entry), "train", "--resume", mine, "--set", "steps=3"]))
    assert code == 2
    assert "steps: the run has 2, now it is 3" in err


def test_neighbours_that_are_named_like_the_standard_library_do_no_harm(folder: Path) -> None:
    (folder / "leyden_entry.py").write_text("from leyden.cli import main\nmain()\n")
    _installed_algorithm(folder)
    mine = folder / "mine"
    mine.mkdir()
    for name in ("queue", "select", "random", "signal", "csv", "asyncio"):
        (mine / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    (mine / "string.py").write_text(SCRIPT.replace("from grow import Grow", "from helping import Grow"))  # and its own
    (mine / "helping.py").write_text(GROW)
    command = [
        sys.executable,
        str(folder / "leyden_entry.py"),
        "train",
        "mine/string.py:solve",
        "--tasks",
        "tasks.jsonl",
    ]
    code, out, err = finish(start(folder, [*command, "--algorithm", "grow", "--set", "steps=2"]))
    assert (code, err) == (0, "")
    assert "step 2/2" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import nothing_like_it",
            "ModuleNotFoundError: No module named 'nothing_like_it' (at broken.py:1 in <module>)",
        ),
        ("x = = 1", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("1 / 0", "ZeroDivisionError: division by zero (at broken.py:1 in <module>)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line_with_the_place(folder: Path, text: str, message: str) -> None:
    (folder / "broken.py").write_text(text + "\n")
    command = [
        sys.executable,
        "-c",
        "from leyden.cli import main; main()",
        "train",
        "broken.py:solve",
        "--tasks",
        "tasks.jsonl",
    ]
    code, out, err = finish(start(folder, command))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err == f"error: {folder / 'broken.py'} cannot be loaded: {message}\n"


def test_a_terminal_of_another_encoding_gets_no_traceback(folder: Path) -> None:
    code, out, err = finish(start(folder, [sys.executable, "train.py"], PYTHONIOENCODING="ascii"))
    assert (code, err) == (0, "")
    assert "training writer ? default" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_cleanly_and_the_run_goes_on_later(folder: Path, number: signal.Signals) -> None:
    process = start(folder, [sys.executable, "train.py"], SECONDS="0.2")
    read_until(process, "step 2/6")
    os.killpg(process.pid, number)  # as the terminal does: the workers get it too
    code, out, err = finish(process)
    assert code == 128 + number
    assert "Traceback" not in err
    assert "stopping; Ctrl-C again ends at once" in err
    assert "stopped; go on with" in err
    assert "stopped after" in out
    assert json.loads((folder / "run" / "summary.json").read_text())["status"] == "stopped"
    assert _open_rollouts(folder) == []
    code, out, err = finish(start(folder, [sys.executable, "train.py", "--resume"]))
    assert (code, err) == (0, "")
    assert "step 6/6" in out
    assert "step 2/6" not in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_as_cleanly(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", "from leyden.cli import main; main()", "train", "train.py", "--train", "writer"]
    _installed_algorithm(folder)
    arguments = ["--tasks", "tasks.jsonl", "--algorithm", "grow", "--directory", "run"]
    process = start(folder, [*command, *arguments], SECONDS="0.2", PYTHONPATH=str(folder))
    read_until(process, "step 1/6")
    os.killpg(process.pid, number)
    code, _, err = finish(process)
    assert code == 128 + number
    assert "Traceback" not in err
    assert _open_rollouts(folder) == []


def _installed_algorithm(folder: Path) -> None:
    """`grow.py` as if it were an installed distribution with an entry point."""
    (folder / "grow.dist-info").mkdir()
    (folder / "grow.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: grow\nVersion: 1\n")
    (folder / "grow.dist-info" / "entry_points.txt").write_text("[leyden.algorithms]\ngrow = grow:Grow\n")


def test_kill_9_loses_nothing_that_was_acknowledged_and_the_run_goes_on(folder: Path) -> None:
    process = start(folder, [sys.executable, "train.py"], SECONDS="0.2")
    read_until(process, "step 3/6")
    process.kill()
    finish(process)
    state = json.loads((folder / "run" / "state.json").read_text())
    assert state["step"] >= 3
    statuses = _statuses(folder)
    assert {statuses[name] for name in state["rollouts"]} == {"succeeded"}
    code, out, err = finish(start(folder, [sys.executable, "train.py", "--resume"]))
    assert (code, err) == (0, "")
    assert f"step {state['step']}/6" not in out
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["train/reward"] for row in rows] == [2.0 * step for step in range(1, 7)]
    after = _statuses(folder)
    assert {after[name] for name in statuses if statuses[name] == "succeeded"} == {"succeeded"}
    assert _open_rollouts(folder) == []


def _statuses(folder: Path) -> dict[str, str]:
    command = [sys.executable, "-c", "from leyden.cli import main; main()", "export", "--store", "run"]
    code, out, err = finish(start(folder, [*command, "--what", "rollouts"]))
    assert code == 0, err
    return {row["id"]: row["status"] for row in map(json.loads, out.splitlines())}


def _open_rollouts(folder: Path) -> list[str]:
    return [name for name, status in _statuses(folder).items() if status in ("queued", "running")]


def test_an_error_of_the_command_is_one_line(folder: Path) -> None:
    command = [sys.executable, "-c", "from leyden.cli import main; main()"]
    for arguments, message in [
        (["train"], "error: leyden train needs TARGET (file.py:function)"),
        (["train", "nowhere.py:solve", "--tasks", "tasks.jsonl"], "error: there is no file"),
        (["train", "train.py:solve"], "error: leyden train needs --tasks FILE"),
        (["train", "--resume", "nowhere"], "error: nowhere holds no run"),
        (["show", "x", "--store", "nowhere.db"], "error: there is no store 'nowhere.db'"),
        (["rollouts"], "error: there is no run in runs/"),
        (["runner", "train.py:solve", "--store", "memory:"], "error: a store in memory cannot be shared"),
        (["runner", "train.py:solve", "--store", "nowhere"], "error: no store takes 'nowhere'"),
        (["runner", "train.py:solve", "--store", "."], "error: . holds no run"),
    ]:
        code, out, err = finish(start(folder, [*command, *arguments]))
        assert (code, out) == (2, "")
        assert err.startswith(message)
        assert err.count("\n") == 1


@pytest.mark.parametrize("background", [False, True])
def test_runners_elsewhere_do_the_work_of_a_run_and_end_by_ctrl_c(folder: Path, background: bool) -> None:
    (folder / "agent.py").write_text(SCRIPT.split("leyden.declare")[0])
    leyden = [sys.executable, "-c", "from leyden.cli import main; main()"]
    store = f"sqlite:///{folder / 'shared.db'}"
    runners = [*leyden, "runner", "agent.py:solve", "--store", store, "--processes", "2"]
    runner = start(folder, runners, background=background)
    read_until(runner, "running agent.py:solve")
    script = SCRIPT.replace('directory="run"', f'directory="run", store={store!r}, external_runners=True')
    (folder / "train.py").write_text(script)
    code, out, err = finish(start(folder, [sys.executable, "train.py"]))
    assert (code, err) == (0, "")
    assert "step 6/6  train/reward 12" in out
    os.killpg(runner.pid, signal.SIGINT)
    code, _, err = finish(runner)
    assert code == 0
    assert "Traceback" not in err
