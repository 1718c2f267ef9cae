"""Programs as rollout functions: how a task gets in, what is the reward, how a program ends, and whole training runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from running import episodes, runner

from leyden.episode import Episode
from leyden.errors import ConfigError, InvalidInput
from leyden.program import Program, arguments, number_of, placeholders, title
from leyden.report import capture_report
from leyden.run import all_spans
from leyden.target import load, target_of
from leyden.types import RolloutRequest

PYTHON = sys.executable


def write(folder: Path, text: str, name: str = "app.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder / name)


async def ran(program: Program, *tasks: Any, timeout_s: float | None = 60) -> list[Episode]:
    async with runner(program, grace_s=5.0) as (_, store):
        return await episodes(store, [RolloutRequest(task=task, timeout_s=timeout_s) for task in tasks], wait_s=120)


# --- the task on its way in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "task", "given"),
    [
        (["app.py", "--q={question}"], {"question": "why {not}?"}, ["app.py", "--q=why {not}?"]),
        (["{a}{b}", "{c.d}"], {"a": 1, "b": [True, "é"], "c.d": None}, ['1[true, "é"]', "null"]),
        (["{task}"], "plain", ["plain"]),
        (["{task}"], {"a": 1}, ['{"a": 1}']),
        (["{task}"], {"task": "mine"}, ["mine"]),
        (
            ["{{question}}", "{}", "{0}", "a{3}", '{"a": {"b": 1}}'],
            {},
            ["{question}", "{}", "{0}", "a{3}", '{"a": {"b": 1}}'],
        ),
    ],
)
def test_placeholders_are_filled_from_the_task(words: list[str], task: Any, given: list[str]) -> None:
    assert arguments(["{python}", *words], task) == ["{python}", *given]


def test_a_field_that_a_task_lacks_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(
        InvalidInput, match=r"name \{question\}, which the task has no field for \(it has: task, query\)"
    ):
        arguments(["python", "{question}"], {"query": 1})
    program = Program([PYTHON, "{question}", "{id}"])
    assert placeholders(program.command) == ["question", "id"]
    program.check_tasks([{"question": "a", "id": 1}])
    message = (
        r"name \{id\}, which task 2 of val has no field for \(it has: 'task', 'question'\); write \{\{id\}\} where"
    )
    with pytest.raises(ConfigError, match=message):
        program.check_tasks([{"question": "a", "id": 1}, {"question": "b"}], "val")


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("0.5", 0.5, ""),
        ("text\n\n 1 \n\n", 1.0, ""),
        ("-1e-3\r\n", -1e-3, ""),
        ("", None, "the program printed nothing"),
        ("\n \n", None, "the program printed nothing"),
        ("1\ndone", None, "the last line that the program printed is no number: 'done'"),
        ("nan", None, "the last line that the program printed is no number: 'nan'"),
        ("inf", None, "the last line that the program printed is no number: 'inf'"),
        ("1_000", None, "the last line that the program printed is no number: '1_000'"),
        ("reward 1.0", None, "the last line that the program printed is no number: 'reward 1.0'"),
    ],
)
def test_the_number_on_the_last_line(text: str, value: float | None, why: str) -> None:
    assert number_of(text) == (value, why)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "folder/app.py", "x.py"], "app"),
        (["python", "-m", "tools.app"], "app"),
        (["/usr/bin/app", "--x"], "app"),
    ],
)
def test_a_program_has_a_short_name(command: Sequence[str], name: str) -> None:
    assert title(command) == name


def test_another_process_can_make_the_same_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "def score(task, text): return 1.0", "score_of_mine.py")
    monkeypatch.chdir(tmp_path)
    program = Program([PYTHON, "app.py", "{task}"], score="score_of_mine.py")
    monkeypatch.chdir("/")
    target = target_of(program)
    assert target.name == "app"
    again = load(target)
    assert isinstance(again, Program)
    assert (again.command, again.directory) == (program.command, str(tmp_path))
    assert target_of(again) == target


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("nowhere.py", "there is no file"),
        ("one.py:scor", "has no 'scor': did you mean 'score'"),
        ("one.py:score", "must be a function of two arguments, the task and what the program printed"),
    ],
)
def test_a_score_that_cannot_work_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "def score(task): return 1.0", "one.py")
    with pytest.raises(ConfigError, match=message):
        Program([PYTHON], score=score)


# --- one rollout -----------------------------------------------------------------------------------------------------

ECHO = """
import json, os, sys
import leyden
task = json.load(sys.stdin)
leyden.emit_object("seen", [task, json.loads(os.environ["LEYDEN_TASK"]), sys.argv[1:], os.getcwd()])
print("some text")
print(task["number"] / 4)
"""


async def test_the_task_comes_by_every_way_and_the_reward_is_the_last_number(tmp_path: Path) -> None:
    write(tmp_path, ECHO)
    tasks = [{"number": number, "text": "é\n'\"{x}"} for number in (1, 2)]
    found = await ran(Program([PYTHON, "app.py", "{text}", "{number}"], directory=str(tmp_path)), *tasks)
    for episode, task in zip(found, tasks, strict=True):
        assert episode.rollout.reason is None
        assert episode.reward == task["number"] / 4
        [seen] = [span for span in episode.spans if span.name == "object seen"]
        assert json.loads(seen.attributes["leyden.value"]) == [
            task,
            task,
            [task["text"], str(task["number"])],
            str(tmp_path),
        ]
        [root] = [span for span in episode.spans if span.kind == "rollout"]
        assert {span.parent_id for span in episode.spans if span is not root} == {root.span_id}
        assert [span.kind for span in episode.spans] == ["rollout", "object", "object", "reward"]


async def test_a_task_that_no_variable_can_hold_comes_by_standard_input(tmp_path: Path) -> None:
    write(tmp_path, "import os, sys; print('LEYDEN_TASK' in os.environ); print(len(sys.stdin.read()))")
    [episode] = await ran(Program([PYTHON, str(tmp_path / "app.py")]), "x" * 200_000)
    assert episode.reward == 200_003
    [episode] = await ran(Program([PYTHON, str(tmp_path / "app.py"), "{task}"]), "x" * 200_000)
    assert "the arguments are too long for the system: let the program read" in (episode.rollout.reason or "")


SCORES = """
async def waited(task, text):
    return float(text) + task

