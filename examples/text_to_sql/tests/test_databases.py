"""The databases hold real rows, and a query can only read them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("database", "query", "rows"),
    [
        ("world", "SELECT capital, continent FROM countries WHERE name = 'Norway'", [("Oslo", "Europe")]),
        ("world", "SELECT country FROM cities WHERE name = 'Nairobi'", [("Kenya",)]),
        ("web", "SELECT phrase, kind FROM statuses WHERE code = 503", [("Service Unavailable", "server error")]),
        ("web", "SELECT type FROM types WHERE extension = 'png'", [("image/png",)]),
        ("system", "SELECT name FROM errors WHERE number = 2", [("ENOENT",)]),
        ("system", "SELECT number FROM signals WHERE name = 'SIGTERM'", [(15,)]),
        ("america", "SELECT count(*) FROM counties WHERE state = 'Delaware'", [(3,)]),
        ("python", "SELECT name FROM tokens WHERE number = 1", [("NAME",)]),
    ],
)
def test_rows(example: SimpleNamespace, data: Path, database: str, query: str, rows: list[object]) -> None:
    assert example.databases.run(data / f"{database}.db", query) == rows


def test_the_prompts_name_every_table_and_column(example: SimpleNamespace) -> None:
    for database, maker in example.databases.DATABASES.items():
        lines = [f"{table}({', '.join(columns)})" for table, columns, _ in maker()]
        assert example.prompts.TABLES[database] == "\n".join(lines)


def test_every_query_that_is_shown_runs_and_none_answers_a_task(example: SimpleNamespace, data: Path) -> None:
    tasks = [task.question for made in example.tasks.make(data, 0).values() for task in made]
    for database, shots in example.prompts.SHOTS.items():
        for question, query in shots:
            example.databases.run(data / f"{database}.db", query)
            assert question not in tasks


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM statuses",
        "CREATE TABLE other (a)",
        "PRAGMA query_only = 0",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'other.db'",
        "SELECT 1; DELETE FROM statuses",
        "",
        "SELECT load_extension('other')",
    ],
)
def test_a_query_can_only_read(
    example: SimpleNamespace, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if query:
        with pytest.raises(sqlite3.Error):
            example.databases.run(data / "web.db", query)
    else:
        assert example.databases.run(data / "web.db", query) == []
    assert list(tmp_path.iterdir()) == []
    assert example.databases.run(data / "web.db", "SELECT count(*) > 50 FROM statuses") == [(1,)]


def test_a_query_without_end_is_stopped(example: SimpleNamespace, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example.databases, "INSTRUCTIONS", 100_000)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        example.databases.run(data / "web.db", "SELECT count(*) FROM types a, types b, types c, types d")


def test_a_database_that_is_not_there_says_how_to_make_it(example: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"make it with `python databases\.py"):
        example.databases.run(tmp_path / "web.db", "SELECT 1")
    assert list(tmp_path.iterdir()) == []
