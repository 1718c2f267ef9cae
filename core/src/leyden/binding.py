"""Stand-ins: the model object that a marked agent's call goes through where its own one does not speak the OpenAI protocol.

The transport reroutes what goes through the `openai` SDK's chat completions. An adapter whose framework is about to call
any other model object (Anthropic, Gemini, a local class) asks `bound` for one that stands in for it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, cast

from leyden.errors import RoutingError
from leyden.plugins import calling_agent, plugins
from leyden.routing import route
from leyden.scope import current_attempt
from leyden.types import Endpoint

Key = tuple[str, str, str]

_made: dict[int, tuple[object, dict[Key, object]]] = {}
"""Stand-ins by the id of the model object, with a weak reference (or the object itself) that keeps the id from being reused."""
_KEPT = 8
"""Stand-ins of one model object that are kept: a long training may have many endpoints, one for each version of the weights."""
_lock = threading.Lock()


def bound(model: object) -> object | None:
    """The stand-in for `model` in the call that the current agent is about to make; None where the call stays as it is.

    Raises `RoutingError`, which the attempt's failures have too, where the agent is marked and no adapter can make one.
    """
    scope = current_attempt()
    if scope is None:
        return None
    agent = calling_agent()
    try:
        found = route(agent, scope.resources)
        if found is None:
            return None
        if not isinstance(found.policy, Endpoint):
            raise RoutingError(
                f"agent {agent!r} is marked for the prompt {found.name!r}, but its model {_name(model)} is not called "
                f"through the openai SDK, where the prompt is put in. Give it an OpenAI-compatible client, or take the mark "
                f"off it"
            )
        return _stand_in(model, agent, found.name, found.policy)
    except RoutingError as error:
        scope.failures.append(error)
        raise


def refuse(agent_model: object, why: str) -> RoutingError:
    """The error of a marked agent's call that cannot be moved to its policy; the attempt's failures have it too.

    `agent_model`: the agent's own model object, or its class where a stand-in has outlived it.
    """
    scope, agent = current_attempt(), calling_agent()
    error = RoutingError(f"agent {agent!r} is marked, but its call of {_name(agent_model)} cannot be moved: {why}")
    if scope is not None:
        scope.failures.append(error)
    return error


def _stand_in(model: object, agent: str, policy: str, endpoint: Endpoint) -> object:
    key = (endpoint.base_url, endpoint.model, endpoint.api_key)
    with _lock:
        made = _of(model)
        if key not in made:
            stand_in = plugins.first("leyden_bind", passing=(RoutingError,), model=model, endpoint=endpoint)
            if stand_in is None:
                raise RoutingError(
                    f"agent {agent!r} is marked for policy {policy!r}, but its model {_name(model)} does not speak the OpenAI "
                    f"protocol and no installed adapter can put another in its place. Give the agent an OpenAI-compatible "
                    f"client, or take the mark off it"
                )
            if len(made) >= _KEPT:
                del made[next(iter(made))]
            made[key] = stand_in
        return made[key]


def _of(model: object) -> dict[Key, object]:
    """The stand-ins that were made for `model`; forgotten when it is."""
    known = _made.get(id(model))
    if known is not None:
        return known[1]
    made: dict[Key, object] = {}
    place, kept = id(model), cast("Any", model)
    try:
        kept = weakref.ref(model, lambda _: _made.pop(place, None) and None)
    except TypeError:  # no weak references to it: it is kept for good
        pass
    _made[place] = (kept, made)
    return made


def _name(model: object) -> str:
    kind = model if isinstance(model, type) else type(model)
    return f"{kind.__module__}.{kind.__qualname__}"
