"""Reads of threads: each function is one or two statements on one connection, and changes nothing.

Rules:

- Places of entries never change, so the result of one statement still holds in the next.
- Bodies come with their rows. Blobs are read when a message needs them, once for each call.
- A place, body or blob that must exist and does not is a ``DamageError`` with table and row.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext
from palaver.core.errors import DamageError, NotFoundError
from palaver.store import message_codec
from palaver.store.postgres.database import Link, Row
from palaver.store.records import decode_entry, unreadable
from palaver.store.store import ThreadInfo
from palaver.threads.thread import Entry

if TYPE_CHECKING:
    from palaver.store.postgres.updates import LockedThread

_INFO: Final = """
select t.id, t.title, t.tags, t.metadata, t.created_at, t.updated_at, t.length, b.names, b.heads
from {s}.threads t cross join lateral (
    select array_agg(x.name order by x.name) as names, array_agg(e.id order by x.name) as heads
    from {s}.branches x left join {s}.entries e on e.thread = x.thread and e.place = x.head where x.thread = t.thread
) b
"""
_BY_ID: Final = _INFO + "where t.id = %s"
_BY_NUMBER: Final = _INFO + "where t.thread = any(%s::bigint[]) order by array_position(%s::bigint[], t.thread)"
_LISTED: Final = """
select thread from {s}.threads where %s::text is null or tags @> array[%s::text]
order by updated_at desc, changed desc limit %s
"""
_PAGE: Final = 200

COLUMNS: Final = "e.place, e.thread, e.id, e.parent, e.stamps, e.sent_at, b.digest, b.encoding, b.data"
_READ: Final = f"""
select {COLUMNS} from {{s}}.threads t
left join {{s}}.entries e on e.thread = t.thread and e.place >= %s and e.place < %s
left join {{s}}.bodies b on b.body = e.body
where t.id = %s order by e.place
"""  # noqa: S608 (of constants)
# The walk reads one entry at a time, and the rows by the list of their places: so the server's planner cannot choose
# to read the whole thread.
_PATH: Final = f"""
with recursive walk (place, parent, number) as (
    select place, parent, 1::bigint from {{s}}.entries where thread = %s and place = %s
    union all
    select parent, (select e.parent from {{s}}.entries e where e.thread = %s and e.place = w.parent), number + 1
    from walk w where w.parent < w.place and number < %s
)
select {COLUMNS} from {{s}}.entries e left join {{s}}.bodies b on b.body = e.body
where e.thread = %s and e.place = any((select array_agg(place) from walk)::bigint[]) order by e.place
"""  # noqa: S608 (of constants)
_IDS: Final = "select place, id from {s}.entries where thread = %s and place = any(%s::bigint[])"
_FIND: Final = """
select t.thread, x.found, x.place, x.sure from {s}.threads t left join lateral (
    (select true as found, head as place, 2 as sure from {s}.branches where thread = t.thread and name = %s)
    union all
    (select true, place, 1 from {s}.entries where thread = t.thread and id = %s)
    union all
    (select true, place, 0 from {s}.entries where thread = t.thread and %s and id >= %s and id < %s limit 2)
) x on true where t.id = %s order by x.sure desc
"""
_MIN_PREFIX: Final = 4
_MAX_INT: Final = (1 << 63) - 1
_LAST_CHARACTER: Final = "\U0010ffff"
_ALL: Final = 1 << 62


# -- threads -------------------------------------------------------------------------------------------------------


def info(link: Link, id: str) -> ThreadInfo:
    """Return title, tags, metadata, times and heads of a thread. Raises ``NotFoundError``."""
    row = link.row(_BY_ID, id)
    if row is None:
        raise NotFoundError(f"no thread {id!r}")
    return _info(row)


def list_threads(link: Link, tag: str | None, limit: int | None) -> list[int]:
    """Return the numbers of threads, the most recently updated first."""
    wanted = None if tag is None else json.dumps(tag)
    return [
        row[0] for row in link.rows(_LISTED, wanted, wanted, None if limit is None else max(min(limit, _MAX_INT), 0))
    ]


def pages(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield threads in portions."""
    for start in range(0, len(numbers), _PAGE):
        yield list(numbers[start : start + _PAGE])


def infos(link: Link, numbers: list[int]) -> list[ThreadInfo]:
    """Return the infos of threads; deleted ones are skipped."""
    return [_info(row) for row in link.rows(_BY_NUMBER, numbers, numbers)]


def _info(row: Row) -> ThreadInfo:
    name, title, tags, metadata, created_at, updated_at, length, branches, heads = row
    return ThreadInfo(
        id=name,
        title=None if title is None else json.loads(title),
        tags=tuple([json.loads(tag) for tag in tags]),
        metadata=jsontext.view(metadata),
        created_at=created_at,
        updated_at=updated_at,
        length=length,
        branches=dict(zip(branches or (), heads or (), strict=True)),
    )


# -- places --------------------------------------------------------------------------------------------------------


def heads(link: Link, thread: int) -> dict[str, str | None]:
    """Return the heads of a thread's branches."""
    query = """
    select b.name, e.id from {s}.branches b
    left join {s}.entries e on e.thread = b.thread and e.place = b.head where b.thread = %s
    """
    return {name: head for name, head in link.rows(query, thread)}  # noqa: C416 (rows are tuples of any length)


