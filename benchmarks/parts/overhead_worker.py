"""One process of `adapter_overhead`: a framework's conformance app with one kind of instrumentation, and what it took.

python overhead_worker.py FRAMEWORK KIND PACKAGES RUNS DELAY_MS
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.metadata
import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 8
QUESTION = "Tell me of word-17."


def load(framework: str) -> Any:
    """The app class of the framework's conformance test."""
    path = ROOT / "plugins" / framework / "tests" / "test_conformance.py"
    spec = importlib.util.spec_from_file_location("conformance_app", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.App


def serve(pipe: Connection, framework: str, delay_s: float) -> None:
    """The server's process."""
    from collections import deque

    from leyden.testing.adapter import ModelAccess
    from leyden.testing.adapter.script import scripted
    from leyden.testing.server import FakeModelServer

    kind = load(framework)
    with FakeModelServer(return_token_ids=False, delay_s=delay_s) as server:
        server.requests = deque(maxlen=1)  # type: ignore[assignment]
        server.reply = functools.partial(scripted, kind(ModelAccess(base_url=server.base_url)))
        pipe.send(server.base_url)
        pipe.recv()


def peers(packages: list[str]) -> Callable[[], int]:
    """Switch the instrumentors of installed packages on; returns how to count the spans that were exported."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        seen = 0

        def export(self, spans: Any) -> SpanExportResult:
            Counting.seen += len(spans)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Counting()))
    trace.set_tracer_provider(provider)
    for package in packages:
        for point in importlib.metadata.distribution(package).entry_points:
            if point.group == "opentelemetry_instrumentor":
                point.load()().instrument(tracer_provider=provider, skip_dep_check=True)

    def count() -> int:
        provider.force_flush()
        return Counting.seen

    return count


class Nothing:
    """A store that takes spans and keeps none."""

    def __init__(self) -> None:
        self.seen = 0

    async def add_spans(self, spans: Any) -> None:
        self.seen += len(spans)


async def work(framework: str, kind: str, packages: list[str], runs: int, base_url: str) -> dict[str, Any]:
    """Warm up, then time each run by both clocks."""
    from leyden.testing.adapter import ModelAccess

    count = peers(packages) if packages else None
    made = load(framework)
    app = made(ModelAccess(base_url=base_url))

    async def bare() -> str:
        return str(await app.run(QUESTION))

    run = bare
    store, exporter = Nothing(), None
    if kind == "Leyden":
        import leyden
        from leyden.exporter import Exporter
        from leyden.scope import AttemptScope, attempt_scope
        from leyden.types import Resources, Rollout

        leyden.instrument()
        exporter = Exporter(store)  # type: ignore[arg-type]
        rollout = Rollout(id="r-1", task=None, status="running", created_at=0.0)
        scope = AttemptScope(rollout=rollout, attempt_id="a-1", resources=Resources(version=1), sink=exporter)

        async def inside() -> str:
            with attempt_scope(scope):
                return str(await app.run(QUESTION))

        run = inside
    cpu: list[float] = []
    wall: list[float] = []
    for number in range(WARM_UP + runs):
        if not made.shareable and number:
            await app.close()
            app = made(ModelAccess(base_url=base_url))
        gc.collect()
        started = time.process_time(), time.perf_counter()
        answer = await run()
        taken = time.process_time() - started[0], time.perf_counter() - started[1]
        assert "word-17 is warm" in answer
        if number >= WARM_UP:
            cpu.append(taken[0])
            wall.append(taken[1])
    if exporter is not None:
        await exporter.flush()
    await app.close()
    spans = (count() if count else store.seen) / (WARM_UP + runs)
    names = {"leyden", framework, *packages} - {"langchain", "autogen"}
    names |= {"langchain": {"langchain-core"}, "autogen": {"autogen-agentchat"}}.get(framework, set())
    return {
        "cpu": cpu,
        "wall": wall,
        "spans": spans,
        "versions": {name: importlib.metadata.version(name) for name in sorted(names)},
    }


def main() -> None:
    """The command line."""
    framework, kind, names, runs, delay_ms = sys.argv[1:]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, framework, float(delay_ms) / 1000), daemon=True)
    server.start()
    try:
        packages = [name for name in names.split(",") if name]
        print(json.dumps(asyncio.run(work(framework, kind, packages, int(runs), ours.recv()))))
    finally:
        ours.send(None)
        server.join(10)


if __name__ == "__main__":
    main()
