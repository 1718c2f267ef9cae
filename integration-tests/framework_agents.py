"""What is trained in the short training runs: the app of an adapter's conformance suite, rewarded for its letters.

Run by `leyden runner` in the environment of the framework. `LEYDEN_TEST_FRAMEWORK` names the folder under plugins/, and
`LEYDEN_TEST_PROVIDER` the server that the app's own model client calls.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import string
from pathlib import Path
from typing import Any

from leyden.testing.adapter import AgentApp, ModelAccess

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
LETTERS = 12
"""How many letters of the model's own choice end an answer."""
WANTED = frozenset(string.ascii_lowercase[:13])


async def solve(task: int) -> float:
    """Ask planner and writer once; the reward is the share of the answer's letters that are a to m."""
    app = app_class(os.environ["LEYDEN_TEST_FRAMEWORK"])(ModelAccess(base_url=os.environ["LEYDEN_TEST_PROVIDER"]))
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
    path = PLUGINS / framework / "tests" / "test_conformance.py"
    specification = importlib.util.spec_from_file_location(f"conformance_of_{framework.replace('-', '_')}", path)
    assert specification is not None
    assert specification.loader is not None
    module: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    app: type[AgentApp] = module.App
    return app
