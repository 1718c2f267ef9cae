"""The SQLite store keeps the contract, and keeps what it acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leyden.store import LightningStore
from leyden.stores.sqlite import SQLiteStore
from leyden.testing.clock import ManualClock
from leyden.testing.store import StoreConformance


class TestSQLite(StoreConformance):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[LightningStore]:
        store = await SQLiteStore.open(tmp_path / "store.db", clock=clock)
        yield store
        await store.close()
