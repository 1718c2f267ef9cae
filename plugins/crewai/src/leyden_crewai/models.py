"""Model objects that the transport cannot reach: a marked agent's call of one goes through a stand-in.

CrewAI calls a model object in a dozen places, always by its `call` or `acall`. These two are wrapped in the classes of the
models that agents in an attempt have, the first time such an agent is at work; CrewAI's own OpenAI class is left alone
where it speaks chat completions.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import wrapt

from leyden.binding import bound
from leyden.patching import Function
from leyden.scope import current_attempt
from leyden.types import Endpoint

logger = logging.getLogger(__name__)

_OPENAI = "crewai.llms.providers.openai.completion"
_BASE = "crewai.llms.base_llm"

_KEPT = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "timeout",
    "max_retries",
    "response_format",
)
"""Settings that every model class of CrewAI understands alike; the stand-in has those that the model has."""


def is_model(candidate: object) -> bool:
    """Whether this is a model object of CrewAI; False, without importing anything, where CrewAI is not imported."""
    base = sys.modules.get(_BASE)
    return base is not None and isinstance(candidate, base.BaseLLM)


def speaks_chat_completions(model: Any) -> bool:
    """Whether a model object's calls are chat completions of the `openai` SDK, which the transport routes by itself."""
    module = sys.modules.get(_OPENAI)
    if module is None or not isinstance(model, module.OpenAICompletion):
        return False
    effective = getattr(model, "_effective_api", None)
    return bool((effective() if effective is not None else getattr(model, "api", "completions")) == "completions")


def make_stand_in(model: Any, endpoint: Endpoint) -> Any:
    """A model object of CrewAI's OpenAI class that speaks to `endpoint`, with the settings of `model`."""
    from crewai.llms.providers.openai.completion import OpenAICompletion

    given: dict[str, Any] = {name: value for name in _KEPT if (value := getattr(model, name, None)) is not None}
    made: Any = OpenAICompletion(
        model=endpoint.model, base_url=endpoint.base_url, api_key=endpoint.api_key, provider="openai", **given
    )
    if isinstance(usage := getattr(model, "_token_usage", None), dict):
        made._token_usage = usage  # so that the crew's usage metrics, which it reads from `model`, have these calls
    return made


class Models:
    """The model classes whose `call` and `acall` are wrapped."""

    def __init__(self) -> None:
        self.active = False
        self._wrapped: dict[tuple[type, str], tuple[Function, Function]] = {}
        self._lock = threading.Lock()

    def cover(self, agent: Any) -> None:
        """Wrap the classes of an agent's model objects, where the attempt has marks and the transport cannot reach them."""
        scope = current_attempt()
        if not self.active or scope is None or not scope.resources.marks:
            return
        held = getattr(agent, "__dict__", {})  # not by attribute: some of these fields warn that they are deprecated
        for model in (
            held.get("llm"),
            held.get("function_calling_llm"),
            getattr(held.get("planning_config"), "llm", None),
        ):
            if is_model(model) and not speaks_chat_completions(model):
                self._wrap(type(model), "call", _call)
                self._wrap(type(model), "acall", _acall)

    def _wrap(self, kind: type, name: str, call: Any) -> None:
        owner = next(owner for owner in kind.__mro__ if name in vars(owner))
        with self._lock:
            if (owner, name) in self._wrapped or not self.active:
                return
            original = vars(owner)[name]
            replacement = wrapt.FunctionWrapper(original, call)
            setattr(owner, name, replacement)
            self._wrapped[owner, name] = (original, replacement)

    def install(self) -> None:
        """Let `cover` work from now on."""
        self.active = True

    def remove(self) -> None:
        """Put every original back; where somebody has wrapped ours meanwhile, ours stays and only passes calls on."""
        with self._lock:
            self.active = False
            for (owner, name), (original, replacement) in self._wrapped.items():
                if vars(owner).get(name) is replacement:
                    setattr(owner, name, original)
            self._wrapped.clear()


models = Models()


def stand_in_of(model: Any) -> Any | None:
    """The stand-in for this call of a model object, or None where it stays as it is. Raises `RoutingError`, see `bound`."""
    if not models.active or current_attempt() is None or speaks_chat_completions(model):
        return None
    return bound(model)


def _call(wrapped: Function, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stand_in = stand_in_of(model)
    if stand_in is None:
        return wrapped(*args, **kwargs)
    with _as_called(model, stand_in):
        return stand_in.call(*args, **kwargs)


async def _acall(wrapped: Function, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stand_in = stand_in_of(model)
    if stand_in is None:
        return await wrapped(*args, **kwargs)
    with _as_called(model, stand_in):
        return await stand_in.acall(*args, **kwargs)


@contextmanager
def _as_called(model: Any, stand_in: Any) -> Iterator[None]:
    """What CrewAI has set on `model` for this very call holds for its stand-in: the stop words, and whether to stream."""
    stop = list(getattr(model, "stop_sequences", None) or getattr(model, "stop", None) or ())
    effective = getattr(model, "_effective_stream", None)
    stream = bool(effective() if effective is not None else getattr(model, "stream", False))
    base = sys.modules[_BASE]
    with ExitStack() as overridden:
        for name, value in (("stop", stop), ("stream", stream)):
            override = getattr(base, f"call_{name}_override", None)
            if override is not None:
                overridden.enter_context(override(stand_in, value))
            else:  # older versions know no other way than to set it on the object, and do so with `model` too
                setattr(stand_in, name, value)
        yield


def instructor(original: Function) -> Function:
    """`Converter._create_instructor()` for the stand-in: its client is one that CrewAI makes past the model object."""

    def create(converter: Any, *args: Any, **kwargs: Any) -> Any:
        stand_in = stand_in_of(converter.llm) if is_model(converter.llm) else None
        if stand_in is not None:
            converter = converter.model_copy(update={"llm": stand_in})
        return original(converter, *args, **kwargs)

    return create
