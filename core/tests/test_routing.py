"""Which policy a call goes to."""

from __future__ import annotations

import pytest

from leyden.errors import RoutingError
from leyden.routing import route
from leyden.types import Endpoint, Mark, Prompt, Resources

A, B = Endpoint(base_url="http://a/v1", model="a", version=3), Prompt(text="Be brief.", version=4)
RESOURCES = Resources(
    policies={"a": A, "b": B},
    marks=(Mark(selector="writer", policy="a"), Mark(selector="critic", policy="b"), Mark(selector="lost", policy="c")),
    version=9,
)


def test_a_marked_agent_has_its_policy() -> None:
    found = route("planner/writer", RESOURCES)
    assert found is not None
    assert (found.name, found.policy) == ("a", A)
    found = route("critic", RESOURCES)
    assert found is not None
    assert (found.name, found.policy) == ("b", B)


@pytest.mark.parametrize("agent", ["planner", "", "writers"])
def test_any_other_agent_has_none(agent: str) -> None:
    assert route(agent, RESOURCES) is None


def test_a_policy_that_is_not_there() -> None:
    with pytest.raises(RoutingError, match=r"agent 'lost' is marked for policy 'c', which resources version 9 .*a, b"):
        route("lost", RESOURCES)
