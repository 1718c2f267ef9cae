"""The store in an SQLite file: the embedded default, durable and shared by the processes of one machine."""

from leyden.stores.sqlite.schema import is_sqlite
from leyden.stores.sqlite.store import SQLiteStore, open_store, parse

__all__ = ["SQLiteStore", "is_sqlite", "open_store", "parse"]
