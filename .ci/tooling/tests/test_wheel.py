"""A built wheel is complete, and its package imports where nothing but its declared dependencies is installed.

Run by `nox -s import_only`, which installs one package's wheel (LEYDEN_WHEEL) in an environment of its own.
"""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEEL = os.environ.get("LEYDEN_WHEEL", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="LEYDEN_WHEEL names no built wheel; run nox -s import_only")

LICENSE = (Path(__file__).parents[3] / "LICENSE").read_text()
FOREIGN = (
    "torch", "transformers", "verl", "ray", "vllm", "openai", "langchain_core", "langchain", "langgraph",
    "autogen_agentchat", "autogen_core", "crewai", "agents", "fastapi", "starlette", "uvicorn", "aiohttp", "flask",
)  # fmt: skip
PROBE = """
import sys
class Finder:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in FOREIGN:
            self.asked.append(name)
sys.meta_path.insert(0, Finder())
import MODULE
print(*sorted(set(Finder.asked)))
"""


def module() -> str:
    return Path(WHEEL).name.split("-")[0]


def names() -> list[str]:
    with zipfile.ZipFile(WHEEL) as archive:
        return archive.namelist()


def test_wheel_holds_its_package_and_nothing_else() -> None:
    tops = {name.split("/")[0] for name in names()}
    assert f"{module()}/__init__.py" in names()
    assert {top for top in tops if not top.endswith(".dist-info")} == {module()}


def test_wheel_is_typed() -> None:
    assert f"{module()}/py.typed" in names()


def test_wheel_states_its_license_and_carries_the_text() -> None:
    with zipfile.ZipFile(WHEEL) as archive:
        metadata = email.message_from_bytes(
            archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
        )
        texts = [archive.read(name).decode() for name in archive.namelist() if ".dist-info/licenses/" in name]
    assert metadata["License-Expression"] == "MIT"
    assert texts == [LICENSE]
    assert metadata["Requires-Python"] == ">=3.10"


def test_import_asks_for_no_framework_no_torch_and_no_web_server() -> None:
    """Not even inside a `try`: the import system is watched, so that an optional import shows as well."""
    probe = f"FOREIGN = {FOREIGN!r}\n" + PROBE.replace("MODULE", module())
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_the_installed_package_is_the_wheel() -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import {module()}; print({module()}.__file__)"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "site-packages" in found.stdout, found.stdout + found.stderr
