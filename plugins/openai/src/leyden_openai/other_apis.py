"""Answers of the APIs that are observed but never trained on: the Responses API and text completions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leyden import attributes
from leyden.capture import Answer, json_text

_LAST = ("response.completed", "response.incomplete", "response.failed")


def read_response_object(body: Mapping[str, Any], *, streamed: bool = False, cut: str | None = None) -> Answer:
    """The answer in a response object of the Responses API."""
    usage = body.get("usage") or {}
    output = list(body.get("output") or ())
    return Answer(
        id=str(body.get("id") or ""),
        model=str(body.get("model") or ""),
        choices=1,
        finish_reasons=[str(body.get("status") or "")],
        messages=output,
        prompt_tokens=usage.get("input_tokens"),
        completion_tokens=usage.get("output_tokens"),
        streamed=streamed,
        cut=cut,
    )


def read_response_events(events: Sequence[Mapping[str, Any]], cut: str | None) -> Answer:
    """The answer in the events of a streamed response: its last event holds the whole of it."""
    holders = [event for event in events if isinstance(event.get("response"), Mapping)]
    ended = bool(holders) and holders[-1].get("type") in _LAST
    last = holders[-1]["response"] if holders else {}
    return read_response_object(
        last, streamed=True, cut=None if ended else cut or "the stream ended without its last event"
    )


def read_completion(body: Mapping[str, Any]) -> Answer:
    """The answer in a text completion."""
    return _texts(
        body, {i: str(choice.get("text") or "") for i, choice in enumerate(body.get("choices") or ())}, [body]
    )


def read_completion_chunks(chunks: Sequence[Mapping[str, Any]], cut: str | None) -> Answer:
    """The answer in the chunks of a streamed text completion."""
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.get("choices") or ():
            index = choice.get("index") or 0
            texts[index] = texts.get(index, "") + str(choice.get("text") or "")
    answer = _texts(chunks[0] if chunks else {}, texts, chunks)
    answer.streamed = True
    answer.cut = None if any(answer.finish_reasons) else cut or "the stream ended without a finish reason"
    return answer


def _texts(head: Mapping[str, Any], texts: Mapping[int, str], bodies: Sequence[Mapping[str, Any]]) -> Answer:
    choices = [choice for body in bodies for choice in body.get("choices") or ()]
    usage: Mapping[str, Any] = next((body["usage"] for body in reversed(bodies) if body.get("usage")), {})
    return Answer(
        id=str(head.get("id") or ""),
        model=str(head.get("model") or ""),
        choices=len(texts),
        finish_reasons=[choice["finish_reason"] for choice in choices if choice.get("finish_reason")],
        messages=[{"role": "assistant", "content": text} for text in texts.values()],
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )


def input_attributes(body: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a request to either API, as the messages attribute."""
    given = body.get("input", body.get("prompt"))
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if body.get("instructions"):
        messages = [{"role": "system", "content": body["instructions"]}, *(messages or ())]
    return {} if messages is None else {attributes.INPUT_MESSAGES: json_text(messages)}
