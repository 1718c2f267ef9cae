"""The way of finished spans to the store: batched, bounded, never blocking or raising into the agent, counting drops."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby

from leyden.errors import StoreUnavailable
from leyden.plugins import plugins
from leyden.store import LightningStore
from leyden.types import Span

logger = logging.getLogger(__name__)

MAX_DELAY_S = 5.0


class Exporter:
    """A `leyden.scope.SpanSink` over a store. Make it inside the event loop that it runs in; `emit` from any thread.

    `capacity` spans wait at most; what comes on top is dropped and counted in `dropped`, by attempt id. A batch waits
    until `batch` spans are there, `flush` is called or `delay_s` seconds have passed.
    """

    def __init__(
        self, store: LightningStore, *, capacity: int = 50_000, batch: int = 1000, delay_s: float = 0.25
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.sent = 0
        self._store = store
        self._capacity, self._batch, self._delay_s = capacity, batch, delay_s
        self._queue: deque[Span] = deque()
        self._taken = 0  # spans that left the queue, written or dropped
        self._in_flight = 0
        self._woken = False
        self._loop = asyncio.get_running_loop()
        self._wake, self._hurry, self._moved = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._closing = False
        self._task = self._loop.create_task(self._run())

    def emit(self, span: Span, *, always: bool = False) -> None:
        """Take one span (`SpanSink`). `always` takes it even into a full queue: for the runner's own few."""
        if self._closing or (len(self._queue) >= self._capacity and not always):
            self.dropped[span.attempt_id] += 1
            return
        self._queue.append(span)
        full = len(self._queue) == self._batch
        if not self._woken or full:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._nudge, full)
            except RuntimeError:  # the loop has been closed: a thread outlived its worker
                self.dropped[span.attempt_id] += 1

    def _nudge(self, full: bool) -> None:
        self._wake.set()
        if full:
            self._hurry.set()

    async def flush(self) -> None:
        """Wait until every span that was emitted so far is in the store, or given up and counted."""
        goal = self._taken + len(self._queue) + self._in_flight
        while self._taken < goal and not self._task.done():
            self._hurry.set()
            self._wake.set()
            self._moved.clear()
            await self._moved.wait()

    async def close(self, timeout_s: float = 10.0) -> None:
        """Send what is queued, for `timeout_s` seconds at most; what is left is dropped and counted."""
        try:
            await asyncio.wait_for(self.flush(), timeout_s)
        except asyncio.TimeoutError:
            pass
        finally:
            self._closing = True
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.dropped.update(span.attempt_id for span in self._queue)
            if self._queue:
                logger.warning("%d spans could not be written before the end and were dropped", len(self._queue))
            self._queue.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._woken = False
            if self._queue and len(self._queue) < self._batch and not self._hurry.is_set():
                try:
                    await asyncio.wait_for(self._hurry.wait(), self._delay_s)
                except asyncio.TimeoutError:
                    pass
            self._hurry.clear()
            while self._queue:
                await self._send_some()

    async def _send_some(self) -> None:
        spans = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch))]
        self._in_flight = len(spans)
        for span in spans:
            plugins.span(span)
        try:
            await self._write(spans)
        except asyncio.CancelledError:  # closed while the store did not answer
            self.dropped.update(span.attempt_id for span in spans)
            raise
        finally:
            self._in_flight = 0
            self._taken += len(spans)
            self._moved.set()

    async def _write(self, spans: Sequence[Span]) -> None:
        """Write one batch; where the store refuses it, write it attempt by attempt and drop what is refused again."""
        try:
            await self._retrying(spans)
            return
        except Exception:  # one bad span must not cost the others
            pass
        for attempt, some in groupby(sorted(spans, key=lambda span: span.attempt_id), key=lambda span: span.attempt_id):
            batch = list(some)
            try:
                await self._retrying(batch)
            except Exception as error:
                self.dropped[attempt] += len(batch)
                logger.warning("%d spans of attempt %s were refused by the store: %s", len(batch), attempt, error)

    async def _retrying(self, spans: Sequence[Span]) -> None:
        delay = 0.1
        while True:
            try:
                await self._store.add_spans(spans)
                self.sent += len(spans)
                return
            except StoreUnavailable as error:
                if delay >= MAX_DELAY_S:
                    logger.warning("the store is unavailable, spans wait: %s", error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_DELAY_S)
