"""Worker processes: many at once, dead and hung ones, under spawn and fork. Only our own processes are ever ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import scripts_for_workers as scripts

from leyden.episode import Episode
from leyden.errors import ConfigError
from leyden.run import all_spans
from leyden.stores import open_store
from leyden.target import Target
from leyden.types import Resources, Retry, RolloutRequest
from leyden.workers import Method, Workers, WorkersFailed

pytestmark = pytest.mark.slow

METHODS = pytest.mark.parametrize("method", ["spawn", "fork"])
PATIENCE_S = 60.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def run(url: str, requests: Sequence[RolloutRequest], workers: Workers, *, ready: int = 0) -> list[Episode]:
    """Let `workers` do `requests` once `ready` of them are; they are started before the store is opened here."""

    async def work() -> list[Episode]:
        async with open_store(url) as store:
            await store.publish(Resources())
            until = time.monotonic() + PATIENCE_S
            while len(workers.ready) < ready:
                workers.check()
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
            ids = [rollout.id for rollout in await store.enqueue(requests)]
            while len(ended := await store.wait(ids, timeout_s=0.1)) < len(ids):
                workers.check()
                assert time.monotonic() < until, f"only {len(ended)} of {len(ids)} ended"
            workers.check()  # what happened since the last look
            attempts = {attempt.id: attempt for attempt in await store.attempts(ids)}
            return [
                Episode(
                    rollout=rollout,
                    attempt=attempts.get(rollout.attempt or ""),
                    spans=await all_spans(store, rollout.attempt or ""),
                )
                for rollout in ended
            ]

    with workers:
        return asyncio.run(work())


def process_of(episode: Episode) -> int:
    [span] = [span for span in episode.spans if span.name == "object process"]
    return int(json.loads(span.attributes["leyden.value"]))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@METHODS
def test_many_rollouts_in_two_processes(url: str, method: Method) -> None:
    workers = Workers(scripts.solve, url, processes=2, concurrency=5, method=method)
    found = run(url, [RolloutRequest(task={"slow": 0.05}) for _ in range(60)], workers, ready=2)
    assert all(episode.reward == 1.0 for episode in found)
    processes = {process_of(episode) for episode in found}
    assert os.getpid() not in processes
    assert len(processes) == 2
    assert not any(is_alive(pid) for pid in processes)


@METHODS
def test_a_worker_that_is_killed_is_replaced_and_its_rollout_done_again(
    url: str, method: Method, tmp_path: Path
) -> None:
    workers = Workers(scripts.solve, url, method=method, lease_s=1.0)
    tasks: list[Any] = [{"die once": str(tmp_path / "died")}, *({"slow": 0.5} for _ in range(4))]
    found = run(url, [RolloutRequest(task=task) for task in tasks], workers)
    assert all(episode.reward == 1.0 for episode in found)
    assert found[0].rollout.attempts == 2
    assert workers.restarts >= 1


@METHODS
def test_a_hung_async_agent_costs_its_rollout_and_not_its_worker(url: str, method: Method) -> None:
    workers = Workers(scripts.solve, url, method=method)
    requests = [RolloutRequest(task={"hang": "async"}, timeout_s=0.5), *(RolloutRequest(task=1) for _ in range(3))]
    hung, *others = run(url, requests, workers)
    assert hung.attempt is not None
    assert hung.attempt.status == "timeout"
    assert all(episode.reward == 1.0 for episode in others)
    assert workers.restarts == 0


@METHODS
def test_a_hung_thread_is_timed_out_and_its_process_replaced(url: str, method: Method) -> None:
    workers = Workers(scripts.solve_in_thread, url, concurrency=1, method=method)
    requests = [RolloutRequest(task={"hang": "thread"}, timeout_s=0.5), *(RolloutRequest(task=1) for _ in range(3))]
    hung, *others = run(url, requests, workers)
    assert hung.attempt is not None
    assert hung.attempt.status == "timeout"
    assert all(episode.reward == 1.0 for episode in others)
    assert workers.restarts >= 1


@METHODS
def test_a_blocked_event_loop_is_killed_by_its_id(url: str, method: Method) -> None:
    workers = Workers(scripts.solve, url, method=method, lease_s=5.0, hang_s=1.5)
    requests = [RolloutRequest(task={"block": "loop"}, timeout_s=1.0), *(RolloutRequest(task=1) for _ in range(3))]
    hung, *others = run(url, requests, workers)
    assert hung.attempt is not None
    assert hung.attempt.status == "timeout"
    assert all(episode.reward == 1.0 for episode in others)
    assert workers.restarts >= 1


@METHODS
def test_stopping_hands_back_what_runs(url: str, method: Method) -> None:
    async def work() -> tuple[str, str]:
        async with open_store(url) as store:
            await store.publish(Resources())
            [rollout] = await store.enqueue([RolloutRequest(task={"hang": "async"}, retry=Retry(max_attempts=5))])
            until = time.monotonic() + PATIENCE_S
            while not await store.attempts([rollout.id]):
                workers.check()
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
            await asyncio.to_thread(workers.stop)
            [attempt] = await store.attempts([rollout.id])
            return (await store.rollouts(ids=[rollout.id])).items[0].status, str(attempt.reason)

    workers = Workers(scripts.solve, url, method=method)
    with workers:
        assert asyncio.run(work()) == ("queued", "the worker was stopped")


def test_a_file_that_cannot_be_loaded_ends_it_with_the_reason(url: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import a_module_that_is_not_there\n")
    workers = Workers(Target(attribute="solve", file=str(file)), url)
    with pytest.raises(WorkersFailed, match="cannot be loaded in a worker: ModuleNotFoundError"):
        run(url, [RolloutRequest(task=1)], workers)


def test_a_worker_that_always_dies_before_it_is_ready_is_given_up(url: str, tmp_path: Path) -> None:
    file = tmp_path / "dies.py"
    file.write_text("import os\nos._exit(7)\n")
    workers = Workers(Target(attribute="solve", file=str(file)), url)
    with pytest.raises(WorkersFailed, match=r"ended 5 times in a row before it was ready \(exit status 7\)"):
        run(url, [RolloutRequest(task=1)], workers)


SCRIPT = """
import asyncio, sys, time
sys.path.insert(0, {here!r})
import scripts_for_workers as scripts
from leyden.workers import Workers
workers = Workers(scripts.solve, {url!r}, processes=2, method={method!r}).start()
while len(workers.ready) < 2:
    workers.check()
    time.sleep(0.05)
print(*workers.ready, flush=True)
time.sleep(3600)
"""


@METHODS
def test_workers_die_with_their_parent_even_by_kill_9(url: str, method: Method, tmp_path: Path) -> None:
    import subprocess

    script = SCRIPT.format(here=str(Path(__file__).parent), url=url, method=method)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(text) for text in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_cannot_work_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be shared"):
        Workers(scripts.solve, "memory:")
    with pytest.raises(ConfigError, match="'spawn' or 'fork'"):
        Workers(scripts.solve, url, method="thread")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="1 or more"):
        Workers(scripts.solve, url, processes=0)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
