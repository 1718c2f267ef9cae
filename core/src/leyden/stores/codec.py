"""Rows of a store: spans and tasks as bytes, token ids and log-probs as binary arrays.

Token ids and log-probs are taken out of the span and kept as little-endian arrays with one leading byte that names the
form, so that other forms can be added without touching old rows. Log-probs are float64: exactly as they were given.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from leyden.errors import InvalidInput
from leyden.types import Resources, Span

_encoder = msgspec.msgpack.Encoder()
_spans = msgspec.msgpack.Decoder(Span)
_resources = msgspec.msgpack.Decoder(Resources)


class PackedSpan(NamedTuple):
    """A span as bytes: all of it but its token ids and log-probs, which are None where there was no LLM call."""

    body: bytes
    prompt: bytes | None
    sampled: bytes | None
    logprobs: bytes | None


def pack_span(span: Span) -> PackedSpan:
    """`span` as bytes, checked to come back as it is; `InvalidInput` where it holds anything but plain data."""
    try:
        call = span.call
        if call is None:
            body = _encoder.encode(span)
            _spans.decode(body)
            return PackedSpan(body, None, None, None)
        rest = replace(span, call=replace(call, prompt_ids=(), sampled_ids=(), logprobs=()))
        body = _encoder.encode(rest)
        _spans.decode(body)  # a span that could not be read back would make its whole attempt unreadable
        return PackedSpan(body, _pack_ints(call.prompt_ids), _pack_ints(call.sampled_ids), _pack_floats(call.logprobs))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"span {span.span_id!r} ({span.name}) cannot be stored: {error}. Attributes take plain data: None, bool, "
            "int, float, str, bytes, lists and dicts of these"
        )


def unpack_span(packed: PackedSpan) -> Span:
    """The span that `pack_span` was given."""
    span = _spans.decode(packed.body)
    if span.call is None or packed.prompt is None or packed.sampled is None or packed.logprobs is None:
        return span
    call = replace(
        span.call,
        prompt_ids=_unpack(packed.prompt),
        sampled_ids=_unpack(packed.sampled),
        logprobs=_unpack(packed.logprobs),
    )
    return replace(span, call=call)


def pack(value: Any) -> bytes:
    """Plain data as MessagePack."""
    return _encoder.encode(value)


def unpack(data: bytes) -> Any:
    """A fresh copy of the plain data in `data`."""
    return msgspec.msgpack.decode(data)


def unpack_resources(data: bytes) -> Resources:
    """A fresh copy of the resources in `data`."""
    return _resources.decode(data)


def _pack_ints(ids: Sequence[int]) -> bytes:
    for code in "Hi":  # vocabularies below 65,536 take two bytes an id
        try:
            return code.encode() + struct.pack(f"<{len(ids)}{code}", *ids)
        except struct.error:
            continue
    try:
        return b"q" + struct.pack(f"<{len(ids)}q", *ids)
    except struct.error as error:
        raise TypeError(f"token ids must be integers ({error})")


def _pack_floats(values: Sequence[float]) -> bytes:
    try:
        return b"d" + struct.pack(f"<{len(values)}d", *values)
    except struct.error as error:
        raise TypeError(f"log-probs must be numbers ({error})")


def _unpack(data: bytes) -> tuple[Any, ...]:
    code = chr(data[0])
    return struct.unpack_from(f"<{(len(data) - 1) // struct.calcsize('<' + code)}{code}", data, 1)
