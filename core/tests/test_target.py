from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leyden.errors import ConfigError
from leyden.target import Target, load, loading, parse_target, target_of

UNGUARDED = """
import leyden

@leyden.rollout
async def solve(task):
    return 1.0

def other(task):
    return 2.0

leyden.trainable("writer")
leyden.train(solve, tasks="nowhere.jsonl", algorithm=object())
raise RuntimeError("loading goes on after train()")
"""


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    from leyden.marks import registry

    path, modules = list(sys.path), dict(sys.modules)
    yield
    registry.clear()
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if getattr(sys.modules[name], "__file__", "").startswith("/tmp"):
            del sys.modules[name]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("package.module:solve", Target(attribute="solve", module="package.module")),
        ("/a/train.py:solve", Target(attribute="solve", file="/a/train.py")),
        ("/a/train.py", Target(attribute="", file="/a/train.py")),
        ("package.module:Agent.solve", Target(attribute="Agent.solve", module="package.module")),
    ],
)
def test_targets_are_files_or_modules(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", ":solve", "no-module:solve"])
def test_what_is_no_target_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="is no target"):
        parse_target(text)


def test_loading_stops_at_an_unguarded_train_and_keeps_what_is_above(tmp_path: Path) -> None:
    file = written(tmp_path, "unguarded_one.py", UNGUARDED)
    function = load(parse_target(f"{file}:solve"))
    assert function.__name__ == "solve"
    assert not loading()
    assert load(parse_target(f"{file}:other"))(1) == 2.0
    assert load(parse_target(str(file))) is function  # the decorated one
    assert target_of(function) == Target(attribute="solve", file=str(file))


def test_a_module_with_an_unguarded_train_loads_too(tmp_path: Path) -> None:
    written(tmp_path, "unguarded_two.py", UNGUARDED)
    sys.path.insert(0, str(tmp_path))
    assert load(Target(attribute="solve", module="unguarded_two")).__name__ == "solve"


def test_a_file_finds_its_neighbours_and_is_not_run_twice_by_them(tmp_path: Path) -> None:
    written(
        tmp_path, "neighbour_of_three.py", "def help():\n    import unguarded_three\n    return unguarded_three.solve\n"
    )
    text = "from neighbour_of_three import help\n" + UNGUARDED
    function = load(parse_target(f"{written(tmp_path, 'unguarded_three.py', text)}:solve"))
    assert sys.modules["neighbour_of_three"].help() is function


def test_a_file_named_like_a_standard_module_hides_nothing(tmp_path: Path) -> None:
    import random

    load(parse_target(f"{written(tmp_path, 'random.py', UNGUARDED)}:solve"))
    assert sys.modules["random"] is random


@pytest.mark.parametrize(
    ("attribute", "message"),
    [("slove", "did you mean 'solve'"), ("zebra", "define it above the call of leyden.train")],
)
def test_a_function_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path, attribute: str, message: str) -> None:
    file = written(tmp_path, f"unguarded_{attribute}.py", UNGUARDED)
    with pytest.raises(ConfigError, match=message):
        load(parse_target(f"{file}:{attribute}"))


def test_a_missing_file_and_a_missing_module_are_errors() -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(parse_target("/nowhere/train.py:solve"))
    with pytest.raises(ConfigError, match="there is no module"):
        load(Target(attribute="solve", module="nowhere.at.all"))


def test_a_file_without_a_decorated_function_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, "undecorated.py", "def solve(task):\n    return 1.0\n")
    with pytest.raises(ConfigError, match=r"has 0 functions decorated with @leyden\.rollout"):
        load(parse_target(str(file)))


def test_functions_that_another_process_cannot_find_are_errors() -> None:
    def local(task: object) -> float:
        return 1.0

    with pytest.raises(ConfigError, match="processes=0 or method='fork'"):
        target_of(local)
    with pytest.raises(ConfigError, match="define it at the top level"):
        target_of(lambda task: 1.0)
