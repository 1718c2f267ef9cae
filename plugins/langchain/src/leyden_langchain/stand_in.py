"""Stand-ins for chat models of other protocols: a `ChatOpenAI` at the policy's endpoint takes the call of a marked agent.

The messages are LangChain's own, so what is said stays what it was. What was bound to the model in another provider's form
(tools, tool choice) is put into OpenAI's.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from leyden.binding import bound
from leyden.errors import RoutingError
from leyden.patching import Function
from leyden.types import Endpoint

logger = logging.getLogger(__name__)

_KEPT = (
    "temperature",
    "max_tokens",
    "top_p",
    "stop",
    "streaming",
    "disable_streaming",
    "cache",
    "name",
    "tags",
    "metadata",
)
"""Fields of a chat model that mean the same to `ChatOpenAI`."""
_SPOKEN = frozenset(
    {
        *("stop", "temperature", "max_tokens", "max_completion_tokens", "top_p", "seed", "n", "presence_penalty"),
        *("frequency_penalty", "logit_bias", "tools", "tool_choice", "parallel_tool_calls", "response_format"),
        *("stream_options", "extra_body", "strict"),
    }
)
"""Call arguments that chat completions know."""
_told: set[str] = set()


def swapped(original: Function) -> Function:
    """`BaseChatModel.invoke` and its like, on the stand-in where a marked agent's model is not on the `openai` SDK."""

    def other(model: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if speaks_openai(model):
            return model, kwargs
        stand_in = bound(model)
        return (model, kwargs) if stand_in is None else (stand_in, translated(kwargs))

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
    except ImportError:
        raise RoutingError(
            f"a marked agent's {type(model).__name__} does not speak the OpenAI protocol; for the model that takes its place: "
            f"pip install langchain-openai"
        ) from None
    given = {name: getattr(model, name, None) for name in _KEPT}
    given = {name: value for name, value in given.items() if value is not None and name in ChatOpenAI.model_fields}
    return ChatOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        model=endpoint.model,
        use_responses_api=False,
        callbacks=getattr(model, "callbacks", None),
        **given,
    )


def translated(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Call arguments in OpenAI's form; what only another provider knows is left out, and logged once."""
    found = dict(kwargs)
    for name in ("tools", "functions"):
        if name in found:
            found["tools"] = [tool for given in found.pop(name) or () for tool in _tools(given)]
    if "tool_choice" in found:
        found["tool_choice"] = _tool_choice(found["tool_choice"])
    lost = sorted(
        name for name in found if name not in _SPOKEN and name not in ("config", "input") and name[:3] != "ls_"
    )
    for name in lost:
        del found[name]
        if name not in _told:
            _told.add(name)
            logger.warning(
                "the policy's endpoint does not know the argument %r of the model it stands in for; left out", name
            )
    return found


def _tools(given: Any) -> list[dict[str, Any]]:
    """A bound tool in OpenAI's form: of Anthropic and others by LangChain's own converter, of Gemini by its declarations."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    if isinstance(given, Mapping) and "function_declarations" in given:
        return [{"type": "function", "function": dict(one)} for one in given["function_declarations"]]
    return [convert_to_openai_tool(given)]


def _tool_choice(given: Any) -> Any:
    """A tool choice in OpenAI's form; Anthropic's is `{"type": "auto" | "any" | "none" | "tool", "name": …}`."""
    if not isinstance(given, Mapping) or given.get("type") == "function":
        return "required" if given == "any" else given
    if given.get("type") == "tool":
        return {"type": "function", "function": {"name": given["name"]}}
    return {"any": "required"}.get(str(given.get("type")), given.get("type"))
