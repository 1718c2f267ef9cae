"""`leyden.train`: wires the user's rollout function, a store, workers and an algorithm, and sees the run to its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from leyden import algorithms, target
from leyden.algorithm import Algorithm
from leyden.discovery import resolve_marks
from leyden.errors import ConfigError, LeydenError
from leyden.interruption import Interrupted, Interruption, cancelled_by_signals
from leyden.metrics import MetricLog
from leyden.plugins import instrument as instrument_now
from leyden.report import CaptureReport
from leyden.rollout_function import check_function, name_of
from leyden.run import OnFailed, StoreRun
from leyden.run_directory import Lock, check_directory, default_directory, make_directory, read_run
from leyden.runner import Runner
from leyden.store import LightningStore
from leyden.stores import absolute, file_url, open_store
from leyden.summary import summarise
from leyden.tasks import Tasks, digest, load_task_sets, load_tasks
from leyden.training_settings import TrainingSettings
from leyden.types import Policy, Struct
from leyden.workers import Method, Workers


class TrainingResult(Struct, frozen=True):
    """What `train` returns."""

    directory: Path
    scores: list[dict[str, Any]]
    """Before, after and best of every score (`metric`, `held_out`, `before`, `after`, `best`, `best_step`)."""
    history: list[tuple[int, dict[str, float]]]
    """Everything that was logged: (step, metrics)."""
    policies: dict[str, Policy]
    """The policies as they were published last."""
    summary: dict[str, Any]
    """The content of `summary.json`."""


class Training:
    """One run from its checks to its summary. Everything that can be wrong is found by the constructor and `prepare`."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        algorithm: Algorithm | str,
        settings: TrainingSettings,
        *,
        tasks: Tasks,
        val_tasks: Tasks | Mapping[str, Tasks] | None,
        app: object,
        directory: str | PathLike[str] | None,
        resume: bool,
        seed: int,
        command: Mapping[str, Any] | None,
    ) -> None:
        check_function(function)
        settings.check()
        if resume and directory is None:
            raise ConfigError("resume=True needs the directory of the run: train(…, resume=True, directory='runs/…')")
        self.function, self.settings, self.resume, self.seed = function, settings, resume, seed
        self.target = None
        if settings.processes and not settings.external_runners and settings.method == "spawn":
            self.target = target.target_of(function)
        self.algorithm = algorithms.make(algorithm, {}) if isinstance(algorithm, str) else algorithms.check(algorithm)
        self.tasks, self.val_tasks = load_tasks(tasks), load_task_sets(val_tasks)
        if settings.instrument:
            instrument_now()
        self.marks, self.agents = resolve_marks(function, app)
        self.directory = Path(directory) if directory is not None else default_directory(self._name())
        self.command = dict(command or {})
        self.interruption = Interruption()
        self.lock: Lock | None = None

    def _name(self) -> str:
        try:
            return (self.target or target.target_of(self.function)).name
        except ConfigError:
            return name_of(self.function).rsplit(".", 1)[-1].strip("<>")

    def prepare(self) -> None:
        """Let the algorithm check its settings, and make the directory of a new run. An error leaves nothing behind."""
        described = {
            "function": name_of(self.function),
            "algorithm": algorithms.describe(self.algorithm),
            "marks": [f"{mark.selector}={mark.policy}" for mark in self.marks],
            "seed": self.seed,
            "tasks": digest(self.tasks),
            "val_tasks": {name: digest(tasks) for name, tasks in self.val_tasks.items()},
        }
        run_id = check_directory(self.directory, described, resume=self.resume)
        if self.resume:  # what a killed process forked may take a moment to end
            self.lock = Lock(self.directory, wait_s=3.0)
        self.metrics = MetricLog(self.directory, self.val_tasks)
        settings = self.settings
        self.run = StoreRun(
            run_id=run_id,
            directory=self.directory,
            seed=self.seed,
            tasks=self.tasks,
            val_tasks=self.val_tasks,
            marks=self.marks,
            resumed=self.resume,
            metrics=self.metrics,
            timeout_s=settings.timeout_s,
            max_attempts=settings.max_attempts,
            on_failed=settings.on_failed,
            check_endpoints=not settings.external_runners,
        )
        try:
            getattr(self.algorithm, "check", lambda run: None)(self.run)
            if not self.resume:
                store = absolute(settings.store) if isinstance(settings.store, str) else None
                unchecked = {"store": store, **self.command}
                self.lock = make_directory(self.directory, run_id, described, unchecked)
        except BaseException:
            if self.lock is not None:
                self.lock.release()
            raise

    async def train(self) -> TrainingResult:
        """Run the algorithm to its end; whatever happens, end the workers, close the store and write the summary."""
        status, reason = "failed", "ended by an error outside the algorithm"
        self.metrics.say(self._first_line())
        if not self.agents:
            self.metrics.say("no agent is known before it runs, so the marks are checked after the first rollouts")
        try:
            with cancelled_by_signals(self.interruption):
                await self._run()
            status, reason = "finished", ""
        except asyncio.CancelledError:
            status, reason = "stopped", f"go on with resume=True, directory={str(self.directory)!r}"
            raise
        except LeydenError as error:
            reason = str(error)
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            summary = self._end(status, reason)
        return TrainingResult(
            directory=self.directory,
            scores=summary["scores"],
            history=self.metrics.history,
            policies=self.run.latest_policies,
            summary=summary,
        )

    async def _run(self) -> None:
        async with self._store() as store:
            self.run.store = store
            if self.resume:
                await self.run.cancel_leftovers()
            async with self._runner(store):
                await self.algorithm.run(self.run)

    def _first_line(self) -> str:
        held_out = "".join(f", {name}: {len(tasks)}" for name, tasks in self.val_tasks.items())
        marked = ", ".join(f"{mark.selector} → {mark.policy}" for mark in self.marks)
        verb = "resuming" if self.resume else "training"
        return f"{verb} {marked} with {type(self.algorithm).__name__} (tasks: {len(self.tasks)}{held_out}) in {self.directory}"

    def _end(self, status: str, reason: str) -> dict[str, Any]:
        try:
            return self._summarise(status, reason)
        except OSError as error:  # a full disk: it must not hide why the run ended
            self.metrics.say(
                f"{status}: {reason or 'all steps are done'}; the summary cannot be written to {self.directory} ({error})"
            )
            if status == "finished":
                raise
            return {}
        finally:
            if self.lock is not None:
                self.lock.release()

    def _summarise(self, status: str, reason: str) -> dict[str, Any]:
        self.metrics.flush()
        try:
            added = dict(getattr(self.algorithm, "summary", dict)()) if status == "finished" else {}
        except Exception as error:
            added = {"the algorithm's own summary failed": f"{type(error).__name__}: {error}"}
        report: CaptureReport = self.run.report
        summary, text = summarise(
            self.directory, self.metrics, report, self.run.latest_policies, added, status=status, reason=reason or None
        )
        self.metrics.say(text)
        return summary

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[LightningStore]:
        given = self.settings.store
        if given is None and self.resume:
            given = read_run(self.directory).get("store")
        if given is not None and not isinstance(given, str):
            yield given  # the caller's to close
            return
        async with AsyncExitStack() as stack:
            url = given or file_url(self.directory / "store.db")
            if self.settings.processes and not self.settings.external_runners and self.settings.method == "fork":
                await self._start_workers(stack, url)  # before the store is opened here: see leyden.supervisor
                yield await stack.enter_async_context(open_store(url))
                return
            store = await stack.enter_async_context(open_store(url))
            if self.settings.processes and not self.settings.external_runners:
                await self._start_workers(stack, url)
            yield store

    async def _start_workers(self, stack: AsyncExitStack, url: str) -> None:
        settings = self.settings
        workers = Workers(
            self.target or self.function,
            url,
            processes=settings.processes,
            concurrency=settings.concurrency,
            method=settings.method,
            lease_s=settings.lease_s,
            instrument=settings.instrument,
        )
        workers.start()
        stack.push_async_callback(asyncio.to_thread, workers.stop)
        self.run.check_workers = workers.check

    @asynccontextmanager
    async def _runner(self, store: LightningStore) -> AsyncIterator[None]:
        """The runner in this process, where no worker processes are wanted."""
        if self.settings.processes or self.settings.external_runners:
            yield
            return
        runner = Runner(store, self.function, concurrency=self.settings.concurrency, lease_s=self.settings.lease_s)
        task = asyncio.create_task(runner.run())
        self.run.check_workers = lambda: task.result() if task.done() else None
        try:
            yield
        finally:
            runner.stop()
            await asyncio.gather(task, return_exceptions=True)


