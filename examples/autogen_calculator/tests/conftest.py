"""The example's modules, imported by themselves: other examples have modules of the same names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from leyden.testing.server import FakeModelServer

HERE = Path(__file__).parents[1]
MODULES = [path.stem for path in HERE.glob("*.py")]


class Solver:
    """What the fake model says: the solver (it is offered a tool) calls the calculator, the reporter words a result."""

    def __init__(self) -> None:
        self.says: object = ""

    def calculates(self, *expressions: str) -> None:
        """Let the solver call the calculator with each of these."""
        self.says = {"tool_calls": [{"name": "calculate", "arguments": {"expression": one}} for one in expressions]}

    def reply(self, body: dict[str, object]) -> object:
        """The answer to a request."""
        return self.says if body.get("tools") else "He has 12 cups."


@pytest.fixture
def solver() -> Solver:
    """The script of the fake model."""
    return Solver()


@pytest.fixture
def server(solver: Solver) -> Iterator[FakeModelServer]:
    """A running fake model server."""
    with FakeModelServer(reply=solver.reply) as running:  # type: ignore[arg-type]
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
def module(modules: None, server: FakeModelServer, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The agent's module; the fake server is its endpoint."""
    monkeypatch.setenv("BASE_URL", server.base_url)
    monkeypatch.setenv("BASE_MODEL", "base")
    return importlib.import_module("agent")


@pytest_asyncio.fixture
async def agent(module: ModuleType) -> AsyncIterator[ModuleType]:
    """The same for a test in an event loop, at whose end the clients are closed."""
    yield module
    for client in (module.model(max_tokens=24), module.model(max_tokens=12)):
        await client.close()


@pytest.fixture
def calculator(modules: None) -> ModuleType:
    """The calculator's module."""
    return importlib.import_module("calculator")
