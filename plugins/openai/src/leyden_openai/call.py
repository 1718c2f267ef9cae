"""One logical LLM call: found at its start, sent (perhaps several times), and recorded exactly once at its end."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from leyden import attributes, capture, observation, tracing
from leyden.errors import MissingTokenIds, RoutingError
from leyden.leaf import open_leaf
from leyden.plugins import calling_agent, plugins
from leyden.routing import Route, route
from leyden.scope import AttemptScope, current_attempt
from leyden.types import Endpoint, LLMCall
from leyden_openai import other_apis, request

logger = logging.getLogger(__name__)


class Call:
    """A call inside an attempt. `route` is the policy of a marked agent, None where the call is only observed."""

    __slots__ = (
        "_lock",
        "_span",
        "agent",
        "api",
        "attempts",
        "body",
        "done",
        "hides_usage",
        "model",
        "route",
        "scope",
        "server",
    )

    def __init__(self, scope: AttemptScope, agent: str, api: request.Api, given: Mapping[str, Any]) -> None:
        self.scope = scope
        self.agent = agent
        self.api = api
        self.route: Route | None = None
        self.body: Mapping[str, Any] = given
        self.model = str(given.get("model") or "")
        self.server = ""
        self.attempts = 0
        """How often the request was sent: one more than the SDK's retries."""
        self.hides_usage = False
        """Whether the usage chunk of the stream was asked for by us, not by the agent."""
        self.done = False
        self._lock = threading.Lock()
        operation = "text_completion" if api == "/completions" else attributes.CHAT
        self._span = open_leaf(scope, f"{operation} {self.model}", "llm", agent)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the call must go, or None if it goes where the agent sends it."""
        return self.route.policy if self.route is not None and isinstance(self.route.policy, Endpoint) else None

    @property
    def traceparent(self) -> str:
        """The W3C trace context of the call's span."""
        return self._span.traceparent

    def reached(self, server: str) -> None:
        """The request was built for `server` (scheme://host:port) and is about to be sent."""
        self.server = server
        self.attempts += 1

    def failed(self, error: BaseException) -> None:
        """The call raised; nothing is recorded if the answer had already been."""
        if self._claim():
            self._end(self._failure(error), {}, error)

    def refused(self, why: str) -> RoutingError:
        """End the call before it is sent; returns the error to raise, which the attempt's failures have too."""
        error = RoutingError(why)
        self.scope.failures.append(error)
        self.failed(error)
        return error

    def answered(
        self, content: bytes, events: bool, cut: str | None = None, error: BaseException | None = None
    ) -> None:
        """The answer's bytes are there: of a plain response, or (`events`) of a stream that ended or was cut off.

        Raises `MissingTokenIds` if a policy's endpoint left out what it was asked for.
        """
        if not self._claim():
            return
        try:
            answer = self._read(content, events, cut)
            record = capture.to_call(answer, self.route, server=self.server, retries=self.attempts - 1)
            given = capture.answer_attributes(answer)
            lacking = capture.missing(answer) if self.endpoint is not None else None
        except Exception as problem:
            _report("an LLM call's answer could not be read", problem)
            record, given, lacking = self._failure(problem), {}, None
        missing = None if lacking is None else self._missing(lacking)
        self._end(record, given, missing or error)
        if missing is not None:
            raise missing

    def _claim(self) -> bool:
        """Whether the caller is the first to end the call."""
        with self._lock:
            first, self.done = not self.done, True
        return first

    def _read(self, content: bytes, events: bool, cut: str | None) -> capture.Answer:
        if events:
            chunks = decode_events(content)
            if self.api == "/responses":
                return other_apis.read_response_events(chunks, cut)
            read = capture.read_chunks if self.api == "/chat/completions" else other_apis.read_completion_chunks
            return read(chunks, cut)
        body = decode(content)
        if not isinstance(body, dict):
            raise ValueError(f"the server answered with a JSON {type(body).__name__} instead of an object")
        if self.api == "/responses":
            return other_apis.read_response_object(body)
        return capture.read_response(body) if self.api == "/chat/completions" else other_apis.read_completion(body)

    def _missing(self, lacking: str) -> MissingTokenIds:
        assert self.route is not None
        error = MissingTokenIds(
            f"policy {self.route.name!r} at {self.server} answered agent {self.agent!r}, but {lacking}"
        )
        self.scope.failures.append(error)
        return error

    def _failure(self, error: BaseException) -> LLMCall:
        retries = max(self.attempts - 1, 0)
        return capture.failed_call(error, self.route, model=self.model, server=self.server, retries=retries)

    def _end(self, record: LLMCall, given: dict[str, Any], error: BaseException | None) -> None:
        found: dict[str, Any] = {
            attributes.OPERATION: "text_completion" if self.api == "/completions" else attributes.CHAT,
            attributes.PROVIDER: "openai",
            attributes.REQUEST_MODEL: self.model,
            attributes.SERVER_ADDRESS: self.server,
        }
        if self.agent:
            found[attributes.AGENT_NAME] = self.agent.rsplit("/", 1)[-1]
        if record.hole:
            found[attributes.HOLE] = record.hole
        if error is not None:
            found[attributes.ERROR_TYPE] = type(error).__qualname__
        try:
            chat = self.api == "/chat/completions"
            found.update(capture.request_attributes(self.body) if chat else other_apis.input_attributes(self.body))
            found.update(given)
        except Exception as problem:
            _report("an LLM call's attributes could not be written", problem)
        self._span.end(found, error=None if error is None else tracing.error_text(error), call=record)


