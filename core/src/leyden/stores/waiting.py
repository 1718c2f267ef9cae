"""Waiting without polling: who waits for work, who waits for rollouts to end, and what wakes them. One event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence


class Signal:
    """Wakes everybody who holds a ticket. Take the ticket before looking, then nothing is missed in between."""

    def __init__(self) -> None:
        self._tickets: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._tickets)

    def ticket(self) -> asyncio.Future[None]:
        """A future that is done at the next `notify`. Give it to `drop` in the end."""
        future = asyncio.get_running_loop().create_future()
        self._tickets.add(future)
        return future

    def drop(self, ticket: asyncio.Future[None]) -> None:
        """Forget a ticket."""
        self._tickets.discard(ticket)

    def notify(self) -> None:
        """Wake all."""
        for ticket in self._tickets:
            if not ticket.done():
                ticket.set_result(None)
        self._tickets.clear()


class Watch:
    """One `wait` call: the rollouts that are not seen to be terminal, and how many more have to be."""

    def __init__(self, ids: Iterable[str], count: int) -> None:
        self.pending = set(ids)
        self.missing = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def saw(self, terminal: Iterable[str]) -> None:
        """These rollouts are terminal, seen now or before."""
        for rollout in terminal:
            if rollout in self.pending:
                self.pending.discard(rollout)
                self.missing -= 1
        if self.missing <= 0:
            self.wake()

    def wake(self) -> None:
        """End the wait."""
        if not self.done.done():
            self.done.set_result(None)


class Watches:
    """All `wait` calls, by rollout: the end of one costs only those who wait for it."""

    def __init__(self) -> None:
        self._by_rollout: dict[str, set[Watch]] = {}
        self._all: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, ids: Sequence[str], count: int) -> Watch:
        """Start to watch `ids`, before looking at their states. `count` of them have to end."""
        watch = Watch(ids, count)
        self._all.add(watch)
        for rollout in ids:
            self._by_rollout.setdefault(rollout, set()).add(watch)
        return watch

    def remove(self, watch: Watch, ids: Sequence[str]) -> None:
        """Stop watching."""
        self._all.discard(watch)
        for rollout in ids:
            watching = self._by_rollout.get(rollout)
            if watching is not None:
                watching.discard(watch)
                if not watching:
                    del self._by_rollout[rollout]

    def ended(self, ids: Iterable[str]) -> None:
        """These rollouts are terminal (ids that nobody waits for are fine)."""
        for rollout in ids:
            for watch in self._by_rollout.get(rollout, ()):
                watch.saw((rollout,))

    def wake_all(self) -> None:
        """End all waits, so that each looks again (or finds the store closed)."""
        for watch in self._all:
            watch.wake()


async def until(future: asyncio.Future[None], timeout_s: float | None) -> bool:
    """Wait for `future` for `timeout_s` seconds at most; whether it is done. Never cancels it."""
    if timeout_s is not None and timeout_s <= 0:
        return future.done()
    await asyncio.wait({future}, timeout=timeout_s)
    return future.done()


class Deadline:
    """How much of a call's own time is left, on the event loop's clock (which nobody sets back)."""

    def __init__(self, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = None if seconds is None else self._loop.time() + seconds

    def left(self) -> float | None:
        """Seconds left, not below 0; None where there is no limit."""
        return None if self._until is None else max(0.0, self._until - self._loop.time())
