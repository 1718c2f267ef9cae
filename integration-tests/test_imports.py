"""`import leyden` in an environment that holds everything loads none of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.heavy

FOREIGN = {
    "torch", "transformers", "numpy", "verl", "ray", "vllm", "openai", "langchain_core", "langchain", "langgraph",
    "fastapi", "starlette", "uvicorn", "aiohttp",
}  # fmt: skip


@pytest.mark.parametrize(
    "module", ["leyden", "leyden_openai", "leyden_langchain", "leyden_langgraph", "leyden_lightningrl"]
)
def test_import_loads_no_framework_no_torch_and_no_web_server(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert FOREIGN & set(run.stdout.split()) == set()
