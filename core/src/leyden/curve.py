"""The learning curve as a picture: an SVG written by hand, and a PNG too where matplotlib is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

Curves = Mapping[str, Sequence[tuple[int, float]]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 60, 20, 40, 45
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e08e0b", "#6a4c93", "#4a4a4a")


def svg(curves: Curves, title: str) -> str:
    """`curves` (step, value) as an SVG document with axes and a legend."""
    points = [point for curve in curves.values() for point in curve]
    steps, values = [step for step, _ in points], [value for _, value in points]
    first, last = min(steps), max(max(steps), min(steps) + 1)
    low, high = min(0.0, *values), max(1.0, *values)

    def place(step: float, value: float) -> tuple[float, float]:
        x = LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="18" text-anchor="middle" font-size="14">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>',
    ]
    for part in range(6):
        value = low + (high - low) * part / 5
        _, y = place(first, value)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:.3g}</text>')
    for step in sorted({first, last, *(first + round((last - first) * part / 5) for part in range(6))}):
        x, _ = place(step, low)
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{step}</text>')
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{x},{y}" for x, y in (place(*point) for point in curve))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in (place(*point) for point in curve)]
        where = LEFT + 10 + 160 * (index % 4), TOP - 8 + 14 * (index // 4)
        parts.append(f'<text x="{where[0]}" y="{where[1]}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write(curves: Curves, title: str, directory: Path) -> list[Path]:
    """Write `curve.svg`, and `curve.png` where matplotlib is there; returns the paths. Nothing for no points."""
    curves = {name: [(s, v) for s, v in curve if v == v] for name, curve in curves.items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return []
    path = directory / "curve.svg"
    path.write_text(svg(curves, title), encoding="utf-8")
    return [path, *_png(curves, title, directory)]


def _png(curves: Curves, title: str, directory: Path) -> list[Path]:
    if importlib.util.find_spec("matplotlib") is None:
        return []
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7.2, 4.0))
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=name)
    axes.set(title=title, xlabel="step")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(directory / "curve.png", dpi=120)
    return [directory / "curve.png"]
