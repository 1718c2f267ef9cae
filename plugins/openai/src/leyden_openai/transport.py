"""The hooks in the openai SDK: `request` (one logical call), `_build_request` (each sending), `_process_response` (its answer).

`_build_request` is hooked below every client class, Azure's too, so that the request can be corrected after whatever the
client does to it. Exceptions that the agent sees are the SDK's own; only a marked agent's call that cannot be trained on
raises an error of Leyden's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from leyden.patching import Patch, Patches
from leyden.types import Endpoint
from leyden_openai.call import Call, begin, unroutable
from leyden_openai.package import SUPPORTED
from leyden_openai.request import PRIVATE, routed_headers
from leyden_openai.tee import tee

_CALL: ContextVar[Call | None] = ContextVar("leyden-openai-call", default=None)

Function = Callable[..., Any]


def _options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[1] if len(args) > 1 else kwargs["options"]


def _begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    options = _options(args, kwargs)
    call = begin(options.method, options.url, options.json_data, options.extra_json)
    if call is not None and call.route is not None and patches.missing:
        raise call.refused(
            f"this version of the openai SDK lacks {', '.join(patches.missing)}, so the call of agent {call.agent!r} cannot "
            f"be routed; pip install '{SUPPORTED[0]}'"
        )
    return call


def _request(original: Function) -> Function:
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _begin(args, kwargs)
        if call is None and _CALL.get() is None:
            return original(self, *args, **kwargs)
        token = _CALL.set(call)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        finally:
            _CALL.reset(token)

    return request


def _async_request(original: Callable[..., Awaitable[Any]]) -> Function:
    async def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _begin(args, kwargs)
        if call is None and _CALL.get() is None:
            return await original(self, *args, **kwargs)
        token = _CALL.set(call)
        try:
            return await original(self, *args, **kwargs)
        except BaseException as error:
            if call is not None:
                call.failed(error)
            raise
        finally:
            _CALL.reset(token)

    return request


def _build_request(original: Function) -> Function:
    def build_request(self: Any, options: Any, **kwargs: Any) -> Any:
        call = _CALL.get()
        if call is None:
            return original(self, options, **kwargs)
        if call.route is not None:
            options.json_data, options.extra_json = call.body, None
        endpoint = call.endpoint
        if endpoint is not None:
            options.url = endpoint.base_url.rstrip("/") + call.api
        request = original(self, options, **kwargs)
        if endpoint is not None:
            _readdress(call, endpoint, request)
        url = request.url
        call.reached(f"{url.scheme}://{url.netloc.decode('ascii')}")
        return request

    return build_request


def _readdress(call: Call, endpoint: Endpoint, request: Any) -> None:
    """Take the client's own credentials and query off a request to a policy's endpoint, and put ours on."""
    try:
        ours = routed_headers(call.scope, call.agent, endpoint, call.traceparent)
        kept = [pair for pair in request.headers.raw if (name := pair[0].lower()) not in PRIVATE and name not in ours]
        request.headers = type(request.headers)(
            [*kept, *ours.items()]
        )  # in one go: setting them singly costs 70 µs more
        if request.url.query:  # the client's own default query, say Azure's api-version
            request.url = request.url.copy_with(query=None)
    except Exception as problem:
        assert call.route is not None
        raise unroutable(call.scope, call.agent, call.route, problem) from problem


def _receive(response: Any) -> None:
    """Record the answer, now if it is there, else as it is consumed. Raises `MissingTokenIds`."""
    call = _CALL.get()
    if call is None or call.done:
        return
    events = response.headers.get("content-type", "").startswith("text/event-stream")
    if response.is_closed:
        call.answered(response.content, events)
    else:
        response.stream = tee(response, call, events)


def _process_response(original: Function) -> Function:
    def process_response(self: Any, **kwargs: Any) -> Any:
        _receive(kwargs["response"])
        return original(self, **kwargs)

    return process_response


def _async_process_response(original: Callable[..., Awaitable[Any]]) -> Function:
    async def process_response(self: Any, **kwargs: Any) -> Any:
        _receive(kwargs["response"])
        return await original(self, **kwargs)

    return process_response


_MODULE = "openai._base_client"
_VERIFIED = "1.40.0, 3.57.0"
_WHY = "the SDK has no public hook around a call that sees retries, streams and raw responses of every method"

patches = Patches(
    adapter="openai",
    requires=SUPPORTED,
    patches=[
        Patch(_MODULE, "SyncAPIClient.request", _request, _WHY, _VERIFIED),
        Patch(_MODULE, "AsyncAPIClient.request", _async_request, _WHY, _VERIFIED),
        Patch(_MODULE, "BaseClient._build_request", _build_request, _WHY, _VERIFIED),
        Patch(_MODULE, "SyncAPIClient._process_response", _process_response, _WHY, _VERIFIED),
        Patch(_MODULE, "AsyncAPIClient._process_response", _async_process_response, _WHY, _VERIFIED),
    ],
)
