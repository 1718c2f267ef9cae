"""The capture report: which calls were seen, whose they were, which can be trained on, and why the others cannot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from leyden import attributes
from leyden.episode import Episode
from leyden.prompts import PROMPT_SPAN
from leyden.trajectories import hole_of
from leyden.types import LLMCall, Span

UNKNOWN_AGENT = "(no known agent)"
NO_REWARD = "no reward"
"""Name of the object that says why a rollout has none (`emit_object`)."""


@dataclass(slots=True)
class CallCounts:
    """LLM calls of one agent to one server under one policy ("" where it was left alone)."""

    agent: str
    server: str
    policy: str
    seen: int = 0
    failed: int = 0
    trainable: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Routed calls that cannot be trained on, by reason."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0


@dataclass(slots=True)
class CaptureReport:
    """Counts over spans and episodes; `add` and `add_episode` grow it.

    `prompts`: the policies that are prompts; a call of theirs needs no token ids to be of use.
    """

    prompts: Collection[str] = ()
    rows: dict[tuple[str, str, str], CallCounts] = field(default_factory=dict)
    episodes: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Failed and cancelled rollouts by reason."""
    no_reward: int = 0
    """Rollouts that succeeded and gave no reward."""
    why_no_reward: Counter[str] = field(default_factory=Counter)
    """The reasons that those gave which said one."""
    lost_spans: int = 0
    prompt_uses: Counter[str] = field(default_factory=Counter)
    """How often `leyden.prompt` was asked for a policy."""

    def add_episode(self, episode: Episode) -> None:
        """Count one ended rollout and its spans."""
        self.episodes += 1
        if not episode.succeeded:
            self.failed[episode.rollout.reason or episode.rollout.status] += 1
        elif episode.reward is None:
            self.no_reward += 1
        self.add(episode.spans)

    def add(self, spans: Iterable[Span]) -> None:
        """Count the calls among the spans of one attempt."""
        answered: set[str] = set()
        for span in spans:
            if span.call is not None:
                self._add_call(span, span.call, answered)
            elif span.kind == "object" and span.name.startswith(f"{PROMPT_SPAN} "):
                self.prompt_uses[span.name.removeprefix(f"{PROMPT_SPAN} ")] += 1
            elif span.kind == "object" and span.name == f"object {NO_REWARD}":
                self.why_no_reward[str(json.loads(span.attributes[attributes.VALUE]))] += 1
            elif span.error == "SpansDropped":
                self.lost_spans += 1

    def _add_call(self, span: Span, call: LLMCall, answered: set[str]) -> None:
        key = (span.agent or UNKNOWN_AGENT, call.server or "?", call.policy or "")
        row = self.rows.setdefault(key, CallCounts(*key))
        row.seen += 1
        row.prompt_tokens += call.prompt_tokens or len(call.prompt_ids)
        row.sampled_tokens += call.completion_tokens or len(call.sampled_ids)
        if span.error:
            row.failed += 1
        if call.policy is None:
            return
        hole = self._hole(span, call)
        if hole is None and call.response_id in answered:
            hole = "a repeated (cached) answer"
        if call.response_id:
            answered.add(call.response_id)
        if hole is None:
            row.trainable += 1
        else:
            row.dropped[hole] += 1

    def _hole(self, span: Span, call: LLMCall) -> str | None:
        if call.policy in self.prompts:
            return call.hole or (span.error and f"the call failed: {span.error}") or None
        return hole_of(call)

    def total(self, count: str) -> int:
        """Sum of `seen`, `trainable`, … over all rows."""
        return sum(getattr(row, count) for row in self.rows.values())

    @property
    def attributed(self) -> int:
        """Calls of a known agent."""
        return sum(row.seen for row in self.rows.values() if row.agent != UNKNOWN_AGENT)

    @property
    def routed(self) -> int:
        """Calls that went to a policy."""
        return sum(row.seen for row in self.rows.values() if row.policy)

    @property
    def dropped(self) -> Counter[str]:
        """Routed calls that cannot be trained on, by reason."""
        return sum((row.dropped for row in self.rows.values()), Counter())

    @property
    def agents(self) -> dict[str, int]:
        """Number of calls by agent."""
        counts: Counter[str] = Counter()
        for row in self.rows.values():
            counts[row.agent] += row.seen
        return dict(counts)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {
            "rollouts": self.episodes,
            "failed": dict(self.failed.most_common(20)),
            "without_reward": self.no_reward,
            "why_without_reward": dict(self.why_no_reward.most_common(20)),
            "calls": {
                "seen": self.total("seen"),
                "attributed": self.attributed,
                "routed": self.routed,
                "trainable": self.total("trainable"),
                "dropped": dict(self.dropped),
            },
            "prompt_uses": dict(self.prompt_uses),
            "attempts_with_lost_spans": self.lost_spans,
            "agents": [
                {
                    "agent": row.agent,
                    "server": row.server,
                    "policy": row.policy or None,
                    "seen": row.seen,
                    "failed": row.failed,
                    "trainable": row.trainable,
                    "dropped": dict(row.dropped),
                    "prompt_tokens": row.prompt_tokens,
                    "sampled_tokens": row.sampled_tokens,
                }
                for row in sorted(self.rows.values(), key=lambda row: (row.agent, row.server, row.policy))
            ],
        }


def capture_report(episodes: Iterable[Episode], prompts: Collection[str] = ()) -> CaptureReport:
    """The capture report of a set of episodes."""
    report = CaptureReport(prompts)
    for episode in episodes:
        report.add_episode(episode)
    return report


def render(report: CaptureReport) -> str:
    """The report as a text table, with a line for each reason why something was left out."""
    head = ("agent", "server", "policy", "calls", "failed", "trainable", "left out", "tokens in", "tokens out")
    rows = [
        (
            row.agent,
            row.server,
            row.policy or "- (left alone)",
            str(row.seen),
            str(row.failed),
            str(row.trainable) if row.policy else "-",
            str(row.dropped.total()) if row.policy else "-",
            str(row.prompt_tokens),
            str(row.sampled_tokens),
        )
        for row in sorted(report.rows.values(), key=lambda row: (row.agent, row.server, row.policy))
    ]
    lines = table(head, rows) if rows else ["no LLM call was seen"]
    lines += [
        f"calls: {report.total('seen')} seen, {report.attributed} of a known agent, {report.routed} routed to a policy, "
        f"{report.total('trainable')} usable"
    ]
    lines += [
        f"  left out {count} of {row.agent} at {row.server}: {reason}"
        for row in report.rows.values()
        for reason, count in row.dropped.most_common()
    ]
    lines += [f"prompt {policy!r} was read {count} times" for policy, count in report.prompt_uses.items()]
    failed = report.failed.total()
    lines += [f"rollouts: {report.episodes}, {failed} failed, {report.no_reward} without a reward"]
    lines += [f"  failed {count}: {reason}" for reason, count in report.failed.most_common(5)]
    lines += [f"  no reward {count}: {reason}" for reason, count in report.why_no_reward.most_common(5)]
    if report.lost_spans:
        lines += [f"attempts with spans that could not be written: {report.lost_spans}"]
    return "\n".join(lines)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows of text as lines of aligned columns; columns of numbers are aligned to the right."""
    body = list(rows)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    numeric = [
        all(row[i].replace(".", "").lstrip("-").isdigit() or row[i] == "-" for row in body) for i in range(len(head))
    ]

    def line(row: tuple[str, ...]) -> str:
        cells = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True))
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("-" * width for width in widths), *map(line, body)]
