"""Opening stores by URL, and what is said where that fails."""

from __future__ import annotations

import os
import sqlite3
import sys
import types
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from leyden import stores
from leyden.errors import ConfigError, PluginError
from leyden.stores import open_store
from leyden.stores.memory import MemoryStore
from leyden.stores.sqlite import SQLiteStore, schema
from leyden.types import RolloutRequest


@pytest.mark.parametrize("url", ["memory", "memory:", "memory://"])
async def test_memory(url: str) -> None:
    async with open_store(url) as store:
        assert isinstance(store, MemoryStore)


async def test_sqlite_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    urls = {
        "sqlite:///rel.db": "rel.db",
        f"sqlite:///{tmp_path}/abs.db": "abs.db",
        "sub/bare.db": "sub/bare.db",
        "sqlite:///with%20space.db?synchronous=FULL": "with space.db",
    }
    for url, name in urls.items():
        async with open_store(url) as store:
            assert isinstance(store, SQLiteStore)
            await store.enqueue([RolloutRequest(task=1)])
        assert (tmp_path / name).is_file(), url
        reopened = await open_store(url)
        assert (await reopened.statistics()).rollouts["queued"] == 1
        await reopened.close()


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("sqlite://", "sqlite:///relative"),
        ("sqlite:///", "sqlite:///relative"),
        ("sqlite:store.db", "sqlite:///relative"),
        ("sqlite:///x.db?sync=1", "synchronous"),
        ("sqlite:///x.db?synchronous=off", "synchronous"),
        ("memory:name", "memory:"),
        ("redis://127.0.0.1", "memory, sqlite"),
        ("https://127.0.0.1", "leyden-server"),
        ("store", "sqlite:///path.db"),
        ("", "sqlite:///path.db"),
    ],
)
async def test_a_wrong_url_names_the_remedy(
    url: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stores, "entry_points", lambda group: EntryPoints(()))
    with pytest.raises(ConfigError, match=remedy):
        await open_store(url)
    assert os.listdir(tmp_path) == []


async def test_stores_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opener(url: str) -> MemoryStore:
        assert url == "other://x"
        return MemoryStore()

    module = types.ModuleType("a_plugin")
    module.open_store = opener  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_plugin", module)
    found = EntryPoints(
        EntryPoint(name, f"{value}:open_store", stores.ENTRY_POINTS)
        for name, value in (("other", "a_plugin"), ("broken", "no_such_plugin"))
    )
    monkeypatch.setattr(stores, "entry_points", lambda group: found)
    async with open_store("other://x") as store:
        assert isinstance(store, MemoryStore)
    with pytest.raises(PluginError, match="no_such_plugin"):
        await open_store("broken://x")


async def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is not a database, but long enough to be one" * 50)
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="not a Leyden store"):
            await open_store(str(path))
        assert path.read_bytes() == before


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)):
        pass
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    with pytest.raises(ConfigError, match="upgrade leyden"):
        await open_store(str(path))


async def test_an_older_schema_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)) as store:
        await store.enqueue([RolloutRequest(task="kept", id="r")])
    script = "CREATE TABLE later (x INTEGER);\nINSERT INTO later SELECT count(*) FROM rollouts;\n"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    async with open_store(str(path)) as store:
        assert (await store.rollouts(ids=["r"])).items[0].task == "kept"
    db = sqlite3.connect(path)
    assert db.execute("SELECT x FROM later").fetchone() == (1,)
    assert db.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    db.close()
