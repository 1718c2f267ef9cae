"""Capture: a model server's answer (plain or streamed) → the LLM-call record and its OpenTelemetry attributes.

Pure. Reads the OpenAI chat-completions format with vLLM's additions: `prompt_token_ids` at the top (in a stream: in the
first chunk), `choices[].token_ids` and `choices[].logprobs.content[].logprob` (in a stream: some in each chunk). What is
missing, cut off or out of line makes a hole, in plain words; nothing is guessed and no text is tokenised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from leyden import attributes
from leyden.routing import Route
from leyden.types import Endpoint, LLMCall

NO_PROMPT_IDS = (
    "the server sent no prompt token ids (`prompt_token_ids`): it must support the request option `return_token_ids`, "
    "as vLLM does from 0.10.2 on"
)
NO_SAMPLED_IDS = (
    "the server sent no sampled token ids (`choices[0].token_ids`): it must support the request option "
    "`return_token_ids`, as vLLM does from 0.10.2 on"
)
NO_LOGPROBS = (
    "the server sent no log-probs (`choices[0].logprobs.content`): it must honour the request option `logprobs: true` "
    "(vLLM: do not start it with `--max-logprobs 0`)"
)
_BROKEN_OFF = {"abort": "the engine aborted the answer", "error": "the engine failed during the answer"}


@dataclass(slots=True)
class Answer:
    """What a server answered, plain or streamed. None: the server did not say."""

    id: str = ""
    model: str = ""
    choices: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompt_ids: Sequence[int] | None = None
    sampled_ids: Sequence[int] | None = None
    """Ids of the first choice, as are the log-probs."""
    logprobs: Sequence[float | None] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    streamed: bool = False
    cut: str | None = None
    """Why the answer is not whole: the stream was closed early, or broke."""

    @property
    def finish_reason(self) -> str:
        """The first choice's finish reason, "" if there is none."""
        return self.finish_reasons[0] if self.finish_reasons else ""

    @property
    def calls_tools(self) -> bool:
        """Whether the first choice holds tool calls."""
        return bool(self.messages and self.messages[0].get("tool_calls"))


def read_response(body: Mapping[str, Any]) -> Answer:
    """The answer in the JSON body of a chat completion."""
    answer = Answer(id=str(body.get("id") or ""), model=str(body.get("model") or ""))
    choices = body.get("choices") or []
    answer.choices = len(choices)
    answer.prompt_ids = body.get("prompt_token_ids")
    for choice in choices:
        answer.messages.append(choice.get("message") or {})
        answer.finish_reasons.append(choice.get("finish_reason") or "")
    if choices:
        first = choices[0]
        answer.sampled_ids = first.get("token_ids")
        content = (first.get("logprobs") or {}).get("content")
        answer.logprobs = None if content is None else [token.get("logprob") for token in content]
    _usage(answer, body.get("usage"))
    return answer


def read_chunks(chunks: Iterable[Mapping[str, Any]], cut: str | None = None) -> Answer:
    """The answer in the chunks of a streamed chat completion.

    `cut` says why the stream ended before its end; it is dropped where every choice had given its finish reason.
    """
    answer = Answer(streamed=True)
    merged: dict[int, _Choice] = {}
    for chunk in chunks:
        answer.id = answer.id or str(chunk.get("id") or "")
        answer.model = answer.model or str(chunk.get("model") or "")
        if answer.prompt_ids is None:
            answer.prompt_ids = chunk.get("prompt_token_ids")
        for part in chunk.get("choices") or ():
            merged.setdefault(part.get("index") or 0, _Choice()).add(part)
        _usage(answer, chunk.get("usage"))
    ordered = [merged[index] for index in sorted(merged)]
    answer.choices = len(ordered)
    answer.messages = [choice.message() for choice in ordered]
    answer.finish_reasons = [choice.finish_reason for choice in ordered]
    if ordered:
        answer.sampled_ids, answer.logprobs = ordered[0].token_ids, ordered[0].logprobs
    finished = bool(ordered) and all(answer.finish_reasons)
    answer.cut = None if finished else cut or "the stream ended without a finish reason"
    return answer


