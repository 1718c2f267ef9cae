"""What an adapter costs where nothing is marked: each framework's app bare, with Leyden, with other instrumentations.

    python benchmarks/adapter_overhead.py [--frameworks openai,crewai] [--rounds 5] [--runs 40] [--delay-ms 0]

The app is the one of the adapter's conformance suite (a planner's call, a writer's call of a tool, the writer's answer).
The model server runs in a process of its own. Each framework has an environment of its own, made with uv under
.cache/overhead, with Leyden's adapters and the instrumentations of OpenTelemetry, OpenInference and OpenLLMetry that exist
for it. In each round every kind runs in a fresh process, in a new order; figures are lowest deciles over all runs of a kind
(what a run costs while nobody takes the core away), per LLM call. `CPU` is processor time of the process, `wall` the time
that passes. Leyden runs inside an attempt, with the exporter that a runner uses and every span and message recorded; the
others record to a batching exporter that throws spans away, with messages recorded where they can (they have no token ids).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "overhead"
WORKER = Path(__file__).parent / "parts" / "overhead_worker.py"
CALLS = 3
"""LLM calls of one run of the app."""

PEERS: dict[str, dict[str, tuple[str, ...]]] = {
    "openai": {
        "OpenTelemetry": ("opentelemetry-instrumentation-genai-openai",),
        "OpenInference": ("openinference-instrumentation-openai",),
        "OpenLLMetry": ("opentelemetry-instrumentation-openai",),
    },
    "langchain": {
        "OpenTelemetry": ("opentelemetry-instrumentation-genai-langchain",),
        "OpenInference": ("openinference-instrumentation-langchain",),
        "OpenLLMetry": ("opentelemetry-instrumentation-langchain",),
    },
    "langgraph": {
        "OpenTelemetry": ("opentelemetry-instrumentation-genai-langchain",),
        "OpenInference": ("openinference-instrumentation-langchain",),
        "OpenLLMetry": ("opentelemetry-instrumentation-langchain",),
    },
    "autogen": {"OpenInference": ("openinference-instrumentation-autogen-agentchat",)},
    "crewai": {
        "OpenInference": ("openinference-instrumentation-crewai",),
        "OpenLLMetry": ("opentelemetry-instrumentation-crewai",),
    },
    "openai-agents": {
        "OpenTelemetry": (
            "opentelemetry-instrumentation-genai-openai-agents",
            "opentelemetry-instrumentation-genai-openai",
        ),
        "OpenInference": ("openinference-instrumentation-openai-agents",),
        "OpenLLMetry": ("opentelemetry-instrumentation-openai-agents",),
    },
}


def environment(framework: str) -> Path:
    """The Python of a framework's environment, made where it is missing."""
    sys.path.insert(0, str(ROOT / ".ci" / "tooling"))
    from packages import packages

    package = packages()[framework]
    needs = package.needs
    peers = sorted({name for names in PEERS[framework].values() for name in names})
    frameworks = [str(requirement) for local in needs.local for requirement in local.supported]
    wanted = [*needs.editable, *frameworks, *package.test_requirements, "pytest", "pytest-asyncio", *peers]
    folder = CACHE / f"{framework}-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:10]}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", str(python), *wanted], check=True)
        (folder / "complete").touch()
    return python


def one(python: Path, framework: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one process."""
    names = PEERS[framework].get(kind, ())
    command = [str(python), str(WORKER), framework, kind, ",".join(names), str(given.runs), str(given.delay_ms)]
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "false"}
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet, **content}, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{framework} with {kind} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(framework: str, given: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and versions of one framework."""
    python = environment(framework)
    kinds = ["bare", "Leyden", *PEERS[framework]]
    taken: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(given.rounds):
        for kind in random.sample(kinds, len(kinds)):
            taken[kind].append(one(python, framework, kind, given))
    spans = {kind: statistics.median(done["spans"] for done in rounds) for kind, rounds in taken.items()}
    rows = []
    for clock in ("cpu", "wall"):
        ms = {
            kind: statistics.quantiles([value for done in rounds for value in done[clock]], n=10)[0] * 1e3 / CALLS
            for kind, rounds in taken.items()
        }
        best = min((kind for kind in kinds[2:]), key=lambda kind: ms[kind])
        name = {"cpu": "CPU", "wall": "wall"}[clock]
        for kind in kinds[1:]:
            goal = "≤ 1.05 and no more than the best other" if kind == "Leyden" else None
            rows.append(
                {
                    "measure": f"{framework}: {kind} over bare, {name} ms per LLM call",
                    "ours": round(ms[kind], 4),
                    "other": round(ms["bare"], 4),
                    "ratio": round(ms[kind] / ms["bare"], 3),
                    "goal": goal,
                    "best other": best if kind == "Leyden" else None,
                    "spans a run": spans[kind],
                }
            )
    return rows, taken["Leyden"][0]["versions"]


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frameworks", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long the model takes to answer")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {"python": platform.python_version()}
    for framework in given.frameworks.split(","):
        found, seen = measure(framework, given)
        rows += found
        versions |= {f"{name} ({framework})" if name in versions else name: text for name, text in seen.items()}
        for row in found:
            print(f"{row['measure']:<64} {row['ours']:>8.3f} {row['other']:>8.3f}  x{row['ratio']}", flush=True)
        write(rows, versions, given)


def write(rows: list[dict[str, Any]], versions: dict[str, str], given: argparse.Namespace) -> None:
    """Write what was measured so far."""
    result = {
        "benchmark": "adapter_overhead",
        "title": "adapter overhead, nothing marked",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "notes": [
            f"The model server answers after {given.delay_ms:g} ms; {given.rounds} rounds of {given.runs} runs each.",
            "`ours` is the kind that the row names, `other` is the bare program.",
        ],
        "rows": rows,
    }
    path = Path(__file__).parent / "results" / "adapter_overhead.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
