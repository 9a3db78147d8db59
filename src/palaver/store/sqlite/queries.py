"""Reads of the tables.

Rules:

- Functions take a connection; the caller holds one snapshot for all reads that must agree.
- Each row is checked as it is read: a message by its address, an entry by its seal, other rows by their mark. A changed
  byte is a ``DamageError`` with table and row.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

from palaver.core import jsontext
from palaver.core.errors import DamageError, DecodeError, NotFoundError
from palaver.store import message_codec
from palaver.store.records import decode_entry, is_unreadable, unreadable
from palaver.store.sqlite.schema import id_bytes, id_ranges, id_text, row_mark, typed
from palaver.store.store import ThreadInfo
from palaver.threads.thread import Entry

Row: TypeAlias = tuple[Any, ...]

_MIN_PREFIX: Final = 4
_COLUMNS: Final = "e.place, e.id, e.parent, e.stamps, e.sent_at, e.seal, e.body, b.digest, b.encoding, b.data, b.size"
_READ: Final = (
    f"SELECT {_COLUMNS} FROM entries e LEFT JOIN bodies b ON b.id = e.body"  # noqa: S608 (constants)
    " WHERE e.thread = ? AND e.place >= ? AND e.place < ? ORDER BY e.place"
)
_PATH: Final = (
    "WITH RECURSIVE up (place, parent, more) AS ("  # noqa: S608 (constants)
    " SELECT place, parent, :most FROM entries WHERE thread = :thread AND place = :leaf"
    " UNION ALL SELECT e.place, e.parent, up.more - 1 FROM up JOIN entries e"
    " ON e.thread = :thread AND e.place = up.parent AND e.place < up.place WHERE up.more > 1)"
    f" SELECT {_COLUMNS} FROM up CROSS JOIN entries e ON e.thread = :thread AND e.place = up.place"
    " LEFT JOIN bodies b ON b.id = e.body"
)
"""Leaf first. ``CROSS`` keeps SQLite from reading the whole thread in some order, to find a few entries."""

_OWN: Final = 6
"""The number of its columns that are the entry's own; the others are those of its body, which may be missing."""
_TYPES: Final = frozenset(
    types[:columns]
    for parent in (int, NoneType)
    for sent_at in (int, NoneType, float)
    for types in [(int, bytes, parent, int, sent_at, bytes, int, bytes, int, bytes, int)]
    for columns in (_OWN, len(types))
)
"""``float``: older versions stored the time of a message as it was given, and such a message cannot be decoded."""
_PARENT: Final = (
    "SELECT e.id, e.parent, e.stamps, e.sent_at, e.seal, b.digest, g.seal FROM entries e"
    " LEFT JOIN bodies b ON b.id = e.body LEFT JOIN entries g ON g.thread = e.thread AND g.place = e.parent"
    " WHERE e.thread = ? AND e.place = ?"
)
_ONE: Final = _READ.replace("e.place >= ? AND e.place < ? ORDER BY e.place", "e.place = ?")


class ThreadRow(NamedTuple):
    """A row of ``threads``."""

    number: int
    id: str
    created_at: int
    updated_at: int
    length: int


_THREAD: Final = "SELECT number, id, created_at, updated_at, length, mark FROM threads WHERE "


def thread_of(db: sqlite3.Connection, id: str) -> ThreadRow:
    """Return the row of a thread. Raises ``NotFoundError``."""
    try:
        row = db.execute(_THREAD + "id = ?", (id,)).fetchone()
    except UnicodeEncodeError:
        row = None
    if row is None:
        raise NotFoundError(f"no thread {id!r}")
    return checked_thread(row)


def checked_thread(row: Row) -> ThreadRow:
    """Return a row of ``threads`` whose checksum matches."""
    if row_mark(*row[:-1]) != row[-1]:
        raise DamageError(f"threads {row[0]}: altered: its checksum does not match")
    return ThreadRow(*row[:-1])


# -- threads -------------------------------------------------------------------------------------------------------


def info_of(db: sqlite3.Connection, thread: ThreadRow) -> ThreadInfo:
    """Return the title, tags, metadata, times and heads of a thread."""
    about = details_of(db, thread.number)
    return ThreadInfo(
        id=thread.id,
        title=about.get("title"),
        tags=tuple(about.get("tags", ())),
        metadata=about.get("metadata", {}),
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        length=thread.length,
        branches=branches_of(db, thread.number),
    )


