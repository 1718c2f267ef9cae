"""How Leyden is checked and run. `nox` alone is the whole test run; `nox -s demo` is the main job; `nox --list` shows the rest.

Plugins are found by folder (see .ci/tooling/packages.py): adding one edits nothing here. Environments are shared by the
sessions that need the same one (see .ci/tooling/environments.py): light ones under `.cache/light/`, one for each package
and each end of its supported range, since frameworks' pins collide; a heavy one (torch, vLLM for the CPU, verl) under
`.cache/heavy/`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / ".ci" / "tooling"))

from environments import CACHE, TOOLS, all_together, heavy, light, make, newest_pins, pins  # noqa: E402
from packages import Package, adapters, ends, examples, heavy_examples, packages, read_requirements, resolve  # noqa: E402
from scripted_server import scripted_server  # noqa: E402
from summary import slug  # noqa: E402

RESULTS = CACHE / "results"
WHEELS = CACHE / "wheels"
TESTS_FOUND_NONE = 5
"""pytest's exit status where no test was collected."""

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_external_run = True
nox.options.sessions = [
    "lint", "tooling", "types", "tests", "together", "example", "import_only", "third_party",
    "integration", "train_frameworks", "demo_small", "conformance", "support",
]  # fmt: skip


def pytest(
    session: nox.Session, *arguments: str, python: str = "python", part: str = "", empty_is_fine: bool = False
) -> None:
    """Run pytest with the root configuration, and leave its counts where `.ci/run` adds them up."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"{slug(session.name)}{part and '__' + part}.xml"
    report.unlink(missing_ok=True)
    session.run(
        python, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), f"--junitxml={report}",
        *arguments, *session.posargs,
        external=True, success_codes=[0, TESTS_FOUND_NONE] if empty_is_fine else [0],
    )  # fmt: skip


def both_ends(chosen: Mapping[str, Package]) -> list[Any]:
    """The parameters (name, end) of a session: each package at the newest and at the oldest versions that it supports."""
    return [
        nox.param(name, end, id=name if end == "latest" else f"{name}, oldest")  # plain values: nox reports them
        for name, package in chosen.items()
        for end in ends(package)
    ] or [nox.param("", "", id="-")]


def note_versions(session: nox.Session, python: str, package: Package, end: str) -> None:
    """Leave what is installed where `.ci/tooling/support.py` reads it."""
    names = sorted({requirement.name for local in package.needs.local for requirement in local.supported})
    found = session.run(python, str(ROOT / ".ci/tooling/versions.py"), *names, external=True, silent=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{slug(session.name)}.versions.json").write_text(str(found))


# --- light sessions -------------------------------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff (rules and format), import contracts, and whether the generated pages are up to date."""
    session.install(*pins("tools"), "ruff", "import-linter", "packaging")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "docs/make_figures.py", "--check")
    session.run("python", ".ci/tooling/support.py", "--check")
    configuration = CACHE / "importlinter.toml"
    configuration.parent.mkdir(exist_ok=True)
    session.run("python", ".ci/tooling/contracts.py", str(configuration))
    sources = os.pathsep.join(str(package.folder / "src") for package in packages().values())
    session.run("lint-imports", str(configuration), "--no-cache", env={"PYTHONPATH": sources})


@nox.session
def tooling(session: nox.Session) -> None:
    """The tests of what this file stands on."""
    session.install(*pins("tools"), "pytest", "pytest-asyncio", "packaging")
    folder = ROOT / ".ci" / "tooling" / "tests"
    pytest(session, str(folder / "test_tooling.py"), str(folder / "test_support.py"))


@nox.session(venv_backend="none")
@nox.parametrize("name", [nox.param(name, id=name) for name in packages()])
def types(session: nox.Session, name: str) -> None:
    """mypy --strict on one package's sources, with its framework at the newest supported version."""
    package = packages()[name]
    python = make(session, light(package, "latest"))
    mypy = ["-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(package.source)]
    session.run(python, *mypy, external=True)


@nox.session(venv_backend="none")
@nox.parametrize(["name", "end"], both_ends(packages()))
def tests(session: nox.Session, name: str, end: str) -> None:
    """One package's own tests, without torch, vLLM or verl."""
    package = packages()[name]
    python = make(session, light(package, end))
    note_versions(session, python, package, end)
    if end == "oldest":  # the thousand, and memory, are judged once for each framework
        session.env.setdefault("LEYDEN_TEST_ROLLOUTS", os.environ.get("LEYDEN_TEST_ROLLOUTS", "100"))
    pytest(session, str(package.tests), "-m", "not heavy", python=python)


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in examples()] or [nox.param("", id="-")])
def example(session: nox.Session, name: str) -> None:
    """One example's tests, in an environment made from its own requirements.txt."""
    if not name:
        session.skip("no example has a requirements.txt")
    folder = examples()[name]
    needs = resolve(read_requirements(folder / "requirements.txt"))
    kinds = {kind for package in needs.local for kind in newest_pins(package) if package.supported}
    session.install(
        *pins("tools", *(sorted(kinds - {"latest"}) or ["latest"])), *needs.editable, *map(str, needs.outside), *TOOLS
    )
    pytest(session, str(folder), "-m", "not heavy")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every package's wheel into .cache/wheels."""
    session.install(*pins("tools"), "build", "hatchling")
    shutil.rmtree(WHEELS, ignore_errors=True)
    for package in packages().values():
        session.run(
            "python", "-m", "build", "--no-isolation", "--wheel", "-o", str(WHEELS), str(package.folder), silent=True
        )


