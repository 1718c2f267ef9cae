"""What a run leaves behind at its end: `summary.json`, `report.md`, the learning curve, trained prompts, a text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leyden import curve
from leyden.files import write_atomically
from leyden.metrics import MetricLog, duration
from leyden.report import CaptureReport, render, table
from leyden.types import Policy, Prompt


def scores_of(metrics: MetricLog) -> list[dict[str, Any]]:
    """Before, after and best of every score."""
    rows = []
    for name, points in metrics.scores().items():
        whole = [(step, value) for step, value in points if not math.isnan(value)]
        if not whole:
            continue
        best = max(whole, key=lambda point: point[1])
        rows.append(
            {
                "metric": name,
                "held_out": name.split("/", 1)[0] in metrics.held_out,
                "before": whole[0][1],
                "after": whole[-1][1],
                "best": best[1],
                "best_step": best[0],
                "steps": len(whole),
            }
        )
    return rows


def summarise(
    directory: Path,
    metrics: MetricLog,
    report: CaptureReport,
    policies: Mapping[str, Policy],
    added: Mapping[str, Any],
    *,
    status: str,
    reason: str | None,
) -> tuple[dict[str, Any], str]:
    """Write the files of the summary; returns it as plain values and as text."""
    scores = scores_of(metrics)
    prompts = _write_prompts(directory, policies)
    pictures = curve.write(metrics.scores(), f"{directory.name}: learning curve", directory)
    summary = {
        "status": status,
        "reason": reason,
        "seconds": round(metrics.seconds, 1),
        "scores": scores,
        "capture": report.as_dict(),
        "prompts": {name: str(path) for name, path in prompts.items()},
        **{key: value for key, value in added.items() if key not in ("status", "scores", "capture")},
    }
    write_atomically(directory / "summary.json", json.dumps(summary, indent=2, default=str, ensure_ascii=False) + "\n")
    text = _text(directory, metrics, report, scores, prompts, added, status, reason)
    picture = f"![learning curve]({pictures[0].name})\n\n" if pictures else ""
    write_atomically(directory / "report.md", f"# {directory.name}\n\n{picture}```text\n{text}\n```\n")
    return summary, text


def _write_prompts(directory: Path, policies: Mapping[str, Policy]) -> dict[str, Path]:
    prompts = {name: policy for name, policy in policies.items() if isinstance(policy, Prompt)}
    written = {}
    for name, prompt in prompts.items():
        path = directory / "prompts" / f"{name.replace('/', '_')}.txt"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, prompt.text)
        written[name] = path
    return written


def _text(
    directory: Path,
    metrics: MetricLog,
    report: CaptureReport,
    scores: Sequence[Mapping[str, Any]],
    prompts: Mapping[str, Path],
    added: Mapping[str, Any],
    status: str,
    reason: str | None,
) -> str:
    lines = [f"{status} after {duration(metrics.seconds)}" + (f": {reason}" if reason else "")]
    if scores:
        rows = [
            (
                str(row["metric"]) + (" (held out)" if row["held_out"] else ""),
                f"{row['before']:.4g}",
                f"{row['after']:.4g}",
                f"{row['best']:.4g}",
                str(row["best_step"]),
            )
            for row in scores
        ]
        lines += ["", *table(("score", "before", "after", "best", "at step"), rows)]
    lines += ["", render(report), ""]
    lines += [f"prompt of policy {name!r}: {path}" for name, path in prompts.items()]
    lines += [f"{key}: {_plain(value)}" for key, value in added.items()]
    lines += [f"files: {directory} (metrics.jsonl, summary.json, report.md, curve.svg)"]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(f"\n  {key}: {_plain(item)}" for key, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
