"""How long `import leyden` takes in a fresh interpreter, next to the interpreter's own start and an `import asyncio`.

    python benchmarks/import_time.py [--runs 20]

Each run is a process of its own with byte code already compiled; the modules take turns. Figures are lowest deciles: what
an import costs while nobody takes the core away.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

GOAL_MS = 150
MODULES = ("leyden", "leyden_openai", "asyncio", "opentelemetry.context", "pluggy")
CODE = "import time; start = time.perf_counter(); import {}; print((time.perf_counter() - start) * 1e3)"


def import_ms(module: str) -> float:
    """Milliseconds that one import takes in a new process."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", CODE.format(module)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    taken: dict[str, list[float]] = {module: [] for module in MODULES}
    for number in range(given.runs + 1):
        for module in MODULES:
            value = import_ms(module)
            if number:  # the first one compiles
                taken[module].append(value)
    best = {module: round(statistics.quantiles(values, n=10)[0], 1) for module, values in taken.items()}
    base = best["asyncio"]
    rows = [
        {
            "measure": f"import {module}, ms (other: import asyncio)",
            "ours": best[module],
            "other": base,
            "ratio": round(best[module] / base, 2),
            "goal": f"< {GOAL_MS} ms" if module == "leyden" else None,
        }
        for module in MODULES
        if module != "asyncio"
    ]
    for row in rows:
        print(f"{row['measure']:<58} {row['ours']:>7} {row['other']:>7}  x{row['ratio']:<6} {row['goal'] or ''}")
    names = ("leyden", "leyden-openai", "opentelemetry-api", "pluggy", "msgspec")
    result = {
        "benchmark": "import_time",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}},
        "runs": given.runs,
        "rows": rows,
    }
    path = Path(__file__).parent / "results" / "import_time.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