class _Choice:
    """The chunks of one choice, put together."""

    def __init__(self) -> None:
        self.role = "assistant"
        self.texts: dict[str, list[str]] = {}
        self.tools: dict[int, dict[str, Any]] = {}
        self.finish_reason = ""
        self.token_ids: list[int] | None = None
        self.logprobs: list[float | None] | None = None

    def add(self, part: Mapping[str, Any]) -> None:
        delta = part.get("delta") or {}
        self.finish_reason = part.get("finish_reason") or self.finish_reason
        self.role = delta.get("role") or self.role
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self.texts.setdefault(name, []).append(value)
        for piece in delta.get("tool_calls") or ():
            self._add_tool(piece)
        ids = part.get("token_ids")
        if ids is not None:
            if self.token_ids is None:
                self.token_ids = []
            self.token_ids.extend(ids)
        content = (part.get("logprobs") or {}).get("content")
        if content is not None:
            if self.logprobs is None:
                self.logprobs = []
            self.logprobs.extend(token.get("logprob") for token in content)

    def _add_tool(self, piece: Mapping[str, Any]) -> None:
        call = self.tools.setdefault(piece.get("index") or 0, {"function": {"name": "", "arguments": ""}})
        for name in ("id", "type"):
            if piece.get(name):
                call[name] = piece[name]
        given = piece.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += given.get(name) or ""

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": None}
        message.update({name: "".join(texts) for name, texts in self.texts.items()})
        if self.tools:
            message["tool_calls"] = [self.tools[index] for index in sorted(self.tools)]
        return message


def _usage(answer: Answer, usage: Mapping[str, Any] | None) -> None:
    if usage:
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")


def missing(answer: Answer) -> str | None:
    """What the server left out although it was asked for it, with the name of the option; None if nothing.

    Says nothing of an answer that was cut off, since the rest may have held it.
    """
    if answer.cut or not answer.choices:
        return None
    if answer.prompt_ids is None:
        return NO_PROMPT_IDS
    if answer.sampled_ids is None:
        # A stream whose tool calls lack their ids still ends with the ids of its last chunk on most servers; one that
        # sends none at all does not know the option.
        return NO_SAMPLED_IDS
    return NO_LOGPROBS if answer.logprobs is None else None


def hole(answer: Answer) -> str | None:
    """Why the answer of a policy's endpoint cannot be trained on, in plain words; None for a whole one."""
    if not answer.choices:
        return answer.cut or "the server's answer holds no choice"
    if answer.choices > 1:
        return f"n={answer.choices}: an answer with several choices cannot be trained on; leave `n` at 1"
    if answer.cut or answer.finish_reason in _BROKEN_OFF:
        return answer.cut or _BROKEN_OFF[answer.finish_reason]
    return missing(answer) or _misaligned(answer)


def _misaligned(answer: Answer) -> str | None:
    """What does not add up between ids, log-probs and the server's own token counts."""
    prompt, sampled, logprobs = answer.prompt_ids or (), answer.sampled_ids or (), answer.logprobs or ()
    if not sampled:
        return "the answer is empty: no token was sampled"
    if not prompt:
        return "the list of prompt token ids is empty"
    if answer.completion_tokens is not None and answer.completion_tokens != len(sampled):
        return f"the server counted {answer.completion_tokens} sampled tokens but sent the ids of {len(sampled)}" + (
            " (streamed tool calls can lack ids: turn streaming off for this agent)" if answer.streamed else ""
        )
    if answer.completion_tokens is None and answer.streamed and answer.calls_tools:
        return (
            "a streamed tool call without usage: whether ids are missing cannot be checked; "
            "send `stream_options: {include_usage: true}` or turn streaming off"
        )
    if len(logprobs) != len(sampled):
        return f"{len(sampled)} sampled ids but {len(logprobs)} log-probs"
    if any(value is None for value in logprobs):
        return f"the log-prob of sampled token {list(logprobs).index(None)} is missing"
    if answer.prompt_tokens is not None and answer.prompt_tokens != len(prompt):
        return f"the server counted {answer.prompt_tokens} prompt tokens but sent the ids of {len(prompt)}"
    return None


