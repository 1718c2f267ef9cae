"""Keeps the README's table of supported framework versions equal to the packages' own `SUPPORTED`.

`python .ci/tooling/supported.py` rewrites the lines between the two markers; `--check` exits with 1 where they are out of date.
"""

from __future__ import annotations

import sys

from packages import ROOT, packages

README = ROOT / "README.md"
START, END = "<!-- supported: written by .ci/tooling/supported.py -->", "<!-- /supported -->"


def table() -> str:
    """Markdown rows: package, what it supports, the oldest versions that its tests run on."""
    lines = ["| package | supports | tested from |", "|---|---|---|"]
    for package in packages().values():
        if package.supported:
            supported = ", ".join(f"`{requirement}`" for requirement in package.supported)
            oldest = ", ".join(f"`{pin}`" for pin in package.oldest) or "the newest only"
            lines.append(f"| `{package.distribution}` | {supported} | {oldest} |")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    text = README.read_text()
    before, _, rest = text.partition(START)
    wanted = f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}"
    if "--check" not in sys.argv:
        README.write_text(wanted)
    elif text != wanted:
        print("README.md: the table of supported versions is out of date: run python .ci/tooling/supported.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