def none(task, text):
    return None

def wrong(task, text):
    raise LookupError(f"no such answer: {text.strip()}")
"""


async def test_the_score_function_gives_the_reward(tmp_path: Path) -> None:
    app, scores = write(tmp_path, "print(2)"), write(tmp_path, SCORES, "scores.py")
    [episode] = await ran(Program([PYTHON, app], score=f"{scores}:waited"), 0.5)
    assert episode.reward == 2.5
    [none] = await ran(Program([PYTHON, app], score=f"{scores}:none"), 1)
    assert (none.succeeded, none.reward) == (True, None)
    [wrong] = await ran(Program([PYTHON, app], score=f"{scores}:wrong"), 1)
    assert (wrong.rollout.reason or "").startswith("LookupError: no such answer: 2 (at scores.py:9 in wrong)")
    [own] = await ran(Program([PYTHON, write(tmp_path, "import leyden; leyden.emit_reward(4)", "own.py")]), 1)
    assert (own.reward, capture_report([own]).why_no_reward.total()) == (4.0, 0)
    [text] = await ran(Program([PYTHON, write(tmp_path, "print('a word')", "word.py")]), 1)
    assert (text.succeeded, text.reward) == (True, None)
    report = capture_report([none, text])
    assert report.no_reward == 2
    assert dict(report.why_no_reward) == {
        "the score function gave None": 1,
        "the last line that the program printed is no number: 'a word'": 1,
    }


async def test_a_program_that_fails_fails_its_attempt_with_the_end_of_what_it_said(tmp_path: Path) -> None:
    app = write(
        tmp_path, "import sys\nprint(1)\nprint('x' * 9000, 'too bad', file=sys.stderr)\nsys.exit(int(sys.argv[1]))"
    )
    good, bad = await ran(Program([PYTHON, app, "{task}"]), 0, 3)
    assert good.reward == 1
    reason = bad.rollout.reason or ""
    assert reason.startswith("ProgramFailed: exit status 3: x")
    assert reason.endswith("x too bad")
    assert len(reason) < 600
    assert bad.reward is None


HANGING = """
import os, signal, subprocess, sys, time
import leyden
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
leyden.emit_object("processes", [os.getpid(), child.pid, signal.getsignal(signal.SIGINT) is signal.default_int_handler])
print("so far", flush=True)
if sys.argv[1] == "hang":
    time.sleep(600)
