"""The current text of a policy that is a prompt, for agents that put their prompts together themselves."""

from __future__ import annotations

from leyden import attributes, tracing
from leyden.errors import InvalidInput
from leyden.scope import current_attempt
from leyden.types import Prompt


def prompt(policy: str = "default", default: str = "") -> str:
    """The text of prompt policy `policy` in the current attempt's resources.

    `default` outside any attempt, and where the resources hold no policy of that name. The use is recorded once per
    call as an object span, so that a trace shows which version ran. Raises `InvalidInput` for a policy that is weights.
    """
    scope = current_attempt()
    found = scope.resources.policies.get(policy) if scope is not None else None
    if found is None:
        return default
    if not isinstance(found, Prompt):
        raise InvalidInput(
            f"policy {policy!r} is an endpoint (weights), not a prompt; its agent is routed, not prompted"
        )
    value = tracing.json_text({"policy": policy, "version": found.version})
    given = {attributes.KIND: "object", attributes.VALUE: value}
    tracing.tracer().start_span(f"{PROMPT_SPAN} {policy}", attributes=given).end()
    return found.text


PROMPT_SPAN = "prompt"
"""First word of the name of the span that records the use of a prompt policy."""
