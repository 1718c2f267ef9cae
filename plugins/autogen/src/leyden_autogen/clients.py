"""Model clients: a stand-in for one that does not speak the OpenAI protocol, where a marked agent calls it.

AutoGen's agents call any `ChatCompletionClient` that they hold, from many places. So the classes of clients that are not
on the `openai` SDK, the user's own too, have their two calls wrapped when an agent is first entered.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import wrapt

from leyden.binding import bound
from leyden.patching import Function
from leyden.plugins import calling_agent
from leyden.routing import route
from leyden.scope import current_attempt
from leyden.types import Endpoint

_CALLS = ("create", "create_stream")


class Watched:
    """The classes whose calls are wrapped."""

    def __init__(self) -> None:
        self._classes: weakref.WeakKeyDictionary[type, dict[str, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
        """Class → name of a call → (original, wrapper)."""
        self._lock = threading.Lock()

    def look(self) -> None:
        """Wrap the classes of clients that there are by now."""
        models = sys.modules.get("autogen_core.models")
        for cls in _below(models.ChatCompletionClient) if models is not None else ():
            if cls not in self._classes and not issubclass(cls, openai_base()):
                with self._lock:
                    if cls not in self._classes:
                        self._classes[cls] = {name: _wrap(cls, name) for name in _CALLS if name in vars(cls)}

    def release(self) -> None:
        """Put the originals back; a wrapper that somebody else has wrapped stays, and passes calls on."""
        for cls, calls in list(self._classes.items()):
            for name, (original, wrapper) in calls.items():
                if vars(cls).get(name) is wrapper:
                    setattr(cls, name, original)
        self._classes.clear()


watched = Watched()


def _below(cls: type) -> Iterator[type]:
    derived: type
    for derived in cls.__subclasses__():
        yield derived
        yield from _below(derived)


def _wrap(cls: type, name: str) -> tuple[Any, Any]:
    def call(original: Function, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stand_in: Any = None
        if client is not None and current_attempt() is not None and not on_openai(client):
            stand_in = bound(client)
        return original(*args, **kwargs) if stand_in is None else getattr(stand_in, name)(*args, **kwargs)

    original = vars(cls)[name]
    wrapper = wrapt.FunctionWrapper(original, call)
    setattr(cls, name, wrapper)
    return original, wrapper


def openai_base() -> tuple[type, ...]:
    """AutoGen's class of clients on the `openai` SDK, as far as it is imported."""
    module = sys.modules.get("autogen_ext.models.openai._openai_client")
    return () if module is None else (module.BaseOpenAIChatCompletionClient,)


def on_openai(client: Any) -> bool:
    """Whether `client` calls the `openai` SDK: AutoGen's own, one that holds such a client, or one that holds the SDK's."""
    sdk = sys.modules.get("openai")
    ends = openai_base() + tuple(getattr(sdk, name) for name in ("OpenAI", "AsyncOpenAI") if hasattr(sdk, name))
    models = sys.modules["autogen_core.models"]
    seen: set[int] = set()
    waiting = [client]
    while waiting:
        current = waiting.pop()
        if isinstance(current, ends):
            return True
        if id(current) not in seen and isinstance(current, models.ChatCompletionClient):
            seen.add(id(current))
            waiting += list(getattr(current, "__dict__", {}).values())
    return False


def stand_in(client: Any, endpoint: Endpoint) -> object:
    """An OpenAI client of AutoGen's for `endpoint` that takes the conversations which are written for `client`."""
    from autogen_core.models import ModelFamily, ModelInfo
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    given = client.model_info
    info = ModelInfo(
        vision=bool(given.get("vision")),
        function_calling=True,
        json_output=True,
        structured_output=True,
        family=ModelFamily.UNKNOWN,  # what AutoGen changes in messages for some families is not for the policy's
        multiple_system_messages=bool(given.get("multiple_system_messages")),
    )
    return OpenAIChatCompletionClient(
        model=endpoint.model,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        model_info=info,
        default_headers={"connection": "close"},  # nobody closes a stand-in, and event loops come and go around it
    )


class _Rerouted(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A client whose answer comes from a policy: that it names another model is no mistake to warn of."""

    _resolved_model = None


def openai_create(original: Function) -> Function:
    """`BaseOpenAIChatCompletionClient.create`, which warns where the answer is of another model than was asked for."""

    @functools.wraps(original)
    async def create(client: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(_Rerouted(client) if _is_rerouted() else client, *args, **kwargs)

    return create


def _is_rerouted() -> bool:
    """Whether the calling agent's calls go to a policy. What is wrong with a mark is for the transport to say."""
    scope = current_attempt()
    try:
        found = None if scope is None else route(calling_agent(), scope.resources)
    except Exception:
        return False
    return found is not None and isinstance(found.policy, Endpoint)
