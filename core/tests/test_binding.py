from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import leyden
from leyden import binding
from leyden.errors import RoutingError
from leyden.plugins import plugins
from leyden.testing.recording import recorded_attempt
from leyden.types import Endpoint, Prompt

ENDPOINT = Endpoint(base_url="http://127.0.0.1:9/v1", model="policy", version=1)


class Model:
    """A model object of some framework."""


class Unbindable:
    """A model object that the framework's adapter knows and cannot swap."""


class Slotted:
    __slots__ = ()


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, Endpoint]]]:
    asked: list[tuple[object, Endpoint]] = []

    class Adapter:
        @leyden.hookimpl
        def leyden_bind(self, model: object, endpoint: Endpoint) -> Any:
            asked.append((model, endpoint))
            if isinstance(model, Unbindable):
                raise RoutingError("pip install the-openai-part")
            return f"stand-in of {type(model).__name__}" if not isinstance(model, int) else None

    monkeypatch.setattr(plugins, "_loaded", True)
    plugins.register("a-framework", Adapter())
    yield asked
    plugins.manager.unregister(name="a-framework")


@pytest.mark.parametrize("model", [Model(), Slotted()])
def test_a_marked_agent_gets_one_stand_in(adapter: list[Any], model: object) -> None:
    with recorded_attempt({"default": ENDPOINT}, {"writer": "default"}):
        with leyden.agent("writer"):
            first, second = binding.bound(model), binding.bound(model)
        with leyden.agent("planner"):
            other = binding.bound(model)
    assert (first, second, other) == (f"stand-in of {type(model).__name__}",) * 2 + (None,)
    assert adapter == [(model, ENDPOINT)]
    assert binding.bound(model) is None


def test_what_no_adapter_can_swap_fails_loudly(adapter: list[Any]) -> None:
    with recorded_attempt({"default": ENDPOINT}, {"writer": "default"}) as attempt, leyden.agent("writer"):  # noqa: SIM117
        with pytest.raises(RoutingError) as caught:
            binding.bound(12345)
    assert "does not speak the OpenAI protocol" in str(caught.value)
    assert attempt.scope.failures == [caught.value]


def test_an_adapter_may_say_why(adapter: list[Any]) -> None:
    with recorded_attempt({"default": ENDPOINT}, {"writer": "default"}) as attempt, leyden.agent("writer"):  # noqa: SIM117
        with pytest.raises(RoutingError) as caught:
            binding.bound(Unbindable())
    assert attempt.scope.failures == [caught.value]
    assert str(caught.value) == "pip install the-openai-part"


def test_a_policy_that_was_not_published_fails_loudly(adapter: list[Any]) -> None:
    unpublished = pytest.raises(RoutingError, match="must publish it first")
    with recorded_attempt({}, {"writer": "default"}) as attempt, leyden.agent("writer"), unpublished as caught:
        binding.bound(Model())
    assert attempt.scope.failures == [caught.value]
    assert not adapter


def test_a_prompt_reaches_only_what_the_transport_reaches(adapter: list[Any]) -> None:
    with (
        recorded_attempt({"default": Prompt(text="Be kind.", version=1)}, {"writer": "default"}),
        leyden.agent("writer"),
        pytest.raises(RoutingError, match="marked for the prompt 'default'"),
    ):
        binding.bound(Model())


@pytest.mark.parametrize("model", [Model(), Model], ids=["object", "class"])
def test_refusing_names_the_agent_and_the_model(model: object) -> None:
    with recorded_attempt({"default": ENDPOINT}, {"writer": "default"}) as attempt, leyden.agent("writer"):
        error = binding.refuse(model, "its history is on the server")
    assert attempt.scope.failures == [error]
    assert "agent 'writer' is marked" in str(error)
    assert "its history is on the server" in str(error)
    assert "test_binding.Model cannot be moved" in str(error)


def test_a_forgotten_model_leaves_nothing_behind(adapter: list[Any]) -> None:
    model = Model()
    place = id(model)
    with recorded_attempt({"default": ENDPOINT}, {"writer": "default"}), leyden.agent("writer"):
        binding.bound(model)
    assert place in binding._made
    del model, adapter[:]
    assert place not in binding._made


def test_stand_ins_of_old_endpoints_are_let_go(adapter: list[Any]) -> None:
    model = Model()
    for version in range(100):
        endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", model=f"policy-{version}", version=version)
        with recorded_attempt({"default": endpoint}, {"writer": "default"}), leyden.agent("writer"):
            binding.bound(model)
    assert len(binding._made[id(model)][1]) <= 10
    assert len(adapter) == 100
