"""Stand-ins for chat models of other protocols: a `ChatOpenAI` at the policy's endpoint takes the call of a marked agent.

The messages are LangChain's own, so what is said stays what it was. What was bound to the model in another provider's form
is put into OpenAI's by `leyden_langchain.arguments`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from leyden.binding import bound
from leyden.errors import RoutingError
from leyden.patching import Function
from leyden.types import Endpoint
from leyden_langchain.arguments import translated

_KEPT = {
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_output_tokens"),
    "top_p": ("top_p",),
    "stop": ("stop", "stop_sequences"),
    "streaming": ("streaming",),
    "disable_streaming": ("disable_streaming",),
    "cache": ("cache",),
    "name": ("name",),
    "tags": ("tags",),
    "metadata": ("metadata",),
}
"""Fields of `ChatOpenAI`, and what those of other chat models are called that mean the same."""


def swapped(original: Function) -> Function:
    """`BaseChatModel.invoke` and its like, on the stand-in where a marked agent's model is not on the `openai` SDK."""

    def other(model: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if speaks_openai(model):
            return model, kwargs
        stand_in = bound(model)
        return (model, kwargs) if stand_in is None else (stand_in, translated(kwargs))

    return _with_other(original, other)


def _with_other(original: Function, other: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]]) -> Function:
    """A method of a model that is called on what `other` gives for the model and the keyword arguments."""
    if inspect.isasyncgenfunction(original):

        @functools.wraps(original)
        async def astream(model: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            chosen, given = other(model, kwargs)
            async for chunk in original(chosen, *args, **given):
                yield chunk

        return astream
    if inspect.isgeneratorfunction(original):

        @functools.wraps(original)
        def stream(model: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            chosen, given = other(model, kwargs)
            yield from original(chosen, *args, **given)

        return stream
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def ainvoke(model: Any, *args: Any, **kwargs: Any) -> Any:
            chosen, given = other(model, kwargs)
            return await original(chosen, *args, **given)

        return ainvoke

    @functools.wraps(original)
    def invoke(model: Any, *args: Any, **kwargs: Any) -> Any:
        chosen, given = other(model, kwargs)
        return original(chosen, *args, **given)

    return invoke


def speaks_openai(model: object) -> bool:
    """Whether a chat model goes through the `openai` SDK. Imports nothing."""
    module = sys.modules.get("langchain_openai.chat_models.base")
    return module is not None and isinstance(model, module.BaseChatOpenAI)


def is_chat_model(model: object) -> bool:
    """Whether `model` is a LangChain chat model. Imports nothing."""
    module = sys.modules.get("langchain_core.language_models.chat_models")
    return module is not None and isinstance(model, module.BaseChatModel)


def make_stand_in(model: Any, endpoint: Endpoint) -> Any:
    """A `ChatOpenAI` at `endpoint` with what `model` was told of sampling, streaming and caching.

    Raises `RoutingError` where langchain-openai is not installed.
    """
    try:
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr
    except ImportError:
        raise RoutingError(
            f"a marked agent's {type(model).__name__} does not speak the OpenAI protocol; for the model that takes its place: "
            f"pip install langchain-openai"
        ) from None
    return ChatOpenAI(
        base_url=endpoint.base_url,
        api_key=SecretStr(endpoint.api_key or "none"),
        model=endpoint.model,
        use_responses_api=False,
        callbacks=getattr(model, "callbacks", None),
        http_async_client=_async_client(),
        **{name: value for name, value in _kept(model).items() if name in ChatOpenAI.model_fields},
    )


def _kept(model: Any) -> dict[str, Any]:
    """What a chat model was told, by the names of `ChatOpenAI`'s fields."""
    found: dict[str, Any] = {}
    for field, names in _KEPT.items():
        value = next((value for name in names if (value := getattr(model, name, None)) is not None), None)
        if value is not None:
            found[field] = value
    # ChatAnthropic must have a limit and takes the most that its own model can say, which is more than a policy's may.
    profile = getattr(model, "profile", None)
    if isinstance(profile, Mapping) and found.get("max_tokens") == profile.get("max_output_tokens"):
        found.pop("max_tokens", None)
    return found


@functools.cache
def _async_client() -> Any:
    """The HTTP client of all stand-ins. It keeps no connection, since one that is kept dies with its event loop."""
    from openai import DEFAULT_CONNECTION_LIMITS, DefaultAsyncHttpxClient

    limits = type(DEFAULT_CONNECTION_LIMITS)(max_connections=None, max_keepalive_connections=0)
    return DefaultAsyncHttpxClient(limits=limits)


def text_model(original: Function) -> Function:
    """`BaseLLM.generate` and its like: nothing stands in for a text model, so a marked agent's call fails loudly."""

    def checked(model: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        module = sys.modules.get("langchain_openai.llms.base")
        if module is None or not isinstance(model, module.BaseOpenAI):  # the transport refuses those itself
            bound(model)
        return model, kwargs

    return _with_other(original, checked)
