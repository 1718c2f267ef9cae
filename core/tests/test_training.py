"""`leyden.train` in one process: what it checks first, what it does, what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leyden
from leyden import agents, marks
from leyden.algorithm import TrainingRun
from leyden.errors import (
    ConfigError,
    EndpointDown,
    InvalidInput,
    LeydenError,
    MarkError,
    RolloutsFailed,
    StoreUnavailable,
)
from leyden.files import write_atomically
from leyden.stores.memory import MemoryStore
from leyden.training import Training, TrainingResult
from leyden.training_settings import TrainingSettings
from leyden.types import Endpoint, Prompt


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(agents, "_DECLARED", {})
    monkeypatch.chdir(tmp_path)
    leyden.declare("writer", "planner")
    leyden.trainable("writer")
    yield
    marks.registry.clear()


async def solve(task: float) -> float:
    return task * len(leyden.prompt("default"))


class Grow:
    """Publishes a longer prompt at every step; what it got is in `seen`."""

    def __init__(self, steps: int = 2, stop: Callable[[int], None] | None = None) -> None:
        self.steps, self.stop = steps, stop
        self.settings = {"steps": steps}
        self.seen: list[list[float | None]] = []

    async def run(self, run: TrainingRun) -> None:
        first = (run.load_state() or {"step": 0})["step"]
        for step in range(first, self.steps):
            await run.publish({name: Prompt(text="x" * (step + 1), version=step) for name in run.policies})
            episodes = await run.rollout(run.tasks, n=2)
            self.seen.append([episode.reward for episode in episodes])
            run.log({"train/reward": sum(e.reward or 0 for e in episodes) / len(episodes)}, step=step)
            for name, tasks in run.val_tasks.items():
                held_out = await run.rollout(tasks, mode="val")
                run.log({f"{name}/reward": sum(e.reward or 0 for e in held_out) / len(held_out)}, step=step)
            run.save_state({"step": step + 1})
            run.progress(step + 1, self.steps)
            if self.stop is not None:
                self.stop(step)

    def summary(self) -> dict[str, Any]:
        return {"steps done": self.steps}


def train(function: Any = solve, **given: Any) -> TrainingResult:
    return leyden.train(function, **{"tasks": [1.0, 2.0], "algorithm": Grow(), "processes": 0, **given})


def test_a_run_leaves_its_scores_its_prompt_its_report_and_its_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    algorithm = Grow(3)
    result = train(algorithm=algorithm, val_tasks={"near": [1.0], "far": [10.0]}, directory=tmp_path / "run")
    assert algorithm.seen == [[1, 1, 2, 2], [2, 2, 4, 4], [3, 3, 6, 6]]
    assert [(row["metric"], row["before"], row["after"], row["held_out"]) for row in result.scores] == [
        ("far/reward", 10, 30, True),
        ("near/reward", 1, 3, True),
        ("train/reward", 1.5, 4.5, False),
    ]
    assert result.policies == {"default": Prompt(text="xxx", version=2)}
    assert (tmp_path / "run" / "prompts" / "default.txt").read_text() == "xxx"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == result.summary
    assert (summary["status"], summary["steps done"], summary["capture"]["rollouts"]) == ("finished", 3, 18)
    assert "far/reward (held out)" in (tmp_path / "run" / "report.md").read_text()
    assert (tmp_path / "run" / "curve.svg").exists()
    out = capsys.readouterr().out
    assert "training writer → default with Grow (tasks: 2, near: 1, far: 1)" in out
    assert "step 2/3  train/reward 4.5" in out
    assert "steps done: 3" in out


def test_the_default_directory_is_made_under_runs_and_named_after_the_file() -> None:
    first, second = train(), train()
    assert first.directory != second.directory
    assert first.directory.parent == Path("runs")
    assert first.directory.name.startswith("test_training-")


def test_groups_and_order() -> None:
    class Look(Grow):
        async def run(self, run: TrainingRun) -> None:
            await run.publish({"default": Prompt(text="x")})
            self.episodes = await run.rollout([3.0, 4.0], n=3, mode="test")

    algorithm = Look()
    train(algorithm=algorithm)
    assert [episode.task for episode in algorithm.episodes] == [3.0] * 3 + [4.0] * 3
    groups = [episode.group for episode in algorithm.episodes]
    assert len(set(groups[:3])) == len(set(groups[3:])) == 1
    assert len(set(groups)) == 2
    assert {episode.rollout.mode for episode in algorithm.episodes} == {"test"}


def bad_reward(task: float) -> float:
    leyden.prompt("default")
    return float("nan")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"tasks": []}, InvalidInput, "holds no tasks"),
        ({"tasks": "nowhere.jsonl"}, InvalidInput, "there is no file 'nowhere.jsonl'"),
        ({"algorithm": object()}, ConfigError, "is no algorithm"),
        ({"algorithm": Grow}, ConfigError, "not its class"),
        ({"algorithm": "no-such-algorithm"}, ConfigError, "no algorithm 'no-such-algorithm' is installed"),
        ({"processes": -1}, ConfigError, "processes must be 0 or more"),
        ({"processes": 1, "store": "memory:"}, ConfigError, "cannot be shared with worker processes"),
        ({"processes": "many"}, ConfigError, "Expected `int`, got `str`"),
        ({"timeout_s": 0}, ConfigError, "seconds above 0"),
        ({"on_failed": "ignore"}, ConfigError, "on_failed"),
        ({"resume": True}, ConfigError, "needs the directory"),
        ({"resume": True, "directory": "nowhere"}, ConfigError, "holds no run"),
        ({"function": 3}, ConfigError, "not a function"),
        ({"store": "mongodb://x"}, ConfigError, "no store takes"),
        ({"store": f"sqlite:///{__file__}"}, ConfigError, "is not a Leyden store"),
        ({"store": f"sqlite:///{Path(__file__).parent}"}, ConfigError, "is not a Leyden store"),
        ({"timeout_s": float("nan")}, ConfigError, "seconds above 0"),
    ],
)
def test_what_cannot_work_is_an_error_before_anything_starts(
    given: dict[str, Any], error: type[LeydenError], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(**given)
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_mark_that_matches_nothing_is_an_error_before_anything_starts() -> None:
    leyden.trainable("wrter")
    with pytest.raises(MarkError, match=r"Did you mean 'writer'\?"):
        train()
    assert not Path("runs").exists()


def test_the_algorithms_own_check_comes_before_anything_starts() -> None:
    class Picky(Grow):
        def check(self, run: TrainingRun) -> None:
            if len(run.tasks) < 8:
                raise ConfigError(f"{len(run.tasks)} tasks are not enough for a batch of 8")

    with pytest.raises(ConfigError, match="2 tasks are not enough"):
        train(algorithm=Picky(), directory="run")
    assert not Path("run").exists()


def test_a_full_disk_at_the_end_does_not_hide_why_the_run_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("leyden.training.summarise", full)
    with pytest.raises(RolloutsFailed, match="must be a finite number"):
        train(bad_reward)
    assert "the summary cannot be written to runs/" in capsys.readouterr().out
    with pytest.raises(OSError, match="No space left"):  # nothing else went wrong: this is the error
        train()


def test_a_check_that_fails_leaves_nothing_behind_and_a_directory_as_it_was() -> None:
    class Picky(Grow):
        def check(self, run: TrainingRun) -> None:
            raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        train(algorithm=Picky())
    assert not list(Path().iterdir())
    Path("mine").mkdir()
    with pytest.raises(ConfigError, match="no"):
        train(algorithm=Picky(), directory="mine")
    assert not list(Path("mine").iterdir())


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/none"])
def test_a_directory_that_cannot_be_made_is_an_error_before_anything_starts(where: str) -> None:
    Path("file").write_text("mine")
    algorithm = Grow()
    with pytest.raises(ConfigError, match=r"cannot be made or written.*give another one"):
        train(algorithm=algorithm, directory=where)
    assert algorithm.seen == []
    assert Path("file").read_text() == "mine"


def test_two_runs_at_once_in_one_directory_are_an_error(tmp_path: Path) -> None:
    where = tmp_path / "run"
    errors: list[str] = []

    def again(step: int) -> None:
        for resume in (False, True):
            with pytest.raises(ConfigError) as caught:
                Training(  # the same in another process, since the lock belongs to an open file
                    solve, Grow(2), TrainingSettings(processes=0), tasks=[1.0, 2.0], val_tasks=None, app=None,
                    directory=where, resume=resume, seed=0, command=None,
                ).prepare()  # fmt: skip
            errors.append(str(caught.value))

    train(algorithm=Grow(2, again), directory=where)
    assert ["holds a run already" in text for text in errors] == [True, False] * 2
    assert ["another process is at work" in text for text in errors] == [False, True] * 2
    train(algorithm=Grow(2), directory=where, resume=True)  # and free again afterwards


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]
    assert path.read_text() == "old"


class Served(Grow):
    """Publishes an endpoint."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, run: TrainingRun) -> None:
        await run.publish({"default": Endpoint(base_url=self.url, model="m")})
        await run.rollout([1.0])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9/v1", r"policy 'default' is down, http://127.0.0.1:9/v1: nothing listens there"),
        ("http://nowhere.invalid/v1", "there is no such host"),
        ("127.0.0.1:9/v1", "unknown url type"),
    ],
)
def test_an_endpoint_that_is_down_is_said_before_any_rollout(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    ran: list[float] = []

    async def rollout(task: float) -> float:
        ran.append(task)
        return 1.0

    with pytest.raises(EndpointDown, match=message):
        train(rollout, algorithm=Served(url))
    assert not ran


def test_an_endpoint_that_went_down_is_named_with_the_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    monkeypatch.setattr("leyden.reach.PROBE_S", 0.2)  # it listens and does not answer: that is no reason to stop

    async def fails(task: float) -> float:
        listening.close()
        raise ConnectionError("Connection error.")

    with pytest.raises(RolloutsFailed, match=rf"ConnectionError.*is down, http://127.0.0.1:{port}/v1.*start it again"):
        train(fails, algorithm=Served(f"http://127.0.0.1:{port}/v1"))


def test_all_rollouts_failing_ends_the_run_with_the_reasons() -> None:
    async def fails(task: float) -> float:
        raise (KeyError("no tool") if task == 1.0 else ValueError("too long"))

    with pytest.raises(
        RolloutsFailed, match=r"all 6 rollouts failed.*4 × KeyError: 'no tool'.*2 × ValueError: too long"
    ):
        train(fails, tasks=[1.0, 2.0, 1.0], directory="run")
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["status"] == "failed"
    assert "no tool" in summary["reason"]


def test_a_reward_that_is_no_number_fails_the_run_with_the_reason() -> None:
    with pytest.raises(RolloutsFailed, match="must be a finite number, got nan"):
        train(bad_reward)


class Keeps(Grow):
    """Keeps the episodes of one batch."""

    async def run(self, run: TrainingRun) -> None:
        await run.publish({"default": Prompt(text="x")})
        self.episodes = await run.rollout([0.0, 1.0])


async def half(task: float) -> float:
    leyden.prompt("default")
    leyden.emit_reward(0.25)
    if task == 0.0:
        raise TimeoutError("the tool was slow")
    return 1.0


@pytest.mark.parametrize(("on_failed", "rewards"), [("drop", [None, 1.0]), ("keep", [0.25, 1.0])])
def test_the_user_chooses_what_becomes_of_failed_rollouts(on_failed: str, rewards: list[float | None]) -> None:
    algorithm = Keeps()
    train(half, algorithm=algorithm, on_failed=on_failed)
    assert [episode.succeeded for episode in algorithm.episodes] == [False, True]
    assert [episode.reward for episode in algorithm.episodes] == rewards


def test_a_dropped_rollout_keeps_its_other_spans_for_algorithms_that_fill_its_reward() -> None:
    algorithm = Keeps()
    train(half, algorithm=algorithm)
    assert {span.kind for span in algorithm.episodes[0].spans} == {"rollout", "object", "exception"}


def test_a_store_that_is_away_for_a_moment_ends_no_run(tmp_path: Path) -> None:
    class Flaky(MemoryStore):
        """Fails every third call."""

        calls = 0

    def flaky(name: str) -> Any:
        whole = getattr(MemoryStore, name)

        async def call(self: Flaky, *given: Any, **named: Any) -> Any:
            Flaky.calls += 1
            if Flaky.calls % 3 == 0:
                raise StoreUnavailable("away for a moment")
            return await whole(self, *given, **named)

        return call

    for name in ("enqueue", "wait", "attempts", "spans", "publish", "add_spans", "finish", "claim", "heartbeat"):
        setattr(Flaky, name, flaky(name))

    async def run() -> Any:
        store = Flaky()
        result = await leyden.train_async(
            solve, tasks=[1.0, 2.0], algorithm=Grow(2), processes=0, store=store, directory=tmp_path / "run"
        )
        await store.close()
        return result

    result = asyncio.run(run())
    assert [row["after"] for row in result.scores] == [3.0]
    assert result.summary["capture"]["rollouts"] == 8


def test_failed_rollouts_are_tried_again_if_the_user_says_so() -> None:
    tries: list[float] = []

    async def second_time(task: float) -> float:
        leyden.prompt("default")
        tries.append(task)
        if tries.count(task) < 2:
            raise RuntimeError("not yet")
        return 1.0

    algorithm = Keeps()
    train(second_time, algorithm=algorithm, on_failed="retry", max_attempts=2)
    assert sorted(tries) == [0.0, 0.0, 1.0, 1.0]
    assert [(episode.reward, episode.rollout.attempts) for episode in algorithm.episodes] == [(1.0, 2), (1.0, 2)]


def test_marks_that_cannot_be_checked_yet_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train()
    assert "checked after the first rollouts" not in capsys.readouterr().out
    monkeypatch.setattr(agents, "_DECLARED", {})
    train()
    assert "the marks are checked after the first rollouts" in capsys.readouterr().out


def test_marked_agents_that_make_no_call_end_the_run_after_the_first_batch() -> None:
    async def no_call(task: float) -> float:
        return 1.0

    with pytest.raises(MarkError, match="not one LLM call was recorded in 4 rollouts"):
        train(no_call)


def test_rollouts_before_anything_is_published_are_an_error() -> None:
    class Hasty(Grow):
        async def run(self, run: TrainingRun) -> None:
            await run.rollout(run.tasks)

    with pytest.raises(ConfigError, match="must call publish"):
        train(algorithm=Hasty())


def test_publishing_less_than_the_marks_name_is_an_error() -> None:
    class Forgetful(Grow):
        async def run(self, run: TrainingRun) -> None:
            await run.publish({"other": Prompt(text="x")})

    with pytest.raises(ConfigError, match="marked for 'default', which publish"):
        train(algorithm=Forgetful())


def test_a_run_goes_on_where_it_was_and_contradictory_settings_are_errors(tmp_path: Path) -> None:
    class Crash(Exception):
        pass

    def crash(step: int) -> None:
        if step == 1:
            raise Crash

    where = tmp_path / "run"
    with pytest.raises(Crash):
        train(algorithm=Grow(4, crash), directory=where)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(algorithm=Grow(4), directory=where)
    with pytest.raises(ConfigError, match=r"algorithm.settings.steps: the run has 4, now it is 5"):
        train(algorithm=Grow(5), directory=where, resume=True)
    with pytest.raises(ConfigError, match="tasks: the run has"):
        train(algorithm=Grow(4), tasks=[1.0], directory=where, resume=True)
    with pytest.raises(ConfigError, match="seed: the run has 0, now it is 1"):
        train(algorithm=Grow(4), seed=1, directory=where, resume=True)
    again = Grow(4)
    result = train(algorithm=again, directory=where, resume=True)
    assert again.seen == [[3, 3, 6, 6], [4, 4, 8, 8]]
    assert [step for step, _ in result.history] == [0, 1, 2, 3]
    assert result.scores[0]["before"] == 1.5


def test_an_open_store_may_be_given_and_is_left_open(tmp_path: Path) -> None:
    async def both() -> int:
        store = MemoryStore()
        await leyden.train_async(
            solve, tasks=[1.0], algorithm=Grow(1), processes=0, store=store, directory=tmp_path / "run"
        )
        count = (await store.statistics()).rollouts["succeeded"]
        await store.close()
        return count

    assert asyncio.run(both()) == 2


def test_train_inside_an_event_loop_says_what_to_call_instead() -> None:
    async def inside() -> None:
        train()

    with pytest.raises(ConfigError, match="train_async"):
        asyncio.run(inside())


def test_left_over_rollouts_of_a_killed_process_are_cancelled_and_others_are_left(tmp_path: Path) -> None:
    from leyden.stores import open_store
    from leyden.types import RolloutRequest

    where = tmp_path / "run"
    train(algorithm=Grow(1), directory=where)
    run_id = json.loads((where / "run.json").read_text())["id"]

    async def leave_some() -> None:
        async with open_store(f"sqlite:///{where / 'store.db'}") as store:
            mine = RolloutRequest(task=1.0, id="mine", metadata={"run": run_id})
            await store.enqueue([mine, RolloutRequest(task=1.0, id="other", mode="test")])

    async def look() -> dict[str, str]:
        async with open_store(f"sqlite:///{where / 'store.db'}") as store:
            return {r.id: r.status for r in (await store.rollouts(ids=["mine", "other"])).items}

    class Nothing(Grow):
        async def run(self, run: TrainingRun) -> None:
            return None

    asyncio.run(leave_some())
    Nothing.__qualname__ = "Grow"
    train(algorithm=Nothing(1), directory=where, resume=True)
    assert asyncio.run(look())["mine"] == "cancelled"
    assert asyncio.run(look())["other"] != "cancelled"
