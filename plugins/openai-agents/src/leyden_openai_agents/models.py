"""The model that a turn calls: a marked agent's one is swapped where the transport could not route its calls."""

from __future__ import annotations

import functools
from typing import Any

from leyden.binding import bound
from leyden.patching import Function
from leyden.plugins import calling_agent
from leyden.routing import route
from leyden.scope import current_attempt
from leyden.types import Prompt


def resolved_model(original: Function) -> Function:
    """`get_model(agent, run_config)`, which a turn asks once for the model that it is about to call."""

    @functools.wraps(original)
    def get_model(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        if current_attempt() is None or reached(model):
            return model
        return bound(model) or model

    return get_model


def reached(model: object) -> bool:
    """Whether the transport can serve the calling agent's policy through `model` as it is.

    It sends chat completions to any policy. The Responses API it only gives a prompt: no server returns token ids there.
    """
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel

    if isinstance(model, OpenAIChatCompletionsModel):
        return True
    if not isinstance(model, OpenAIResponsesModel) or "WS" in type(model).__name__:
        return False
    scope = current_attempt()
    found = route(calling_agent(), scope.resources) if scope is not None else None
    return found is not None and isinstance(found.policy, Prompt)
