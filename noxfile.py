"""How Leyden is checked and run. `nox` alone is the whole test run; `nox -s demo` is the main job; `nox --list` shows the rest.

Plugins are found by folder (see .ci/tooling/packages.py): adding one edits nothing here. Light environments are made by nox,
one for each package and each end of its supported range, since frameworks' pins collide. The heavy one (torch, vLLM for
the CPU, verl) is made once with pip under `.cache/heavy/` and shared by the sessions that need it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / ".ci" / "tooling"))

from packages import Needs, Package, examples, packages, read_requirements, resolve  # noqa: E402
from summary import slug  # noqa: E402

CACHE = ROOT / ".cache"
RESULTS = CACHE / "results"
WHEELS = CACHE / "wheels"
CONSTRAINTS = ROOT / ".ci" / "constraints"
TOOLS = ["pytest", "pytest-asyncio", "hypothesis"]
TESTS_FOUND_NONE = 5
"""pytest's exit status where no test was collected."""

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_external_run = True
nox.options.sessions = ["lint", "tooling", "types", "tests", "example", "import_only", "integration", "demo_small"]


def pins(kind: str) -> list[str]:
    """Arguments that hold an environment to `.ci/constraints/<kind>.txt`."""
    return ["-c", str(CONSTRAINTS / f"{kind}.txt")]


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


# --- light sessions -------------------------------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff (rules and format), import contracts, and whether the generated pages are up to date."""
    session.install(*pins("tools"), "ruff", "import-linter", "packaging")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "docs/make_figures.py", "--check")
    session.run("python", ".ci/tooling/supported.py", "--check")
    configuration = CACHE / "importlinter.toml"
    configuration.parent.mkdir(exist_ok=True)
    session.run("python", ".ci/tooling/contracts.py", str(configuration))
    sources = os.pathsep.join(str(package.folder / "src") for package in packages().values())
    session.run("lint-imports", str(configuration), "--no-cache", env={"PYTHONPATH": sources})


@nox.session
def tooling(session: nox.Session) -> None:
    """The tests of what this file stands on."""
    session.install(*pins("tools"), "pytest", "pytest-asyncio", "packaging")
    pytest(session, str(ROOT / ".ci" / "tooling" / "tests" / "test_tooling.py"))


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in packages()])
def types(session: nox.Session, name: str) -> None:
    """mypy --strict on one package's sources, with its framework at the newest supported version."""
    package = packages()[name]
    install(session, package, "latest", "mypy", *TOOLS)  # leyden.testing is built on the test tools
    session.run("mypy", "--config-file", str(ROOT / "pyproject.toml"), str(package.source))


def ends(package: Package) -> list[str]:
    """Which ends of its range a package is tested at."""
    return ["latest", "oldest"] if package.oldest else ["latest"]


def install(session: nox.Session, package: Package, end: str, *more: str) -> None:
    """The package and what it stands on, editable, with its framework at one end of the supported range."""
    needs = package.needs
    frameworks = [str(requirement) for local in needs.local for requirement in local.supported]
    if end == "oldest":
        frameworks += package.oldest
    extra = [*package.test_requirements, *more]
    session.install(*pins("tools"), *(pins("latest") if end == "latest" else []), *needs.editable, *frameworks, *extra)


@nox.session
@nox.parametrize(
    ["name", "end"],  # plain values: nox writes them into its report
    [
        nox.param(name, end, id=name if end == "latest" else f"{name}, oldest")
        for name, package in packages().items()
        for end in ends(package)
    ],
)
def tests(session: nox.Session, name: str, end: str) -> None:
    """One package's own tests, without torch, vLLM or verl."""
    package = packages()[name]
    install(session, package, end, *TOOLS)
    pytest(session, str(package.tests), "-m", "not heavy")


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in examples()] or [nox.param("", id="-")])
def example(session: nox.Session, name: str) -> None:
    """One example's tests, in an environment made from its own requirements.txt."""
    if not name:
        session.skip("no example has a requirements.txt")
    folder = examples()[name]
    needs = resolve(read_requirements(folder / "requirements.txt"))
    session.install(*pins("tools"), *pins("latest"), *needs.editable, *map(str, needs.outside), *TOOLS)
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


# --- the heavy environment ------------------------------------------------------------------------------------------


def heavy(session: nox.Session) -> str:
    """The Python of the shared environment with torch, vLLM and verl; makes it where it is missing (some minutes).

    LEYDEN_HEAVY names an environment made by hand to use instead.
    """
    unset = {"PYTHONDONTWRITEBYTECODE": None}  # without .pyc files vLLM takes three times as long to start
    session.env.update(unset)
    if given := os.environ.get("LEYDEN_HEAVY"):
        return str(Path(given) / "bin" / "python")
    wanted = read_requirements(ROOT / "integration-tests" / "requirements.txt")
    for folder in examples().values():
        wanted += read_requirements(folder / "requirements.txt")
    needs = resolve(wanted)
    outside = sorted({*map(str, needs.outside), *(str(r) for local in needs.local for r in local.supported), *TOOLS})
    folder = CACHE / "heavy" / _digest([sys.version, *outside, (CONSTRAINTS / "heavy.txt").read_text()])
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(CACHE / "heavy", ignore_errors=True)  # an older one is 4 GB that nothing uses any more
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
        # pip rather than uv: torch's CPU build must come from wherever this machine's pip is told to find it.
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        session.log("installing torch, vLLM and verl: 2 to 8 minutes and 4 GB, once")
        session.run(*pip, "--upgrade", "pip", external=True)
        session.run(*pip, *pins("tools"), *pins("heavy"), "hatchling", "editables", *outside, external=True)
        (folder / "complete").touch()
    _refresh(session, folder, needs)
    return python


def _refresh(session: nox.Session, folder: Path, needs: Needs) -> None:
    """Install this repository's packages into the heavy environment, again whenever one's pyproject.toml changed."""
    python, stamp = str(folder / "bin" / "python"), folder / "installed"
    digest = _digest([(package.folder / "pyproject.toml").read_text() for package in needs.local])
    if stamp.exists() and stamp.read_text() == digest:
        return
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    session.run(*pip, "--no-deps", "--no-build-isolation", *needs.editable, external=True)
    session.run(python, "-m", "leyden_lightningrl.environment", "--fix", external=True)
    stamp.write_text(digest)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


@nox.session(venv_backend="none")
def integration(session: nox.Session) -> None:
    """Tests across packages on real vLLM and real verl, and the packages' own tests that need them."""
    python = heavy(session)
    pytest(session, str(ROOT / "integration-tests"), python=python)
    for package in packages().values():
        if package.heavy:
            pytest(session, str(package.tests), python=python, part=package.name)
    if examples():
        folders = [str(folder) for folder in examples().values()]
        pytest(session, *folders, "-m", "heavy", python=python, part="examples", empty_is_fine=True)


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