"""


def processes_of(episode: Episode) -> list[int]:
    [span] = [span for span in episode.spans if span.name == "object processes"]
    found: list[int] = json.loads(span.attributes["leyden.value"])
    return found


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # a zombie is as good as gone: nobody here waits for orphans
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    until = time.monotonic() + 60
    while any(map(is_running, pids)):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
async def test_a_program_ends_with_its_whole_group_at_its_limit_and_what_it_recorded_is_kept(tmp_path: Path) -> None:
    program = Program([PYTHON, write(tmp_path, HANGING), "{task}"])
    async with runner(program, grace_s=5.0) as (_, store):
        [hung] = await episodes(store, [RolloutRequest(task="hang", timeout_s=8)], wait_s=60)
        assert hung.attempt is not None
        assert hung.attempt.status == "timeout"
        until = time.monotonic() + 30  # the store ends an attempt by its own clock, before its program is gone
        while not (shown := [s for s in await all_spans(store, hung.attempt.id) if s.name == "object program"]):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        spans = await all_spans(store, hung.attempt.id)
    assert json.loads(shown[0].attributes["leyden.value"])["stdout"] == "so far\n"
    *pids, interruptible = processes_of(replace(hung, spans=spans))
    assert interruptible
    await gone(*pids)
    [over] = await ran(program, "end")
    assert over.succeeded
    await gone(*processes_of(over)[:2])  # what it left behind


async def test_a_program_that_vanished_is_a_reason(tmp_path: Path) -> None:
    tool = write(tmp_path, "#!/bin/sh\necho 1\n", "tool")
    os.chmod(tool, 0o755)
    program = Program([tool])
    os.unlink(tool)
    [episode] = await ran(program, 1)
    assert "there is no program" in (episode.rollout.reason or "")


# --- whole runs ------------------------------------------------------------------------------------------------------

APP = """
import sys, time
import leyden
with leyden.agent("writer"):
    length = len(leyden.prompt("default"))
time.sleep(float(sys.argv[2]))
print("the answer is", length)
print(length * float(sys.argv[1]))
"""
GROW = """
import leyden

class Grow:
    def __init__(self, steps=3):
        self.settings = {"steps": steps}
        self.steps = steps

    async def run(self, run):
        first = (run.load_state() or {"step": 0})["step"]
        for step in range(first, self.steps):
            await run.publish({"default": leyden.Prompt(text="x" * (step + 1), version=step)})
            episodes = await run.rollout(run.tasks)
            run.log({"train/reward": sum(e.reward for e in episodes) / len(episodes)}, step=step + 1)
            run.save_state({"step": step + 1})
            run.progress(step + 1, self.steps)
