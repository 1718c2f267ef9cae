"""Many rollouts in one process: none gets another one's call, and memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import deque
from pathlib import Path

from leyden.testing.adapter.app import AgentApp
from leyden.testing.adapter.base import QUESTION, Base
from leyden.testing.recording import RecordedAttempt
from leyden.testing.server import FakeModelServer
from leyden.trajectories import transitions

AT_ONCE = 64
WARM_UP = 0.4
"""Share of the rollouts after which memory must not grow any more."""
ENOUGH = 300
"""Rollouts from which on memory is judged; before, pools and caches are still filling."""


def resident_mib() -> float:
    """Memory of this process, MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


class EnduranceRules(Base):
    """1,000 rollouts, 64 at once."""

    async def test_a_thousand_rollouts_never_mix_and_memory_stays_flat(
        self, adapters: None, provider: FakeModelServer, server: FakeModelServer
    ) -> None:
        provider.requests, server.requests = deque(maxlen=10), deque(maxlen=10)  # type: ignore[assignment]
        at_once = asyncio.Semaphore(AT_ONCE)
        done = 0
        seen: list[float] = []

        async def ask(app: AgentApp, number: int) -> RecordedAttempt:
            with self.marked(server, self.app.writer) as attempt:
                await app.run(QUESTION.replace("17", str(10_000 + number)))
            return attempt

        async def rollout(shared: AgentApp, number: int) -> None:
            nonlocal done
            async with at_once:
                if self.app.shareable:
                    attempt = await ask(shared, number)
                else:
                    async with self.made(provider, server) as app:
                        attempt = await ask(app, number)
            self.check_callers(attempt)
            self.check_own_words(attempt, f"word-{10_000 + number}")
            assert len(transitions(attempt.spans)) == len(
                [span for span in attempt.llm if span.agent == self.app.writer]
            )
            done += 1
            if done in (int(WARM_UP * self.rollouts), self.rollouts):
                gc.collect()
                seen.append(resident_mib())

        async with self.made(provider, server) as shared:
            await asyncio.gather(*(rollout(shared, number) for number in range(self.rollouts)))
        warm, end = seen
        assert self.rollouts < ENOUGH or end <= 1.1 * warm + 8, f"memory grew from {warm:.0f} to {end:.0f} MiB"
