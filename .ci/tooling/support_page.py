"""The tables of what works in which versions, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packages import Package, adapters
from suite import capabilities, meanings

Record = dict[str, dict[str, dict[str, Any]]]
"""Adapter → end of its range → versions, scripted and vllm (capability → what `support.judged` says), training (rewards)."""

INTRODUCTION = """
Written by `.ci/tooling/support.py` from what `nox -s tests conformance` left in `docs/support.json`; do not edit it.

Every adapter runs the same suite (`leyden.testing.adapter`, see [adapters.md](adapters.md)) at both ends of the range of
versions that it supports. ✓: every test that needs the capability passed on a scripted server. ✓✓: those of them that a
real vLLM server can serve passed on one, too. (✓): all but what is said below. –: there is none, for the reason given below.
"""


def versions(entry: Mapping[str, Any], package: Package) -> str:
    """`name version` of what the adapter is for."""
    return ", ".join(f"{r.name} {entry['versions'].get(r.name, '?')}" for r in package.supported)


def sign(entry: Mapping[str, Any], capability: str) -> str:
    """One cell: what was seen on the scripted server, and whether vLLM served it too."""
    result = entry.get("scripted", {}).get(capability, "")
    if result != "passed":
        return {"failed": "failed", "partly": "(✓)", "no": "–"}.get(result.split(":")[0], "?")
    return "✓✓" if entry.get("vllm", {}).get(capability) == "passed" else "✓"


def table(record: Record) -> str:
    """Markdown rows: one for each adapter and version."""
    names = capabilities()
    lines = ["| adapter | tested with | " + " | ".join(name.replace("_", " ") for name in names) + " |"]
    lines.append("|---|---|" + "---|" * len(names))
    for name, package in adapters().items():
        for entry in record.get(name, {}).values():
            cells = [sign(entry, capability) for capability in names]
            lines.append(f"| `{package.distribution}` | {versions(entry, package)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(record: Record) -> str:
    """docs/support.md."""
    lines = [
        "# What works in which versions",
        "",
        *INTRODUCTION.splitlines(),
        "",
        table(record),
        "",
        *[f"- **{name.replace('_', ' ')}**: {text}" for name, text in meanings().items()],
    ]
    for name, package in adapters().items():
        reasons = lacking(record.get(name, {}))
        supported = ", ".join(f"`{requirement}`" for requirement in package.supported)
        lines += ["", f"## {package.distribution}", "", f"Supports {supported}.{trained(record.get(name, {}))}"]
        lines += (
            ["", *[f"- {capability.replace('_', ' ')}: {reason}" for capability, reason in reasons]] if reasons else []
        )
    return "\n".join(lines) + "\n"


def trained(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """What the short training of one of its agents did."""
    rewards = entries.get("latest", {}).get("training")
    if not rewards:
        return ""
    return (
        f" A short real training (`nox -s train_frameworks`: verl, vLLM, a tiny model) of its marked writer raised the mean "
        f"reward of a step from {rewards[0]:.2f} to {rewards[-1]:.2f}; its unmarked planner kept its own endpoint."
    )


def lacking(entries: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(capability, why there is none) of an adapter, each reason once, with the end where it is not everywhere."""
    found: dict[tuple[str, str], list[str]] = {}
    for end, entry in entries.items():
        for capability, result in entry.get("scripted", {}).items():
            if result.startswith(("no: ", "partly: ")):
                found.setdefault((capability, result.removeprefix("no: ")), []).append(end)
    return [
        (capability, reason if len(where) == len(entries) else f"{reason} ({', '.join(where)})")
        for (capability, reason), where in found.items()
    ]
