"""The names of the package: all there, and those that bring in the runner and the store loaded only when used."""

from __future__ import annotations

import subprocess
import sys


def test_every_public_name_is_there() -> None:
    import leyden

    assert [name for name in leyden.__all__ if not hasattr(leyden, name)] == []
    assert callable(leyden.train)
    assert callable(leyden.rollout)


def test_an_agent_that_only_emits_loads_neither_runner_nor_store() -> None:
    code = "import sys, leyden; leyden.rollout; leyden.prompt; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {"leyden.training", "leyden.runner", "leyden.workers", "leyden.stores", "leyden.cli", "asyncio", "click"}
    assert sorted(unwanted & set(done.stdout.split())) == []
