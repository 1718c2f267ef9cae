"""Selectors, which mark decides, and marks that are errors."""

from __future__ import annotations

import pytest

from leyden.errors import MarkError
from leyden.marks import Marks, check, mark_of, matches
from leyden.types import Mark


@pytest.mark.parametrize(
    ("selector", "path", "expected"),
    [
        ("writer", "writer", True),
        ("writer", "planner/writer", True),
        ("writer", "writers", False),
        ("writer", "writer/tool", False),
        ("wri*", "planner/writer", True),
        ("*r*t*r", "writer", True),
        ("wri?er", "writer", True),
        ("[wx]riter", "writer", True),
        ("[!wx]riter", "writer", False),
        ("[!a]riter", "writer", True),
        ("a.b", "axb", False),
        ("a+(b)", "a+(b)", True),
        ("x[", "x[", True),
        ("planner/*", "planner/writer", True),
        ("planner/*", "planner", False),
        ("planner/*", "planner/team/writer", False),
        ("planner/*", "root/planner/writer", False),
        ("planner/**", "planner/team/writer", True),
        ("**/writer", "writer", True),
        ("**/writer", "a/b/writer", True),
        ("**/writer", "a/underwriter", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False),
        ("x/a?b", "x/a/b", False),
        ("x/a[!c]b", "x/a/b", False),
        ("a*b*/c*d*", "aabb/ccdd", True),
        ("**", "any/thing", True),
        ("*", "any/thing", True),
    ],
)
def test_globs(selector: str, path: str, expected: bool) -> None:
    assert matches(selector, path) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("writer", "a"),
        ("planner", None),
        ("planner/writer", "a"),
        ("writer/helper", "a"),  # a mark covers what lies below it
        ("writer/critic", "b"),  # unless something deeper is marked
        ("team/any", "c"),
        ("team/exact", "d"),  # fewer wildcards decide at one depth
        ("team/any/writer", "a"),
        ("", None),
    ],
)
def test_the_deepest_and_most_exact_mark_decides(path: str, expected: str | None) -> None:
    marks = (
        Mark(selector="writer", policy="a"),
        Mark(selector="critic", policy="b"),
        Mark(selector="team/*", policy="c"),
        Mark(selector="team/exact", policy="d"),
    )
    found = mark_of(path, marks)
    assert (found and found.policy) == expected


def test_collecting_and_resolving() -> None:
    marks, node = Marks(), object()
    marks.add("/writer/ ")
    marks.add("writer")
    marks.add(node, "b")
    assert marks.resolve([("planner", object()), ("team/x", node)]) == (
        Mark(selector="writer"),
        Mark(selector="team/x", policy="b"),
    )
    with pytest.raises(MarkError, match=r"known agents: planner$"):
        marks.resolve([("planner", object())])
    marks.clear()
    assert marks.resolve([]) == ()


@pytest.mark.parametrize("selector", ["", " / ", "[z-a]"])
def test_selectors_that_are_errors(selector: str) -> None:
    with pytest.raises(MarkError):
        Marks().add(selector)


def test_a_policy_needs_a_name() -> None:
    with pytest.raises(MarkError, match="policy"):
        Marks().add("writer", "")


def test_check_names_the_remedy() -> None:
    known = ["planner", "planner/writer"]
    check([Mark(selector="writer"), Mark(selector="planner/*", policy="b")], known)
    check([Mark(selector="unknown")], [])
    with pytest.raises(MarkError, match=r"no agent is marked.*--train.*planner, planner/writer"):
        check([], known)
    with pytest.raises(MarkError, match=r"Did you mean 'writer'\? Known agents: planner, planner/writer.*declare"):
        check([Mark(selector="writr")], known)
    with pytest.raises(MarkError, match="two policies: 'a' and 'b'"):
        check([Mark(selector="writer", policy="a"), Mark(selector="writer", policy="b")], known)