@nox.session(requires=["wheels"])
@nox.parametrize("name", [nox.param(name, id=name) for name in packages()])
def import_only(session: nox.Session, name: str) -> None:
    """One package's wheel in an environment of its own: complete, and importable without any framework."""
    package = packages()[name]
    needs = package.needs
    built = [str(next(WHEELS.glob(f"{local.module}-*.whl"))) for local in needs.local]
    session.install(*pins("tools"), *built, "pytest", "pytest-asyncio")
    session.env["LEYDEN_WHEEL"] = built[[local.name for local in needs.local].index(package.name)]
    pytest(session, str(ROOT / ".ci" / "tooling" / "tests" / "test_wheel.py"))


@nox.session(requires=["wheels"])
def third_party(session: nox.Session) -> None:
    """An adapter from outside this repository, for a made-up framework, passes the suite by the public API alone."""
    with tempfile.TemporaryDirectory(prefix="leyden-third-party-") as place:
        outside = Path(place)
        shutil.copytree(ROOT / "integration-tests" / "third_party", outside, dirs_exist_ok=True)
        session.install(*pins("tools"), "build", "hatchling")
        for name in ("miniflow", "leyden-miniflow"):
            build = ["python", "-m", "build", "--no-isolation", "--wheel", "-o", str(outside / "dist")]
            session.run(*build, str(outside / name), silent=True)
        ours = [next(WHEELS.glob(f"{module}-*.whl")) for module in ("leyden", "leyden_openai")]
        built = [*ours, *(outside / "dist").glob("*.whl")]
        session.install(*pins("tools", "latest"), *map(str, built), "pytest", "pytest-asyncio")
        session.chdir(outside / "leyden-miniflow")
        session.env["LEYDEN_TEST_ROLLOUTS"] = "100"
        RESULTS.mkdir(parents=True, exist_ok=True)
        session.run(
            "python", "-P", "-m", "pytest", f"--junitxml={RESULTS / 'third-party.xml'}", "tests", *session.posargs
        )
        installed = "import leyden; assert 'site-packages' in leyden.__file__, leyden.__file__"
        session.run("python", "-P", "-c", installed)


# --- the heavy environment ------------------------------------------------------------------------------------------


@nox.session(venv_backend="none")
def integration(session: nox.Session) -> None:
    """Tests across packages on real vLLM and real verl, and the packages' own tests that need them."""
    python = heavy(session)
    pytest(session, str(ROOT / "integration-tests"), python=python)
    for package in packages().values():
        if package.heavy:
            pytest(session, str(package.tests), python=python, part=package.name)
    if heavy_examples():
        folders = [str(folder) for folder in heavy_examples().values()]
        pytest(session, *folders, "-m", "heavy", python=python, part="examples", empty_is_fine=True)


@nox.session(venv_backend="none")
@nox.parametrize(["name", "end"], both_ends(adapters()))
def conformance(session: nox.Session, name: str, end: str) -> None:
    """One adapter's conformance suite against a real vLLM server, in the adapter's own light environment."""
    if not name:
        session.skip("no package has tests/test_conformance.py")
    package = packages()[name]
    session.env["LEYDEN_TEST_VLLM"] = scripted_server(session)
    python = make(session, light(package, end))
    note_versions(session, python, package, end)
    pytest(session, str(package.tests / "test_conformance.py"), python=python)


@nox.session(venv_backend="none")
@nox.parametrize("name", [nox.param(name, id=name) for name in adapters()])
def train_frameworks(session: nox.Session, name: str) -> None:
    """A short real training of one agent of a framework's app: verl and vLLM here, the app in its own environment."""
    trainer = heavy(session)
    python = make(session, light(packages()[name], "latest"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = RESULTS / f"{slug(session.name)}.training.json"
    session.run(trainer, "integration-tests/train_framework.py", name, python, str(result), external=True)


@nox.session(venv_backend="none")
def together(session: nox.Session) -> None:
    """All adapters in one environment: each one's conformance suite, and an app of two frameworks."""
    python = make(session, all_together())
    session.env["LEYDEN_TEST_ROLLOUTS"] = "20"  # endurance is a matter of `tests`
    for package in adapters().values():
        pytest(session, str(package.tests / "test_conformance.py"), python=python, part=package.name)
    pytest(session, str(ROOT / "integration-tests" / "together"), python=python, part="two-frameworks")


@nox.session
def support(session: nox.Session) -> None:
    """Whether docs/support.json says what this run's results say; `-- --record` makes it say so."""
    session.install(*pins("tools"), "packaging")
    session.run("python", ".ci/tooling/support.py", *(session.posargs or ["--compare"]), str(RESULTS))


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """The main job: train one marked agent of a LangGraph app, and show what changed. `-- --small` is a short one."""
    session.run(heavy(session), "examples/langgraph_calculator/demo.py", *session.posargs, external=True)


@nox.session(venv_backend="none")
def demo_small(session: nox.Session) -> None:
    """The demo in its short form: every part runs, too few steps to learn much."""
    session.run(heavy(session), "examples/langgraph_calculator/demo.py", "--small", external=True)


@nox.session(venv_backend="none")
def benchmarks(session: nox.Session) -> None:
    """Run benchmarks (all, or those named after `--`), then rewrite the page of figures from their results."""
    python = heavy(session)
    names = session.posargs or sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    for name in names:
        session.run(python, str(ROOT / "benchmarks" / f"{name}.py"), external=True)
    session.run(python, str(ROOT / "docs" / "make_figures.py"), external=True)
