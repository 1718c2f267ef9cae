"""Both stores against the model of the lifecycle, in random interleavings."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from leyden.store import LightningStore
from leyden.stores.memory import MemoryStore
from leyden.stores.sqlite import SQLiteStore
from leyden.testing.clock import ManualClock
from leyden.testing.store_machine import StoreMachine

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))


class MemoryMachine(StoreMachine):
    async def opening(self, clock: ManualClock) -> LightningStore:
        return MemoryStore(clock=clock)


class SQLiteMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    async def opening(self, clock: ManualClock) -> LightningStore:
        return await SQLiteStore.open(Path(self.folder.name) / "store.db", clock=clock)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestMemoryLifecycle = MemoryMachine.TestCase
TestMemoryLifecycle.settings = settings(relaxed, max_examples=100, stateful_step_count=40)
TestSQLiteLifecycle = SQLiteMachine.TestCase
TestSQLiteLifecycle.settings = settings(relaxed, max_examples=25, stateful_step_count=40)
