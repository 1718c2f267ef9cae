"""The agent comes first: the app does with the adapter what it does without, whatever happens to the adapter."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import subprocess
import sys
from types import FunctionType
from typing import Any

import pytest

import leyden
from leyden import attributes
from leyden.exporter import Exporter
from leyden.hookspecs import PluginInfo
from leyden.plugins import plugins
from leyden.scope import AttemptScope, attempt_scope
from leyden.testing.adapter.base import QUESTION, Base, instrumented, needs, recorded_attempt
from leyden.testing.adapter.routing import check_untouched
from leyden.testing.server import FakeModelServer, ModelRequest
from leyden.types import Resources, Rollout, Span

VOLATILE_HEADERS = ("x-stainless-", "host", "content-length", "user-agent")


class HarmlessRules(Base):
    """Outputs, requests and symbols are what they were."""

    def _plain(self, requests: list[ModelRequest]) -> list[Any]:
        """Requests without what differs from run to run."""

        def strip(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: strip(part) for key, part in value.items() if key not in self.volatile}
            return [strip(part) for part in value] if isinstance(value, list) else value

        return [
            (
                request.method,
                request.path,
                {name: text for name, text in request.headers.items() if not name.startswith(VOLATILE_HEADERS)},
                strip(request.body),
            )
            for request in requests
        ]

    async def _both(self, method: str) -> tuple[tuple[Any, list[Any]], tuple[Any, list[Any]]]:
        async def one() -> tuple[Any, list[Any]]:
            with FakeModelServer(return_token_ids=False) as provider:
                async with self.made(provider) as app:
                    answer = await getattr(app, method)(QUESTION)
                return answer, self._plain(provider.requests)

        bare = await one()
        with instrumented(), recorded_attempt():
            return bare, await one()

    async def test_output_and_requests_are_the_same_with_and_without(self) -> None:
        bare, ours = await self._both("run")
        assert bare == ours

    @needs("stream")
    async def test_streams_are_the_same_with_and_without(self) -> None:
        bare, ours = await self._both("stream")
        assert bare == ours

    async def test_outside_an_attempt_nothing_happens(self, adapters: None, provider: FakeModelServer) -> None:
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                pass
            assert "word-17 is warm" in await app.run(QUESTION)
        assert not attempt.spans
        check_untouched(provider.requests, app.model.api_key)

    async def test_instrumenting_twice_is_once(self, adapters: None, provider: FakeModelServer) -> None:
        leyden.instrument()
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                await app.run(QUESTION)
        assert len(attempt.llm) == len(provider.bodies)
        assert len([span for span in attempt.spans if span.kind == "tool" and "lookup" in span.name]) == 1

    async def test_uninstrumenting_restores_every_symbol(self, provider: FakeModelServer, info: PluginInfo) -> None:
        async with self.made(provider) as app:
            await app.run(QUESTION)  # loads what the framework loads lazily
            before = functions_of((*info.imports, "openai"))
            with instrumented(), recorded_attempt():
                await app.run(QUESTION)
            after = functions_of((*info.imports, "openai"))
        changed = [name for name, function in before.items() if after.get(name) is not function]
        assert not changed
        async with self.made(provider) as app:
            with recorded_attempt() as attempt:
                await app.run(QUESTION)
        assert not attempt.llm
        # "python" are agents that the app itself names with `leyden.agent`.
        assert {span.attributes.get(attributes.FRAMEWORK) for span in attempt.spans} <= {None, "python"}

    async def test_an_exporter_that_fails_does_not_break_the_agent(
        self, adapters: None, provider: FakeModelServer
    ) -> None:
        class Broken:
            def emit(self, span: Span) -> None:
                raise RuntimeError("the disk is full")

        async with self.made(provider) as app:
            with attempt_scope(_scope(Broken())):
                assert "word-17 is warm" in await app.run(QUESTION)

    async def test_an_exporter_that_hangs_does_not_hold_the_agent(
        self, adapters: None, provider: FakeModelServer
    ) -> None:
        class Hanging:
            async def add_spans(self, spans: Any) -> None:
                await asyncio.Event().wait()

        exporter = Exporter(Hanging(), capacity=3, batch=1, delay_s=0.0)  # type: ignore[arg-type]
        async with self.made(provider) as app:
            with attempt_scope(_scope(exporter)):
                answer = await asyncio.wait_for(app.run(QUESTION), 60)
        assert "word-17 is warm" in answer
        await exporter.close(timeout_s=0.05)
        assert sum(exporter.dropped.values()) > 0

    async def test_a_version_out_of_range_says_so(self, info: PluginInfo, monkeypatch: pytest.MonkeyPatch) -> None:
        assert info.requires, "leyden_info names no supported version"
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.1")
        failed = [check for check in plugins.doctor() if not check.ok and "0.0.1" in check.detail]
        assert any(requirement in check.remedy for check in failed for requirement in info.requires)

    async def test_the_installed_version_is_supported(self, info: PluginInfo, adapters: None) -> None:
        bad = [check for check in plugins.doctor() if not check.ok and info.name in check.name]
        assert not bad
        assert self.plugin not in plugins.failed

    async def test_neither_importing_nor_instrumenting_loads_the_framework(self, info: PluginInfo) -> None:
        code = (
            "import json, sys, leyden\nfrom leyden.plugins import plugins\n"
            f"leyden.instrument()\nassert {self.plugin!r} in plugins.info()\n"
            f"print(json.dumps([name for name in {list(info.imports)!r} if name in sys.modules]))"
        )
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
        )
        assert json.loads(done.stdout) == []

    async def test_observation_alone_reroutes_nothing(self, provider: FakeModelServer) -> None:
        """The adapter as an OpenTelemetry instrumentor: its spans go to the application's own provider."""
        if self.instrumentor is None:
            pytest.skip(f"no instrumentor: {self.lacks['instrumentor']}")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter = InMemorySpanExporter()
        application = TracerProvider()
        application.add_span_processor(SimpleSpanProcessor(exporter))
        instrumentor = self.instrumentor()
        instrumentor.instrument(tracer_provider=application)
        try:
            async with self.made(provider) as app:
                assert "word-17 is warm" in await app.run(QUESTION)
        finally:
            instrumentor.uninstrument()
        found = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
        agents = {one.get(attributes.AGENT) for one in found}
        assert {self.app.planner, self.app.writer} <= agents
        assert not any("word-17" in str(one.get(attributes.TOOL_ARGUMENTS, "")) for one in found), "contents are opt-in"
        check_untouched(provider.requests, app.model.api_key)
        names = {point.value for point in importlib.metadata.entry_points(group="opentelemetry_instrumentor")}
        assert f"{self.instrumentor.__module__}:{self.instrumentor.__name__}" in names


def _scope(sink: Any) -> AttemptScope:
    rollout = Rollout(id="rollout-x", task=None, status="running", created_at=0.0)
    return AttemptScope(rollout=rollout, attempt_id="attempt-x", resources=Resources(version=1), sink=sink)


def functions_of(modules: tuple[str, ...]) -> dict[str, Any]:
    """Every function of the loaded modules below `modules`, by name; methods as they are in their class."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if module is None or not any(name == one or name.startswith(one + ".") for one in modules):
            continue
        for key, value in list(vars(module).items()):
            kind = type(value)  # isinstance would ask a lazy module's stand-in for its class, which may raise
            if kind is FunctionType:
                found[f"{name}.{key}"] = value
            elif issubclass(kind, type) and value.__module__ == name:
                for method, part in list(vars(value).items()):
                    if isinstance(part, (FunctionType, classmethod, staticmethod, property)):
                        found[f"{name}.{key}.{method}"] = part
    return found
