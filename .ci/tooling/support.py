"""The record of what each adapter was seen to do (`docs/support.json`), and the two tables that are made of it.

    python .ci/tooling/support.py --record .cache/results    takes over what the sessions `tests` and `conformance` left there
    python .ci/tooling/support.py                            writes the table in README.md, and docs/support.md
    python .ci/tooling/support.py --check                    1 where those do not fit the record, or the record has gaps
    python .ci/tooling/support.py --compare .cache/results   1 where these results say otherwise than the record

A capability counts as passed where every test of the suite that needs it passed (see `leyden.testing.adapter`).
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from packages import ROOT, Package, adapters, ends
from suite import capabilities, needs
from summary import slug
from support_page import Record, page, table

RECORD = ROOT / "docs" / "support.json"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "support.md"
START, END = "<!-- support: written by .ci/tooling/support.py -->", "<!-- /support -->"
SERVERS = {"tests": "scripted", "conformance": "vllm"}
"""Session → what its model server was."""


def outcomes(path: Path) -> Iterator[tuple[str, str, str]]:
    """(test, "passed" | "failed" | "skipped" | "xfailed", reason) of each case of the conformance suite in a JUnit file."""
    known = needs()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = str(case.get("name")).split("[")[0]
        if "test_conformance" not in str(case.get("classname")) or name not in known:
            continue
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif skipped is not None:
            kind = "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"
            yield name, kind, str(skipped.get("message"))
        else:
            yield name, "passed", ""


def judged(path: Path) -> dict[str, str]:
    """Capability → "passed", "failed", "partly: why" or "no: why"; what no test ran for is left out."""
    wanted, found = needs(), dict[str, str]()
    for test, outcome, reason in outcomes(path):
        for name in wanted[test] or ("run",):
            lacking = re.match(rf"no {name}: (.*)", reason, re.DOTALL)
            if outcome == "failed":
                found[name] = "failed"
            elif outcome == "xfailed" and found.get(name) != "failed":
                found[name] = f"partly: {reason}"
            elif lacking or outcome == "passed":
                found.setdefault(name, f"no: {lacking[1]}" if lacking else "passed")
    return {name: found[name] for name in capabilities() if name in found}


def results(folder: Path) -> Record:
    """The record of one run's results; parts that were not run are missing."""
    found: Record = {}
    for name, package in adapters().items():
        for end in ends(package):
            entry: dict[str, Any] = {}
            for session, server in SERVERS.items():
                stem = slug(f"{session}({name}{'' if end == 'latest' else ', oldest'})")
                report, versions = folder / f"{stem}.xml", folder / f"{stem}.versions.json"
                if report.exists() and versions.exists() and (seen := judged(report)):
                    entry |= {"versions": json.loads(versions.read_text()), server: seen}
            training = folder / f"{slug(f'train_frameworks({name})')}.training.json"
            if end == "latest" and training.exists():
                entry["training"] = json.loads(training.read_text())["rewards"]
            if entry:
                found.setdefault(name, {})[end] = entry
    return found


def merged(old: Record, new: Record) -> Record:
    """`old` with what `new` has; what is no adapter any more goes."""
    return {
        name: {
            end: {**old.get(name, {}).get(end, {}), **new.get(name, {}).get(end, {})}
            for end in ends(package)
            if end in {**old.get(name, {}), **new.get(name, {})}
        }
        for name, package in adapters().items()
        if name in {**old, **new}
    }


def gaps(record: Record) -> list[str]:
    """What the record does not show, or shows of other versions than the ones that are supported."""
    wrong = []
    for name, package in adapters().items():
        for end in ends(package):
            entry = record.get(name, {}).get(end)
            if entry is None:
                wrong.append(f"{name}: the {end} version was not tested")
                continue
            wrong += [
                f"{name}: the {end} version was not run on {server}"
                for server in SERVERS.values()
                if server not in entry
            ]
            if end == "latest" and "training" not in entry:
                wrong.append(f"{name}: no agent was trained")
            wrong += [
                f"{name}, {end}: {capability} failed on {server}"
                for server in SERVERS.values()
                for capability, result in entry.get(server, {}).items()
                if result == "failed"
            ]
            wrong += [f"{name}, {end}: {problem}" for problem in strays(package, end, entry["versions"])]
    return wrong


def strays(package: Package, end: str, versions: Mapping[str, str]) -> list[str]:
    """Versions in the record that are out of the supported range or not its lower bound."""
    wrong = []
    for requirement in package.supported:
        version = versions.get(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} was tested, {requirement} is supported")
        bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "~=")]
        if end == "oldest" and version and bounds and Version(version) != Version(bounds[0]):
            wrong.append(f"{requirement.name} {version} was tested, the oldest supported one is {bounds[0]}")
    return wrong


def differences(record: Record, seen: Record) -> list[str]:
    """Where results say otherwise than the record. Patch releases of the newest version may differ."""
    wrong = []
    for name, by_end in seen.items():
        for end, entry in by_end.items():
            known = record.get(name, {}).get(end, {})
            for server in SERVERS.values():
                for capability, result in entry.get(server, {}).items():
                    if (recorded := known.get(server, {}).get(capability)) != result:
                        wrong.append(
                            f"{name}, {end}, {server}: {capability} is recorded as {recorded!r}, was {result!r}"
                        )
    return wrong


def read() -> Record:
    """The committed record."""
    found: Record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def with_table(text: str, record: Record) -> str:
    """README.md with the table between its markers."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{table(record)}\n{END}{rest.partition(END)[2]}"


def stale(record: Record) -> list[str]:
    """The pages that do not fit the record."""
    wanted = {README: with_table(README.read_text(), record), PAGE: page(record)}
    return [
        f"{path.relative_to(ROOT)} is out of date: run python .ci/tooling/support.py"
        for path, text in wanted.items()
        if not path.exists() or path.read_text() != text
    ]


def main(arguments: list[str]) -> int:
    """The command line; the exit status."""
    record = read()
    problems: list[str] = []
    match arguments:
        case ["--check"]:
            problems = stale(record) + gaps(record)
        case ["--compare", folder]:
            seen = results(Path(folder))
            problems = differences(record, seen) or ([] if seen else [f"{folder} holds no results of the suite"])
        case ["--record", folder]:
            record = merged(record, results(Path(folder)))
            RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if arguments[:1] in ([], ["--record"]):
        README.write_text(with_table(README.read_text(), record))
        PAGE.write_text(page(record))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
