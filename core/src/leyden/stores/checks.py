"""What every store checks about its arguments, so that a wrong call gets the same answer in each of them."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import astuple, replace

from leyden.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from leyden.types import (
    AttemptStatus,
    Mode,
    Outcome,
    Resources,
    RolloutRequest,
    RolloutStatus,
    Span,
    SpanKind,
    Statistics,
)

MAX_PAGE = 10_000
"""The largest `limit` of one page or one claim."""

MODES: tuple[Mode, ...] = get_args(Mode)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STATUSES: tuple[RolloutStatus, ...] = get_args(RolloutStatus)
KINDS: tuple[SpanKind, ...] = get_args(SpanKind)

S = TypeVar("S", bound=str)
R = TypeVar("R", RolloutRequest, Resources)

_stable = msgspec.msgpack.Encoder(order="deterministic")


def snapshot(value: R) -> R:
    """A validated copy of `value` that shares nothing mutable with the caller's, as any store would return it."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"{type(value).__name__} cannot be stored: {error}. Use plain data: None, bool, int, float, str, bytes, "
            "lists and dicts of these"
        )


def same(one: R, other: R) -> bool:
    """Whether two requests or resources have the same content, whatever the order of their dicts."""
    fields = zip(astuple(one), astuple(other), strict=True)
    return all(a == b or _stable.encode(a) == _stable.encode(b) for a, b in fields)  # a NaN equals itself as bytes only


def request(value: RolloutRequest) -> RolloutRequest:
    """`value` as a validated copy; `InvalidInput` says which field is wrong."""
    taken = snapshot(value)
    if taken.id == "":
        raise InvalidInput("the id of a request is empty: leave it out, then the store gives one")
    if taken.retry.max_attempts < 1:
        raise InvalidInput(
            f"retry.max_attempts is {taken.retry.max_attempts}, it counts the first attempt: use 1 or more"
        )
    if "succeeded" in taken.retry.on:
        raise InvalidInput("retry.on lists 'succeeded', but a success is never tried again: remove it")
    if taken.timeout_s is not None:
        positive("timeout_s", taken.timeout_s)
    return taken


def positive(name: str, value: float) -> None:
    """A number of seconds that must be finite and above zero."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} is {value!r}, it must be a finite number above 0")


def limit(value: int) -> None:
    """A page size or a number of claims."""
    if not 1 <= value <= MAX_PAGE:
        raise InvalidInput(f"limit is {value!r}, it must be from 1 to {MAX_PAGE}")


def choices(name: str, values: Iterable[S] | None, allowed: Sequence[S]) -> tuple[S, ...]:
    """The filter `values` (None: all of `allowed`), each of which must be in `allowed`."""
    if values is None:
        return tuple(allowed)
    if isinstance(values, str):
        raise InvalidInput(f"{name} is a string, it must be a list: [{values!r}]")
    chosen = unique(values)
    for value in chosen:
        if value not in allowed:
            raise InvalidInput(f"{name} has {value!r}, known are: {', '.join(allowed)}")
    return chosen


def unique(ids: Iterable[S]) -> tuple[S, ...]:
    """`ids` in their order, each once."""
    if isinstance(ids, str):
        raise InvalidInput(f"one id was given where a list is expected: use [{ids!r}]")
    return tuple(dict.fromkeys(ids))


def wanted(count: int | None, ids: Sequence[str]) -> int:
    """How many of `ids` a `wait` is for."""
    if count is None:
        return len(ids)
    if not 0 <= count <= len(ids):
        raise InvalidInput(f"count is {count}, but {len(ids)} different rollouts were given to wait for")
    return count


def one_owner(rollout: str | None, attempt: str | None) -> None:
    """A query for spans names a rollout or an attempt."""
    if (rollout is None) == (attempt is None):
        raise InvalidInput("give either rollout=... or attempt=... to say whose spans are meant")


def rollout_cursor(cursor: str | None) -> int:
    """The place in the order of `enqueue` after which a page starts."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise bad_cursor(cursor)
    return int(cursor)


def span_cursor(cursor: str | None) -> tuple[int, int, str]:
    """(attempt number, sequence, span id) after which a page starts."""
    if cursor is None:
        return (0, 0, "")
    number, _, rest = cursor.partition(":")
    sequence, _, span_id = rest.partition(":")
    try:
        return (int(number), int(sequence), span_id)
    except ValueError:
        raise bad_cursor(cursor)


def bad_cursor(cursor: str) -> InvalidInput:
    """The error for a cursor that no page has given."""
    return InvalidInput(f"cursor {cursor!r} is not one of this query: pass on `next` of the page before, as it is")


def to_cursor(key: tuple[int, int, str]) -> str:
    """The cursor that `span_cursor` reads."""
    return f"{key[0]}:{key[1]}:{key[2]}"


def belongs(span: Span, rollout: str) -> None:
    """A span names the rollout that its attempt is of."""
    if span.rollout_id != rollout:
        raise InvalidInput(
            f"span {span.span_id!r} says rollout {span.rollout_id!r}, but its attempt {span.attempt_id!r} is of "
            f"{rollout!r}: take both from the same claim"
        )


def published(stored: Resources, again: Resources) -> Resources:
    """`stored`, where `again` (published under the same id) has the same content, else `Conflict`."""
    one, other = (replace(r, version=0, created_at=0.0) for r in (stored, again))
    if not same(one, other):
        raise other_content("resources", stored.id)
    return stored


def other_content(what: str, name: str) -> Conflict:
    """The error for an id that was used before, for something else."""
    return Conflict(f"{what} {name!r} exists with other content: use another id, or send what was sent the first time")


def not_terminal(rollout: str, status: str) -> Conflict:
    """The error for deleting a rollout that is not done."""
    return Conflict(f"rollout {rollout!r} is {status}: cancel it or wait for it, then delete it")


def no_resources() -> NotFound:
    """The error for asking for the latest resources where there are none."""
    return NotFound("no resources were published yet: call publish() first")


def closed(what: str) -> StoreUnavailable:
    """The error for a call after `close`."""
    return StoreUnavailable(f"{what} is closed: open it again with leyden.stores.open_store")


def statistics(rollouts: Mapping[Any, int], attempts: Mapping[Any, int], spans: int, resources: int) -> Statistics:
    """Counts with every status as a key."""
    return Statistics(
        rollouts={status: rollouts.get(status, 0) for status in STATUSES},
        attempts={status: attempts.get(status, 0) for status in get_args(AttemptStatus)},
        spans=spans,
        resources=resources,
    )


def new_id() -> str:
    """An id that nobody else gives."""
    return uuid.uuid4().hex


def unknown(what: str, ids: Iterable[object]) -> NotFound:
    """The error for ids that the store does not hold."""
    listed = [repr(i) for i in ids]
    shown = ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
    return NotFound(f"the store holds no {what} {shown}: it was never added, or has been deleted")