def infos_of(db: sqlite3.Connection, numbers: Iterable[int], tag: str | None) -> Iterator[ThreadInfo]:
    """Yield the existing threads, with a tag if one is given."""
    for number in numbers:
        row = db.execute(_THREAD + "number = ?", (number,)).fetchone()
        if row is None or (tag is not None and tag not in details_of(db, number).get("tags", ())):
            continue
        yield info_of(db, checked_thread(row))


def details_of(db: sqlite3.Connection, number: int) -> dict[str, Any]:
    """Return title, tags and metadata of a thread."""
    row = db.execute("SELECT data, mark FROM abouts WHERE thread = ?", (number,)).fetchone()
    if row is None:
        return {}
    if row_mark(number, row[0]) != row[1]:
        raise DamageError(f"abouts {number}: altered: its checksum does not match")
    try:
        found: dict[str, Any] = jsontext.view(row[0])
    except DecodeError as error:
        raise DamageError(f"abouts {number}: altered: {error}") from None
    return found


def branches_of(db: sqlite3.Connection, number: int) -> dict[str, str | None]:
    """Return the head of each branch."""
    rows = db.execute(
        "SELECT b.name, b.head, b.mark, e.id FROM branches b LEFT JOIN entries e"
        " ON e.thread = b.thread AND e.place = b.head WHERE b.thread = ?",
        (number,),
    )
    return {name: _head(number, name, head, mark, entry)[1] for name, head, mark, entry in rows.fetchall()}


def head_of(db: sqlite3.Connection, thread: ThreadRow, branch: str) -> tuple[int | None, str | None]:
    """Return the place and the id of a branch's head. Raises ``NotFoundError``."""
    try:
        row = db.execute(
            "SELECT b.name, b.head, b.mark, e.id FROM branches b LEFT JOIN entries e"
            " ON e.thread = b.thread AND e.place = b.head WHERE b.thread = ? AND b.name = ?",
            (thread.number, branch),
        ).fetchone()
    except UnicodeEncodeError:
        row = None
    if row is None:
        raise NotFoundError(f"thread {thread.id}: no branch {branch!r}")
    return _head(thread.number, *row)


def _head(number: int, name: str, head: int | None, mark: bytes, id: bytes | None) -> tuple[int | None, str | None]:
    if row_mark(number, name, head) != mark:
        raise DamageError(f"branches {number} {name!r}: altered: its checksum does not match")
    if head is None:
        return None, None
    if id is None:
        raise DamageError(f"branches {number} {name!r}: missing: its head, entries {number} {head}")
    return head, id_text(id)


# -- entries -------------------------------------------------------------------------------------------------------


def place_of(db: sqlite3.Connection, thread: ThreadRow, id: str) -> int:
    """Return the place of an entry. Raises ``NotFoundError``."""
    row = db.execute("SELECT place FROM entries WHERE thread = ? AND id = ?", (thread.number, id_bytes(id))).fetchone()
    if row is None:
        raise NotFoundError(f"thread {thread.id}: no entry {id!r}")
    return typed(row[0], int, f"entries {thread.number} {row[0]!r}")


def find(db: sqlite3.Connection, thread: ThreadRow, of: str) -> int | None:
    """Return the place that a name means: the head of a branch, an entry, or an entry whose id has it as a prefix."""
    try:
        return head_of(db, thread, of)[0]
    except NotFoundError:
        pass
    try:
        return place_of(db, thread, of)
    except NotFoundError:
        pass
    found: list[Row] = []
    if len(of) >= _MIN_PREFIX:
        for low, high in id_ranges(of):
            found += db.execute(
                "SELECT place FROM entries WHERE thread = ? AND id BETWEEN ? AND ? LIMIT 2", (thread.number, low, high)
            )
    if len(found) != 1:
        why = "several entries match" if found else "no branch or entry has that name"
        raise NotFoundError(f"thread {thread.id}: {of!r}: {why}")
    return typed(found[0][0], int, f"entries {thread.number} {found[0][0]!r}")


