"""Search: an index of words and labels that is updated on demand.

Rules:

- An append costs nothing for search. ``catch_up`` reads the bodies behind the last indexed one and splits their words
  in the caller's thread; the writer adds them in pieces, between appends.
- The index belongs to bodies, not to entries: a message in many threads is indexed once. Its words are removed when
  ``gc`` removes the body; until then, deleted entries are not returned.
- Labels (role, agent, tool, tag) are words of a second column: eight bytes of a hash, in hexadecimal. Matches are
  compared with the message itself.
- To remove words from an index without content, the same words must be given again. The splitting of words may change
  with Unicode; so its version is stored, and with another one the index is built again.

Stability: experimental.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from palaver.core.errors import DamageError, DecodeError
from palaver.core.messages import Message
from palaver.store import message_codec, search_text
from palaver.store.records import clamp_time, is_unreadable
from palaver.store.sqlite.queries import Row, ThreadRow, checked_thread, entry_at, thread_of
from palaver.store.sqlite.schema import INDEXED, typed
from palaver.store.store import Hit, Query

_RULES: Final = 1
VERSION: Final = _RULES << 32 | int("".join(f"{int(each):02}" for each in unicodedata.unidata_version.split(".")))
"""The version of the words: our rules, and a version of Unicode."""

_WORDS: Final = "words"
_REMOVALS: Final = "removals"
_CHUNK: Final = 400
_CHUNK_BYTES: Final = 1 << 20
_BODIES: Final = "SELECT id, digest, encoding, data FROM bodies WHERE id > ? ORDER BY id"


class IndexState(NamedTuple):
    """The last indexed body, the rules of the index, and how often bodies were removed."""

    indexed: int
    rules: int
    removals: int


class IndexedText(NamedTuple):
    """A row of the index."""

    id: int
    text: str
    labels: str


def state(db: sqlite3.Connection, name: str) -> int:
    """Return a number that is stored beside the tables."""
    row = db.execute("SELECT value FROM states WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else typed(row[0], int, f"states {name!r}")


def set_state(db: sqlite3.Connection, name: str, value: int) -> None:
    """Store a number."""
    db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (name, value))


def index_state(db: sqlite3.Connection) -> IndexState:
    """Return the current state of the index."""
    return IndexState(state(db, INDEXED), state(db, _WORDS), state(db, _REMOVALS))


# -- making --------------------------------------------------------------------------------------------------------


def indexed_text(id: int, digest: bytes, encoding: int, data: bytes) -> IndexedText:
    """Return the indexed text of a body; empty for an unreadable one, which ``verify`` reports."""
    try:
        text = message_codec.decompress(digest, encoding, data)
        message = message_codec.unpack(text, "", message_codec.MEDIA_EXTRACTED, None, lambda _: b"")
    except (DamageError, DecodeError):
        return IndexedText(id, "", "")
    return IndexedText(
        id,
        search_text.normalize(search_text.searchable_text(message)),
        " ".join([_label(*each) for each in search_text.labels_of(message)]),
    )


def _label(kind: str, value: str) -> str:
    return blake2b(f"{kind}:{value}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def is_behind(db: sqlite3.Connection) -> bool:
    """Return whether there are bodies that the index lacks."""
    reach = index_state(db)
    return (
        reach.rules != VERSION
        or db.execute("SELECT 1 FROM bodies WHERE id > ?", (reach.indexed,)).fetchone() is not None
    )


def next_texts(db: sqlite3.Connection) -> tuple[IndexState, list[IndexedText]]:
    """Return the state of the index, and the next texts to add."""
    reach = index_state(db)
    after = reach.indexed if reach.rules == VERSION else 0
    found: list[IndexedText] = []
    size = 0
    for row in db.execute(_BODIES, (after,)):
        found.append(indexed_text(*row))
        size += len(found[-1].text)
        if len(found) >= _CHUNK or size > _CHUNK_BYTES:
            break
    return reach, found


def add_texts(reach: IndexState, found: list[IndexedText]) -> Callable[[sqlite3.Connection], None]:
    """Work: add words to the index, if it has not changed, and no body was removed since."""

    def work(db: sqlite3.Connection) -> None:
        if index_state(db) == reach:
            if state(db, _WORDS) != VERSION:
                rebuild(db)
            db.executemany("INSERT INTO words (rowid, text, labels) VALUES (?, ?, ?)", found)
            set_state(db, INDEXED, found[-1].id)

    return work


def rebuild(db: sqlite3.Connection) -> None:
    """Empty the index."""
    db.execute("INSERT INTO words (words) VALUES ('delete-all')")
    set_state(db, INDEXED, 0)
    set_state(db, _WORDS, VERSION)


def remove_texts(db: sqlite3.Connection, gone: Iterable[IndexedText]) -> None:
    """Remove the words of bodies that are being removed."""
    set_state(db, _REMOVALS, state(db, _REMOVALS) + 1)
    if state(db, _WORDS) != VERSION:
        rebuild(db)
    reach = state(db, INDEXED)
    indexed = [each for each in gone if each.id <= reach]
    if not all(each.labels for each in indexed):  # a damaged one: its words are not known any more
        rebuild(db)
        return
    db.executemany("INSERT INTO words (words, rowid, text, labels) VALUES ('delete', ?, ?, ?)", indexed)


# -- asking --------------------------------------------------------------------------------------------------------


def search(db: sqlite3.Connection, query: Query, *, scan: bool = False) -> list[Hit]:
    """Find messages by the index; with ``scan``, by reading every message.

    The connection holds a snapshot. Raises ``NotFoundError`` for an unknown thread.
    """
    terms = search_text.parse(query.text)
    asked = [] if scan or not query.text else [f"text : ({search_text.fts5(terms)})"]
    narrow = (("role", query.role), ("agent", query.agent), ("tool", query.tool), ("tag", query.tag))
    asked += [f'labels : "{_label(kind, value)}"' for kind, value in narrow if value is not None and not scan]
    source, values = "entries e", list[Any]()
    if asked:
        source = "words JOIN entries e ON e.body = words.rowid"
    conditions = ["1"]
    for condition, value in (
        ("words MATCH ?", " AND ".join(asked) or None),
        ("coalesce(e.sent_at, 0) >= ?", clamp_time(query.since)),
        ("coalesce(e.sent_at, 0) < ?", clamp_time(query.until)),
        ("e.thread = ?", None if query.thread is None else thread_of(db, query.thread).number),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    rows = db.execute(
        f"SELECT e.thread, e.place FROM {source} WHERE {' AND '.join(conditions)}"  # noqa: S608 (the texts above)
        " ORDER BY coalesce(e.sent_at, 0) DESC, e.place DESC",
        values,
    )
    return _hits(db, rows, query, terms, scan=scan)


def _hits(
    db: sqlite3.Connection, rows: Iterable[Row], query: Query, terms: search_text.Terms, *, scan: bool
) -> list[Hit]:
    threads: dict[int, ThreadRow] = {}
    hits: list[Hit] = []
    for number, place in rows:
        if len(hits) >= query.limit:
            break
        if number not in threads:
            row = db.execute(
                "SELECT number, id, created_at, updated_at, length, mark FROM threads WHERE number = ?", (number,)
            ).fetchone()
            if row is None:
                raise DamageError(f"threads {number!r}: missing: entries refer to it")
            threads[number] = checked_thread(row)
        entry = entry_at(db, threads[number], place)
        if is_unreadable(entry.message) or not _matches_fields(entry.message, query):
            continue
        text = search_text.searchable_text(entry.message)
        if not scan or search_text.matches(terms, search_text.normalize(text)):
            hits.append(Hit(threads[number].id, entry, search_text.excerpt(terms, text)))
    return hits


def _matches_fields(message: Message, query: Query) -> bool:
    """Return whether the labels are the requested ones, and not others with the same hash."""
    return (
        query.role in {None, message.role}
        and query.agent in {None, message.agent}
        and (query.tool is None or query.tool in search_text.tools_of(message))
        and (query.tag is None or query.tag in message.tags)
    )
