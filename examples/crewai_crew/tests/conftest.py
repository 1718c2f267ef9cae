"""The example's modules, imported by themselves: other examples have modules of the same names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leyden.testing.server import FakeModelServer

HERE = Path(__file__).parents[1]
MODULES = [path.stem for path in HERE.glob("*.py")]


def pytest_configure(config: pytest.Config) -> None:
    """CrewAI and what it imports warn of themselves, and CrewAI never closes its clients."""
    for warning in (
        "DeprecationWarning",
        "ImportWarning",
        "ResourceWarning",
        "pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"ignore::{warning}")


class Script:
    """What the fake model says: the sorter is the one with few tokens, the clerk the other one."""

    def __init__(self) -> None:
        self.sorts = "delivery"

    def reply(self, body: dict[str, Any]) -> str:
        """The answer to a request."""
        return self.sorts if body["max_tokens"] < 10 else "Thank you, delivery will help."


@pytest.fixture
def script() -> Script:
    """The script of the fake model."""
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[FakeModelServer]:
    """A running fake model server."""
    with FakeModelServer(reply=script.reply) as running:
        yield running


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a test import the example's modules, and leaves none of them behind."""
    monkeypatch.syspath_prepend(str(HERE))
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture
def agent(modules: None, server: FakeModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The agent's module; the fake server is its endpoint."""
    monkeypatch.setenv("BASE_URL", server.base_url)
    monkeypatch.setenv("BASE_MODEL", "base")
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crewai"))
    return importlib.import_module("agent")


@pytest.fixture
def tasks(modules: None) -> ModuleType:
    """The module that makes the tasks."""
    return importlib.import_module("tasks")
