from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leyden.errors import InvalidInput
from leyden.tasks import digest, load_task_sets, load_tasks


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "tasks"),
    [
        ("a.jsonl", '{"q": 1}\n\n"two"\n', [{"q": 1}, "two"]),
        ("a.jsonl", '\ufeff{"q": "ü"}', [{"q": "ü"}]),
        ("a.json", '[1, {"q": 2}]', [1, {"q": 2}]),
        ("a.csv", 'q,a\n"one, two",3\n', [{"q": "one, two", "a": "3"}]),
        ("a.txt", "one\n\n two \n", ["one", "two"]),
        ("a.txt", "one\u2028line\x0b\n", ["one\u2028line"]),
    ],
)
def test_files_are_read_by_their_ending(tmp_path: Path, name: str, text: str, tasks: list[Any]) -> None:
    assert load_tasks(file(tmp_path, name, text)) == tasks


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"q": 1}\n\n{"q": 2\n', r"a\.jsonl, line 3: not a JSON value"),
        ("a.jsonl", "\n\n", "holds no tasks"),
        ("a.json", '{"q": 1}', "holds a dict"),
        ("a.json", "[1,\n2", "line 2"),
        ("a.csv", "q,a\n1,2\n3\n", "line 3"),
        ("a.csv", "q,a\n1,2,3\n", "line 2"),
        ("a.csv", "q,q\n1,2\n", "names a column twice"),
        ("a.csv", "q,a\n1," + 200_000 * "x", "line 1: not CSV .field larger"),
        ("a.jsonl", '1\n{"q": "\\ud800"}', "line 2 cannot be kept"),
        ("a.jsonl", "1\n" + 30 * "9", "line 2 cannot be kept"),
        ("a.jsonl", "1\n" + 5000 * "9", "line 2: cannot be read"),
        ("a.jsonl", "1\n" + 100_000 * "[", "line 2: cannot be read"),
        ("a.json", "[1, " + 30 * "9" + "]", "task 2 cannot be kept"),
        ("a.parquet", "x", "tasks are read from .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_says_where(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_tasks(file(tmp_path, name, text))


def test_a_missing_file_an_empty_list_and_a_task_that_is_no_json_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        load_tasks(tmp_path / "none.jsonl")
    with pytest.raises(InvalidInput, match="holds no tasks"):
        load_tasks([])
    with pytest.raises(InvalidInput, match=r"tasks\[1\] cannot be kept"):
        load_tasks([1, object()])
    for wrong in ({"q": 1}, 3):
        with pytest.raises(InvalidInput, match=r"give a path to a .jsonl file, or a list"):
            load_tasks(wrong)  # type: ignore[arg-type]
    bad = tmp_path / "latin.txt"
    bad.write_bytes(b"caf\xe9")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        load_tasks(bad)


def test_held_out_sets_have_names() -> None:
    assert load_task_sets(None) == {}
    assert load_task_sets([1]) == {"val": [1]}
    assert load_task_sets({"numbers": [1], "words": [2]}) == {"numbers": [1], "words": [2]}
    with pytest.raises(InvalidInput, match="cannot be called 'train'"):
        load_task_sets({"train": [1]})
    with pytest.raises(InvalidInput, match="holds no tasks"):
        load_task_sets({"words": []})


def test_a_digest_tells_task_lists_apart_but_not_the_order_of_keys() -> None:
    assert digest([{"a": 1, "b": 2}]) == digest([{"b": 2, "a": 1}])
    assert digest([1, 2]) != digest([2, 1])
