"""The runner: claims rollouts, runs many at once in one event loop, keeps their leases and reports how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from leyden import tracing
from leyden.attempt import RunningAttempt, Verdict
from leyden.errors import LeydenError, NotFound, StoreUnavailable
from leyden.exporter import Exporter
from leyden.retrying import persistently
from leyden.rollout_function import check_function
from leyden.scope import AttemptScope
from leyden.store import LightningStore
from leyden.types import Claim, Mode, Span

logger = logging.getLogger(__name__)

STOPPED = "the worker was stopped"


def worker_name() -> str:
    """A name that no other worker has."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Runner:
    """Runs a rollout function on what the store hands out.

    `concurrency` rollouts at once; `lease_s` seconds of lease, renewed every third of it; `grace_s` seconds for an async
    agent to clean up after its time is up. With `replaceable`, `run` returns when an agent that ignores its limit is
    left running (a hung thread) and all others are done, so that a supervisor can start a fresh process; `hung` is then
    true. Without it such an agent is left behind and the runner goes on.
    """

    def __init__(
        self,
        store: LightningStore,
        function: Callable[[Any], Any],
        *,
        worker: str = "",
        concurrency: int = 16,
        lease_s: float = 30.0,
        poll_s: float = 1.0,
        grace_s: float = 2.0,
        modes: Sequence[Mode] | None = None,
        replaceable: bool = False,
    ) -> None:
        check_function(function)
        self.worker = worker or worker_name()
        self.finished = 0
        self.hung = False
        self._store, self._function = store, function
        self._concurrency, self._lease_s, self._poll_s, self._grace_s = concurrency, lease_s, poll_s, grace_s
        self._modes, self._replaceable = modes, replaceable
        self._active: dict[str, RunningAttempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck: set[RunningAttempt] = set()
        self._changed = asyncio.Event()
        self._stopping = False

    def stop(self) -> None:
        """Claim nothing more, hand back what is running, and return from `run`. Call it in the runner's event loop.

        A claim that is under way is waited for (up to `poll_s`): it must not take again what is handed back.
        """
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Work until `stop` is called, or this task is cancelled (which also hands back what is running)."""
        self._exporter = Exporter(self._store)
        heart = asyncio.create_task(self._heartbeats())
        try:
            await self._claims()
        finally:
            self._stopping = True
            for attempt in list(self._active.values()):
                attempt.give_up(Verdict("unresponsive", STOPPED))
            while self._tasks:
                await asyncio.wait(self._tasks)
            heart.cancel()
            await asyncio.gather(heart, return_exceptions=True)
            await self._exporter.close()

    async def _claims(self) -> None:
        while not self._stopping:
            self._changed.clear()
            blocked = self._replaceable and any(attempt.stuck for attempt in self._stuck)
            if blocked and not self._active:
                self.hung = True
                return
            free = self._concurrency - len(self._active)
            if blocked or free <= 0:
                await self._changed.wait()
                continue
            for claim in await self._claim(free):
                self._begin(claim)
            await asyncio.sleep(0)

    async def _claim(self, limit: int) -> list[Claim]:
        delay = 0.2
        while not self._stopping:
            try:
                return await self._store.claim(
                    self.worker, limit=limit, lease_s=self._lease_s, wait_s=self._poll_s, modes=self._modes
                )
            except StoreUnavailable as error:
                logger.warning("no work can be claimed, trying again in %g s: %s", delay, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 5.0)
        return []

    def _begin(self, claim: Claim) -> None:
        scope = AttemptScope(claim.rollout, claim.attempt.id, claim.resources, self._exporter)
        attempt = self._active[claim.attempt.id] = RunningAttempt(claim, scope)
        task = asyncio.create_task(self._attempt(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, attempt: RunningAttempt) -> None:
        try:
            verdict = await attempt.run(self._function, self._grace_s)
            attempt.scope.closed = True
            tracing.processor.forget(attempt.id)
            self._watch_if_stuck(attempt)
            if verdict.outcome is not None:
                self._tell_drops(attempt)
                await self._exporter.flush()
                await self._report(attempt, verdict)
        except LeydenError as error:  # its lease will lapse, and the rollout goes back to the queue
            logger.error("attempt %s could not be reported: %s", attempt.id, error)
        finally:
            self._active.pop(attempt.id, None)
            self.finished += 1
            self._changed.set()

    async def _report(self, attempt: RunningAttempt, verdict: Verdict) -> None:
        assert verdict.outcome is not None
        outcome, reason = verdict.outcome, verdict.reason
        try:
            # For as long as a lease lasts; later the work has been given away.
            await persistently(
                lambda: self._store.finish(attempt.id, outcome, reason=reason), for_s=max(self._lease_s, 5.0)
            )
        except NotFound:
            logger.info("attempt %s was deleted while it ran", attempt.id)

    def _watch_if_stuck(self, attempt: RunningAttempt) -> None:
        if not attempt.stuck or attempt.work is None:
            return
        logger.warning("the agent of attempt %s goes on after its end and cannot be stopped here", attempt.id)
        self._stuck.add(attempt)

        def ended(work: asyncio.Future[Any]) -> None:
            if not work.cancelled():
                work.exception()  # seen, so that asyncio does not complain
            self._stuck.discard(attempt)
            self._changed.set()

        attempt.work.add_done_callback(ended)

    def _tell_drops(self, attempt: RunningAttempt) -> None:
        """Leave a trace of dropped spans in the attempt itself: what is missing must not look like nothing."""
        lost = self._exporter.dropped.pop(attempt.id, 0)
        if lost:
            claim = attempt.claim
            note = Span(
                rollout_id=claim.rollout.id,
                attempt_id=attempt.id,
                span_id=uuid.uuid4().hex[:16],
                sequence=attempt.scope.next_sequence(),
                name=f"{lost} spans were dropped: the store was too slow or refused them",
                kind="exception",
                error="SpansDropped",
            )
            self._exporter.emit(note, always=True)

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            held = [attempt.id for attempt in self._active.values() if not attempt.given_up.done()]
            if not held:
                continue
            try:
                gone = await self._beat(held)
            except StoreUnavailable as error:
                logger.warning("leases could not be renewed: %s", error)
                continue
            for attempt_id in gone:
                attempt = self._active.get(attempt_id)
                if attempt is not None:
                    attempt.give_up(Verdict(None))

    async def _beat(self, held: Sequence[str]) -> list[str]:
        try:
            return await self._store.heartbeat(self.worker, held, lease_s=self._lease_s)
        except NotFound:
            if len(held) == 1:
                return list(held)
            return [gone for one in held for gone in await self._beat([one])]
