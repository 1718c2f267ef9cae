"""The corpus, the help texts of Python's standard library, and its index: SQLite's full-text search, ranked by BM25.

``python corpus.py --out DIR`` writes ``manual.db``: one passage for each function, its name and its help text.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

MODULES = """
abc ast asyncio base64 binascii bisect builtins bz2 calendar cmath codecs collections colorsys configparser contextlib
copy csv difflib dis email.utils filecmp fnmatch functools gc getpass gettext glob gzip hashlib heapq hmac html
inspect ipaddress itertools json linecache locale logging math mimetypes operator os os.path pickle platform pprint
random re reprlib secrets select selectors shlex shutil signal socket socketserver stat statistics string struct
subprocess sys tarfile tempfile textwrap threading time tokenize traceback types unicodedata urllib.parse
urllib.request uuid warnings weakref zipfile zlib
"""
TYPES = (str, bytes, bytearray, list, tuple, dict, set, frozenset, int, float, complex)
WORD = re.compile(r"[A-Za-z0-9]+")
SIGNATURE = re.compile(r"\S+\([^\n]*\)(?: *->[^\n]*| *)(?:\n|$)| *[\w.]+\([^\n]*?\) *(?:->|--) *(?:\w+\n)?")


def passages() -> dict[str, str]:
    """Name to help text, without its signature, of each function of the modules and method of the built-in types."""
    found = dict(documented())
    return {name: text for name in sorted(found) if (text := clean(found[name]))}


def documented() -> Iterator[tuple[str, str]]:
    """Each function with its docstring; one that a module only imports is left to the module it comes from."""
    for name in MODULES.split():
        module = importlib.import_module(name)
        homes = {name, f"_{name}", "posixpath", "genericpath", "posix", "nt", "builtins", None}
        for attribute in sorted(getattr(module, "__all__", None) or vars(module)):
            value = getattr(module, attribute, None)
            home = getattr(value, "__module__", None)
            if (
                inspect.isroutine(value)
                and not attribute.startswith("_")
                and (home in homes or f"{home}".startswith(name))
            ):
                yield f"{name}.{attribute}", inspect.getdoc(value) or ""
    for kind in TYPES:
        for attribute in dir(kind):
            value = getattr(kind, attribute)
            if callable(value) and not attribute.startswith("_"):
                yield f"{kind.__name__}.{attribute}", inspect.getdoc(value) or ""


def clean(text: str) -> str:
    """A docstring in one line, without the signature that some begin with."""
    while match := SIGNATURE.match(text):
        text = text[match.end() :].lstrip()
    return " ".join(text.split())


def make(path: Path) -> None:
    """Write the index to the file ``path``, in place of one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIRTUAL TABLE manual USING fts5(name, text, tokenize = 'porter unicode61')")
        connection.executemany("INSERT INTO manual VALUES (?, ?)", passages().items())


def search(path: Path, words: str, limit: int = 3) -> list[tuple[str, str]]:
    """(name, text) of the passages that hold every word of ``words`` (or of the same stem), best BM25 score first."""
    query = " ".join(f'"{word}"' for word in WORD.findall(words))
    if not query:
        return []
    if not path.is_file():
        raise FileNotFoundError(f"there is no index {path}: make it with `python corpus.py --out {path.parent}`")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        matches = "SELECT name, text FROM manual WHERE manual MATCH ? ORDER BY bm25(manual), name LIMIT ?"
        return connection.execute(matches, (query, limit)).fetchall()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the index manual.db.")
    parser.add_argument("--out", type=Path, required=True, help="folder to make it in")
    options = parser.parse_args()
    make(options.out / "manual.db")
    print(f"indexed {len(passages())} help texts in {options.out / 'manual.db'}")


if __name__ == "__main__":
    main()
