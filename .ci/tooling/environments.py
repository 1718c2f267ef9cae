"""The environments that sessions share: light ones, and the heavy one with torch, vLLM and verl.

A light environment is one package at one end of its range (frameworks' pins collide), or a combination that is known to
fit. It is made once under `.cache/light/` and made anew when anything changes that decides what is in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nox
from packaging.requirements import Requirement

from packages import ROOT, Needs, Package, adapters, heavy_examples, read_requirements, resolve

CACHE = ROOT / ".cache"
CONSTRAINTS = ROOT / ".ci" / "constraints"
TOOLS = ("pytest", "pytest-asyncio", "hypothesis")


def pins(*kinds: str) -> list[str]:
    """Arguments that hold an environment to `.ci/constraints/<kind>.txt`."""
    return [argument for kind in kinds for argument in ("-c", str(CONSTRAINTS / f"{kind}.txt"))]


@dataclass(frozen=True)
class Light:
    """What decides a light environment."""

    name: str
    """Folder under `.cache/light/`."""
    arguments: list[str] = field(default_factory=list)
    """What is given to `pip install`."""
    files: list[Path] = field(default_factory=list)
    """Files of this repository that decide too: constraints, the pyproject of each editable package."""

    @property
    def folder(self) -> Path:
        return CACHE / "light" / self.name

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def digest(self) -> str:
        """Changes with anything that changes what would be installed."""
        return digest([sys.version, *self.arguments, *(path.read_text() for path in self.files)])


def light(package: Package, end: str) -> Light:
    """The environment of one package: it and what it stands on, editable, its framework at one end of its range."""
    frameworks = [str(requirement) for local in package.needs.local for requirement in local.supported]
    if end == "oldest":
        frameworks += package.oldest
    more = [*frameworks, *package.test_requirements, *TOOLS]
    if end == "latest":
        more.append("mypy")
    return combined(f"{package.name}-{end}", package.needs, more, newest_pins(package) if end == "latest" else [])


def newest_pins(package: Package) -> list[str]:
    """Names of the constraint files that hold a package's framework to the newest version that was tested.

    A framework whose own pins go against the common file has a file of its own.
    """
    own = f"latest-{package.name}"
    return [own if (CONSTRAINTS / f"{own}.txt").exists() else "latest"]


def combined(name: str, needs: Needs, more: Sequence[str], kinds: Sequence[str]) -> Light:
    """An environment of these packages, editable, with `more` from outside held to these constraints."""
    kinds = ["tools", *kinds]
    files = [path for kind in kinds if (path := CONSTRAINTS / f"{kind}.txt").exists()]
    files += [package.folder / "pyproject.toml" for package in needs.local]
    outside = sorted({*more, *map(str, needs.outside)})
    return Light(name, [*pins(*kinds), *needs.editable, *outside], files)


def all_together() -> Light:
    """All adapters in one environment, at the newest versions that fit together."""
    chosen = list(adapters().values())
    needs = resolve(Requirement(package.distribution) for package in chosen)
    frameworks = [str(requirement) for local in needs.local for requirement in local.supported]
    more = [*frameworks, *(text for package in chosen for text in package.test_requirements), *TOOLS]
    return combined("together", needs, more, ["together"])


def make(session: nox.Session, wanted: Light) -> str:
    """Make the environment where it is missing or out of date, and put it first on the session's PATH; its Python."""
    stamp = wanted.folder / "complete"
    if not stamp.exists() or stamp.read_text() != wanted.digest:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        if uv := find_uv():
            session.run(uv, "venv", "-q", "--python", sys.executable, str(wanted.folder), external=True)
            session.run(uv, "pip", "install", "-q", "--python", wanted.python, *wanted.arguments, external=True)
        else:
            session.run(sys.executable, "-m", "venv", str(wanted.folder), external=True)
            session.run(wanted.python, "-m", "pip", "install", "-q", *wanted.arguments, external=True)
        stamp.write_text(wanted.digest)
    session.env["PATH"] = os.pathsep.join([str(wanted.folder / "bin"), os.environ.get("PATH", "")])
    session.env["VIRTUAL_ENV"] = str(wanted.folder)
    return wanted.python


def find_uv() -> str | None:
    """The uv program beside nox, or on the PATH; None where there is none."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def heavy(session: nox.Session) -> str:
    """The Python of the shared environment with torch, vLLM and verl; makes it where it is missing (some minutes).

    LEYDEN_HEAVY names an environment made by hand to use instead.
    """
    unset = {"PYTHONDONTWRITEBYTECODE": None}  # without .pyc files vLLM takes three times as long to start
    session.env.update(unset)
    if given := os.environ.get("LEYDEN_HEAVY"):
        return str(Path(given) / "bin" / "python")
    wanted = read_requirements(ROOT / "integration-tests" / "requirements.txt")
    for folder in heavy_examples().values():
        wanted += read_requirements(folder / "requirements.txt")
    needs = resolve(wanted)
    outside = sorted({*map(str, needs.outside), *(str(r) for local in needs.local for r in local.supported), *TOOLS})
    folder = CACHE / "heavy" / digest([sys.version, *outside, (CONSTRAINTS / "heavy.txt").read_text()])
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(CACHE / "heavy", ignore_errors=True)  # an older one is 4 GB that nothing uses any more
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
        # pip rather than uv: torch's CPU build must come from wherever this machine's pip is told to find it.
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        session.log("installing torch, vLLM and verl: 2 to 8 minutes and 4 GB, once")
        session.run(*pip, "--upgrade", "pip", external=True)
        session.run(*pip, *pins("tools", "heavy"), "hatchling", "editables", *outside, external=True)
        (folder / "complete").touch()
    _refresh(session, folder, needs)
    return python


def _refresh(session: nox.Session, folder: Path, needs: Needs) -> None:
    """Install this repository's packages into the heavy environment, again whenever one's pyproject.toml changed."""
    python, stamp = str(folder / "bin" / "python"), folder / "installed"
    changed = digest((package.folder / "pyproject.toml").read_text() for package in needs.local)
    if stamp.exists() and stamp.read_text() == changed:
        return
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    session.run(*pip, "--no-deps", "--no-build-isolation", *needs.editable, external=True)
    session.run(python, "-m", "leyden_lightningrl.environment", "--fix", external=True)
    stamp.write_text(changed)


def digest(parts: Iterable[str]) -> str:
    """A short name for a list of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
