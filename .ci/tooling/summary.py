"""Adds up what a whole test run did: `python .ci/tooling/summary.py RESULTS_FOLDER NOX_REPORT`.

Reads the JUnit files that the sessions' pytest runs wrote and nox's own report. A session that failed without a failed test
(lint, types, an environment that could not be made) counts as one failure, so nothing that went wrong adds up to zero.
Prints one line a session, then `N passed, M failed`. Exit status 1 where anything failed or no test ran.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def counts(path: Path) -> tuple[int, int, int]:
    """Passed, failed (errors included) and skipped tests of one JUnit file."""
    total = failed = skipped = 0
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return max(total - failed - skipped, 0), failed, skipped


def main(results: Path, report: Path) -> int:
    """Print the sums; the exit status of the whole run."""
    tests = {path.stem: counts(path) for path in sorted(results.glob("*.xml"))}
    passed = sum(count[0] for count in tests.values())
    failed = sum(count[1] for count in tests.values())
    skipped = sum(count[2] for count in tests.values())
    sessions = json.loads(report.read_text())["sessions"] if report.exists() else []
    print(f"{'session':<40} {'result':<8} {'seconds':>8} passed failed skipped")
    for session in sessions:
        name = str((session["signatures"] or [session["name"]])[0])
        mine = [count for stem, count in tests.items() if stem.split("__")[0] == slug(name)]
        row = [sum(column) for column in zip(*mine, strict=True)] if mine else [0, 0, 0]
        print(f"{name:<40} {session['result']:<8} {session['duration']:>8.0f} {row[0]:>6} {row[1]:>6} {row[2]:>7}")
        if session["result"] not in ("success", "skipped") and not row[1]:
            failed += 1
    if not sessions:
        print(f"no report of the sessions at {report}")
        failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def slug(session: str) -> str:
    """The stem of a session's JUnit file: its signature with `-` for what is no letter or digit."""
    return re.sub(r"[^A-Za-z0-9]+", "-", session).strip("-")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
