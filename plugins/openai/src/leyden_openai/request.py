"""Requests: which API a call is for, and the body and headers of a call that is sent to a policy. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from leyden.errors import RoutingError
from leyden.routing import Route
from leyden.scope import AttemptScope
from leyden.types import Endpoint, Prompt

Api = Literal["/chat/completions", "/responses", "/completions"]

_APIS: dict[str, Api] = {
    "/chat/completions": "/chat/completions",
    "/responses": "/responses",
    "/completions": "/completions",
}
_SAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of one sampling parameter: setting one must take out the other."""

PRIVATE = frozenset({b"api-key", b"openai-organization", b"openai-project", b"cookie"})
"""Headers with which a client proves itself to its own provider; no business of a policy's endpoint."""


def api_of(method: str, url: str) -> Api | None:
    """The model API that a request of the SDK is for, or None for anything else."""
    if method.lower() != "post":
        return None
    return _APIS.get(url) or _APIS.get("/" + url.strip("/"))


def merged_body(json_data: object, extra_json: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request body with `extra_body` merged into it, as the SDK does. Raises `RoutingError` for one that is no object."""
    if json_data is not None and not isinstance(json_data, Mapping):
        raise RoutingError(
            f"a request body of type {type(json_data).__name__} cannot be routed; pass keyword arguments"
        )
    merged = {**(json_data or {}), **(extra_json or {})}
    # The SDK's own marker for "leave this out"; recognised by name, since nothing here imports openai.
    return {name: value for name, value in merged.items() if type(value).__name__ not in ("Omit", "NotGiven")}


def routed_body(body: Mapping[str, Any], agent: str, api: Api, route: Route) -> dict[str, Any]:
    """The body that a marked agent's call is sent with. Raises `RoutingError` where the API cannot serve its policy."""
    if isinstance(route.policy, Prompt):
        return _prompted(body, agent, api, route.policy)
    if api != "/chat/completions":
        raise RoutingError(
            f"agent {agent!r} is marked for policy {route.name!r}, but it calls {api}, where no server gives the token ids "
            f"that training needs. Let it call chat completions (client.chat.completions.create, in LangChain "
            f"use_responses_api=False, in the OpenAI Agents SDK OpenAIChatCompletionsModel), or take the mark off it"
        )
    return _for_endpoint(body, route.policy)


def _for_endpoint(body: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    sent = dict(body)
    for name, value in endpoint.sampling.items():
        sent.pop(_SAME.get(name, name), None)
        sent[name] = value
        if value is None:  # says: the agent's own value must go, and nothing takes its place
            del sent[name]
    sent.update(endpoint.extra_body)
    sent.update(model=endpoint.model, return_token_ids=True, logprobs=True)
    if sent.get("stream"):
        # The server's own count of sampled tokens is the only check that a stream lost none of them. The extra chunk
        # that it costs is taken out of the stream again where the agent did not ask for it.
        sent["stream_options"] = {**(sent.get("stream_options") or {}), "include_usage": True}
    return sent


def _prompted(body: Mapping[str, Any], agent: str, api: Api, prompt: Prompt) -> dict[str, Any]:
    """`body` with the policy's text in the place of its (first) system message."""
    if api == "/completions":
        raise RoutingError(
            f"agent {agent!r} is marked for a prompt, but it calls /completions, which has no system message to replace. "
            f"Let it call client.chat.completions.create, or take the mark off it"
        )
    field = "messages" if api == "/chat/completions" else "input"
    messages = body.get(field)
    if isinstance(messages, list):
        for place, message in enumerate(messages):
            if isinstance(message, Mapping) and message.get("role") in ("system", "developer"):
                changed = [*messages]
                changed[place] = {**message, "content": prompt.text}
                return {**body, field: changed}
    if api == "/responses":
        return {**body, "instructions": prompt.text}
    return {**body, field: [{"role": "system", "content": prompt.text}, *(messages or ())]}


def usage_wanted(body: Mapping[str, Any]) -> bool:
    """Whether the agent itself asked for usage at the end of its stream."""
    return bool((body.get("stream_options") or {}).get("include_usage"))


@functools.lru_cache(maxsize=4096)
def _header(text: str) -> bytes:
    """`text` as a header value: ASCII, percent-encoded where it must be."""
    return quote(text, safe="/ :@+,").encode()


def routed_headers(scope: AttemptScope, agent: str, endpoint: Endpoint, traceparent: str) -> dict[bytes, bytes]:
    """Headers of a call to a policy's endpoint (names in lower case): who is calling, and how to sign."""
    return {
        b"x-leyden-rollout": _header(scope.rollout.id),
        b"x-leyden-attempt": _header(scope.attempt_id),
        b"x-leyden-agent": _header(agent),
        b"traceparent": traceparent.encode(),
        b"accept-encoding": b"identity",  # a compressed stream could not be read along without undoing it
        b"authorization": f"Bearer {endpoint.api_key}".encode(),
        **{name.lower().encode(): value.encode() for name, value in endpoint.headers.items()},
    }
