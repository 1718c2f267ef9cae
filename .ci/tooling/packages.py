"""The packages of this repository, found by folder: nothing here or in the noxfile names a plugin.

A package declares what its environments need in files of its own: dependencies in `pyproject.toml`, the framework versions
it supports in `package.py` (`SUPPORTED`, a literal tuple of PEP 508 requirements), and in the table `[tool.leyden]` of its
pyproject `oldest` (further pins for the oldest supported versions) and `heavy` (its tests want torch, vLLM and verl too).
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """One distribution of this repository: the core, or a plugin."""

    name: str
    """`core`, or the folder's name under `plugins/`."""
    folder: Path

    @functools.cached_property
    def pyproject(self) -> dict[str, Any]:
        """The package's own pyproject.toml."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text())

    @property
    def distribution(self) -> str:
        """Name on a package index, say `leyden-openai`."""
        return str(self.pyproject["project"]["name"])

    @property
    def module(self) -> str:
        """Import name, say `leyden_openai`."""
        return self.distribution.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the import package."""
        return self.folder / "src" / self.module

    @property
    def tests(self) -> Path:
        return self.folder / "tests"

    @property
    def settings(self) -> dict[str, Any]:
        """The table `[tool.leyden]`."""
        return dict(self.pyproject.get("tool", {}).get("leyden", {}))

    @property
    def heavy(self) -> bool:
        """Whether the tests run in the environment with torch, vLLM and verl as well."""
        return bool(self.settings.get("heavy", False))

    def requirements(self, extras: Iterable[str] = ()) -> list[Requirement]:
        """Declared dependencies, with those of `extras`."""
        project = self.pyproject["project"]
        listed = list(project.get("dependencies", []))
        for extra in extras:
            listed += project["optional-dependencies"][extra]
        return [Requirement(text) for text in listed]

    @property
    def needs(self) -> Needs:
        """This package and everything it declares, followed through this repository."""
        return resolve([Requirement(self.distribution)])

    @property
    def test_requirements(self) -> list[str]:
        """What the tests need beyond the common tools: the dependency group `test`."""
        return [str(text) for text in self.pyproject.get("dependency-groups", {}).get("test", [])]

    @functools.cached_property
    def supported(self) -> list[Requirement]:
        """`SUPPORTED` of the package's `package.py`: the framework versions that it is made for; empty without one."""
        path = self.source / "package.py"
        if not path.exists():
            return []
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == "SUPPORTED" for target in targets):
                value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
                return [Requirement(text) for text in ([value] if isinstance(value, str) else value)]
        return []

    @property
    def oldest(self) -> list[str]:
        """The supported lower bounds as pins, with the further pins that they need; empty where there is no bound."""
        pins = [
            f"{requirement.name}=={bound.version}"
            for requirement in self.supported
            for bound in requirement.specifier
            if bound.operator in (">=", "~=")
        ]
        return pins + [str(pin) for pin in self.settings.get("oldest", [])] if pins else []


@functools.cache
def packages() -> dict[str, Package]:
    """Every package by name: `core` first, then the plugins by the alphabet."""
    folders = [("core", ROOT / "core")]
    folders += [(path.name, path) for path in sorted((ROOT / "plugins").iterdir())]
    return {name: Package(name, folder) for name, folder in folders if (folder / "pyproject.toml").exists()}


def by_distribution() -> dict[str, Package]:
    """Every package by the name of its distribution."""
    return {package.distribution: package for package in packages().values()}


@dataclass(frozen=True)
class Needs:
    """What must be installed: packages of this repository, and requirements from outside."""

    local: tuple[Package, ...]
    outside: tuple[Requirement, ...]

    @property
    def editable(self) -> list[str]:
        """Arguments that install the local packages from their folders."""
        return [argument for package in self.local for argument in ("-e", str(package.folder))]


def resolve(wanted: Iterable[Requirement]) -> Needs:
    """Follow dependencies among this repository's packages: names of its own become folders, the rest stays.

    Raises `LookupError` for a `leyden-…` requirement that is no folder here.
    """
    known, local, outside = by_distribution(), dict[str, Package](), dict[str, Requirement]()
    queue = list(wanted)
    seen: set[str] = set()
    while queue:
        requirement = queue.pop(0)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        package = known.get(requirement.name)
        if package is None:
            if requirement.name.startswith("leyden"):
                raise LookupError(f"{requirement.name} is required but no folder under plugins/ makes it")
            outside.setdefault(str(requirement), requirement)
            continue
        local[package.name] = package
        queue += package.requirements(requirement.extras)
    return Needs(tuple(local.values()), tuple(outside.values()))


def read_requirements(path: Path) -> list[Requirement]:
    """The requirements listed in a text file, one a line; `#` starts a comment."""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def examples() -> dict[str, Path]:
    """Example folders that say what they need in a `requirements.txt`."""
    return {path.parent.name: path.parent for path in sorted((ROOT / "examples").glob("*/requirements.txt"))}


def heavy_examples() -> dict[str, Path]:
    """Examples with tests for the heavy environment, which then has what they need; the others' frameworks may not fit."""
    tests = {name: (folder / "tests").glob("test_*.py") for name, folder in examples().items()}
    return {
        name: examples()[name] for name, files in tests.items() if any("mark.heavy" in f.read_text() for f in files)
    }


def adapters() -> dict[str, Package]:
    """The packages that stand under the adapter conformance suite."""
    return {name: package for name, package in packages().items() if (package.tests / "test_conformance.py").exists()}


def ends(package: Package) -> list[str]:
    """Which ends of its range a package is tested at."""
    return ["latest", "oldest"] if package.oldest else ["latest"]
