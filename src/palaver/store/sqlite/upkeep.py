"""Garbage collection: removal of unreferenced bodies and blobs from the disk.

Rules:

- Candidates are found without blocking writers, and checked again in the transaction that removes them: an append may
  have used them since.
- Removed bytes are overwritten (``secure_delete``). ``optimize`` drops removed words from the index; ``VACUUM`` and a
  checkpoint that empties the log remove the last copies. ``states.unclean`` records that this is due, so an
  interrupted run is completed later.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from palaver.core.errors import UnavailableError
from palaver.store.sqlite import search_index
from palaver.store.sqlite.queries import Row
from palaver.store.sqlite.schema import INDEXED, UNCLEAN
from palaver.store.sqlite.search_index import IndexedText

CHUNK: Final = 200
_WITHOUT_ENTRY: Final = "NOT EXISTS (SELECT 1 FROM entries WHERE entries.body = bodies.id)"
_UNUSED: Final = "NOT EXISTS (SELECT 1 FROM uses WHERE uses.blob = blobs.digest)"


def unused_bodies(db: sqlite3.Connection) -> list[int]:
    """Return the bodies without an entry."""
    return [row for (row,) in db.execute(f"SELECT id FROM bodies INDEXED BY bodies_digest WHERE {_WITHOUT_ENTRY}")]  # noqa: S608 (constants)


def unused_blobs(db: sqlite3.Connection) -> list[int]:
    """Return the blobs without a body."""
    return [row for (row,) in db.execute(f"SELECT id FROM blobs INDEXED BY blobs_digest WHERE {_UNUSED}")]  # noqa: S608 (constants)


def indexed_texts(db: sqlite3.Connection, ids: list[int]) -> list[IndexedText]:
    """Return the indexed texts of bodies."""
    rows: list[Row] = []
    for body in ids:
        rows += db.execute("SELECT id, digest, encoding, data FROM bodies WHERE id = ?", (body,))
    return [search_index.indexed_text(*row) for row in rows]


def remove_bodies(gone: list[IndexedText]) -> Callable[[sqlite3.Connection], int]:
    """Work: remove bodies that still have no entry; return how many."""

    def work(db: sqlite3.Connection) -> int:
        still = [
            each
            for each in gone
            if db.execute(f"SELECT 1 FROM bodies WHERE id = ? AND {_WITHOUT_ENTRY}", (each.id,)).fetchone()  # noqa: S608 (constants)
        ]
        if not still:
            return 0
        search_index.remove_texts(db, still)
        ids = [(each.id,) for each in still]
        db.executemany("DELETE FROM uses WHERE body = ?", ids)
        db.executemany("DELETE FROM bodies WHERE id = ?", ids)
        # The ids of rows removed at the end are used again: new bodies must be indexed.
        (last,) = db.execute("SELECT coalesce(max(id), 0) FROM bodies").fetchone()
        search_index.set_state(db, INDEXED, min(search_index.state(db, INDEXED), last))
        search_index.set_state(db, UNCLEAN, 1)
        return len(still)

    return work


def remove_blobs(ids: list[int]) -> Callable[[sqlite3.Connection], int]:
    """Work: remove blobs that still have no body; return how many."""

    def work(db: sqlite3.Connection) -> int:
        removed = sum(
            db.execute(f"DELETE FROM blobs WHERE id = ? AND {_UNUSED}", (blob,)).rowcount  # noqa: S608 (constants)
            for blob in ids
        )
        if removed:
            search_index.set_state(db, UNCLEAN, 1)
        return removed

    return work


def clean(db: sqlite3.Connection) -> None:
    """Work, outside of transactions: remove the last copies of removed data."""
    if not search_index.state(db, UNCLEAN):
        return
    db.execute("INSERT INTO words (words) VALUES ('optimize')")
    db.execute("VACUUM")
    search_index.set_state(db, UNCLEAN, 0)
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        search_index.set_state(db, UNCLEAN, 1)
        raise UnavailableError(
            "readers kept the write-ahead log open for too long, so it still contains the removed data"
        )
