"""`leyden run` with real programs: what goes through, what is recorded, how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from leyden.testing.server import FakeModelServer

pytestmark = pytest.mark.slow

LEYDEN = [sys.executable, "-c", "from leyden.cli import main; main()"]
PYTHON = sys.executable


def start(folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None, **given: Any) -> Any:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | given
    env = {**os.environ, "LEYDEN_PLUGINS": "", "PYTHONUNBUFFERED": "1", **(environment or {})}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **given)


def finish(process: Any, given: str | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(given, timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session
        process.communicate()
        raise
    return process.returncode, out, err


def leyden(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    return finish(start(folder, [*LEYDEN, *arguments], environment))


def write(folder: Path, text: str, name: str = "app.py") -> None:
    (folder / name).write_text(textwrap.dedent(text))


def recorded(folder: Path, what: str = "spans", store: str | None = None) -> list[dict[str, Any]]:
    """What the newest run of `folder` has in its store."""
    code, out, err = leyden(folder, "export", "--what", what, *(["--store", store] if store else []))
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def messages(spans: Sequence[Mapping[str, Any]]) -> list[str]:
    return [json.loads(s["attributes"]["leyden.value"])["text"] for s in spans if s.get("kind") == "message"]


def test_everything_passes_through_and_the_program_does_not_notice(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, sys
        import sitecustomize
        print(sys.argv, sys.path, sitecustomize.__name__, sys.flags.interactive)
        print(open(0).read().upper(), end="")
        print("problem", file=sys.stderr)
        sys.exit(3)
        """,
    )
    own = tmp_path / "own"
    own.mkdir()
    write(own, "import sys; print('own sitecustomize', file=sys.stderr)", "sitecustomize.py")
    command = [PYTHON, "-X", "dev", "app.py", "--store", "a b", "--", "{x}"]
    environment = {"PYTHONPATH": str(own)}
    plain = finish(start(tmp_path, command, environment, stdin=subprocess.PIPE), "hello\n")
    code, out, err = finish(
        start(tmp_path, [*LEYDEN, "run", "--", *command], environment, stdin=subprocess.PIPE), "hello\n"
    )
    assert (code, out) == plain[:2] == (3, plain[1])
    assert "HELLO" in out
    assert err.count("own sitecustomize") == 2  # leyden itself is a Python program of this environment too
    assert "problem\n" in err
    lines = err.splitlines()
    assert "the run failed: ProgramFailed: exit status 3; look at it: leyden show" in lines[-1]
    _, shown, _ = leyden(tmp_path, "show", *lines[-1].partition("leyden show ")[2].split())
    assert "failed: ProgramFailed: exit status 3" in shown
    [rollout] = recorded(tmp_path, "rollouts")
    assert rollout["task"] == {"program": command}


def test_a_users_sitecustomize_that_fails_fails_as_it_did(tmp_path: Path) -> None:
    write(tmp_path, "import leyden; leyden.emit_message('recorded'); print('done')")
    write(tmp_path, "raise RuntimeError('mine')", "sitecustomize.py")
    code, out, err = leyden(tmp_path, "run", "--", PYTHON, "app.py", PYTHONPATH=str(tmp_path))
    assert (code, out) == (0, "done\n")
    assert "RuntimeError: mine" in err
    assert messages(recorded(tmp_path)) == ["recorded"]


EVERYWHERE = """
import asyncio, atexit, _thread, threading, multiprocessing, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import leyden

def say(text):
    leyden.emit_message(text)

def late():
    say("atexit")

async def task():
    await asyncio.gather(asyncio.create_task(inner()), asyncio.to_thread(say, "to_thread"))

async def inner():
    say("task")

if __name__ == "__main__":
    atexit.register(late)
    say("main")
    with leyden.agent("planner"):
        thread = threading.Thread(target=say, args=("thread",))
        thread.start(); thread.join()
    done = threading.Event()
    _thread.start_new_thread(lambda: (say("bare thread"), done.set()), ())
    done.wait()
    with ThreadPoolExecutor() as pool:
        pool.submit(say, "pool").result()
    asyncio.run(task())
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=say, args=(method,))
        process.start(); process.join()
    code = "import leyden, os; leyden.emit_message('subprocess'); os._exit(5)"
    assert subprocess.call([sys.executable, "-c", code]) == 5
    threading.Thread(target=lambda: (threading.main_thread().join(), say("after main"))).start()
    say("last")
"""


