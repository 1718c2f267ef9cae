"""The writer and the rewriter are trained as one policy; the checker stays with the base model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent


def test_marked_agents_call_the_policy_and_the_checker_does_not(
    example: SimpleNamespace, data: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"DATA": str(data)}
    command = [sys.executable, str(HERE / "routed.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[object]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    question = "Which code has the phrase Not Found?"
    assert found["rewards"] == [1.0]
    assert found["rows"] == ["writer", "rewriter"]
    assert found["policy"] == [question, f"Error: wrong. {question}"]
    assert found["base"] == [f"{question}\nSELECT phrase FROM statuses\nContinue"]
