"""What `import leyden` loads (how long it takes is in benchmarks/import_time.py)."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "torch", "transformers", "verl", "ray", "vllm", "openai", "httpx", "langchain_core", "langgraph", "autogen_agentchat",
    "crewai", "agents", "fastapi", "starlette", "uvicorn", "pydantic", "numpy", "aiohttp", "requests", "sqlite3",
}  # fmt: skip


def test_import_loads_no_framework() -> None:
    code = "import json, sys, leyden; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = json.loads(done.stdout)
    assert not HEAVY & {name.split(".")[0] for name in loaded}
    assert not [
        name for name in loaded if name.startswith(("leyden_", "opentelemetry.sdk", "opentelemetry.instrumentation"))
    ]
