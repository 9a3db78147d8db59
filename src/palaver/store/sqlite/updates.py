"""Changes of the tables: each function is work for the writer, within its transaction.

Rules:

- Heads are read in the transaction that moves them: another process may have moved them since.
- Checks come before writes, so an error leaves nothing to undo.
- An append writes the entries, new bodies, the thread's length and the branch's head, and nothing else.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from palaver.core.errors import ConflictError, DamageError, NotFoundError, StoreError
from palaver.store import message_codec
from palaver.store.records import Prepared, time_range
from palaver.store.sqlite.queries import Row, ThreadRow, entry_at, head_of, place_of, thread_of
from palaver.store.sqlite.schema import UNCLEAN, id_bytes, id_text, row_mark, typed
from palaver.threads.thread import MAIN, Entry, head_conflict

_BODY: Final = "INSERT OR IGNORE INTO bodies (digest, encoding, data, size) VALUES (?, ?, ?, ?)"
_BLOB: Final = "INSERT OR IGNORE INTO blobs (digest, encoding, data, size) VALUES (?, ?, ?, ?)"
_ENTRY: Final = "INSERT INTO entries (thread, place, id, parent, stamps, sent_at, body, seal) VALUES (?,?,?,?,?,?,?,?)"
_HEAD: Final = "UPDATE branches SET head = ?, mark = ? WHERE thread = ? AND name = ?"
_FOR_APPEND: Final = (
    "SELECT t.number, t.id, t.created_at, t.updated_at, t.length, t.mark, b.name, b.head, b.mark, e.id, e.seal"
    " FROM threads t LEFT JOIN branches b ON b.thread = t.number AND b.name = ?"
    " LEFT JOIN entries e ON e.thread = t.number AND e.place = b.head WHERE t.id = ?"
)


class AppendResult(NamedTuple):
    """The result of an append: the head before it; for a known key, the first place of its entries; their number."""

    parent: str | None
    earlier: tuple[int, int] | None = None


# -- threads -------------------------------------------------------------------------------------------------------


def create(db: sqlite3.Connection, id: str, about: bytes | None, now: int) -> ThreadRow:
    """Create a thread."""
    if db.execute("SELECT 1 FROM threads WHERE id = ?", (id,)).fetchone() is not None:
        raise ConflictError(f"the thread {id!r} already exists")
    (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM threads").fetchone()
    row = (number, id, now, now, 0)
    db.execute(
        "INSERT INTO threads (number, id, created_at, updated_at, length, mark) VALUES (?, ?, ?, ?, ?, ?)",
        (*row, row_mark(*row)),
    )
    _set_head(db, number, MAIN, None)
    if about is not None:
        set_details(db, number, about)
    return ThreadRow(*row)


def set_details(db: sqlite3.Connection, number: int, about: bytes) -> None:
    """Store title, tags and metadata."""
    db.execute("INSERT OR REPLACE INTO abouts VALUES (?, ?, ?)", (number, about, row_mark(number, about)))


def touch(db: sqlite3.Connection, thread: ThreadRow, now: int, more: int = 0) -> ThreadRow:
    """Record that a thread changed, and by how many entries it grew."""
    changed = thread._replace(updated_at=max(now, thread.updated_at), length=thread.length + more)
    db.execute(
        "UPDATE threads SET updated_at = ?, length = ?, mark = ? WHERE number = ?",
        (changed.updated_at, changed.length, row_mark(*changed), changed.number),
    )
    return changed


def delete(db: sqlite3.Connection, id: str) -> None:
    """Remove a thread. ``gc`` removes its bodies, and their words in the index."""
    number = thread_of(db, id).number
    for table in ("entries", "keys", "branches", "moves", "abouts"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (number,))  # noqa: S608 (the names above)
    db.execute("DELETE FROM threads WHERE number = ?", (number,))
    db.execute("INSERT OR REPLACE INTO states VALUES (?, 1)", (UNCLEAN,))


# -- entries -------------------------------------------------------------------------------------------------------


def append(  # noqa: PLR0917 (the arguments of Store.append)
    db: sqlite3.Connection,
    thread: str,
    rows: Sequence[Prepared],
    branch: str,
    expect: str | UnsetType | None,
    key: str | None,
    now: int,
) -> AppendResult:
    """Append prepared messages to a branch."""
    row = _row_for_append(db, thread, branch)
    found = ThreadRow(*row[:5])
    if row_mark(*found) != row[5]:
        raise DamageError(f"threads {found.number}: altered: its checksum does not match")
    if key is not None:
        known = db.execute(
            "SELECT first, count, mark FROM keys WHERE thread = ? AND key = ?", (found.number, key)
        ).fetchone()
        if known is not None:
            if row_mark(found.number, key, known[0], known[1]) != known[2]:
                raise DamageError(f"keys {found.number} {key!r}: altered: its checksum does not match")
            return AppendResult(None, (known[0], known[1]))
    name, head, mark, head_id, seal = row[6:]
    if name is None:
        raise NotFoundError(f"thread {thread}: no branch {branch!r}")
    if row_mark(found.number, name, head) != mark or (head is not None and head_id is None):
        head_of(db, found, branch)  # raises the specific error
    parent = None if head_id is None else id_text(head_id)
    if expect is not UNSET and expect != parent:
        raise head_conflict(thread, branch, parent)
    _check_blobs(db, rows)
    if rows:
        place = found.length
        last_seal = (
            message_codec.first_seal(thread) if head is None else typed(seal, bytes, f"entries {found.number} {head}")
        )
        for prepared in rows:
            last_seal = _insert(db, found.number, place, head, last_seal, prepared)
            head = place
            place += 1
        db.execute(_HEAD, (head, row_mark(found.number, branch, head), found.number, branch))
    if key is not None:
        values = (found.number, key, found.length, len(rows))
        db.execute(
            "INSERT INTO keys (thread, key, first, count, mark) VALUES (?, ?, ?, ?, ?)", (*values, row_mark(*values))
        )
    if rows or key is not None:
        touch(db, found, now, len(rows))
    return AppendResult(parent)


def _check_blobs(db: sqlite3.Connection, rows: Iterable[Prepared], absent: Collection[str] = ()) -> None:
    """Raise ``NotFoundError`` for a missing blob that a message names."""
    for digest in dict.fromkeys(digest for row in rows for digest in row.packed.external_blobs):
        if message_codec.blob_for(digest).hash in absent:
            continue
        if db.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).fetchone() is None:
            raise message_codec.missing_blob(digest)


def _row_for_append(db: sqlite3.Connection, thread: str, branch: str) -> Row:
    try:
        row = db.execute(_FOR_APPEND, (branch, thread)).fetchone()
    except UnicodeEncodeError:
        row = None
    if row is None:
        raise NotFoundError(f"no thread {thread!r}")
    return tuple(row)


def _insert(  # noqa: PLR0917 (where, and what)
    db: sqlite3.Connection, number: int, place: int, parent: int | None, sealed: bytes, row: Prepared
) -> bytes:
    """Write one entry; return its seal."""
    body, media, uses, _ = row.packed
    seal = message_codec.seal(sealed, row.id, row.stamps, row.sent_at, body.digest)
    written = db.execute(_BODY, body)
    if written.rowcount:
        kept = written.lastrowid
        if media:
            db.executemany(_BLOB, media)
        if uses:
            db.executemany("INSERT INTO uses (body, blob) VALUES (?, ?)", [(kept, digest) for digest in uses])
    else:
        (kept,) = db.execute("SELECT id FROM bodies WHERE digest = ?", (body.digest,)).fetchone()
    db.execute(_ENTRY, (number, place, id_bytes(row.id), parent, row.stamps, row.sent_at, kept, seal))
    return seal


def add(  # noqa: PLR0917 (the arguments of Store.add)
    db: sqlite3.Connection,
    thread: str,
    given: Sequence[tuple[Entry, Prepared]],
    branches: Mapping[str, str | None],
    absent: Collection[str],
    now: int,
    about: bytes | None = None,
) -> int:
    """Add existing entries. ``about`` are the details of a thread that is missing."""
    try:
        found, begun = thread_of(db, thread), False
    except NotFoundError:
        found, begun = ThreadRow(0, thread, 0, 0, 0), True
    places, new = _new_entries(db, found, given)
    _check_blobs(db, [prepared for _, prepared in new], absent)
    heads: dict[str, int | None] = {}
    for name, head in branches.items():
        heads[name] = None if head is None else _cached_place(db, found, head, places)
        if head is not None and heads[name] is None:
            raise StoreError(f"thread {thread}: the head of branch {name!r} is {head!r}, which is not there")
    first, last = time_range([entry.message for entry, _ in new], now) if new or begun else (now, found.updated_at)
    if begun:
        found = create(db, thread, about, first)
    seals: dict[int | None, bytes] = {None: message_codec.first_seal(thread)}
    for entry, prepared in new:
        parent = None if entry.parent is None else places[entry.parent]
        if parent not in seals:
            (seal,) = db.execute(
                "SELECT seal FROM entries WHERE thread = ? AND place = ?", (found.number, parent)
            ).fetchone()
            seals[parent] = typed(seal, bytes, f"entries {found.number} {parent}")
        at = places[entry.id]
        seals[at] = _insert(db, found.number, at, parent, seals[parent], prepared)
    for name, place in heads.items():
        move_head(db, found.number, name, place, now)
    if new or heads:
        touch(db, found, last, len(new))
    return len(new)


def _new_entries(
    db: sqlite3.Connection, thread: ThreadRow, given: Iterable[tuple[Entry, Prepared]]
) -> tuple[dict[str, int], list[tuple[Entry, Prepared]]]:
    """Return the new entries, and the places of all that were named."""
    places: dict[str, int] = {}
    fresh: dict[str, Entry] = {}
    new: list[tuple[Entry, Prepared]] = []
    for entry, prepared in given:
        if entry.parent is not None and _cached_place(db, thread, entry.parent, places) is None:
            raise StoreError(f"thread {thread.id}: entry {entry.id} follows {entry.parent!r}, which is not there")
        known = _cached_place(db, thread, entry.id, places)
        if known is None:
            places[entry.id] = thread.length + len(new)
            fresh[entry.id] = entry
            new.append((entry, prepared))
        elif entry != (fresh[entry.id] if entry.id in fresh else entry_at(db, thread, known)):
            raise StoreError(f"thread {thread.id}: entry {entry.id} already exists with other content")
    return places, new


def _cached_place(db: sqlite3.Connection, thread: ThreadRow, id: str, places: dict[str, int]) -> int | None:
    if id not in places and thread.length:
        try:
            places[id] = place_of(db, thread, id)
        except NotFoundError:
            return None
    return places.get(id)


# -- branches ------------------------------------------------------------------------------------------------------


def _set_head(db: sqlite3.Connection, number: int, branch: str, head: int | None) -> None:
    db.execute(
        "INSERT INTO branches (thread, name, head, mark) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (thread, name) DO UPDATE SET head = excluded.head, mark = excluded.mark",
        (number, branch, head, row_mark(number, branch, head)),
    )


def move_head(db: sqlite3.Connection, number: int, branch: str, head: int | None, now: int) -> None:
    """Set a head, and record the move."""
    (next_,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM moves WHERE thread = ?", (number,)).fetchone()
    row = (number, next_, now, branch, head)
    db.execute(
        "INSERT INTO moves (thread, number, at, branch, head, mark) VALUES (?, ?, ?, ?, ?, ?)", (*row, row_mark(*row))
    )
    _set_head(db, number, branch, head)


def fork(  # noqa: PLR0917 (the arguments of Store.fork)
    db: sqlite3.Connection, thread: str, name: str, of: str, at: str | UnsetType | None, now: int
) -> str | None:
    """Create a branch."""
    found = thread_of(db, thread)
    if at is UNSET:
        place, head = head_of(db, found, of)
    else:
        place, head = (None, None) if at is None else (place_of(db, found, at), at)
    try:
        taken = head_of(db, found, name)[1]
    except NotFoundError:
        move_head(db, found.number, name, place, now)
        touch(db, found, now)
        return head
    raise ConflictError(f"thread {thread}: the branch {name!r} already exists", found=taken)


def rewind(  # noqa: PLR0917 (the arguments of Store.rewind)
    db: sqlite3.Connection, thread: str, to: str | None, branch: str, expect: str | UnsetType | None, now: int
) -> None:
    """Move the head of a branch."""
    found = thread_of(db, thread)
    head = head_of(db, found, branch)[1]
    if expect is not UNSET and expect != head:
        raise head_conflict(thread, branch, head)
    move_head(db, found.number, branch, None if to is None else place_of(db, found, to), now)
    touch(db, found, now)


# -- blobs ---------------------------------------------------------------------------------------------------------


def put_blob(kept: message_codec.StoredBytes) -> Callable[[sqlite3.Connection], None]:
    """Store bytes once."""

    def work(db: sqlite3.Connection) -> None:
        db.execute(_BLOB, kept)

    return work
