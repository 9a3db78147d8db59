"""A store in one SQLite file: the embedded default.

``recover`` saves the sound data of a damaged file, ``verify`` checks one that cannot be opened.

Stability: experimental.
"""

from palaver.store.sqlite.recover import Recovered, recover
from palaver.store.sqlite.store import SQLiteStore
from palaver.store.sqlite.verify import verify

__all__ = ["Recovered", "SQLiteStore", "recover", "verify"]
