"""Metrics of a run: `metrics.jsonl`, one line per step on the console, and the history that the summary is made of."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TextIO

from leyden.errors import InvalidInput

SCORES = ("reward", "score")
"""Last parts of the names of metrics that say how good the agent is."""


class MetricLog:
    """Collects `(step, metrics)`. Lines of `metrics.jsonl`: `{"step": 3, "time": 12.5, "train/reward": 0.4}`, with
    `time` in seconds since the run started, over all its resumptions."""

    def __init__(self, directory: Path, held_out: Collection[str] = (), *, stream: TextIO | None = None) -> None:
        self.history: list[tuple[int, dict[str, float]]] = []
        self.held_out = tuple(held_out)
        self._path = directory / "metrics.jsonl"
        self._stream = stream if stream is not None else sys.stdout
        self._tty = self._stream.isatty()
        self._pending: dict[str, float] = {}
        self._step: int | None = None
        self._total = 0
        self._done = 0
        self._first: tuple[float, int] | None = None
        before = self._read()
        self._started = time.monotonic() - before
        self._status = ""

    def _read(self) -> float:
        """Take in what an earlier process of this run wrote; returns the seconds that it ran."""
        seconds = 0.0
        if self._path.is_file():
            text = self._path.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):  # cut off by a kill
                with self._path.open("a", encoding="utf-8") as file:
                    file.write("\n")
            for line in text.splitlines():
                try:
                    row = json.loads(line)
                    step, seconds = int(row.pop("step")), float(row.pop("time", seconds))
                except (ValueError, TypeError, KeyError, AttributeError):  # cut off by a kill or by a full disk
                    continue
                self.history.append((step, row))
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds since the run started, without the time between a kill and its resumption."""
        return time.monotonic() - self._started

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record metrics of `step`; several calls for one step add up to one line on the console."""
        values = {name: _number(name, value) for name, value in metrics.items()}
        row: dict[str, Any] = {"step": step, "time": round(self.seconds, 3), **values}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.history.append((step, values))
        if self._step is not None and step != self._step:
            self.flush()
        self._step = step
        self._pending.update(values)

    def progress(self, step: int, total: int) -> None:
        """Say that `step` of `total` steps are done."""
        now = time.monotonic()
        if self._first is None or step < self._done:
            self._first = (now, step)
        self._done, self._total = step, total
        self.flush()

    def status(self, text: str) -> None:
        """Show a passing line on a terminal; nothing elsewhere."""
        if self._tty:
            text = self._shown_text(text)
            width = max(len(self._status), len(text))
            self._stream.write("\r" + text.ljust(width) + "\r")
            self._stream.flush()
            self._status = text

    def say(self, text: str) -> None:
        """Print a line."""
        if self._status:
            self._stream.write("\r" + " " * len(self._status) + "\r")
            self._status = ""
        print(self._shown_text(text), file=self._stream, flush=True)

    def _shown_text(self, text: str) -> str:
        """`text` in the characters that the console has."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)

    def flush(self) -> None:
        """Print the line of the current step, if there is something to say."""
        if self._step is None or not self._pending:
            return
        of = f"/{self._total}" if self._total else ""
        names = self._shown(self._pending)
        values = "  ".join(f"{name} {self._pending[name]:.4g}" for name in names)
        self.say(f"step {self._step}{of}  {values}  {duration(self.seconds)} elapsed{self._left()}")
        self._pending.clear()

    def _left(self) -> str:
        if self._first is None or self._total <= self._done:
            return ""
        began, first = self._first
        steps = self._done - first
        if steps < 1:
            return ""
        return f", {duration((time.monotonic() - began) / steps * (self._total - self._done))} left"

    def _shown(self, values: Mapping[str, float]) -> list[str]:
        scores = [name for name in values if name.rsplit("/", 1)[-1] in SCORES]
        return scores or list(values)[:4]

    def scores(self) -> dict[str, list[tuple[int, float]]]:
        """(step, value) of every metric that says how good the agent is; held-out ones first."""
        found: dict[str, dict[int, float]] = {}
        for step, values in self.history:
            for name, value in values.items():
                if name.rsplit("/", 1)[-1] in SCORES:
                    found.setdefault(name, {})[step] = value  # a step that was run again after a kill counts once
        order = sorted(found, key=lambda name: (name.split("/", 1)[0] not in self.held_out, name))
        return {name: sorted(found[name].items()) for name in order}


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"metric {name!r} must be a number, got {value!r}")
    return number if math.isfinite(number) else math.nan


def duration(seconds: float) -> str:
    """`75` → `1m15s`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
