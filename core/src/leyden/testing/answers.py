"""The answers of the fake model server, in the wire format of vLLM's OpenAI-compatible API."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Reply = str | Mapping[str, Any]
"""What the model says: text, or a message: `{"content": …, "tool_calls": [{"name": …, "arguments": {…}}]}`."""


EOS = 2
"""Token id that ends every answer that was not cut off, like the engine's end-of-sequence token."""

_TOKEN = re.compile(r"\s*\S+|\s+")


def tokens(text: str) -> list[str]:
    """The server's tokens of a text: each word with the white space before it."""
    return _TOKEN.findall(text)


def token_id(token: str) -> int:
    """Id of one token, the same in every process: 10 … 50009."""
    return 10 + zlib.crc32(token.encode()) % 50000


def token_ids(text: str) -> tuple[int, ...]:
    """Ids of the tokens of a text, without EOS."""
    return tuple(token_id(token) for token in tokens(text))


def logprob(token: int) -> float:
    """Log-probability (natural log) that the server gives to a token id: -0.001 … -1.0."""
    return -(token % 1000 + 1) / 1000


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message as the chat template renders it: content, then each tool call as JSON."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = " ".join(str(part.get("text", "")) for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    texts = [content] if content else []
    return " ".join([*texts, *(f"{call['name']} {call['arguments']}" for call in calls)])


