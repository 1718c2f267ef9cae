"""Token ids and log-probs as bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leyden.errors import InvalidInput
from leyden.stores.codec import pack_span, unpack_span
from leyden.types import LLMCall, Span


def span(**call: Any) -> Span:
    return Span(rollout_id="r", attempt_id="a", span_id="s", sequence=0, name="llm", call=LLMCall(**call))


@given(
    prompt=st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
    sampled=st.lists(st.integers(0, 200_000)).map(tuple),
    logprobs=st.lists(st.floats(allow_nan=False)).map(tuple),
)
def test_any_call_comes_back_exactly(
    prompt: tuple[int, ...], sampled: tuple[int, ...], logprobs: tuple[float, ...]
) -> None:
    given_span = span(prompt_ids=prompt, sampled_ids=sampled, logprobs=logprobs)
    assert unpack_span(pack_span(given_span)) == given_span


def test_nan_and_minus_zero_keep_their_bits() -> None:
    call = unpack_span(pack_span(span(logprobs=(math.nan, -0.0, -math.inf)))).call
    assert call is not None
    assert math.isnan(call.logprobs[0])
    assert math.copysign(1.0, call.logprobs[1]) == -1.0
    assert call.logprobs[2] == -math.inf


@pytest.mark.parametrize(("largest", "width"), [(65_535, 2), (65_536, 4), (2**31, 8)])
def test_ids_take_what_they_need(largest: int, width: int) -> None:
    packed = pack_span(span(prompt_ids=(0,) * 99 + (largest,)))
    assert packed.prompt is not None
    assert len(packed.prompt) == 1 + 100 * width


@pytest.mark.parametrize("wrong", [{"prompt_ids": (1.5,)}, {"sampled_ids": (2**64,)}, {"logprobs": (None,)}], ids=str)
def test_what_is_no_number_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        pack_span(span(**wrong))
