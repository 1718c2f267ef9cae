"""`leyden run`: an unmodified program once, recorded as one rollout."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from leyden.cli.program import WithProgram
from leyden.errors import ConfigError, EndpointDown, LeydenError, StoreUnavailable
from leyden.types import Endpoint, Mark, Resources, Retry, RolloutRequest

if TYPE_CHECKING:
    from leyden.episode import Episode
    from leyden.runner import Runner
    from leyden.store import LightningStore
    from leyden.zero.process import Process

LEASE_S = 60.0
PATIENCE_S = 10.0
"""Seconds that the end of the recording waits for a store that does not answer."""


@click.command(cls=WithProgram, usage="[OPTIONS] -- PROGRAM [ARGUMENTS]...")
@click.option("--store", "url", metavar="URL", help="Default: SQLite in runs/<name>-<time>.")
@click.option("--train", "marked", multiple=True, metavar="AGENT[=POLICY]", help="Mark an agent; repeatable.")
@click.option(
    "--policy", "policies", multiple=True, metavar="[NAME=]MODEL@URL",
    help="Where the marked agents of policy NAME (default: default) go; repeatable.",
)  # fmt: skip
@click.option(
    "--task", metavar="JSON",
    help="The task of the run: it takes the place of {field} in the arguments, and is in LEYDEN_TASK, as in training.",
)  # fmt: skip
def run(
    url: str | None, marked: Sequence[str], policies: Sequence[str], task: str | None, program: Sequence[str]
) -> NoReturn:
    """Run an unmodified Python program and record it as one rollout: agents, model calls, tools, errors.

    Its input, output and exit status are passed through, signals too. Without marks it runs even if it cannot be recorded.
    """
    from leyden.program import VARIABLE, arguments
    from leyden.zero.parent import check_command

    check_command(program)
    resources = _resources(marked, policies)
    content = _task(task, program)
    if task is not None:
        program = arguments(program, content)
        os.environ[VARIABLE] = json.dumps(content)
    one = Run(program, content, resources)
    try:
        where = _store(url, program)
    except ConfigError as error:
        if url is not None or resources.marks:
            raise
        _unrecorded(program, error)
    try:
        code = asyncio.run(one.run(where))
    except (LeydenError, OSError) as error:
        if one.started or resources.marks or not isinstance(error, (StoreUnavailable, OSError)):
            raise
        _unrecorded(program, error)
    sys.exit(code)


def _unrecorded(program: Sequence[str], error: Exception) -> NoReturn:
    """Be the program: what hinders the recording must not hinder it."""
    click.echo(f"leyden: the program runs unrecorded: {error}", err=True)
    os.execvp(program[0], list(program))


def _task(text: str | None, program: Sequence[str]) -> Any:
    if text is None:
        return {"program": list(program)}
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--task is not JSON ({error}); a text needs quotes of its own: --task '\"text\"'")


def _resources(marked: Sequence[str], policies: Sequence[str]) -> Resources:
    from leyden import marks

    registry = marks.Marks()
    for text in marked:
        selector, _, policy = text.partition("=")
        registry.add(selector, policy or "default")
    found = registry.resolve(())
    endpoints = dict(map(_policy, policies))
    if len(endpoints) < len(policies):
        raise ConfigError("--policy is given twice for one name; name them: --policy NAME=MODEL@URL")
    if found:
        marks.check(found, ())
    for mark in found:
        if mark.policy not in endpoints:
            raise ConfigError(
                f"{mark.selector!r} is marked for policy {mark.policy!r}: say where it is served, "
                f"--policy {mark.policy}=MODEL@http://127.0.0.1:8000/v1"
            )
    _all_used(endpoints, found)
    return Resources(policies={**endpoints}, marks=found, id=f"run-{uuid.uuid4().hex}")


def _all_used(endpoints: dict[str, Endpoint], found: Sequence[Mark]) -> None:
    for name in endpoints:
        if name not in {mark.policy for mark in found}:
            raise ConfigError(
                f"no agent is marked for policy {name!r}: add --train AGENT={name}, or leave --policy out"
            )


def _policy(text: str) -> tuple[str, Endpoint]:
    front, at, url = text.rpartition("@")
    name, equals, model = front.partition("=")
    if not equals:
        name, model = "default", front
    if not at or not name or not model or not url.startswith(("http://", "https://")):
        raise ConfigError(f"--policy {text}: write NAME=MODEL@URL, say default=my-model@http://127.0.0.1:8000/v1")
    return name, Endpoint(base_url=url, model=model)


@dataclass(frozen=True)
class Where:
    """The store of a run, and how `leyden show` finds it."""

    url: str
    option: str


def _store(url: str | None, program: Sequence[str]) -> Where:
    """The store; without a URL in a new directory under `runs`, where `leyden show` looks first."""
    from leyden.cli.inspect import store_url
    from leyden.program import title
    from leyden.run_directory import default_directory, make_directory
    from leyden.stores import absolute, check_url, file_url, scheme_of

    if url is not None:
        if Path(url).is_dir():
            return Where(store_url(url), f" --store {url}")
        check_url(url)
        if scheme_of(url) == "memory":
            raise ConfigError(
                "a store in memory is gone when the run is over: give a sqlite: URL, or leave --store out"
            )
        return Where(absolute(url), f" --store {url}")
    directory = default_directory(title(program))
    make_directory(directory, uuid.uuid4().hex[:12], {"program": list(program)}, {"store": None}).release()
    return Where(file_url(directory / "store.db"), f" --store {directory}")


class Run:
    """One run of a program, from its rollout to its report."""

    def __init__(self, program: Sequence[str], task: Any, resources: Resources) -> None:
        self.started = False
        self._program, self._task, self._resources = program, task, resources
        self._rollout = ""
        self._process: asyncio.Future[Process]
        self._instrumented = False

    async def run(self, where: Where) -> int:
        """Run the program; returns the exit status for the shell. Once the program has started, nothing of ours is raised."""
        from leyden.reach import unreachable
        from leyden.runner import Runner
        from leyden.stores import open_store

        down = await unreachable(self._resources.policies)
        if down:
            raise EndpointDown(f"{'; '.join(down.values())}. Start the server, or correct --policy")
        self._process = asyncio.get_running_loop().create_future()
        async with open_store(where.url) as store:
            await self._enqueue(store, where)
            runner = Runner(store, self._attempt, concurrency=1, lease_s=LEASE_S, poll_s=0.2)
            work = asyncio.create_task(runner.run())
            ready: set[asyncio.Future[Any]] = {work, self._process}
            await asyncio.wait(ready, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            try:
                if not self._process.done():
                    raise StoreUnavailable(f"the run could not be claimed from {where.url} in {PATIENCE_S:g} s")
                code = await self._process.result().wait()
                failed = await self._finish(store, runner, where)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        return 128 - code if code < 0 else 2 if failed and code == 0 else code

    async def _enqueue(self, store: LightningStore, where: Where) -> None:
        if (await store.statistics()).rollouts.get("queued"):
            raise ConfigError(f"work is waiting for runners in {where.url}: give the run a store of its own")
        published = await store.publish(self._resources)
        request = RolloutRequest(task=self._task, resources=published.version, retry=Retry(max_attempts=1))
        [rollout] = await store.enqueue([request])
        self._rollout = rollout.id

    async def _attempt(self, task: Any) -> None:
        """The rollout function. The program goes on where its attempt is given up, say because the store is gone."""
        from leyden.program import ProgramFailed
        from leyden.scope import current_attempt
        from leyden.zero.parent import Recording
        from leyden.zero.process import Process, how
        from leyden.zero.signals import Signals

        scope = current_attempt()
        if scope is None or scope.rollout.id != self._rollout:
            raise ConfigError("leyden run does no work of other runs")
        with Recording(scope) as recording, Signals() as signals:
            environment = recording.environment(os.environ)
            try:
                process = Process(self._program, environment=environment, alone=not signals.shared, kill_group=False)
            except ConfigError as error:
                self._process.set_exception(error)
                return
            self.started = True
            signals.to(process)
            self._process.set_result(process)
            following = asyncio.ensure_future(recording.follow())
            try:
                code = await process.wait()
            finally:
                following.cancel()
            recording.check()
            self._instrumented = bool(recording.processes)
        if code != 0 and not scope.failures:
            raise ProgramFailed(": ".join(filter(None, (how(code), recording.raised))))

    async def _finish(self, store: LightningStore, runner: Runner, where: Where) -> bool:
        """Wait until the end is in the store, and tell it; returns whether the run failed."""
        from leyden.cli.inspect import _episode

        try:
            ended = await store.wait([self._rollout], timeout_s=PATIENCE_S)
            runner.stop()
            if not ended:
                raise StoreUnavailable(f"{where.url} did not take it in {PATIENCE_S:g} s")
            episode = await _episode(store, ended[0])
        except Exception as error:  # the program has done its work, and that is what counts
            click.echo(f"leyden: the end of the run could not be recorded: {error}", err=True)
            return False
        for line in self._report(episode, where):
            click.echo(f"leyden: {line}", err=True)
        return not episode.succeeded

    def _report(self, episode: Episode, where: Where) -> Iterator[str]:
        from leyden.report import UNKNOWN_AGENT, capture_report
        from leyden.zero.parent import UNINSTRUMENTED

        report = capture_report([episode])
        why = f": {episode.rollout.reason}" if episode.rollout.reason else ""
        if not self._instrumented and not why:
            yield UNINSTRUMENTED
        if report.total("seen"):
            by = ", ".join(f"{agent} {count}" for agent, count in sorted(report.agents.items()))
            yield (
                f"LLM calls: {report.total('seen')} seen ({by}), {report.attributed} of a known agent, {report.routed} routed "
                f"to a policy, {report.total('trainable')} usable for training"
            )
        elif self._instrumented:
            yield "LLM calls: none seen; if there were some, the plugin of the client is missing (leyden plugins)"
        for reason, count in report.dropped.most_common():
            yield f"  left out {count}: {reason}"
        if report.agents.get(UNKNOWN_AGENT):
            yield (
                "calls of no known agent cannot be marked: install the adapter of the framework (leyden plugins), or name the "
                "agent in the program: with leyden.agent('…')"
            )
        yield f"the run {episode.rollout.status}{why}; look at it: leyden show {self._rollout}{where.option}"
