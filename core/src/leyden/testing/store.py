"""The conformance suite of `LightningStore`: one test or more for each rule of `leyden.store`.

Run it on a store of your own by subclassing; pytest and pytest-asyncio are needed:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self, clock):
            store = await MyStore.open(clock=clock)
            yield store
            await store.close()

In pytest-asyncio's strict mode the fixture is a `pytest_asyncio.fixture`. Each test gets a fresh, empty store. `clock` is
the suite's: the store must take leases, time limits and its sweeper's sleep from it (see `leyden.clock.Clock`). A store that
has a clock of its own overrides `advance` to let that clock pass. Random interleavings are in `leyden.testing.store_machine`.
"""

from __future__ import annotations

from leyden.testing.store_claims import ClaimRules
from leyden.testing.store_ends import EndRules
from leyden.testing.store_queries import QueryRules
from leyden.testing.store_spans import SpanRules


class StoreConformance(ClaimRules, EndRules, SpanRules, QueryRules):
    """All rules. Subclass it with a `store` fixture."""
