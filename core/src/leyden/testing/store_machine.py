"""Property-based conformance: random interleavings of calls and time against a model of the lifecycle.

Needs hypothesis. Give it a way to open a fresh, empty store, and run it as a test:

    class MyMachine(StoreMachine):
        async def opening(self, clock):
            return await MyStore.open(clock=clock)

    TestMyLifecycle = MyMachine.TestCase
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from leyden import lifecycle
from leyden.errors import Conflict
from leyden.store import LightningStore
from leyden.testing.clock import ManualClock
from leyden.testing.store_base import eventually
from leyden.types import TERMINAL, Attempt, Outcome, Retry, Rollout, RolloutRequest

T = TypeVar("T")

OUTCOMES = st.sampled_from(["succeeded", "failed", "timeout", "unresponsive", "cancelled"])
LIMITS = st.sampled_from([None, 7.0, 40.0])
RETRIES = st.builds(
    Retry,
    max_attempts=st.integers(1, 3),
    on=st.lists(OUTCOMES.filter(lambda outcome: outcome != "succeeded"), unique=True).map(tuple),
)


class StoreMachine(RuleBasedStateMachine):
    """Calls in any order, with time passing between them. After each, the store must hold what the model says."""

    rollouts: Bundle[str] = Bundle("rollouts")
    attempts: Bundle[str] = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.known: dict[str, Rollout] = {}
        self.tries: dict[str, Attempt] = {}
        self.decided: dict[str, Rollout] = {}
        self.count = 0

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Run one call."""
        return self.loop.run_until_complete(call)

    async def opening(self, clock: ManualClock) -> LightningStore:
        """Open a fresh, empty store that goes by `clock`. To be overridden."""
        raise NotImplementedError("override `opening` with a method that opens a fresh, empty store")

    @initialize()
    def open(self) -> None:
        """Start with an empty store."""
        self.store = self.do(self.opening(self.clock))

    def teardown(self) -> None:
        """Close the store and the loop."""
        if hasattr(self, "store"):
            self.do(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @rule(target=rollouts, retry=RETRIES, timeout_s=LIMITS)
    def enqueue(self, retry: Retry, timeout_s: float | None) -> str:
        """A new rollout."""
        self.count += 1
        request = RolloutRequest(task=self.count, id=f"r{self.count}", retry=retry, timeout_s=timeout_s)
        (rollout,) = self.do(self.store.enqueue([request]))
        assert rollout == lifecycle.new_rollout(request, rollout.id, self.clock.now())
        self.known[rollout.id] = rollout
        return rollout.id

    @rule(rollout=rollouts)
    def enqueue_again(self, rollout: str) -> None:
        """The same request again is the same rollout."""
        if rollout in self.known:
            request = lifecycle.request_of(self.known[rollout])
            assert self.do(self.store.enqueue([request])) == [self.known[rollout]]

    @rule(target=attempts, limit=st.integers(1, 3), lease_s=st.sampled_from([5.0, 30.0]))
    def claim(self, limit: int, lease_s: float) -> Any:
        """The first of the queued rollouts, in order."""
        expected = [r for r in self.known.values() if r.status == "queued"][:limit]
        claims = self.do(self.store.claim("w", limit=limit, lease_s=lease_s))
        assert [c.rollout.id for c in claims] == [r.id for r in expected]
        for claimed, before in zip(claims, expected, strict=True):
            change = lifecycle.claim(
                before, claimed.attempt.id, worker="w", lease_s=lease_s, resources=None, now=self.clock.now()
            )
            assert (claimed.rollout, claimed.attempt) == (change.rollout, change.attempts[0])
            self._learn(change)
        return multiple(*(c.attempt.id for c in claims))

    @rule(attempt=attempts, outcome=OUTCOMES)
    def finish(self, attempt: str, outcome: Outcome) -> None:
        """A report in time, late, or again."""
        if attempt not in self.tries:
            return
        before = self.tries[attempt]
        rollout = self.known[before.rollout_id]
        change = lifecycle.finish(rollout, before, self._live(rollout.id), outcome, "said so", self.clock.now())
        if change:
            self._learn(change)
        assert self.do(self.store.finish(attempt, outcome, reason="said so")) == self.tries[attempt]

    @rule(attempt=attempts)
    def heartbeat(self, attempt: str) -> None:
        """A renewal, of an attempt in whatever state."""
        if attempt in self.tries:
            renewed = lifecycle.renew(self.tries[attempt], "w", lease_s=10.0, now=self.clock.now())
            assert self.do(self.store.heartbeat("w", [attempt], lease_s=10.0)) == ([] if renewed else [attempt])
            self.tries[attempt] = renewed or self.tries[attempt]

    @rule(rollout=rollouts)
    def cancel(self, rollout: str) -> None:
        """The end of a rollout, in whatever state."""
        if rollout in self.known:
            change = lifecycle.cancel(self.known[rollout], self._live(rollout), "stop", self.clock.now())
            if change:
                self._learn(change)
            assert self.do(self.store.cancel([rollout], reason="stop")) == [self.known[rollout]]

    @rule(rollout=consumes(rollouts))
    def delete(self, rollout: str) -> None:
        """A rollout goes where it is terminal."""
        if self.known[rollout].status not in TERMINAL:
            try:
                self.do(self.store.delete([rollout]))
            except Conflict:
                return
            raise AssertionError("deleted a rollout that was not done")
        assert self.do(self.store.delete([rollout])) == 1
        del self.known[rollout]
        self.decided.pop(rollout, None)
        self.tries = {key: attempt for key, attempt in self.tries.items() if attempt.rollout_id != rollout}

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0, 50.0]))
    def let_time_pass(self, seconds: float) -> None:
        """Leases and limits end; the sweeper finds them by itself."""
        self.clock.advance(seconds)
        now = self.clock.now()
        for attempt in list(self.tries.values()):
            change = lifecycle.expire(self.known[attempt.rollout_id], attempt, now)
            if change:
                self._learn(change)
        running = sum(attempt.status == "running" for attempt in self.tries.values())

        async def swept() -> bool:
            return (await self.store.statistics()).attempts["running"] == running

        self.do(eventually(swept))

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        """Each rollout and attempt, in all fields but the moment of an end that the sweeper found."""
        if not self.known:
            return
        assert list(self.do(self.store.rollouts()).items) == list(self.known.values())
        attempts = self.do(self.store.attempts(list(self.known)))
        assert {a.id: a for a in attempts} == self.tries

    @invariant()
    def the_promises_hold(self) -> None:
        """What must be true whatever the model says."""
        for rollout in self.known.values():
            tries = [a for a in self.tries.values() if a.rollout_id == rollout.id]
            assert len(tries) == rollout.attempts <= rollout.retry.max_attempts
            assert sum(a.status == "running" for a in tries) == (rollout.status == "running")
            assert sum(a.status == "succeeded" for a in tries) == (rollout.status == "succeeded")
            assert all((a.ended_at is None) == (a.status == "running") for a in tries)
            assert all((a.reason is None) == (a.status in ("running", "succeeded")) for a in tries)
            if rollout.status in TERMINAL:
                assert rollout.ended_at is not None
                assert (rollout.reason is None) == (rollout.status == "succeeded")
                assert self.decided.setdefault(rollout.id, rollout) == rollout, "terminal is terminal"

    def _live(self, rollout: str) -> Attempt | None:
        return next((a for a in self.tries.values() if a.rollout_id == rollout and a.status == "running"), None)

    def _learn(self, change: lifecycle.Change) -> None:
        self.known[change.rollout.id] = change.rollout
        for attempt in change.attempts:
            self.tries[attempt.id] = attempt