def prompt_ids(messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Ids of the rendered conversation up to and including the header of the assistant's next message."""
    ids: list[int] = []
    for message in messages:
        ids += [token_id(f"<|{message.get('role')}|>"), *token_ids(text_of(message)), EOS]
    return (*ids, token_id("<|assistant|>"))


def conversation(path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request to any of the three APIs."""
    if path.endswith("/chat/completions"):
        return list(body.get("messages") or [])
    given = body.get("input") if path.endswith("/responses") else body.get("prompt")
    return [{"role": "user", "content": given if isinstance(given, str) else json.dumps(given)}]


def sample(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a JSON schema (objects, arrays, enums and the scalar types)."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: sample(part) for name, part in (schema.get("properties") or {}).items()}
    values: dict[str, Any] = {"array": [], "integer": 3, "number": 1.5, "boolean": True, "null": None}
    return values.get(kind, "sample")


def default_reply(body: dict[str, Any]) -> Reply:
    """Calls the first tool if there is one and no result yet, fills a JSON schema, or names the model and the turn."""
    messages = body.get("messages") or []
    tools = [tool["function"] for tool in body.get("tools") or () if "function" in tool]
    if tools and body.get("tool_choice") != "none" and not any(item.get("role") == "tool" for item in messages):
        return {"tool_calls": [{"name": tools[0]["name"], "arguments": sample(tools[0].get("parameters") or {})}]}
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(sample(wanted["json_schema"]["schema"]))
    return f"answer of {body.get('model')} to {len(messages)} messages"


@dataclass(frozen=True)
class Answer:
    """One chat completion: what was said, with ids and log-probs, as a plain response or as chunks."""

    id: str
    model: str
    pieces: tuple[str, ...]
    message: dict[str, Any]
    finish_reason: str
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...]
    with_ids: bool
    with_logprobs: bool
    count: int = 1

    @classmethod
    def make(
        cls,
        id: str,
        body: Mapping[str, Any],
        reply: Reply,
        *,
        prompt: tuple[int, ...],
        with_ids: bool,
        with_logprobs: bool,
    ) -> Answer:
        """The answer to `body`, cut at `max_tokens` or `max_completion_tokens` (EOS counts)."""
        message = _message(id, reply)
        text = text_of(message)
        pieces = [*tokens(text), ""]
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(pieces)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        if limit < len(pieces):
            pieces, reason = pieces[:limit], "length"
            message = {"role": "assistant", "content": "".join(pieces)}
        sampled = tuple(token_id(piece) if piece else EOS for piece in pieces)
        return cls(
            id=id,
            model=str(body.get("model")),
            pieces=tuple(pieces),
            message=message,
            finish_reason=reason,
            prompt=prompt,
            sampled=sampled,
            logprobs=tuple(logprob(token) for token in sampled),
            with_ids=with_ids,
            with_logprobs=with_logprobs,
            count=int(body.get("n") or 1),
        )

    @property
    def usage(self) -> dict[str, int]:
        """Token counts of the request and of all its choices."""
        done = len(self.sampled) * self.count
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": done,
            "total_tokens": len(self.prompt) + done,
        }

    def _logprobs(self, start: int = 0, end: int | None = None) -> dict[str, Any] | None:
        if not self.with_logprobs:
            return None
        pairs = list(zip(self.pieces, self.logprobs, strict=True))[start:end]
        return {
            "content": [
                {"token": piece, "logprob": value, "bytes": list(piece.encode()), "top_logprobs": []}
                for piece, value in pairs
            ]
        }

    def plain(self) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        choice: dict[str, Any] = {
            "message": self.message,
            "finish_reason": self.finish_reason,
            "logprobs": self._logprobs(),
        }
        if self.with_ids:
            choice["token_ids"] = list(self.sampled)
        body = {
            "id": self.id,
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{"index": index, **choice} for index in range(self.count)],
            "usage": self.usage,
        }
        if self.with_ids:
            body["prompt_token_ids"] = list(self.prompt)
        return body

    def chunks(self, *, include_usage: bool, drop_tool_ids: bool) -> Iterator[dict[str, Any]]:
        """The streamed chunks: a role, a token each (tool calls in two pieces), the reason, and usage if wanted."""
        head = {"id": self.id, "object": "chat.completion.chunk", "created": 1, "model": self.model}
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None, "logprobs": None}
        ids = {"prompt_token_ids": list(self.prompt)} if self.with_ids else {}
        yield {**head, **ids, "choices": [first]}
        steps = list(self._deltas())
        for delta, start, end in steps:
            hidden = drop_tool_ids and "tool_calls" in delta
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
            if end == len(self.pieces):
                choice["finish_reason"] = self.finish_reason
            if not hidden:
                choice["logprobs"] = self._logprobs(start, end)
                if self.with_ids:
                    choice["token_ids"] = list(self.sampled[start:end])
            yield {**head, "choices": [choice]}
        if include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _deltas(self) -> Iterator[tuple[dict[str, Any], int, int]]:
        """(delta, first token, end token) of each chunk after the first one; the last one holds EOS alone."""
        calls = self.message.get("tool_calls")
        body = len(self.pieces) - (self.finish_reason != "length")
        if not calls:
            for place in range(body):
                yield {"content": self.pieces[place]}, place, place + 1
        else:
            half = body // 2
            heads = [
                {"index": at, **call, "function": {**call["function"], "arguments": ""}}
                for at, call in enumerate(calls)
            ]
            tails = [
                {"index": at, "function": {"arguments": call["function"]["arguments"]}} for at, call in enumerate(calls)
            ]
            yield {"tool_calls": heads}, 0, half
            yield {"tool_calls": tails}, half, body
        if body < len(self.pieces):
            yield {}, body, len(self.pieces)


def _message(id: str, reply: Reply) -> dict[str, Any]:
    """The assistant's message in the wire format."""
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    message: dict[str, Any] = {"role": "assistant", "content": reply.get("content")}
    calls = [
        {
            "id": f"call-{id}-{index}",
            "type": "function",
            "function": {
                "name": call["name"],
                "arguments": call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"]),
            },
        }
        for index, call in enumerate(reply.get("tool_calls") or ())
    ]
    if calls:
        message["tool_calls"] = calls
    return message


def text_completion(id: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """The body of a `/completions` response."""
    text = reply if isinstance(reply, str) else str(reply.get("content") or "")
    return {
        "id": id,
        "object": "text_completion",
        "created": 1,
        "model": body.get("model"),
        "choices": [{"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": len(text.split()), "total_tokens": 1 + len(text.split())},
    }


def response_object(id: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """The body of a `/responses` response."""
    text = reply if isinstance(reply, str) else str(reply.get("content") or "")
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"type": "message", "id": f"msg-{id}", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": id,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body.get("model"),
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 3,
            "output_tokens": len(text.split()),
            "total_tokens": 3 + len(text.split()),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
