"""Loading and calling plugins: one that fails is reported and skipped."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pluggy
import pytest

from leyden import hookimpl, plugins
from leyden.errors import PluginError
from leyden.hookspecs import AgentInfo, Check, PluginInfo
from leyden.plugins import Plugins, calling_agent
from leyden.tracing import agent_span


class Good:
    """A plugin that does a little of everything."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @hookimpl
    def leyden_info(self) -> PluginInfo:
        return PluginInfo(name="good", version="1")

    @hookimpl
    def leyden_instrument(self) -> Callable[[], None]:
        self.log.append("in")
        return lambda: self.log.append("out")

    @hookimpl
    def leyden_identify(self) -> str | None:
        return "team/writer"

    @hookimpl
    def leyden_discover(self, target: object) -> list[AgentInfo] | None:
        return [AgentInfo(path="writer")] if target == "graph" else None

    @hookimpl
    def leyden_doctor(self) -> list[Check]:
        return [Check(name="good", ok=True)]


class Bad:
    """A plugin that fails at everything."""

    @hookimpl
    def leyden_info(self) -> PluginInfo:
        raise ValueError("info")

    @hookimpl
    def leyden_instrument(self) -> None:
        raise ValueError("instrument")

    @hookimpl
    def leyden_identify(self) -> str | None:
        raise ValueError("identify")

    @hookimpl
    def leyden_discover(self, target: object) -> list[AgentInfo] | None:
        raise ValueError("discover")


class Point:
    """An entry point."""

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self.plugin = plugin

    def load(self) -> Any:
        if isinstance(self.plugin, Exception):
            raise self.plugin
        return self.plugin


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The plugins that seem to be installed."""
    found: dict[str, Any] = {"good": Good(), "bad": Bad(), "broken": ImportError("no module named framework")}
    monkeypatch.delenv("LEYDEN_PLUGINS", raising=False)
    points = lambda group: [Point(*item) for item in found.items()] if group == "leyden.plugins" else []  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    return found


def test_the_good_ones_work_whatever_the_others_do(installed: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    made = Plugins()
    assert list(made.info()) == ["good"]
    made.instrument()
    made.instrument()
    assert made.identify() == "team/writer"
    assert [agent.path for agent in made.discover("graph")] == ["writer"]
    assert made.discover("other") == []
    for _ in range(3):
        made.info()
    made.uninstrument()
    made.uninstrument()
    assert installed["good"].log == ["in", "out"]
    assert made.failed == {"broken": "ImportError: no module named framework", "bad": "ValueError: instrument"}
    assert made.errors["bad.leyden_info"] == 4
    assert len([record for record in caplog.records if "leyden_info" in record.message]) == 1
    assert [(check.name, check.ok) for check in made.doctor()] == [
        ("good", True),
        ("plugin broken", False),
        ("plugin bad", False),
    ]


@pytest.mark.parametrize(("pin", "expected"), [("good", ["good"]), ("", []), (" good , bad", ["good", "bad"])])
@pytest.mark.usefixtures("installed")
def test_the_pin(monkeypatch: pytest.MonkeyPatch, pin: str, expected: list[str]) -> None:
    monkeypatch.setenv("LEYDEN_PLUGINS", pin)
    made = Plugins()
    made.load()
    assert sorted(name for name, _ in made.manager.list_name_plugin()) == sorted(expected)


@pytest.mark.usefixtures("installed")
def test_a_pinned_plugin_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEYDEN_PLUGINS", "goood")
    made = Plugins()
    for _ in range(2):  # the second try must not go on without it
        with pytest.raises(PluginError, match=r"'goood', which is not installed .*good.*pip install"):
            made.load()


def test_answers_of_the_wrong_kind_are_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong:
        @hookimpl
        def leyden_info(self) -> Any:
            return "wrong"

        @hookimpl
        def leyden_discover(self, target: object) -> Any:
            return 3

        @hookimpl
        def leyden_commands(self) -> Any:
            return [len]

        @hookimpl
        def leyden_doctor(self) -> Any:
            return [None]

    monkeypatch.setenv("LEYDEN_PLUGINS", "")
    made = Plugins()
    made.load()
    made.register("wrong", Wrong())
    assert (made.info(), made.discover(3), made.commands(), made.doctor()) == ({}, [], [], [])
    hooks = ("info", "discover", "commands", "doctor")
    assert made.errors == {f"wrong.leyden_{hook}": 1 for hook in hooks}
    assert len(caplog.records) == 4


def test_a_misspelt_hook_is_an_error() -> None:
    class Misspelt:
        @hookimpl
        def leyden_idntify(self) -> str:
            return "a"

    made = Plugins()
    with pytest.raises(pluggy.PluginValidationError, match="leyden_idntify"):
        made.register("misspelt", Misspelt())
    assert not made.manager.has_plugin("misspelt")


def test_the_context_names_the_agent_before_any_adapter_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.plugins, "identify", lambda: "from/adapter")
    assert calling_agent() == "from/adapter"
    with agent_span("context"):
        assert calling_agent() == "context"
    monkeypatch.setattr(plugins.plugins, "identify", lambda: None)
    assert calling_agent() == ""
