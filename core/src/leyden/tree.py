"""One attempt as a readable tree: agents, LLM calls with their tokens and texts, tools, rewards, errors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from leyden import attributes
from leyden.trajectories import hole_of
from leyden.types import LLMCall, Reward, Span


def render_tree(
    spans: Sequence[Span], *, tokens: bool = False, width: int = 160, prompts: Collection[str] = ()
) -> list[str]:
    """Lines of the tree, in the order of the spans' starts. `tokens` adds token ids and log-probs in full.

    `prompts`: policies that are prompts; their calls need no token ids.
    """
    known = {span.span_id for span in spans}
    children: defaultdict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.sequence):
        children[span.parent_id if span.parent_id in known else None].append(span)
    lines: list[str] = []
    _branch(children, None, "", lines, lambda span: _details(span, tokens, width, prompts))
    return lines


def _branch(
    children: dict[str | None, list[Span]],
    parent: str | None,
    indent: str,
    lines: list[str],
    details: Callable[[Span], list[str]],
) -> None:
    here = children.get(parent, [])
    for index, span in enumerate(here):
        last = index == len(here) - 1
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{_head(span)}")
        below = indent + ("   " if last else "│  ")
        bar = "│ " if children.get(span.span_id) else "  "
        lines += [f"{below}{bar}{detail}" for detail in details(span)]
        _branch(children, span.span_id, below, lines, details)


def _head(span: Span) -> str:
    spent = f"  {(span.end_ns - span.start_ns) / 1e9:.2f} s" if span.end_ns > span.start_ns else ""
    error = f"  ✗ {' '.join(span.error.split())}" if span.error else ""
    if span.reward is not None:
        return _reward(span.reward) + error
    if span.call is not None:
        return f"llm call by {span.agent or '(no known agent)'}{spent}{error}"
    return f"{span.name}{spent}{error}"


def _reward(reward: Reward) -> str:
    target = next(
        (f" to {kind} {value}" for kind in ("agent", "span", "response") if (value := getattr(reward, kind))), ""
    )
    parts = "".join(f", {name} {value:.4g}" for name, value in reward.dimensions.items())
    return f"{reward.name} {reward.value:.4g}{target}{parts}"


def _details(span: Span, tokens: bool, width: int, prompts: Collection[str]) -> list[str]:
    given, details = span.attributes, []
    if span.call is not None:
        details.append(_call(span.call, span.call.policy in prompts))
        if tokens:
            details += [
                f"prompt ids {list(span.call.prompt_ids)}",
                f"sampled ids {list(span.call.sampled_ids)}",
                f"log-probs {[round(value, 4) for value in span.call.logprobs]}",
            ]
    for label, key in (
        ("in ", attributes.INPUT_MESSAGES),
        ("out", attributes.OUTPUT_MESSAGES),
        ("arguments", attributes.TOOL_ARGUMENTS),
        ("result", attributes.TOOL_RESULT),
        ("value", attributes.VALUE),
    ):
        if key in given:
            details += [f"{label} {_cut(text, width)}" for text in _texts(given[key])]
    return details


def _call(call: LLMCall, prompted: bool) -> str:
    where = f"policy {call.policy!r} version {call.version}" if call.policy else "left alone"
    prompt = len(call.prompt_ids) or call.prompt_tokens
    sampled = len(call.sampled_ids) or call.completion_tokens
    hole = call.hole if prompted else hole_of(call) if call.policy else None
    more = f", not trainable: {hole}" if hole else ""
    mean = f", mean log-prob {sum(call.logprobs) / len(call.logprobs):.3f}" if call.logprobs else ""
    return (
        f"{call.model} at {call.server}, {where}, {prompt} → {sampled} tokens{mean}, {call.finish_reason or '-'}{more}"
    )


def _texts(value: Any) -> list[str]:
    """Lines for a payload: one per message of a conversation, else one."""
    try:
        decoded = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        decoded = value
    messages = decoded if isinstance(decoded, list) else [decoded]
    return [_message(message) for message in messages]


def _message(message: Any) -> str:
    if not isinstance(message, dict) or "role" not in message:
        return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False, default=str)
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
    calls = message.get("tool_calls")
    tools = f" {json.dumps(calls, ensure_ascii=False, default=str)}" if calls else ""
    return f"{message['role']}: {text}{tools}"


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