def train(
    function: Callable[[Any], Any],
    *,
    tasks: Tasks,
    algorithm: Algorithm | str,
    val_tasks: Tasks | Mapping[str, Tasks] | None = None,
    app: object = None,
    directory: str | PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 0,
    store: str | LightningStore | None = None,
    processes: int = 1,
    concurrency: int = 16,
    method: Method = "spawn",
    lease_s: float = 30.0,
    timeout_s: float | None = 600.0,
    max_attempts: int = 3,
    on_failed: OnFailed = "drop",
    external_runners: bool = False,
    instrument: bool = True,
    command: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train the marked agents of the system that `function` runs; returns when the algorithm is done.

    function: takes a task, runs the agents, returns the reward (see `leyden.rollout`).
    tasks, val_tasks: a path (.jsonl, .json, .csv, .txt) or a list; `val_tasks` may be several held-out sets by name.
    algorithm: the object, or the name of an installed one.
    app: the framework's object, where the agents in it are not found through `function`.
    directory: of the run, by default `runs/<name>-<time>`; with `resume` the run in it goes on.
    store: URL (by default SQLite in `directory`), or an open store if everything runs in this process.
    processes: worker processes, each with `concurrency` rollouts at once; 0 runs the agent in this process, where an agent
        that blocks the event loop cannot be ended.
    method: "spawn" loads the user's file again in each worker, "fork" copies this process.
    timeout_s: limit of one attempt. max_attempts: how often a rollout is tried when its worker died.
    on_failed: a rollout that failed has no reward ("drop"), keeps those that it gave before it failed ("keep"), or is
        tried again, up to `max_attempts` times, and then has none ("retry"). One without a reward is left out.
    external_runners: start no workers; `leyden runner` does the work elsewhere, from the same store.
    command: kept in `run.json` for whoever resumes the run.

    Every error of the caller's is a `LeydenError` raised before anything starts. Ctrl-C ends the run cleanly.
    """
    if target.loading():
        raise target.LoadingStopped
    if _in_event_loop():
        raise ConfigError("train() cannot wait inside a running event loop: use `await leyden.train_async(…)` there")
    training = _training({**locals()})
    try:
        return asyncio.run(training.train())
    except asyncio.CancelledError:
        if not training.interruption.signal:
            raise
    print(f"stopped; go on with --resume {training.directory}", file=sys.stderr)
    raise Interrupted(128 + training.interruption.signal)


async def train_async(function: Callable[[Any], Any], **arguments: Any) -> TrainingResult:
    """`train` for a caller that is in an event loop already; takes the same arguments."""
    if target.loading():
        raise target.LoadingStopped
    return await _training({"function": function, **arguments}).train()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _training(arguments: dict[str, Any]) -> Training:
    """A prepared run from the arguments of `train`."""
    how = {name: arguments[name] for name in TrainingSettings.__struct_fields__ if name in arguments}
    what = {name: value for name, value in arguments.items() if name not in how}
    for name in ("val_tasks", "app", "directory", "command"):
        what.setdefault(name, None)
    what = {"resume": False, "seed": 0, **what}
    training = Training(what.pop("function"), what.pop("algorithm"), TrainingSettings(**how), **what)
    training.prepare()
    return training
