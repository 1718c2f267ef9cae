"""The frozen structs that cross the store: rollouts, attempts, spans, LLM calls, rewards, resources."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

Mode = Literal["train", "val", "test"]
RolloutStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptStatus = Literal["running", "succeeded", "failed", "timeout", "unresponsive", "cancelled"]
Outcome = Literal["succeeded", "failed", "timeout", "unresponsive", "cancelled"]
SpanKind = Literal["rollout", "agent", "llm", "tool", "reward", "message", "object", "exception", "other"]

TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the structs below: immutable, keyword-only, encodable by msgspec as JSON or MessagePack."""


class Retry(Struct, frozen=True):
    """When a rollout gets another attempt.

    `max_attempts` counts all attempts, the first included. `on` lists the attempt outcomes after which another one is
    made. By default only the death of a worker is retried: a failure of the agent itself is information.
    """

    max_attempts: int = 3
    on: tuple[Outcome, ...] = ("unresponsive",)


class RolloutRequest(Struct, frozen=True):
    """What a caller asks the store for. `id` makes the request idempotent: the same id is the same rollout."""

    task: Any
    id: str | None = None
    group: str | None = None
    mode: Mode = "train"
    resources: int | None = None
    """Version of the resources to run against; None is the latest at the time of the claim."""
    retry: Retry = Retry()
    timeout_s: float | None = None
    """Seconds that one attempt may take; past it the attempt ends as `timeout`."""
    metadata: dict[str, Any] = {}


class Rollout(Struct, frozen=True):
    """One request to run the agent on a task. Times are seconds since the epoch on the store's clock."""

    id: str
    task: Any
    status: RolloutStatus
    created_at: float
    group: str | None = None
    mode: Mode = "train"
    resources: int | None = None
    retry: Retry = Retry()
    timeout_s: float | None = None
    metadata: dict[str, Any] = {}
    attempts: int = 0
    """How many attempts were made."""
    attempt: str | None = None
    """The attempt that decided the rollout, or the latest one."""
    ended_at: float | None = None
    reason: str | None = None
    """Why the rollout ended as it did; None only while it has not ended or where it succeeded."""


class Attempt(Struct, frozen=True):
    """One try at a rollout by one worker, under a lease. Times are seconds since the epoch on the store's clock."""

    id: str
    rollout_id: str
    number: int
    worker: str
    status: AttemptStatus
    started_at: float
    lease_until: float
    deadline: float | None = None
    resources: int | None = None
    ended_at: float | None = None
    reason: str | None = None


class Endpoint(Struct, tag="endpoint", frozen=True):
    """A policy that is a set of weights behind an OpenAI-compatible URL.

    `base_url` ends in `/v1`. `version` counts weight updates and is stamped on every recorded call. `sampling` replaces
    the agent's own sampling parameters (say `{"temperature": 1.0}`), since training needs to know the distribution.
    `extra_body` is merged into the request.
    """

    base_url: str
    model: str
    version: int = 0
    api_key: str = "EMPTY"
    sampling: dict[str, Any] = {}
    extra_body: dict[str, Any] = {}
    headers: dict[str, str] = {}


class Prompt(Struct, tag="prompt", frozen=True):
    """A policy that is a text: it takes the place of the marked agent's system message. The endpoint stays its own."""

    text: str
    version: int = 0


Policy = Endpoint | Prompt


class Mark(Struct, frozen=True):
    """An agent selector (a glob on the agent path, see `leyden.marks`) and the policy that the agents under it share."""

    selector: str
    policy: str = "default"


class Resources(Struct, frozen=True):
    """An immutable, versioned snapshot that attempts run against. `version` is given by the store (0: not yet)."""

    policies: dict[str, Policy] = {}
    marks: tuple[Mark, ...] = ()
    values: dict[str, Any] = {}
    id: str = ""
    """A caller's id makes `publish` idempotent; the store gives one where it is empty."""
    version: int = 0
    created_at: float = 0.0


class LLMCall(Struct, frozen=True):
    """What the engine says it read and sampled in one LLM call.

    `prompt_ids`, `sampled_ids` are the engine's own token ids, `logprobs` (natural log, same length as `sampled_ids`)
    belong to the sampled ids. Ids are never made by tokenising text again. `hole` says why the call cannot be trained
    on; None is a whole call.
    """

    model: str = ""
    server: str = ""
    """scheme://host:port of the server that answered."""
    response_id: str = ""
    policy: str | None = None
    """Name of the policy that the call was routed to; None for the call of an unmarked agent."""
    version: int | None = None
    """Version of the policy (weights or prompt) that the call was made with."""
    prompt_ids: tuple[int, ...] = ()
    sampled_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str = ""
    hole: str | None = None
    retries: int = 0
    streamed: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Reward(Struct, frozen=True):
    """A finite number given to a rollout, or to a part of it.

    Without a target it is the rollout's reward. A target is one of: `agent` (a path glob), `span` (a span id),
    `response` (the id of an LLM response). `dimensions` holds named parts, say `{"format": 1.0}`.
    """

    value: float
    name: str = "reward"
    dimensions: dict[str, float] = {}
    agent: str | None = None
    span: str | None = None
    response: str | None = None

    @property
    def targeted(self) -> bool:
        """Whether the reward belongs to a part of the rollout instead of the whole."""
        return any((self.agent, self.span, self.response))


class Span(Struct, frozen=True):
    """One recorded step of an attempt. `start_ns`, `end_ns`: nanoseconds since the epoch on the agent's machine.

    `sequence` orders the spans of an attempt by their start, independent of any clock. `agent` is the agent path at
    the start ("" outside any agent). Attribute names are in `leyden.attributes`.
    """

    rollout_id: str
    attempt_id: str
    span_id: str
    sequence: int
    name: str
    kind: SpanKind = "other"
    trace_id: str = ""
    parent_id: str | None = None
    agent: str = ""
    start_ns: int = 0
    end_ns: int = 0
    error: str | None = None
    attributes: dict[str, Any] = {}
    call: LLMCall | None = None
    reward: Reward | None = None


class Claim(Struct, frozen=True):
    """What a worker gets: the rollout, its new attempt under a lease, and the resources to run against."""

    rollout: Rollout
    attempt: Attempt
    resources: Resources


class Page(Struct, Generic[T], frozen=True):
    """One page of a query. Pass `next` as `cursor` for the following one; None says that this was the last."""

    items: tuple[T, ...]
    next: str | None = None


class Statistics(Struct, frozen=True):
    """Counts over the whole store: rollouts and attempts by status, spans, and the latest resources version."""

    rollouts: dict[str, int] = {}
    attempts: dict[str, int] = {}
    spans: int = 0
    resources: int = 0