def test_threads_tasks_and_child_processes_belong_to_the_run_in_the_order_of_their_starts(tmp_path: Path) -> None:
    write(tmp_path, EVERYWHERE)
    code, _, err = leyden(tmp_path, "run", "--task", '"everywhere"', "--", PYTHON, "app.py")
    assert code == 0, err
    spans = recorded(tmp_path)
    order = ["main", "thread", "bare thread", "pool", "fork", "spawn", "subprocess", "last", "after main", "atexit"]
    said = messages(spans)
    assert sorted(said) == sorted([*order, "task", "to_thread"])
    assert [text for text in said if text in order] == order
    [thread] = [span for span in spans if "thread" in messages([span])]
    assert thread["agent"] == "planner"
    [root] = [span for span in spans if span["kind"] == "rollout"]
    parents = {span["span_id"] for span in spans}
    assert all(span.get("parent_id") in parents for span in spans if span is not root)
    [rollout] = recorded(tmp_path, "rollouts")
    assert (rollout["task"], rollout["status"]) == ("everywhere", "succeeded")


def test_a_program_that_crashes_or_is_killed_keeps_what_it_recorded_and_says_why_it_ended(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, signal, sys
        import leyden
        leyden.emit_message("before")
        if sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyError("no tool")
        """,
    )
    code, _, err = leyden(tmp_path, "run", "--store", "one.db", "--", PYTHON, "app.py", "crash")
    assert code == 1
    assert "Traceback" in err
    spans = recorded(tmp_path, store="one.db")
    assert messages(spans) == ["before"]
    assert "KeyError: 'no tool'" in [span["error"] for span in spans if span["kind"] == "exception"]
    code, _, err = leyden(tmp_path, "run", "--store", "one.db", "--", PYTHON, "app.py", "kill")
    assert code == 128 + signal.SIGKILL
    assert messages(recorded(tmp_path, store="one.db")) == ["before", "before"]
    assert [rollout["reason"] for rollout in recorded(tmp_path, "rollouts", "one.db")] == [
        "ProgramFailed: exit status 1: KeyError: 'no tool' (at app.py:7 in <module>)",
        "ProgramFailed: killed by SIGKILL",
    ]
    assert not (tmp_path / "runs").exists()


WAITING = """
import signal, sys, time
got = []
def note(number, frame):
    got.append(number)
    print("got", number, flush=True)
for number in map(int, sys.argv[1:]):
    signal.signal(number, note)
print("ready", flush=True)
while signal.SIGTERM not in got:
    signal.pause()
time.sleep(0.2)  # for a second one, if there is one
print("end", got, flush=True)
"""


@pytest.mark.parametrize("group", [False, True])
def test_signals_go_to_the_program_once_each(tmp_path: Path, group: bool) -> None:
    write(tmp_path, WAITING)
    wanted = [signal.SIGINT, signal.SIGUSR1, signal.SIGTERM]
    process = start(tmp_path, [*LEYDEN, "run", "--", PYTHON, "app.py", *(str(int(one)) for one in wanted)])
    assert process.stdout.readline() == "ready\n"
    for number in wanted:
        (os.killpg if group else os.kill)(process.pid, number)
        assert process.stdout.readline() == f"got {int(number)}\n"
    code, out, err = finish(process)
    assert (code, out) == (0, f"end {[int(one) for one in wanted]}\n")
    assert "the run succeeded" in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_program_that_a_signal_ends_ends_the_run(tmp_path: Path, number: int, status: int) -> None:
    write(tmp_path, "import leyden, time; leyden.emit_message('before'); print('ready', flush=True); time.sleep(600)")
    process = start(tmp_path, [*LEYDEN, "run", "--", PYTHON, "app.py"])
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    code, _, _ = finish(process)
    assert code == status
    assert messages(recorded(tmp_path)) == ["before"]
    [rollout] = recorded(tmp_path, "rollouts")
    assert rollout["reason"].startswith(f"ProgramFailed: killed by {signal.Signals(number).name}")


def test_ctrl_c_at_a_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    write(tmp_path, WAITING)
    outer, inner = pty.openpty()

    def lead() -> None:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [*LEYDEN, "run", "--", PYTHON, "app.py", "2", "15"]
    process = start(tmp_path, command, stdin=inner, stdout=inner, stderr=inner, preexec_fn=lead)
    os.close(inner)
    with os.fdopen(outer, "r+b", buffering=0) as terminal:
        lines = _lines(terminal)
        assert next(line for line in lines if "ready" in line)
        terminal.write(b"\x03")
        assert next(line for line in lines if "got" in line) == "got 2"
        process.terminate()
        assert next(line for line in lines if "end" in line) == "end [2, 15]"
        for _ in lines:
            pass
    assert process.wait(60) == 0


def _lines(terminal: Any) -> Iterator[str]:
    rest = b""
    while True:
        try:
            chunk = terminal.read(1024)
        except OSError:  # the other end is closed
            chunk = b""
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode().strip().removeprefix("^C") for line in whole)


@pytest.fixture
def marked() -> Iterator[list[str]]:
    with FakeModelServer() as server:
        yield ["--train", "writer", "--policy", f"default=policy@{server.base_url}"]


def test_a_store_that_cannot_be_opened_hinders_no_program_unless_agents_are_marked(
    tmp_path: Path, marked: list[str]
) -> None:
    write(tmp_path, "import sys; print('it runs'); sys.exit(4)")
    command = ["--store", "sqlite:////proc/none/store.db"]
    code, out, err = leyden(tmp_path, "run", *command, "--", PYTHON, "app.py")
    assert (code, out, err.count("\n")) == (4, "it runs\n", 1)
    assert err.startswith("leyden: the program runs unrecorded: ")
    code, out, err = leyden(tmp_path, "run", *command, *marked, "--", PYTHON, "app.py")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")


def test_a_folder_that_cannot_be_written_hinders_no_program_either(tmp_path: Path) -> None:
    write(tmp_path, "print('it runs')")
    (tmp_path / "runs").touch()
    code, out, err = leyden(tmp_path, "run", "--", PYTHON, "app.py")
    assert (code, out) == (0, "it runs\n")
    assert err.startswith("leyden: the program runs unrecorded: the run's directory runs/app-")


@pytest.mark.parametrize("broken", ["plugins", "import"])
def test_a_set_up_that_fails_hinders_no_program_unless_agents_are_marked(
    tmp_path: Path, marked: list[str], broken: str
) -> None:
    write(tmp_path, "import subprocess, sys; print('it runs'); subprocess.call([sys.executable, '-c', '1'])")
    command, environment = LEYDEN, {"LEYDEN_PLUGINS": "no-such-plugin"}
    problem = "LEYDEN_PLUGINS names 'no-such-plugin', which is not installed"
    if broken == "import":  # the program's Python has none that can be imported, ours (-E) has
        command, environment = [PYTHON, "-E", *LEYDEN[1:]], {"PYTHONPATH": str(tmp_path / "other")}
        (tmp_path / "other").mkdir()
        write(tmp_path / "other", "raise ImportError('too old')", "leyden.py")
        problem = f"leyden cannot be imported by {PYTHON} (too old); install leyden"
    code, out, err = finish(start(tmp_path, [*command, "run", "--", PYTHON, "app.py"], environment))
    assert (code, out) == (0, "it runs\n")
    assert f"leyden: the program is not recorded: {'PluginError: ' if broken == 'plugins' else ''}{problem}" in err
    assert "no Python process of the program was instrumented" in err
    code, out, err = finish(start(tmp_path, [*command, "run", *marked, "--", PYTHON, "app.py"], environment))
    assert (code, out) == (78, "")
    assert "leyden: agents are marked, so the program is not started: " in err
    assert f"the run failed: RoutingError: {'PluginError: ' if broken == 'plugins' else ''}{problem}" in err


def test_a_tool_in_an_environment_without_leyden_runs_even_with_marks(tmp_path: Path, marked: list[str]) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", "raise ImportError('none here')", "leyden.py")
    write(
        tmp_path,
        """
        import os, subprocess, sys
        path = os.environ["PYTHONPATH"] + os.pathsep + "other"
        print(subprocess.check_output([sys.executable, "-c", "print('a tool')"], env={**os.environ, "PYTHONPATH": path}))
        """,
    )
    code, out, err = leyden(tmp_path, "run", *marked, "--", PYTHON, "app.py")
    assert (code, out) == (0, "b'a tool\\n'\n"), err


def test_what_is_no_python_program_is_said(tmp_path: Path, marked: list[str]) -> None:
    code, out, err = leyden(tmp_path, "run", "--", "sh", "-c", "echo hello")
    assert (code, out) == (0, "hello\n")
    assert "no Python process of the program was instrumented. Only Python programs are" in err
    code, out, err = leyden(tmp_path, "run", *marked, "--", "sh", "-c", "echo hello")
    assert (code, out) == (2, "hello\n")
    assert "the run failed: RoutingError: agents are marked, but no Python process" in err


ERRORS = [
    ([], "the program to run is missing: write it behind --, say leyden run … -- python app.py"),
    (["app.py"], "the program to run is missing"),
    (["--"], "there is nothing behind --"),
    (["--", "no-such-program"], "there is no program 'no-such-program'"),
    (["--", "./app.py"], "'./app.py' cannot be executed: write python ./app.py"),
    (["--", "python3", "-I", "app.py"], "python3 -I ignores the environment"),
    (["--task", "{", "--", PYTHON], "--task is not JSON"),
    (["--train", "a", "--", PYTHON], "'a' is marked for policy 'default': say where it is served, --policy default="),
    (["--policy", "m", "--", PYTHON], "--policy m: write NAME=MODEL@URL"),
    (["--policy", "m@http://127.0.0.1:9/v1", "--", PYTHON], "no agent is marked for policy 'default'"),
    (
        ["--train", "a", "--policy", "m@http://127.0.0.1:9/v1", "--", PYTHON],
        "http://127.0.0.1:9/v1: nothing listens there. Start the server",
    ),
    (["--train", "a", "--train", "a=b", "--policy", "m@http://h/v1", "--", PYTHON], "'a' is marked for two policies"),
    (["--store", "memory:", "--", PYTHON], "a store in memory is gone"),
    (["--store", "mongodb://x", "--", PYTHON], "no store takes 'mongodb://x'"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[message[:25] for _, message in ERRORS])
def test_a_mistake_is_one_line_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    from leyden.cli import main

    (tmp_path / "app.py").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["run", *arguments])
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {message}")


def test_a_task_is_tried_as_in_training(tmp_path: Path) -> None:
    write(tmp_path, "import os, sys; print(sys.argv[1:], os.environ['LEYDEN_TASK'])")
    task = '{"question": "why?", "n": 1}'
    code, out, err = leyden(tmp_path, "run", "--task", task, "--", PYTHON, "app.py", "{question}", "{n}", "{{n}}")
    assert (code, out) == (0, f"['why?', '1', '{{n}}'] {task}\n"), err
    [rollout] = recorded(tmp_path, "rollouts")
    assert rollout["task"] == {"question": "why?", "n": 1}
    code, out, err = leyden(tmp_path, "run", "--task", task, "--", PYTHON, "app.py", "{answer}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the arguments name {answer}, which the task has no field for (it has: task, question, n)" in err


def test_what_the_system_refuses_to_start_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "no program of any kind", "app")
    (tmp_path / "app").chmod(0o755)
    code, out, err = leyden(tmp_path, "run", "--", "./app")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: './app' cannot be started: ")


def test_a_store_with_waiting_work_is_refused(tmp_path: Path) -> None:
    code = "import asyncio; from leyden.stores import open_store; from leyden.types import RolloutRequest\n"
    code += (
        "async def work():\n async with open_store('one.db') as store: await store.enqueue([RolloutRequest(task=1)])\n"
    )
    assert finish(start(tmp_path, [PYTHON, "-c", code + "asyncio.run(work())"]))[0] == 0
    code, out, err = leyden(tmp_path, "run", "--store", "one.db", "--", PYTHON, "-c", "print(1)")
    assert (code, out) == (2, "")
    assert "give the run a store of its own" in err
