"""Translate errors of SQLite into those of the store.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from palaver.core.errors import DamageError, StoreError, UnavailableError

_KINDS: Final[dict[int, tuple[type[StoreError], str]]] = {
    sqlite3.SQLITE_BUSY: (UnavailableError, "another process locks it for too long"),
    sqlite3.SQLITE_LOCKED: (UnavailableError, "another process locks it for too long"),
    sqlite3.SQLITE_NOMEM: (UnavailableError, "there is not enough memory"),
    sqlite3.SQLITE_READONLY: (UnavailableError, "it is read-only"),
    sqlite3.SQLITE_IOERR: (UnavailableError, "reading or writing failed"),
    sqlite3.SQLITE_FULL: (UnavailableError, "the disk is full"),
    sqlite3.SQLITE_CANTOPEN: (UnavailableError, "it cannot be opened"),
    sqlite3.SQLITE_PERM: (UnavailableError, "there is no permission"),
    sqlite3.SQLITE_CORRUPT: (DamageError, "it is damaged"),
    sqlite3.SQLITE_NOTADB: (DamageError, "it is not an SQLite database, or its header is damaged"),
    sqlite3.SQLITE_TOOBIG: (StoreError, "that is larger than a row can be"),
}
_PRIMARY: Final = 0xFF
"""The last byte of an extended code is its primary code."""


def store_error(error: Exception, path: str) -> Exception:
    """Return the error for an error of SQLite; any other error is returned as it is."""
    if isinstance(error, OverflowError | sqlite3.DataError):
        return StoreError(f"{path}: that is larger than a row can be")
    if not isinstance(error, sqlite3.Error):
        return error
    kind, why = _KINDS.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY, (DamageError, "it cannot be used"))
    return kind(f"{path}: {why} ({error})")


@contextmanager
def translated_errors(path: str) -> Generator[None]:
    """Translate the errors of SQLite in the block."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise store_error(error, path) from error
