"""The model that a turn calls: a marked agent's one is swapped where the transport could not route its calls."""

from __future__ import annotations

import functools
from typing import Any

from leyden.binding import bound
from leyden.errors import RoutingError
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
    from agents import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel, OpenAIResponsesWSModel

    if isinstance(model, OpenAIChatCompletionsModel):
        return True
    if not isinstance(model, OpenAIResponsesModel) or isinstance(model, OpenAIResponsesWSModel):
        return False
    scope = current_attempt()
    try:
        found = None if scope is None else route(calling_agent(), scope.resources)
    except RoutingError:  # `bound` finds it too, and tells the attempt
        return False
    return found is not None and isinstance(found.policy, Prompt)
