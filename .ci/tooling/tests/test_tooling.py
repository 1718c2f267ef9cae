"""The tools behind the noxfile: what a package needs, what it may import, and that a failure never adds up to a pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / ".ci" / "tooling"), str(ROOT / "docs")]

import contracts  # noqa: E402
import make_figures  # noqa: E402
import summary  # noqa: E402
from packages import Package, examples, heavy_examples, packages, resolve  # noqa: E402


@pytest.fixture
def plugin(tmp_path: Path) -> Package:
    """A plugin that depends on the core and supports two ranges of a framework."""
    source = tmp_path / "src" / "leyden_made"
    source.mkdir(parents=True)
    (source / "package.py").write_text('SUPPORTED = ("frame>=1.5,<3", "other<2")\n')
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "leyden-made"\ndependencies = ["leyden", "leyden-langgraph", "attrs"]\n'
        '[tool.leyden]\noldest = ["old<1"]\n'
    )
    return Package("made", tmp_path)


def test_every_folder_with_a_pyproject_is_a_package() -> None:
    folders = {path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml")}
    assert set(packages()) == {"core"} | folders


def test_the_oldest_versions_are_the_lower_bounds_with_the_further_pins(plugin: Package) -> None:
    assert [str(requirement) for requirement in plugin.supported] == ["frame<3,>=1.5", "other<2"]
    assert plugin.oldest == ["frame==1.5", "old<1"]


def test_own_packages_become_folders_and_are_followed() -> None:
    needs = resolve([Requirement("leyden-langgraph"), Requirement("attrs>=20")])
    assert {package.name for package in needs.local} >= {"core", "openai", "langchain", "langgraph"}
    assert "attrs>=20" in map(str, needs.outside)
    assert not any(requirement.name.startswith("leyden") for requirement in needs.outside)


def test_a_name_of_ours_without_a_folder_is_an_error() -> None:
    with pytest.raises(LookupError, match="leyden-nothing"):
        resolve([Requirement("leyden-nothing")])


def test_only_examples_with_heavy_tests_decide_what_is_in_the_heavy_environment() -> None:
    assert set(heavy_examples()) <= set(examples())
    assert "langgraph_calculator" in heavy_examples()
    assert "prompt_choice" not in heavy_examples()


def test_an_edge_that_the_architecture_has_not_is_found(plugin: Package) -> None:
    assert contracts.undeclared_policy(plugin) == {"leyden_langgraph"}
    assert all(contracts.undeclared_policy(package) == set() for package in packages().values())


def junit(folder: Path, name: str, **counts: int) -> None:
    attributes = " ".join(f'{key}="{value}"' for key, value in counts.items())
    (folder / f"{name}.xml").write_text(f"<testsuites><testsuite {attributes}/></testsuites>")


def run_summary(folder: Path, sessions: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    report = folder / "report.json"
    listed = [{"name": n, "signatures": [n], "result": r, "duration": 1.0} for n, r in sessions.items()]
    report.write_text(json.dumps({"sessions": listed}))
    status = summary.main(folder, report)
    return status, capsys.readouterr().out.splitlines()[-1]


def test_counts_are_added_over_sessions_and_their_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit(tmp_path, "tests-openai-oldest", tests=10, failures=0, errors=0, skipped=2)
    junit(tmp_path, "integration", tests=3, failures=0, errors=0, skipped=0)
    junit(tmp_path, "integration__examples", tests=4, failures=0, errors=0, skipped=0)
    sessions = {"lint": "success", "tests(openai, oldest)": "success", "integration": "success"}
    assert run_summary(tmp_path, sessions, capsys) == (0, "15 passed, 0 failed, 2 skipped")


def test_failed_tests_errors_and_failed_sessions_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit(tmp_path, "tests-core", tests=10, failures=2, errors=1, skipped=0)
    sessions = {"lint": "failed", "tests(core)": "failed", "demo_small": "aborted"}
    assert run_summary(tmp_path, sessions, capsys) == (1, "7 passed, 5 failed, 0 skipped")


def test_a_run_without_tests_or_without_a_report_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_summary(tmp_path, {"lint": "success"}, capsys) == (1, "0 passed, 0 failed, 0 skipped")
    assert summary.main(tmp_path, tmp_path / "missing.json") == 1


def test_a_result_becomes_a_table(tmp_path: Path) -> None:
    rows = [{"measure": "a|b", "ours": 0.123456, "other": 12, "ratio": None, "goal": "< 1", "spread": 2.0}]
    path = tmp_path / "some_name.json"
    path.write_text(json.dumps({"date": "2026-12-01", "versions": {"leyden": "0.1.0"}, "rows": rows}))
    assert make_figures.section(path).splitlines() == [
        "## some name",
        "",
        "| measure | ours | other | goal | spread |",
        "|---|---|---|---|---|",
        "| a\\|b | 0.1235 | 12 | < 1 | 2 |",
        "",
        "`benchmarks/some_name.py` · 2026-12-01 · leyden 0.1.0",
    ]


def test_a_result_without_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(ValueError, match=r"empty\.json"):
        make_figures.section(tmp_path / "empty.json")
