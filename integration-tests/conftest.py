"""One real vLLM server on a tiny random model for the whole session, and a way to run an agent against it."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import leyden
from leyden.episode import Episode
from leyden.runner import Runner
from leyden.stores import open_store
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint, Mark, Policy, Resources, RolloutRequest

sys.path.insert(0, str(Path(__file__).parent))  # the programs beside the tests


collect_ignore = ["third_party"]  # a repository of its own, see the session of that name
if importlib.util.find_spec("crewai") is None:
    collect_ignore.append("together")  # see the session of that name


@dataclass(frozen=True)
class Served:
    """A model folder, and the origin (`http://host:port`) of the vLLM server that serves it as `policy`."""

    model: Path
    origin: str

    def endpoint(self, version: int = 1) -> Endpoint:
        return Endpoint(
            base_url=f"{self.origin}/v1",
            model="policy",
            version=version,
            sampling={"temperature": 1.0, "max_tokens": 12, "seed": 7},
        )


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A vLLM server on a random model with tied embeddings (0.5 million parameters)."""
    from leyden_lightningrl import serve
    from leyden_lightningrl.tiny import make_tiny_model

    folder = tmp_path_factory.mktemp("served")
    model = make_tiny_model(folder / "model", tied=True)
    with serve.served(
        model, name="policy", context=1024, kv_bytes=64 << 20, max_sequences=16, threads=1, log=folder / "vllm.log"
    ) as url:
        yield Served(model, url.removesuffix("/v1"))


@pytest.fixture
def other_model() -> Iterator[FakeModelServer]:
    """The endpoint of the agents that are not marked."""
    with FakeModelServer() as server:
        yield server


@pytest.fixture
def adapters() -> Iterator[None]:
    """All installed adapters, for one test."""
    leyden.instrument()
    yield
    leyden.uninstrument()


@pytest.fixture
def episodes(adapters: None) -> Callable[..., list[Episode]]:
    """`episodes(function, tasks, policies, marks)`: run the function on each task by a real runner and a real store."""

    def run(
        function: Callable[[Any], Any], tasks: Sequence[Any], policies: dict[str, Policy], marks: Sequence[Mark]
    ) -> list[Episode]:
        return asyncio.run(_run(function, tasks, Resources(policies=policies, marks=tuple(marks))))

    return run


async def _run(function: Callable[[Any], Any], tasks: Sequence[Any], resources: Resources) -> list[Episode]:
    async with open_store("memory:") as store:
        published = await store.publish(resources)
        queued = await store.enqueue([RolloutRequest(task=task, resources=published.version) for task in tasks])
        runner = Runner(store, function, concurrency=4)
        running = asyncio.create_task(runner.run())
        done = await store.wait([rollout.id for rollout in queued], timeout_s=120)
        runner.stop()
        await running
        assert len(done) == len(tasks)
        found = []
        for rollout in done:
            spans = await store.spans(attempt=rollout.attempt)
            attempts = await store.attempts([rollout.id])
            found.append(Episode(rollout=rollout, attempt=attempts[-1], spans=spans.items))
        return found
