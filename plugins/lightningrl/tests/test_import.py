"""`import leyden_lightningrl` is light: no torch, no verl, no Ray, until a run starts."""

from __future__ import annotations

import subprocess
import sys


def test_import_is_light() -> None:
    heavy = ["torch", "verl", "ray", "vllm", "transformers", "numpy", "hydra", "omegaconf", "tensordict"]
    program = f"import sys, leyden_lightningrl; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
