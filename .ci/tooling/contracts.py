"""Import contracts of all packages, written for import-linter from what each package declares.

The rule is the same for every package, so that a new plugin needs no entry anywhere: a package imports another one of this
repository only if its pyproject lists it as a dependency; an adapter may list the core, leyden-openai and, for LangGraph,
leyden-langchain; an algorithm the core alone. `python .ci/tooling/contracts.py OUT` writes the configuration.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from packages import ROOT, Package, packages

TRANSPORT = {"leyden", "leyden_openai"}
EXTRA = {"leyden_langgraph": {"leyden_langchain"}}
"""The one adapter that stands on another: a LangGraph node is a LangChain runnable."""

CONFINED = {"verl": "leyden_lightningrl.verl", "ray": "leyden_lightningrl.verl", "vllm": "leyden_lightningrl.verl"}
"""Modules that may be imported in one sub-package only."""


def declared(package: Package) -> set[str]:
    """Import names of this repository's packages that `package` lists as dependencies, its own among them."""
    own = {other.distribution: other.module for other in packages().values()}
    return {package.module} | {own[need.name] for need in package.requirements() if need.name in own}


def undeclared_policy(package: Package) -> set[str]:
    """Dependencies that `package` lists although the architecture has no such edge."""
    return declared(package) - {package.module} - TRANSPORT - EXTRA.get(package.module, set())


def children(package: Package) -> list[str]:
    """The modules and sub-packages right below the import package."""
    names = {path.stem for path in package.source.glob("*.py") if path.stem != "__init__"}
    names |= {path.parent.name for path in package.source.glob("*/__init__.py")}
    return sorted(f"{package.module}.{name}" for name in names)


def contracts() -> list[dict[str, Any]]:
    """One contract a package on its siblings, and one a confined module."""
    modules = {package.module for package in packages().values()}
    found: list[dict[str, Any]] = [
        {
            "name": f"{package.module} imports only what its pyproject declares",
            "type": "forbidden",
            "source_modules": [package.module],
            "forbidden_modules": sorted(modules - declared(package)),
        }
        for package in packages().values()
        if modules - declared(package)
    ]
    for module, home in CONFINED.items():
        sources = [name for package in packages().values() for name in children(package) if name != home]
        found.append(
            {
                "name": f"{module} is imported only under {home}",
                "type": "forbidden",
                "source_modules": sources,
                "forbidden_modules": [module],
                "allow_indirect_imports": "true",
            }
        )
    return found


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + str(value).replace('"', '\\"') + '"'


def configuration() -> str:
    """The contracts of the root pyproject and those made here, as one import-linter file."""
    static = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = ["[tool.importlinter]", f"root_packages = {_toml([p.module for p in packages().values()])}"]
    lines.append("include_external_packages = true")
    for contract in [*static, *contracts()]:
        lines += ["", "[[tool.importlinter.contracts]]", *(f"{key} = {_toml(item)}" for key, item in contract.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the configuration to the path given; 1 where a package declares an edge that the architecture has not."""
    wrong = {package.distribution: undeclared_policy(package) for package in packages().values()}
    for name, edges in wrong.items():
        if edges:
            print(f"{name} depends on {', '.join(sorted(edges))}; see CONTRIBUTING.md for who may depend on whom")
    Path(sys.argv[1]).write_text(configuration())
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