"""
LEYDEN = [PYTHON, "-c", "from leyden.cli import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, APP)
    write(tmp_path, GROW, "grow.py")
    write(tmp_path, '{"n": 1, "s": 0}\n{"n": 3, "s": 0}\n', "tasks.jsonl")
    write(tmp_path, "def score(task, text): return 10.0 * task['n'] * float(text.split()[3])", "score.py")
    made = tmp_path / "grow.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: grow\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[leyden.algorithms]\ngrow = grow:Grow\n")
    return tmp_path


def start(folder: Path, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    env: Mapping[str, str] = {**os.environ, "LEYDEN_PLUGINS": "", "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*LEYDEN, *arguments], cwd=cwd or folder, env=env, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, out, err


AUTO = ["train", "--auto", "--tasks", "tasks.jsonl", "--train", "writer", "--algorithm", "grow"]
PROGRAM = ["--", PYTHON, "app.py", "{n}", "{s}"]


@pytest.mark.slow
def test_train_auto_runs_a_program_in_workers_and_goes_on_from_anywhere(folder: Path) -> None:
    code, out, err = finish(start(folder, *AUTO, "--set", "steps=2", *PROGRAM))
    assert (code, err) == (0, "")
    assert "step 2/2  train/reward 4" in out
    [directory] = (folder / "runs").iterdir()
    assert directory.name.startswith("app-")
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["status"], summary["capture"]["prompt_uses"]) == ("finished", {"default": 4})
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (directory / "state.json").write_text('{"step": 1}')
    code, out, err = finish(start(folder, "train", "--resume", str(directory), cwd=elsewhere))
    assert (code, err) == (0, "")
    assert "step 2/2  train/reward 4" in out
    code, out, err = finish(start(folder, *AUTO, "--resume", str(directory), "--", PYTHON, "app.py", "5", "{s}"))
    assert code == 2
    assert "was started with other settings: function" in err


@pytest.mark.slow
def test_a_score_function_scores_in_workers_and_in_runners_elsewhere(folder: Path) -> None:
    store = f"sqlite:///{folder / 'shared.db'}"
    runner = start(folder, "runner", "--auto", "--store", store, "--score", "score.py", *PROGRAM)
    assert runner.stdout is not None
    assert runner.stdout.readline().startswith(f"running {PYTHON} app.py {{n}} {{s}} for {store}")
    code, out, err = finish(start(folder, *AUTO, "--no-runner", "--store", store, "--set", "steps=1", *PROGRAM))
    assert (code, err) == (0, "")
    assert "step 1/1  train/reward 20" in out
    runner.send_signal(signal.SIGINT)
    assert finish(runner)[0] == 0
    code, out, err = finish(start(folder, *AUTO, "--score", "score.py:score", "--set", "steps=1", *PROGRAM))
    assert (code, err) == (0, "")
    assert "step 1/1  train/reward 20" in out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a killed worker takes its programs along on Linux only")
def test_programs_end_with_a_run_that_is_stopped_and_with_a_worker_that_is_killed(folder: Path) -> None:
    write(folder, 'import os, sys, time\nopen(f"pid-{os.getpid()}", "w").close()\ntime.sleep(600)\n', "slow.py")
    for number in (signal.SIGINT, signal.SIGKILL):
        process = start(folder, *AUTO, "--", PYTHON, "slow.py")
        until = time.monotonic() + 120
        while len(files := list(folder.glob("pid-*"))) < 2:
            assert time.monotonic() < until
            assert process.poll() is None, finish(process)
            time.sleep(0.05)
        pids = [int(file.name.partition("-")[2]) for file in files]
        process.send_signal(number)
        finish(process)
        asyncio.run(gone(*pids))
        for file in files:
            file.unlink()


@pytest.mark.slow
def test_mistakes_are_one_line_before_anything_starts(folder: Path) -> None:
    write(folder, "def score(task): return 1.0", "one.py")
    for given, message in [
        (AUTO, "the program to run is missing: write it behind --, say leyden train --auto … -- python app.py"),
        ([*AUTO, "--"], "there is nothing behind --"),
        ([*AUTO, "app.py", *PROGRAM], "give TARGET (app.py) or --auto with a program behind --, not both"),
        (["train", "--tasks", "tasks.jsonl", *PROGRAM], "a program behind -- needs --auto"),
        (["train", "app.py", "--score", "score.py"], "--score belongs to --auto"),
        ([*AUTO, "--", "no-such-program"], "there is no program 'no-such-program'"),
        ([*AUTO, "--", PYTHON, "-I", "app.py"], f"{PYTHON} -I ignores the environment"),
        (
            [*AUTO, "--", PYTHON, "{question}"],
            "the arguments name {question}, which task 1 of tasks.jsonl has no field",
        ),
        ([*AUTO, "--score", "one.py", *PROGRAM], f"{folder}/one.py:score must be a function of two arguments"),
        (["train", "--auto", "--train", "writer", *PROGRAM], "leyden train needs --tasks FILE"),
        (["runner", "--store", "x.db"], "leyden runner needs TARGET (file.py:function), or --auto and a program"),
    ]:
        code, out, err = finish(start(folder, *given))
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith(f"error: {message}")
    assert not (folder / "runs").exists()
