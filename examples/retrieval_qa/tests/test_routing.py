"""The searcher is trained; the answerer stays with the base model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent


def test_the_searcher_calls_the_policy_and_the_answerer_does_not(
    example: SimpleNamespace, data: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"DATA": str(data), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    command = [sys.executable, str(HERE / "routed.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[object]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    assert found["rewards"] == [1.0]
    assert found["rows"] == ["searcher"]
    assert found["policy"] == ["How do I recursively delete a directory tree in Python?"]
    [passage] = found["base"]
    assert str(passage).startswith("shutil.rmtree: ")
