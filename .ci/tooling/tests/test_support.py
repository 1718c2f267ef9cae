"""The record of what works: read from results, compared with them, and complete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / ".ci" / "tooling"))

import suite  # noqa: E402
import support  # noqa: E402
import support_page  # noqa: E402
from packages import Package  # noqa: E402

VERSIONS = {"python": "3.11.7", "frame": "1.5"}


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """An adapter for `frame` 1.5 and later is the only one."""
    source = tmp_path / "made" / "src" / "leyden_made"
    source.mkdir(parents=True)
    (source / "package.py").write_text('SUPPORTED = ("frame>=1.5,<3",)\n')
    (tmp_path / "made" / "pyproject.toml").write_text('[project]\nname = "leyden-made"\n')
    package = Package("made", tmp_path / "made")
    for module in (support, support_page):
        monkeypatch.setattr(module, "adapters", lambda: {"made": package})
    known = {"test_callers": (), "test_routes": (), "test_stream": ("stream",), "test_cache": ("cached",)}
    monkeypatch.setattr(support, "needs", lambda: known)
    return package


def case(name: str, inner: str = "", module: str = "plugins.made.tests.test_conformance.TestMade") -> str:
    return f'<testcase classname="{module}" name="{name}">{inner}</testcase>'


def skipped(reason: str) -> str:
    return f'<skipped type="pytest.skip" message="{reason}">where</skipped>'


def left_by(folder: Path, session: str, *cases: str, **versions: str) -> None:
    (folder / f"{session}.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    (folder / f"{session}.versions.json").write_text(json.dumps(versions or VERSIONS))


GOOD = [case("test_callers"), case("test_routes"), case("test_stream"), case("test_cache", skipped("no cached: none"))]


def entry(**changed: Any) -> dict[str, Any]:
    seen = {"run": "passed", "stream": "passed", "cached": "no: none"}
    return {"versions": VERSIONS, "scripted": seen, "vllm": {"run": "passed"}, **changed}


def test_the_suite_is_read_from_its_source() -> None:
    needs = suite.needs()
    assert needs["test_streams_are_routed"] == ("stream",)
    assert needs["test_a_retry_commits_one_call"] == ()
    assert suite.capabilities()[:2] == ["run", "target"]
    assert {name for names in needs.values() for name in names} <= set(suite.capabilities())
    assert all(text.endswith(".") for text in suite.meanings().values())


def test_results_become_capabilities_of_a_version(adapter: Package, tmp_path: Path) -> None:
    left_by(tmp_path, "tests-made", *GOOD, case("test_other", module="plugins.made.tests.test_more"))
    scripted = skipped("needs a scripted server")
    left_by(tmp_path, "conformance-made", case("test_callers"), case("test_stream", scripted))
    (tmp_path / "train-frameworks-made.training.json").write_text('{"rewards": [0.5, 0.9], "other": 1}')
    assert support.results(tmp_path) == {"made": {"latest": entry(training=[0.5, 0.9])}}


def test_one_failed_test_fails_its_capability(adapter: Package, tmp_path: Path) -> None:
    left_by(tmp_path, "tests-made-oldest", case("test_routes", "<failure/>"), *GOOD)
    assert support.results(tmp_path)["made"]["oldest"]["scripted"]["run"] == "failed"
    left_by(tmp_path, "tests-made-oldest", *GOOD, case("test_routes", "<error/>"))
    assert support.results(tmp_path)["made"]["oldest"]["scripted"]["run"] == "failed"


def test_an_expected_failure_is_a_capability_in_part(adapter: Package, tmp_path: Path) -> None:
    left_by(tmp_path, "tests-made", case("test_routes", '<skipped type="pytest.xfail" message="why"/>'), *GOOD)
    found = support.results(tmp_path)
    assert found["made"]["latest"]["scripted"]["run"] == "partly: why"
    assert "- run: partly: why" in support_page.page(found)


def test_a_run_of_one_part_leaves_the_others(adapter: Package) -> None:
    old = {"made": {"latest": entry(), "oldest": entry()}, "gone": {"latest": entry()}}
    new = {"made": {"latest": {"versions": {"frame": "2.0"}, "vllm": {"run": "failed"}}}}
    merged = support.merged(old, new)
    changed = entry(versions={"frame": "2.0"}, vllm={"run": "failed"})
    assert merged == {"made": {"latest": changed, "oldest": entry()}}


def test_gaps_are_versions_that_were_not_run_or_are_not_supported_and_failures(adapter: Package) -> None:
    assert support.gaps({"made": {"latest": entry(training=[0.5, 0.9]), "oldest": entry()}}) == []
    assert support.gaps({}) == ["made: the latest version was not tested", "made: the oldest version was not tested"]
    only_scripted = {"versions": {"frame": "3.1"}, "scripted": {"run": "failed"}}
    assert support.gaps({"made": {"latest": only_scripted, "oldest": entry(versions={"frame": "1.6"})}}) == [
        "made: the latest version was not run on vllm",
        "made: no agent was trained",
        "made, latest: run failed on scripted",
        "made, latest: frame 3.1 was tested, frame<3,>=1.5 is supported",
        "made, oldest: frame 1.6 was tested, the oldest supported one is 1.5",
    ]


def test_results_that_say_otherwise_than_the_record_are_found(adapter: Package) -> None:
    record = {"made": {"latest": entry()}}
    assert support.differences(record, {"made": {"latest": entry(versions={"frame": "1.6"})}}) == []
    seen = entry(scripted={"run": "passed", "stream": "failed"})
    (found,) = support.differences(record, {"made": {"latest": seen}})
    assert found == "made, latest, scripted: stream is recorded as 'passed', was 'failed'"


def test_the_table_tells_seen_from_lacking(adapter: Package) -> None:
    rows = support_page.table({"made": {"latest": entry()}}).splitlines()
    cells = dict(zip(rows[0].split(" | "), rows[2].split(" | "), strict=True))
    assert cells["tested with"] == "frame 1.5"
    assert (cells["run"], cells["stream"], cells["cached"], cells["handoff"]) == ("✓✓", "✓", "–", "?")
    page = support_page.page(
        {"made": {"latest": entry(training=[0.5, 0.875]), "oldest": entry(scripted={"run": "passed"})}}
    )
    assert "- cached: none (latest)" in page
    assert "Supports `frame<3,>=1.5`. A short real training" in page
    assert "from 0.50 to 0.88" in page


def test_the_table_in_the_readme_is_the_only_thing_that_changes(adapter: Package) -> None:
    text = f"before\n{support.START}\nold\n{support.END}\nafter\n"
    changed = support.with_table(text, {})
    assert changed.startswith(f"before\n{support.START}\n| adapter |")
    assert changed.endswith(f"{support.END}\nafter\n")
    assert support.with_table(changed, {}) == changed
