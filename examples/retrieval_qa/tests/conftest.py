"""The example's modules, its index, and a fake of the language model server that its agents call.

Other examples have modules of the same names: these are imported from this folder and then forgotten by the import system.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leyden.testing.server import FakeModelServer

HERE = Path(__file__).parents[1]
NAMES = ("corpus", "tasks", "agent", "settings", "plain")


class Script:
    """What the two agents say; each request is kept under its agent's name."""

    def __init__(self) -> None:
        self.search: Any = ""
        self.answer = ""
        self.requests: dict[str, list[dict[str, Any]]] = {}

    def reply(self, body: dict[str, Any]) -> Any:
        """The answer to a chat request: the searcher is the one with a tool."""
        self.requests.setdefault("searcher" if body.get("tools") else "answerer", []).append(body)
        return self.search if body.get("tools") else self.answer

    def calls(self, query: str, name: str = "search") -> None:
        """Let the searcher call a tool."""
        self.search = {"tool_calls": [{"name": name, "arguments": {"query": query}}]}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the index and the tasks."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def session_script() -> Script:
    return Script()


@pytest.fixture(scope="session")
def example(data: Path, session_script: Script) -> Iterator[SimpleNamespace]:
    """The example's modules by name, their endpoint a fake server."""
    pytest.importorskip("agents")
    others = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    with pytest.MonkeyPatch.context() as patch, FakeModelServer(reply=session_script.reply) as server:
        patch.syspath_prepend(str(HERE))
        patch.setenv("BASE_URL", server.base_url)
        patch.setenv("DATA", str(data))
        patch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        modules = {name: importlib.import_module(name) for name in NAMES}
        for name in NAMES:
            del sys.modules[name]
        sys.modules.update(others)
        modules["tasks"].write(data, seed=0)
        yield SimpleNamespace(**modules)


@pytest.fixture
def script(session_script: Script) -> Script:
    """What the agents say in this test; no request yet."""
    session_script.requests.clear()
    return session_script
