from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import leyden
from leyden.scope import AttemptScope, attempt_scope
from leyden.testing.adapter import AdapterSuite
from leyden.types import Mark, Resources, Rollout, Span


def pytest_configure(config: pytest.Config) -> None:
    """langgraph 1.0 warns of itself when it is imported."""
    config.addinivalue_line("filterwarnings", "ignore:AgentStatePydantic has been moved:DeprecationWarning")


class Sink:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def emit(self, span: Span) -> None:
        self.spans.append(span)

    def of(self, kind: str) -> list[Span]:
        return sorted((span for span in self.spans if span.kind == kind), key=lambda span: span.sequence)


@pytest.fixture(autouse=True)
def instrumented(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.cls is not None and issubclass(request.cls, AdapterSuite):  # it installs what it needs itself
        yield
        return
    leyden.instrument()
    yield
    leyden.uninstrument()


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def attempt(sink: Sink) -> Callable[..., AbstractContextManager[AttemptScope]]:
    def enter(id: str = "1", resources: Resources | None = None) -> AbstractContextManager[AttemptScope]:
        rollout = Rollout(id=f"r{id}", task=None, status="running", created_at=0.0)
        marks = (Mark(selector="writer"),)
        return attempt_scope(AttemptScope(rollout, f"a{id}", resources or Resources(marks=marks), sink))

    return enter