def head_of(link: Link, known: LockedThread, branch: str) -> tuple[str | None, int | None]:
    """Return the head of a branch: id and place. Raises ``NotFoundError``."""
    query = """
    select e.id, b.head from {s}.branches b
    left join {s}.entries e on e.thread = b.thread and e.place = b.head where b.thread = %s and b.name = %s
    """
    row = link.row(query, known.thread, branch)
    if row is None:
        raise NotFoundError(f"thread {known.id}: no branch {branch!r}")
    return row[0], row[1]


def place_of(link: Link, known: LockedThread, entry: str | None) -> int | None:
    """Return the place of an entry; ``None`` is before the first. Raises ``NotFoundError``."""
    if entry is None:
        return None
    place: int | None = link.value("select place from {s}.entries where thread = %s and id = %s", known.thread, entry)
    if place is None:
        raise NotFoundError(f"thread {known.id}: no entry {entry!r}")
    return place


def id_at(link: Link, thread: int, place: int | None) -> str | None:
    """Return the id of the entry at a place."""
    found: str | None = link.value("select id from {s}.entries where thread = %s and place = %s", thread, place)
    return found


def _find(link: Link, thread: str, name: str) -> tuple[int, int | None]:
    """Return the number of a thread, and the place that a name means in it, like ``Thread.find``."""
    rows = link.rows(_FIND, name, name, len(name) >= _MIN_PREFIX, name, name + _LAST_CHARACTER, thread)
    if not rows:
        raise NotFoundError(f"no thread {thread!r}")
    found = [row for row in rows if row[1]]
    if not found or (found[0][3] == 0 and len(found) > 1):
        why = "several entries match" if found else "no branch or entry has that name"
        raise NotFoundError(f"thread {thread}: {name!r}: {why}")
    return found[0][0], found[0][2]


# -- messages ------------------------------------------------------------------------------------------------------


def read(link: Link, thread: str, start: int, stop: int | None) -> list[Entry]:
    """Return the entries from one place to another."""
    first = max(start, 0)
    rows = link.rows(_READ, first, _ALL if stop is None else min(max(stop, 0), _ALL), thread)
    if not rows:
        raise NotFoundError(f"no thread {thread!r}")
    if rows[0][0] is None:
        return []
    for place, row in enumerate(rows, first):
        if row[0] != place:
            raise DamageError(f"entries {thread}/{place}: it is not there")
    return _entries(link, thread, rows)


def entry_at(link: Link, thread: str, place: int) -> Entry:
    """Return one entry."""
    return read(link, thread, place, place + 1)[0]


def path(link: Link, thread: str, of: str, last: int | None) -> list[Entry]:
    """Return the conversation that ends in a branch or an entry; only its last entries."""
    number, leaf = _find(link, thread, of)
    most = _ALL if last is None else last
    if leaf is None or most <= 0:
        return []
    rows = link.rows(_PATH, number, leaf, number, most, number)
    if not rows or rows[-1][0] != leaf or (len(rows) < most and rows[0][3] is not None):
        lost = rows[0][3] if rows and rows[-1][0] == leaf else leaf
        raise DamageError(f"entries {thread}/{lost}: it is not there")
    return _entries(link, thread, rows)


def _entries(link: Link, thread: str, rows: Sequence[Row]) -> list[Entry]:
    blob, before = blobs(link), parents(link, rows)
    return [decode_row(thread, row, before, blob) for row in rows]


def parents(link: Link, rows: Sequence[Row]) -> dict[tuple[int, int], str]:
    """Return the ids of entries by thread and place: of these rows, and of their parents."""
    known: dict[tuple[int, int], str] = {(row[1], row[0]): row[2] for row in rows}
    missing: dict[int, list[int]] = {}
    for row in rows:
        if row[3] is not None and (row[1], row[3]) not in known:
            missing.setdefault(row[1], []).append(row[3])
    for thread, places in missing.items():
        known.update(((thread, place), name) for place, name in link.rows(_IDS, thread, places))
    return known


def decode_row(thread: str, row: Row, parents: Mapping[tuple[int, int], str], blob: Callable[[bytes], bytes]) -> Entry:
    """Read an entry from the ``COLUMNS`` of its row. Raises ``DamageError`` for a missing one."""
    place, number, name, before, stamps, sent_at, digest, encoding, data = row
    where = f"entries {thread}/{place}"
    parent = None if before is None else parents.get((number, before))
    if parent is None and before is not None:
        raise DamageError(f"{where}: the entry before it is not there")
    if data is None:
        return Entry(name, parent, unreadable(b"", f"{where}: its message is not there", id=name, sent_at=sent_at))
    return decode_entry(
        name, parent, stamps, sent_at, message_codec.StoredBytes(digest, encoding, data, 0), blob, where
    )


def blobs(link: Link) -> Callable[[bytes], bytes]:
    """Return a function that returns blobs by address, each read once. It raises ``DamageError`` for a missing one."""
    known: dict[bytes, bytes] = {}

    def give(digest: bytes) -> bytes:
        if digest not in known:
            found = get_blob(link, digest)
            if found is None:
                raise DamageError(f"blobs {digest.hex()}: it is not there")
            known[digest] = found
        return known[digest]

    return give


def get_blob(link: Link, digest: bytes) -> bytes | None:
    """Return the bytes of an address; ``None`` when there are none."""
    row = link.row("select encoding, data from {s}.blobs where digest = %b", digest)
    return None if row is None else message_codec.decompress(digest, row[0], row[1], f"blobs {digest.hex()}")
