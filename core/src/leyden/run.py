"""The `TrainingRun` that an algorithm gets: over a store, a run directory and the metrics log."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from leyden.episode import Episode
from leyden.errors import ConfigError, EndpointDown, InvalidInput, LeydenError, MarkError, RolloutsFailed
from leyden.files import read_json, write_atomically
from leyden.metrics import MetricLog
from leyden.reach import unreachable
from leyden.report import CaptureReport
from leyden.retrying import persistently
from leyden.store import LightningStore
from leyden.types import Attempt, Endpoint, Mark, Mode, Policy, Prompt, Resources, Retry, Rollout, RolloutRequest, Span

OnFailed = Literal["drop", "keep", "retry"]

LOOK_AFTER_S = 1.0
FETCH_AT_ONCE = 16


class StoreRun:
    """See `leyden.algorithm.TrainingRun`. `leyden.train` makes it, and gives it the store before the algorithm runs."""

    def __init__(
        self,
        *,
        run_id: str,
        directory: Path,
        seed: int,
        tasks: Sequence[Any],
        val_tasks: Mapping[str, Sequence[Any]],
        marks: tuple[Mark, ...],
        resumed: bool,
        metrics: MetricLog,
        timeout_s: float | None = None,
        max_attempts: int = 3,
        on_failed: OnFailed = "drop",
        check_endpoints: bool = True,
    ) -> None:
        self.id, self.directory, self.seed, self.resumed = run_id, directory, seed, resumed
        self.tasks, self.val_tasks, self.marks = tasks, val_tasks, marks
        self.metrics = metrics
        self.report = CaptureReport(prompts=set())
        self.store: LightningStore | None = None
        self.check_workers: Callable[[], object] = lambda: None
        """Raises where nothing will ever be run; asked every second while rollouts are awaited."""
        self._timeout_s, self._on_failed = timeout_s, on_failed
        outcomes = ("unresponsive", "failed", "timeout") if on_failed == "retry" else ("unresponsive",)
        self._retry = Retry(max_attempts=max_attempts, on=outcomes)  # type: ignore[arg-type]
        self._published: Resources | None = None
        self._checked_calls = False
        self._check_endpoints = check_endpoints
        self._reached: set[str] = set()

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that the marks name, in the order of the marks."""
        return tuple(dict.fromkeys(mark.policy for mark in self.marks))

    @property
    def latest_policies(self) -> dict[str, Policy]:
        """The policies as they were published last."""
        return dict(self._published.policies) if self._published else {}

    def _store(self) -> LightningStore:
        if self.store is None:
            raise ConfigError("nothing can be run or published yet: `check` is called before anything is started")
        return self.store

    async def publish(self, policies: Mapping[str, Policy], values: Mapping[str, Any] | None = None) -> Resources:
        """See `TrainingRun.publish`."""
        missing = [name for name in self.policies if name not in policies]
        if missing:
            raise ConfigError(f"agents are marked for {', '.join(map(repr, missing))}, which publish() was not given")
        resources = Resources(
            policies=dict(policies), marks=self.marks, values=dict(values or {}), id=f"publish-{uuid.uuid4().hex}"
        )
        self._published = await persistently(lambda: self._store().publish(resources))
        self.report.prompts = {*self.report.prompts, *(n for n, p in policies.items() if isinstance(p, Prompt))}
        return self._published

    async def rollout(
        self,
        tasks: Sequence[Any],
        *,
        n: int = 1,
        mode: Mode = "train",
        resources: Resources | None = None,
        timeout_s: float | None = None,
    ) -> list[Episode]:
        """See `TrainingRun.rollout`.

        With `on_failed="drop"` or `"retry"` a rollout that failed for good comes back without the rewards that it gave
        before it failed: its reward is missing, and nothing is learned from it unless the algorithm fills it. With
        `"keep"` it has them.
        """
        requests = self._requests(tasks, n, mode, resources, timeout_s)
        store = self._store()
        snapshot = resources or self._published
        assert snapshot is not None
        await self._reach(snapshot)
        rollouts = await persistently(lambda: store.enqueue(requests))
        ids = [rollout.id for rollout in rollouts]
        try:
            ended = await self._wait(ids, mode)
        except BaseException:
            await self._give_up(ids)
            raise
        episodes = await self._episodes(ended)
        for episode in episodes:
            self.report.add_episode(episode)
        await self._check_failures(episodes, snapshot)
        self._check_calls()
        if self._on_failed != "keep":
            episodes = [episode if episode.succeeded else _without_rewards(episode) for episode in episodes]
        return episodes

    def _requests(
        self, tasks: Sequence[Any], n: int, mode: Mode, resources: Resources | None, timeout_s: float | None
    ) -> list[RolloutRequest]:
        if not tasks or n < 1:
            raise InvalidInput(f"rollout() was asked for {n} rollouts on {len(tasks)} tasks; both must be 1 or more")
        snapshot = resources or self._published
        if snapshot is None:
            raise ConfigError("nothing is published yet: the algorithm must call publish() before rollout()")
        batch = uuid.uuid4().hex[:12]
        return [
            RolloutRequest(
                task=task,
                id=f"{batch}-{index}-{number}",
                group=f"{batch}-{index}",
                metadata={"run": self.id},
                mode=mode,
                resources=snapshot.version,
                retry=self._retry,
                timeout_s=timeout_s if timeout_s is not None else self._timeout_s,
            )
            for index, task in enumerate(tasks)
            for number in range(n)
        ]

    async def cancel_leftovers(self) -> int:
        """Cancel what a killed process of this run left queued or running; returns how many there were."""
        store, cursor, left = self._store(), None, []
        while True:
            page = await store.rollouts(status=["queued", "running"], cursor=cursor)
            left += [rollout.id for rollout in page.items if rollout.metadata.get("run") == self.id]
            cursor = page.next
            if cursor is None:
                break
        if left:
            await store.cancel(left, reason="left over from a process of this run that was killed")
        return len(left)

    async def _wait(self, ids: Sequence[str], mode: Mode) -> list[Rollout]:
        while True:
            ended = await persistently(lambda: self._store().wait(ids, timeout_s=LOOK_AFTER_S))
            if len(ended) == len(ids):
                return ended
            self.metrics.status(f"{mode} rollouts: {len(ended)} of {len(ids)} done")
            self.check_workers()

    async def _give_up(self, ids: Sequence[str]) -> None:
        try:
            await asyncio.wait_for(self._store().cancel(ids, reason="the run was stopped"), 5.0)
        except (LeydenError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the store or its leases take care of them

    async def _episodes(self, rollouts: Sequence[Rollout]) -> list[Episode]:
        """Episodes in the order of `rollouts`."""
        store = self._store()
        attempts = await persistently(lambda: store.attempts([rollout.id for rollout in rollouts]))
        by_id = {attempt.id: attempt for attempt in attempts}
        limit = asyncio.Semaphore(FETCH_AT_ONCE)

        async def episode(rollout: Rollout) -> Episode:
            attempt: Attempt | None = by_id.get(rollout.attempt or "")
            if attempt is None:
                return Episode(rollout=rollout, attempt=None)
            async with limit:
                return Episode(rollout=rollout, attempt=attempt, spans=await all_spans(store, attempt.id))

        return list(await asyncio.gather(*map(episode, rollouts)))

    async def _reach(self, resources: Resources) -> None:
        """Before the first rollouts on an endpoint: raise where nobody listens at it."""
        new = {
            name: policy
            for name, policy in resources.policies.items()
            if isinstance(policy, Endpoint) and policy.base_url not in self._reached
        }
        if not new or not self._check_endpoints:
            return
        down = await unreachable(new)
        if down:
            raise EndpointDown(f"{_listed(down)}. Start the server, or correct the base_url that is published")
        self._reached |= {policy.base_url for policy in new.values()}

    async def _check_failures(self, episodes: Sequence[Episode], resources: Resources) -> None:
        if any(episode.succeeded for episode in episodes):
            return
        reasons = Counter(episode.rollout.reason or episode.rollout.status for episode in episodes)
        told = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(3))
        more = f"; and {len(reasons) - 3} other reasons" if len(reasons) > 3 else ""
        down = await unreachable(resources.policies) if self._check_endpoints else {}
        more += f". {_listed(down)}: start it again, and go on with the run" if down else ""
        raise RolloutsFailed(f"all {len(episodes)} rollouts failed, there is nothing to learn from: {told}{more}")

    def _check_calls(self) -> None:
        """After the first batch: marks that no call was made under are a mistake that would cost the whole run."""
        if self._checked_calls or not self.marks:
            return
        self._checked_calls = True
        used = {row.policy for row in self.report.rows.values() if row.policy} | set(self.report.prompt_uses)
        if used & set(self.policies):
            return
        marked = ", ".join(repr(mark.selector) for mark in self.marks)
        seen = ", ".join(f"{agent} ({count})" for agent, count in sorted(self.report.agents.items()))
        if not seen:
            raise MarkError(
                f"not one LLM call was recorded in {self.report.episodes} rollouts, so nothing of {marked} can be trained. "
                "Is the plugin of the client that the agent uses installed (leyden plugins)? Is the agent's client made "
                "after the rollout starts, or by the openai package?"
            )
        raise MarkError(
            f"no agent marked by {marked} made an LLM call in {self.report.episodes} rollouts. Calls were made by: {seen}. "
            "Mark one of these, or name the agent where it calls: with leyden.agent('…')"
        )

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """See `TrainingRun.log`. Names that end in `reward` or `score` are shown and drawn."""
        self.metrics.log(metrics, step)

    def progress(self, step: int, total: int) -> None:
        """See `TrainingRun.progress`."""
        self.metrics.progress(step, total)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """See `TrainingRun.save_state`."""
        try:
            text = json.dumps(dict(state), indent=2)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the state must be JSON: {error}")
        write_atomically(self.directory / "state.json", text)

    def load_state(self) -> dict[str, Any] | None:
        """See `TrainingRun.load_state`."""
        return read_json(self.directory / "state.json") if self.resumed else None


def _listed(down: Mapping[str, str]) -> str:
    return "; ".join(f"the endpoint of policy {name!r} is down, {why}" for name, why in down.items())


def _without_rewards(episode: Episode) -> Episode:
    return replace(episode, spans=tuple(span for span in episode.spans if span.reward is None))


async def all_spans(store: LightningStore, attempt: str) -> tuple[Span, ...]:
    """Every span of an attempt in its order."""
    found: list[Span] = []
    cursor: str | None = None
    while True:
        page = await persistently(partial(store.spans, attempt=attempt, cursor=cursor))
        found += page.items
        cursor = page.next
        if cursor is None:
            return tuple(found)