def read(db: sqlite3.Connection, thread: ThreadRow, start: int, stop: int | None) -> list[Entry]:
    """Return entries in the order of appends."""
    length = thread.length
    start, stop, _ = slice(max(start, 0), stop).indices(length)
    found = entries_of(db, thread, db.execute(_READ, (thread.number, start, stop)))
    if len(found) != max(stop - start, 0):
        raise DamageError(f"threads {thread.number}: missing: {stop - start - len(found)} of its entries")
    return found


def path(db: sqlite3.Connection, thread: ThreadRow, leaf: int | None, last: int | None) -> list[Entry]:
    """Return the conversation that ends at a place."""
    if leaf is None or (last is not None and last < 1):
        return []
    most = thread.length if last is None else min(last, thread.length)
    rows = db.execute(_PATH, {"thread": thread.number, "most": most, "leaf": leaf}).fetchall()
    found = entries_of(db, thread, reversed(rows))
    if not found or (len(found) < most and found[0].parent is not None):
        raise DamageError(f"entries {thread.number} {leaf}: missing: an entry before it")
    return found


def entry_at(db: sqlite3.Connection, thread: ThreadRow, place: int) -> Entry:
    """Return the entry of an existing place."""
    found = entries_of(db, thread, db.execute(_ONE, (thread.number, place)))
    if not found:  # an index names it
        raise DamageError(f"entries {thread.number} {place}: missing")
    return found[0]


def entries_of(db: sqlite3.Connection, thread: ThreadRow, rows: Iterable[Row]) -> list[Entry]:
    """Read rows back, in the order of their places; each is checked."""
    number = thread.number
    known: dict[int | None, tuple[str | None, bytes]] = {None: (None, message_codec.first_seal(thread.id))}
    found: list[Entry] = []

    blob = message_codec.BlobCache(lambda digest: blob_of(db, digest, missing=DamageError))
    for row in rows:
        place, name, parent, stamps, sent_at, seal, body, digest, encoding, data, size = row
        if tuple(map(type, row if digest is not None else row[:_OWN])) not in _TYPES:
            raise DamageError(f"entries {number} {place}: altered: a column has a value of another type")
        if parent not in known:
            known[parent] = _parent(db, thread, place, parent)
        before, sealed = known[parent]
        entry = id_text(name)
        known[place] = (entry, seal)
        if digest is None:
            reason = f"entries {number} {place}: missing: bodies {body}"
            found.append(Entry(entry, before, unreadable(b"", reason, id=entry)))
            continue
        if not message_codec.is_sealed(seal, sealed, entry, stamps, sent_at, digest):
            raise DamageError(f"entries {number} {place}: altered: its seal does not match")
        kept = message_codec.StoredBytes(digest, encoding, data, size)
        time = int(sent_at) if type(sent_at) is float else sent_at
        made = decode_entry(entry, before, stamps, time, kept, blob, f"bodies {body}")
        if time is not sent_at and not is_unreadable(made.message):
            raise DamageError(f"entries {number} {place}: altered: a column has a value of another type")
        found.append(made)
    return found


def _parent(db: sqlite3.Connection, thread: ThreadRow, place: int, parent: int) -> tuple[str, bytes]:
    """Return the id and the seal of an entry's parent; the id is checked like those of entries."""
    number = thread.number
    row = db.execute(_PARENT, (number, parent)).fetchone()
    if row is None:
        raise DamageError(f"entries {number} {place}: missing: entries {number} {parent}, which it follows")
    name, before, stamps, sent_at, seal, digest, sealed = row
    sealed = message_codec.first_seal(thread.id) if before is None else sealed
    types = tuple(map(type, (name, stamps, seal, digest or b"", sealed)))
    if types != (bytes, int, bytes, bytes, bytes) or not isinstance(sent_at, int | float | None):
        raise DamageError(f"entries {number} {parent}: altered: a column has a value of another type")
    if digest is not None and not message_codec.is_sealed(seal, sealed, id_text(name), stamps, sent_at, digest):
        raise DamageError(f"entries {number} {parent}: altered: its seal does not match")
    return id_text(name), seal


def blob_of(
    db: sqlite3.Connection, digest: bytes, *, missing: type[NotFoundError | DamageError] = NotFoundError
) -> bytes:
    """Return the bytes of a blob."""
    row = db.execute("SELECT id, encoding, data FROM blobs WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise missing(f"no blob sha256:{digest.hex()}")
    return message_codec.decompress(digest, row[1], row[2], f"blobs {row[0]}")