def to_call(answer: Answer, route: Route | None, *, server: str = "", retries: int = 0) -> LLMCall:
    """The record of an answer. `route`: the policy that the call was sent to, None for an unmarked agent's call.

    Only a call to a policy's endpoint keeps ids and log-probs, and has a hole where they are not whole; any other
    answer has one only where it was cut off.
    """
    trained = route is not None and isinstance(route.policy, Endpoint)
    found = hole(answer) if trained else answer.cut
    single = trained and answer.choices == 1
    logprobs = answer.logprobs if single and answer.logprobs else ()
    return LLMCall(
        model=answer.model,
        server=server,
        response_id=answer.id,
        policy=route.name if route else None,
        version=route.policy.version if route else None,
        prompt_ids=tuple(answer.prompt_ids or ()) if single else (),
        sampled_ids=tuple(answer.sampled_ids or ()) if single else (),
        logprobs=tuple(float(value) for value in logprobs if value is not None),
        finish_reason=answer.finish_reason,
        hole=found,
        retries=retries,
        streamed=answer.streamed,
        prompt_tokens=answer.prompt_tokens if answer.prompt_tokens is not None else len(answer.prompt_ids or ()),
        completion_tokens=(
            answer.completion_tokens if answer.completion_tokens is not None else len(answer.sampled_ids or ())
        ),
    )


def failed_call(
    error: BaseException, route: Route | None, *, model: str = "", server: str = "", retries: int = 0
) -> LLMCall:
    """The record of a call that got no answer: refused, timed out, cancelled, or answered with an error."""
    return LLMCall(
        model=model,
        server=server,
        policy=route.name if route else None,
        version=route.policy.version if route else None,
        hole=f"the call failed: {type(error).__name__}: {error}"[:500],
        retries=retries,
    )


def json_text(value: Any) -> str:
    """Compact JSON text of anything; what JSON does not know is written as its `str`."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def request_attributes(body: Mapping[str, Any]) -> dict[str, Any]:
    """OpenTelemetry GenAI attributes of a chat request."""
    found: dict[str, Any] = {attributes.REQUEST_MODEL: str(body.get("model") or "")}
    for name, key in _REQUEST_NUMBERS.items():
        value = body.get(name)
        if isinstance(value, (int, float)):
            found[key] = value
    messages = body.get("messages")
    if messages is not None:
        found[attributes.INPUT_MESSAGES] = json_text(messages)
    if body.get("tools"):
        found[attributes.TOOL_DEFINITIONS] = json_text(body["tools"])
    return found


_REQUEST_NUMBERS = {
    "temperature": attributes.REQUEST_TEMPERATURE,
    "top_p": attributes.REQUEST_TOP_P,
    "max_tokens": attributes.REQUEST_MAX_TOKENS,
    "max_completion_tokens": attributes.REQUEST_MAX_TOKENS,
}


def answer_attributes(answer: Answer) -> dict[str, Any]:
    """OpenTelemetry GenAI attributes of an answer."""
    found: dict[str, Any] = {attributes.OUTPUT_MESSAGES: json_text(answer.messages)}
    if answer.id:
        found[attributes.RESPONSE_ID] = answer.id
    if answer.model:
        found[attributes.RESPONSE_MODEL] = answer.model
    if any(answer.finish_reasons):
        found[attributes.FINISH_REASONS] = answer.finish_reasons
    if answer.prompt_tokens is not None:
        found[attributes.INPUT_TOKENS] = answer.prompt_tokens
    if answer.completion_tokens is not None:
        found[attributes.OUTPUT_TOKENS] = answer.completion_tokens
    return found
