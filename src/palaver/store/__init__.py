"""Stores: they keep threads in SQLite, in PostgreSQL, in a folder of JSON Lines, or in memory.

``open_store("palaver.db")`` opens a store by its location.

Stability: experimental.
"""

from palaver.store.location import default_location, open_store
from palaver.store.store import Addition, Appended, Damage, Freed, Hit, Query, Store, ThreadInfo, Verified
from palaver.store.stored_thread import StoredThread

__all__ = [
    "Addition",
    "Appended",
    "Damage",
    "Freed",
    "Hit",
    "Query",
    "Store",
    "StoredThread",
    "ThreadInfo",
    "Verified",
    "default_location",
    "open_store",
]
