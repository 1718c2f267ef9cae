"""Emitters for the user's code: rewards, messages, objects, exceptions, spans. Outside an attempt they do nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import trace

from leyden import attributes, tracing
from leyden.errors import InvalidInput
from leyden.types import Reward, SpanKind


def emit_reward(
    value: float | None = None,
    *,
    name: str = "reward",
    dimensions: Mapping[str, float] | None = None,
    agent: str | None = None,
    span: str | None = None,
    response: str | None = None,
) -> Reward:
    """Give a reward to the rollout, or to the part of it that `agent`, `span` or `response` names (at most one).

    `value` may be left out where `dimensions` are given: it is then their sum. Raises `InvalidInput` for a number that
    is not finite.
    """
    parts = {key: _finite(number, f"reward dimension {key!r}") for key, number in (dimensions or {}).items()}
    if value is None:
        if not parts:
            raise InvalidInput("emit_reward needs a value or dimensions")
        value = sum(parts.values())
    if sum(target is not None for target in (agent, span, response)) > 1:
        raise InvalidInput("a reward has one target: agent, span or response")
    reward = Reward(
        value=_finite(value, "the reward"), name=name, dimensions=parts, agent=agent, span=span, response=response
    )
    opened = tracing.tracer().start_span(f"reward {name}", attributes={attributes.KIND: "reward"})
    tracing.processor.attach(opened, reward)
    opened.end()
    return reward


def _finite(value: Any, what: str) -> float:
    """`value` as a float. Booleans and NumPy scalars count as numbers; NaN, infinity and text are `InvalidInput`."""
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{what} must be a finite number, got {value!r}; leave it out (None) where there is none")
    return number


finite = _finite


def emit_message(text: str, **fields: Any) -> None:
    """Record a message (a log line for people) with optional fields."""
    _instant("message", "message", {"text": text, **fields})


def emit_object(name: str, value: Any) -> None:
    """Record any value under a name; what JSON does not know is kept as its `str`."""
    _instant("object", f"object {name}", value)


def emit_exception(error: BaseException) -> None:
    """Record an exception that the agent handled itself."""
    opened = tracing.tracer().start_span("exception", attributes={attributes.KIND: "exception"})
    tracing.fail(opened, error)
    opened.end()


def _instant(kind: SpanKind, name: str, value: Any) -> None:
    given = {attributes.KIND: kind, attributes.VALUE: tracing.json_text(value)}
    tracing.tracer().start_span(name, attributes=tracing.shown(given)).end()


def span(name: str, **given: Any) -> AbstractContextManager[trace.Span]:
    """An OpenTelemetry span of the user's own around the enclosed code."""
    return tracing.span(name, "other", given)
