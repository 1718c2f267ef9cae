"""Routing: agent path + marks + resources → the policy of a call, or None for a call that is left alone."""

from __future__ import annotations

from dataclasses import dataclass

from leyden.errors import RoutingError
from leyden.marks import mark_of
from leyden.types import Policy, Resources


@dataclass(frozen=True, slots=True)
class Route:
    """The policy that an agent's call goes to."""

    name: str
    """The policy's name."""
    policy: Policy


def route(agent: str, resources: Resources) -> Route | None:
    """The policy of `agent`'s call under `resources`; None where the agent is not marked.

    Raises `RoutingError` if the agent is marked for a policy that the resources do not hold.
    """
    mark = mark_of(agent, resources.marks)
    if mark is None:
        return None
    policy = resources.policies.get(mark.policy)
    if policy is None:
        raise RoutingError(
            f"agent {agent!r} is marked for policy {mark.policy!r}, which resources version {resources.version} does not "
            f"hold (it has: {', '.join(sorted(resources.policies)) or 'none'}); the algorithm must publish it first"
        )
    return Route(mark.policy, policy)
