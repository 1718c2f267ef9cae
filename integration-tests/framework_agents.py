"""What is trained in the short training runs: the app of an adapter's conformance suite, rewarded for its letters.

Run by `leyden runner` in the environment of the framework. `LEYDEN_TEST_FRAMEWORK` names the folder under plugins/, and
`LEYDEN_TEST_PROVIDER` the server that the app's own model client calls.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import string
import sys
from pathlib import Path
from typing import Any

from leyden.testing.adapter import AgentApp, ModelAccess

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
LETTERS = 12
"""How many letters of the model's own choice end an answer."""
WANTED = frozenset(string.ascii_lowercase[:13])


async def solve(task: int) -> float:
    """Ask planner and writer once; the reward is the share of the answer's letters that are a to m."""
    app = APP(ModelAccess(base_url=os.environ["LEYDEN_TEST_PROVIDER"]))
    try:
        return reward(await app.run(f"Tell me of word-{task}."))
    finally:
        await app.close()


def reward(answer: str) -> float:
    """Share of a to m among the letters at the end of an answer."""
    letters = answer.rstrip()[-LETTERS:]
    return sum(letter in WANTED for letter in letters) / LETTERS


@functools.cache
def app_class(framework: str) -> type[AgentApp]:
    """The app of an adapter's conformance suite, from the file that holds it."""
    os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # it would send traces to its maker
    tests = PLUGINS / framework / "tests"
    if (tests / "conftest.py").exists():  # sets what the framework must find in the environment when it is imported
        _load(tests / "conftest.py")
    app: type[AgentApp] = _load(tests / "test_conformance.py").App
    return app


def _load(path: Path) -> Any:
    name = f"{path.parent.parent.name.replace('-', '_')}_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # where the classes of the file look up their annotations
    specification.loader.exec_module(module)
    return module


if FRAMEWORK := os.environ.get("LEYDEN_TEST_FRAMEWORK"):  # now and not in a rollout: an import may take half a minute
    APP = app_class(FRAMEWORK)