def begin(method: str, url: str, json_data: object, extra_json: Mapping[str, Any] | None) -> Call | None:
    """The call that the SDK is about to make, or None for one that is no business of ours.

    Raises `RoutingError` for a marked agent's call that cannot be sent to its policy; the attempt's `failures` has it.
    """
    scope = current_attempt() or _observed_scope()
    api = request.api_of(method, url) if scope is not None else None
    if scope is None or api is None:
        return None
    agent, found = "", None
    try:
        agent = calling_agent()
        found = route(agent, scope.resources)
        if found is None:
            return None if scope.closed else _observed(scope, agent, api, json_data, extra_json)
        if scope.closed:
            raise RoutingError(f"agent {agent!r} called its model after its attempt {scope.attempt_id} had ended")
        return _routed(scope, agent, api, request.merged_body(json_data, extra_json), found)
    except RoutingError as error:
        _unsent(scope, agent, api, found, error)
        raise
    except Exception as problem:
        if found is None:
            _report("an LLM call could not be observed", problem)
            return None
        raise unroutable(scope, agent, found, problem) from problem


def _observed_scope() -> AttemptScope | None:
    """The scope of an application that is only observed, LLM calls too; it has no marks."""
    observer = observation.current()
    return observer.scope if observer is not None and observer.llm_calls else None


def _unsent(scope: AttemptScope, agent: str, api: request.Api, found: Route | None, error: RoutingError) -> None:
    """Record a call that was refused before it was sent."""
    scope.failures.append(error)
    call = Call(scope, agent, api, {})
    call.route = found
    call.failed(error)


def unroutable(scope: AttemptScope, agent: str, found: Route, problem: Exception) -> RoutingError:
    """The error for a marked agent's call that could not be prepared; it is added to the attempt's failures."""
    error = RoutingError(f"the call of agent {agent!r} could not be routed to policy {found.name!r}: {problem!r}")
    scope.failures.append(error)
    return error


def _observed(
    scope: AttemptScope, agent: str, api: request.Api, json_data: object, extra_json: Mapping[str, Any] | None
) -> Call:
    given = request.merged_body(json_data, extra_json) if isinstance(json_data, Mapping) else {}
    return Call(scope, agent, api, given)


def _routed(scope: AttemptScope, agent: str, api: request.Api, given: Mapping[str, Any], found: Route) -> Call:
    body = request.routed_body(given, agent, api, found)
    call = Call(scope, agent, api, given)
    call.route, call.body = found, body
    if call.endpoint is not None:
        call.model = call.endpoint.model
        call.hides_usage = bool(given.get("stream")) and not request.usage_wanted(given)
    return call


def decode(content: bytes) -> Any:
    """JSON → Python. msgspec is several times quicker than the standard library, which reads what msgspec refuses."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(content)


def decode_events(content: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events; a last one that is cut off is left out."""
    found = []
    for line in content.splitlines():
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if not data or data == b"[DONE]":
            continue
        try:
            value = decode(data)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


_reported: set[str] = set()


def _report(what: str, problem: Exception) -> None:
    """Count a failure of our own, and log it once; the agent goes on."""
    plugins.errors[f"openai.{what}"] += 1
    if what not in _reported:
        _reported.add(what)
        logger.warning("%s: %r; the agent goes on", what, problem, exc_info=problem)
