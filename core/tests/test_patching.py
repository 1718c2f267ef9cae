from __future__ import annotations

import inspect
import logging
import sys
import types
from typing import Any

import pytest

from leyden.patching import Patch, Patches, outside


class Tool:
    def run(self, value: int) -> int:
        return value


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("a_framework")
    module.add = lambda a, b: a + b  # type: ignore[attr-defined]
    module.Tool = type("Tool", (), {"run": Tool.run})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_framework", module)
    return module


def doubled(original: Any) -> Any:
    return lambda *args: 2 * original(*args)


def patches(*symbols: str) -> Patches:
    return Patches("test", (), [Patch("a_framework", symbol, doubled, "a test", "1") for symbol in symbols])


def test_functions_and_methods_are_replaced_and_put_back(framework: Any) -> None:
    originals = framework.add, framework.Tool.run
    installed = patches("add", "Tool.run")
    remove = installed.install()
    assert framework.add(1, 2) == 6
    assert framework.Tool().run(5) == 10
    remove()
    assert (framework.add, framework.Tool.run) == originals
    remove_again = installed.install()
    assert framework.add(1, 2) == 6
    remove_again()
    assert (framework.add, framework.Tool.run) == originals


def test_the_originals_come_back_with_the_last_user(framework: Any) -> None:
    original = framework.add
    installed = patches("add")
    first, second = installed.install(), installed.install()
    assert framework.add(1, 2) == 6
    first()
    first()
    assert framework.add(1, 2) == 6
    second()
    assert framework.add is original
    assert not installed.active


async def test_a_replacement_looks_like_its_original(framework: Any) -> None:
    async def coroutine(self: Any, value: int) -> int:
        return value

    async def stream(self: Any, value: int) -> Any:
        yield value

    framework.Tool.arun, framework.Tool.astream = coroutine, stream
    remove = patches("Tool.run").install()
    inert = Patches(
        "test",
        (),
        [
            Patch("a_framework", f"Tool.{name}", lambda original: original, "a test", "1")
            for name in ("arun", "astream")
        ],
    )
    remove_inert = inert.install()
    tool = framework.Tool()
    assert inspect.iscoroutinefunction(tool.arun)
    assert inspect.isasyncgenfunction(tool.astream)
    assert str(inspect.signature(tool.arun)) == "(value: 'int') -> 'int'"
    assert await tool.arun(3) == 3
    assert [item async for item in tool.astream(4)] == [4]
    assert framework.Tool.run(tool, 5) == 10
    remove_inert()
    remove()
    assert framework.Tool.arun is coroutine


def test_one_that_was_wrapped_by_somebody_else_becomes_inert(framework: Any) -> None:
    installed = patches("add")
    remove = installed.install()
    ours = framework.add
    framework.add = lambda a, b: ours(a, b) + 100
    remove()
    assert framework.add(1, 2) == 103


def test_one_that_was_wrapped_by_somebody_else_is_not_applied_twice_later(framework: Any) -> None:
    installed = patches("add")
    remove = installed.install()
    ours = framework.add
    framework.add = lambda a, b: ours(a, b) + 100
    remove()
    remove = installed.install()
    assert framework.add(1, 2) == 2 * 103
    remove()
    assert framework.add(1, 2) == 103


def test_a_symbol_that_is_gone_is_told_and_the_rest_is_applied(
    framework: Any, caplog: pytest.LogCaptureFixture
) -> None:
    installed = patches("Gone.run", "gone", "add")
    with caplog.at_level(logging.WARNING, "leyden.patching"):
        remove = installed.install()
    assert framework.add(1, 2) == 6
    assert installed.missing == ["a_framework.Gone.run", "a_framework.gone"]
    assert "a_framework.gone is not there" in caplog.text
    remove()


def test_one_that_not_every_version_has_is_not_missed(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    given = [Patch("a_framework", symbol, doubled, "a test", "1", optional=True) for symbol in ("Gone.run", "add")]
    installed = Patches("test", (), given)
    with caplog.at_level(logging.WARNING, "leyden.patching"):
        remove = installed.install()
    assert framework.add(1, 2) == 6
    assert installed.missing == []
    assert caplog.text == ""
    remove()


def test_a_module_that_changed_its_name_is_patched(framework: Any) -> None:
    framework.__name__ = "another_framework"
    remove = patches("add").install()
    assert framework.add(1, 2) == 6
    remove()
    assert framework.add(1, 2) == 3


def test_an_imported_module_is_patched_later(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leyden_lazy_probe.py").write_text("def add(a, b):\n    return a + b\n")
    monkeypatch.syspath_prepend(tmp_path)
    installed = Patches("test", (), [Patch("leyden_lazy_probe", "add", doubled, "a test", "1")])
    remove = installed.install()
    assert "leyden_lazy_probe" not in sys.modules
    import leyden_lazy_probe  # type: ignore[import-not-found]

    assert leyden_lazy_probe.add(1, 2) == 6
    remove()
    assert leyden_lazy_probe.add(1, 2) == 3
    monkeypatch.delitem(sys.modules, "leyden_lazy_probe")


def test_versions_outside_the_range_are_named() -> None:
    assert outside(["pluggy>=1"]) is None
    assert outside(["not-installed-anywhere>=1"]) is None
    problem = outside(["pluggy<1"])
    assert problem is not None
    assert "outside the tested range <1" in problem
    assert "pip install 'pluggy<1'" in problem


def test_a_version_outside_the_range_is_warned_about_once(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    installed = Patches("test", ["pluggy<1"], [Patch("a_framework", "add", doubled, "a test", "1")])
    with caplog.at_level(logging.WARNING, "leyden.patching"):
        installed.install()()
        installed.install()()
    assert caplog.text.count("outside the tested range") == 1
