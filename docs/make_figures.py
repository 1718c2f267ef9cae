"""Writes docs/figures.md from benchmarks/results/*.json, so that no figure on that page is typed by hand.

`python docs/make_figures.py` writes the page; `--check` exits with 1 where the page is not what it would write. A result file
holds `rows` of `measure`, `ours`, `other`, `ratio`, `goal` (any but the first may be missing), `versions`, `date`, and
may hold `title`, `machine` and `notes`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
PAGE = HERE / "figures.md"
COLUMNS = ("measure", "ours", "other", "ratio", "goal")
HEAD = """# Figures

Written by `docs/make_figures.py` from `benchmarks/results/*.json`; every figure was printed by `benchmarks/<name>.py` on the
machine and the day that its section names. `ours / other` is the ratio unless the measure says otherwise.
"""


def cell(value: Any) -> str:
    """One table cell: numbers with four significant digits, `–` for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def section(path: Path) -> str:
    """The part of the page for one result file. Raises `ValueError` naming the file where it has no rows."""
    result = json.loads(path.read_text())
    rows = result.get("rows")
    if not rows or any("measure" not in row for row in rows):
        raise ValueError(f"{path}: expected rows, each with a measure")
    extra = sorted({key for row in rows for key in row} - set(COLUMNS))
    columns = [name for name in COLUMNS if any(row.get(name) is not None for row in rows)] + extra
    lines = [f"## {result.get('title', path.stem.replace('_', ' '))}", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in columns) + " |" for row in rows]
    versions = ", ".join(f"{name} {version}" for name, version in (result.get("versions") or {}).items())
    facts = [str(result[key]) for key in ("date", "machine") if result.get(key)] + ([versions] if versions else [])
    lines += ["", f"`benchmarks/{path.stem}.py`" + "".join(f" · {fact}" for fact in facts)]
    notes = result.get("notes") or []
    lines += ["", *(f"- {note}" for note in ([notes] if isinstance(notes, str) else notes))] if notes else []
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    parts = [section(path) for path in sorted(RESULTS.glob("*.json"))]
    return "\n".join([HEAD, *(parts or ["No benchmark has left a result yet: run `nox -s benchmarks`.\n"])])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page())
        return 0
    if not PAGE.exists() or PAGE.read_text() != page():
        print("docs/figures.md is out of date: run python docs/make_figures.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
