"""The memory store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from leyden.store import LightningStore
from leyden.stores.memory import MemoryStore
from leyden.testing.clock import ManualClock
from leyden.testing.store import StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[LightningStore]:
        store = MemoryStore(clock=clock)
        yield store
        await store.close()
