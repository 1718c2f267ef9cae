from __future__ import annotations

from typing import Any

import pytest

from leyden import hookimpl
from leyden.errors import MarkError
from leyden.marks import Marks
from leyden.plugins import Plugins
from leyden.types import Mark, Span


class Runs:
    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls = 0

    @hookimpl
    def leyden_run(self, target: object, task: Any) -> Any:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.setenv("LEYDEN_PLUGINS", "")
    return Plugins()


def test_the_first_answer_is_the_last_call(plugins: Plugins) -> None:
    never, broken, silent, first = Runs("never"), Runs(ValueError("no")), Runs(None), Runs("first")
    for name, plugin in {"never": never, "first": first, "silent": silent, "broken": broken}.items():
        plugins.register(name, plugin)
    assert plugins.first("leyden_run", target=1, task=2) == "first"
    assert (broken.calls, silent.calls, first.calls, never.calls) == (1, 1, 1, 0)
    assert dict(plugins.errors) == {"broken.leyden_run": 1}


def test_every_plugin_sees_a_span(plugins: Plugins) -> None:
    seen: list[Any] = []

    class Sees:
        @hookimpl
        def leyden_span(self, span: Span) -> None:
            seen.append(span.name)

    plugins.register("one", Sees())
    plugins.register("two", Sees())
    plugins.span(Span(rollout_id="r", attempt_id="a", span_id="s", sequence=1, name="step"))
    assert seen == ["step", "step"]


def test_a_bound_method_is_found_by_what_it_is() -> None:
    runs, other = Runs(1), Runs(2)
    marks = Marks()
    marks.add(runs.leyden_run)
    assert marks.resolve([("a", other.leyden_run), ("b", runs.leyden_run)]) == (Mark(selector="b"),)
    with pytest.raises(MarkError, match="not an agent"):
        marks.resolve([("a", other.leyden_run)])
