"""Opening a store by its URL: `memory:`, `sqlite:///runs/store.db`, and whatever plugins add."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from leyden.errors import ConfigError, PluginError
from leyden.store import LightningStore

ENTRY_POINTS = "leyden.stores"
"""Entry-point group of stores: the name is the URL scheme, the value a function `open_store(url)` to await."""

Opener = Callable[[str], Awaitable[LightningStore]]


class Opening:
    """A store that is about to be opened: `await` it, or use it in `async with`, which closes the store at the end."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: LightningStore | None = None

    async def _open(self) -> LightningStore:
        self._store = await _opener(self._url)(self._url)
        return self._store

    def __await__(self) -> Generator[Any, None, LightningStore]:
        return self._open().__await__()

    async def __aenter__(self) -> LightningStore:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


def open_store(url: str) -> Opening:
    """The store at `url`.

    `memory:` is a new, empty store in memory. `sqlite:///relative.db`, `sqlite:////absolute.db` and a bare path that ends
    in `.db` are SQLite files, made where there is none. Other schemes come from plugins. Raises `ConfigError` for a
    URL that no store takes, `PluginError` for a plugin that cannot be loaded, `StoreUnavailable` where the store
    cannot be reached.
    """
    return Opening(url)


def scheme_of(url: str) -> str:
    """The scheme that decides which store opens `url`."""
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:  # a path, perhaps with a colon in one of its names
        return "sqlite" if url.endswith(".db") else url if url == "memory" else ""
    if len(scheme) == 1:  # a drive letter
        return "sqlite" if url.endswith(".db") else ""
    return scheme.lower()


def file_url(path: str | PathLike[str]) -> str:
    """The URL of the SQLite store in a file, whatever characters its path has, for processes in other folders too."""
    return f"sqlite:///{quote(Path(path).absolute().as_posix(), safe='/ :')}"


def file_of(url: str) -> Path | None:
    """The file of an SQLite store's URL (or bare path), None for other stores. Raises `ConfigError` for a bad URL."""
    if scheme_of(url) != "sqlite":
        return None
    from leyden.stores.sqlite import parse

    return parse(url)[0]


def absolute(url: str) -> str:
    """The same store for a process in another folder."""
    file = file_of(url)
    _, question, query = url.partition("?") if url.startswith("sqlite:") else (url, "", "")
    return url if file is None else f"{file_url(file)}{question}{query}"


def check_url(url: str) -> None:
    """Raise what `open_store` would raise for a URL that no installed store takes, or for a file that is no store; opens
    nothing."""
    _opener(url)
    file = file_of(url)
    if file is None or not file.exists():
        return
    from leyden.stores.sqlite import is_sqlite

    if not is_sqlite(file):
        raise ConfigError(f"{file} is not a Leyden store (nor any SQLite file): name another file, or move it away")


def _opener(url: str) -> Opener:
    scheme = scheme_of(url)
    if scheme == "memory":
        from leyden.stores import memory

        return memory.open_store
    if scheme == "sqlite":
        from leyden.stores import sqlite

        return sqlite.open_store
    return _plugin(url, scheme)


def _plugin(url: str, scheme: str) -> Opener:
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if scheme not in found:
        known = ", ".join(sorted({"memory", "sqlite", *found}))
        raise ConfigError(
            f"no store takes {url!r}. Installed are: {known}. Use sqlite:///path.db for a file, or install the plugin: "
            "leyden-server for http(s):, leyden-postgres for postgresql:"
        )
    return _load(found[scheme])


def _load(entry: EntryPoint) -> Opener:
    try:
        opener: Opener = entry.load()
    except Exception as error:
        raise PluginError(
            f"the store plugin {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}. "
            "Reinstall or uninstall it"
        ) from error
    return opener
