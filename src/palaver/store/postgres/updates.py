"""Changes of a thread: each function is one transaction on one connection, and safe to retry.

Rules:

- ``again`` says that an earlier try may have committed. It is found by the ids of its entries or by its token, and
  counts as this try.
- A change locks the thread's row first. So places are assigned in the order of commits, and ``read(start=n)`` misses
  nothing that commits later.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType

from palaver.core import jsontext
from palaver.core.errors import ConflictError, NotFoundError, StoreError
from palaver.store import message_codec
from palaver.store.postgres import call_parameters, queries
from palaver.store.postgres.database import Link, is_encodable
from palaver.store.records import (
    Prepared,
    checked_name,
    checked_tags,
    checked_title,
    frozen_metadata,
    prepare_entry,
    time_range,
)
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.thread import Entry, head_conflict

SHARED: Final = "select pg_advisory_xact_lock_shared({lock})"
_LOCK: Final = "select thread, id, length from {s}.threads where id = %s for no key update"
KEEP: Final = f"select {{s}}.keep({call_parameters.PLACEHOLDERS}, null)"
_BEGIN: Final = "select {s}.begin_thread(%s, %s, %s, %s::text[], %s, %s)"
_UPDATE: Final = """
update {s}.threads set
    title = case when %s then %s else title end,
    tags = coalesce(%s::text[], tags),
    metadata = coalesce(%s, metadata)
where thread = %s
"""
_TOUCH: Final = """
update {s}.threads set length = length + %s, updated_at = greatest(updated_at, %s),
    changed = nextval('{s}.changes') where thread = %s
"""
_PROVE: Final = "update {s}.threads r set proof = {s}.thread_proof(r) where thread = %s"
_HEAD: Final = """
insert into {s}.branches as r (thread, name, head, proof) values (%s, %s, %s, '')
on conflict (thread, name) do update set head = excluded.head
"""
_PROVE_HEAD: Final = "update {s}.branches r set proof = {s}.branch_proof(r) where thread = %s and name = %s"
_MOVE: Final = """
insert into {s}.moves as r (thread, moved_at, token, branch, kind, before, after, proof)
values (%s, %s, %s, %s, %s, %s, %s, '')
"""
_PROVE_MOVE: Final = "update {s}.moves r set proof = {s}.move_proof(r) where token = %s"
_MOVED: Final = "select after from {s}.moves where token = %s"
_KNOWN: Final = """
select e.place, e.id, e.seal, p.id, b.digest, e.stamps, e.sent_at
from {s}.entries e join {s}.bodies b using (body)
left join {s}.entries p on p.thread = e.thread and p.place = e.parent
where e.thread = %s and e.id = any(%s::text[])
"""
_JOIN: Final = """
insert into {s}.entries (thread, place, parent, body, sent_at, stamps, id, seal)
select %s, n.place, n.parent, b.body, n.sent_at, n.stamps, n.id, n.seal
from unnest(%s::bigint[], %s::bigint[], %b::bytea[], %s::bigint[], %s::smallint[], %s::text[], %b::bytea[])
    as n (place, parent, digest, sent_at, stamps, id, seal)
join {s}.bodies b on b.digest = n.digest
"""
_THERE: Final = "select digest from {s}.blobs where digest = any(%b::bytea[])"
_DELETE: Final = (
    "delete from {s}.entries where thread = %s",
    "delete from {s}.branches where thread = %s",
    "delete from {s}.moves where thread = %s",
    "delete from {s}.keys where thread = %s",
    "delete from {s}.threads where thread = %s",
)


class LockedThread(NamedTuple):
    """A thread whose row is locked: its number, its id, its number of entries."""

    thread: int
    id: str
    length: int


class Details(NamedTuple):
    """The details of a thread, as its columns; ``None`` leaves a column unchanged. ``retitled``: the title changes."""

    retitled: bool
    title: str | None
    tags: list[str] | None
    metadata: str | None


def details(
    title: str | UnsetType | None, tags: Iterable[str] | UnsetType, metadata: Mapping[str, Any] | UnsetType
) -> Details:
    """Return details of a thread as ASCII JSON. Raises ``StoreError`` for a value that JSON cannot express."""
    checked_title(title)
    return Details(
        title is not UNSET,
        json.dumps(title) if isinstance(title, str) else None,
        None if tags is UNSET else [json.dumps(tag) for tag in checked_tags(tags)],
        None if metadata is UNSET else _ascii(metadata),
    )


def _ascii(metadata: Mapping[str, Any]) -> str:
    """Return JSON text with numbers as they are written, and an escape for each character beyond ASCII."""
    text = bytes(jsontext.checked(dict(frozen_metadata(metadata)), "metadata")).decode("utf-8", "surrogatepass")
    return text if text.isascii() else "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)


# -- threads -------------------------------------------------------------------------------------------------------


def create(link: Link, id: str, token: str, given: Details, at: int | None = None) -> None:
    """Create a thread, now or at a time. Raises ``ConflictError``."""
    values = (given.title, given.tags or [], given.metadata or "{}", now_ms() if at is None else at)
    if link.value(_BEGIN, id, token, *values) is None:
        raise ConflictError(f"the thread {id!r} already exists")


def lock_thread(link: Link, id: str) -> LockedThread:
    """Lock a thread until the end of the transaction. Raises ``NotFoundError``."""
    row = link.row(_LOCK, id)
    if row is None:
        raise NotFoundError(f"no thread {id!r}")
    return LockedThread(*row)


def update(link: Link, id: str, given: Details) -> None:
    """Change the details of a thread."""
    with link.transaction():
        thread = lock_thread(link, id).thread
        link.execute(_UPDATE, given.retitled, given.title, given.tags, given.metadata, thread)
        link.execute(_PROVE, thread)


def delete(link: Link, id: str, *, again: bool) -> None:
    """Remove a thread."""
    with link.transaction():
        row = link.row(_LOCK, id)
        if row is None and not again:
            raise NotFoundError(f"no thread {id!r}")
        if row is not None:
            for statement in _DELETE:
                link.execute(statement, row[0])


def _touch(link: Link, thread: int, at: int, added: int = 0) -> None:
    link.execute(_TOUCH, added, at, thread)
    link.execute(_PROVE, thread)


def _set_head(link: Link, thread: int, branch: str, place: int | None) -> None:
    link.execute(_HEAD, thread, branch, place)
    link.execute(_PROVE_HEAD, thread, branch)


# -- branches ------------------------------------------------------------------------------------------------------


def fork(link: Link, id: str, name: str, *, of: str, at: str | UnsetType | None, token: str, again: bool) -> str | None:
    """Create a branch; return its head."""
    with link.transaction():
        known = lock_thread(link, id)
        if again and (row := link.row(_MOVED, token)) is not None:
            return queries.id_at(link, known.thread, row[0])
        head, place = queries.head_of(link, known, of) if at is UNSET else (at, queries.place_of(link, known, at))
        taken = queries.heads(link, known.thread)
        if name in taken:
            raise ConflictError(f"thread {id}: the branch {name!r} already exists", found=taken[name])
        _move(link, known.thread, _Move(token, name, "fork", None, place))
        return head


def rewind(
    link: Link, id: str, to: str | None, *, branch: str, expect: str | UnsetType | None, token: str, again: bool
) -> None:
    """Move the head of a branch."""
    with link.transaction():
        known = lock_thread(link, id)
        if again and link.row(_MOVED, token) is not None:
            return
        head, before = queries.head_of(link, known, branch)
        if expect is not UNSET and expect != head:
            raise head_conflict(id, branch, head)
        _move(link, known.thread, _Move(token, branch, "rewind", before, queries.place_of(link, known, to)))


class _Move(NamedTuple):
    """A move of a head from one place to another; ``token`` identifies the call."""

    token: str
    branch: str
    kind: str
    before: int | None
    after: int | None


def _move(link: Link, thread: int, move: _Move) -> None:
    now = now_ms()
    link.execute(_MOVE, thread, now, *move)
    link.execute(_PROVE_MOVE, move.token)
    _set_head(link, thread, move.branch, move.after)
    _touch(link, thread, now)


# -- messages ------------------------------------------------------------------------------------------------------


class AddRequest(NamedTuple):
    """Entries that are ready to be added as they are."""

    thread: str
    entries: Sequence[tuple[Prepared, str | None]]
    branches: Mapping[str, str | None]
    calls: Sequence[call_parameters.Columns]
    absent: Collection[str]
    about: Details
    """The details of a thread that is missing."""


def prepare_add(
    thread: str,
    entries: Iterable[Entry],
    branches: Mapping[str, str | None],
    absent: Collection[str] = (),
    about: Details | None = None,
) -> AddRequest:
    """Prepare entries to be added. Raises ``StoreError`` for invalid names."""
    checked_name(thread, "id of the thread")
    for name in branches:
        checked_name(name, "name of the branch")
    rows = [(prepare_entry(entry), entry.parent) for entry in entries]
    for row, _ in rows:
        checked_name(row.id, "id of the entry")
    calls = call_parameters.calls(row for row, _ in rows)
    return AddRequest(thread, rows, branches, calls, absent, about or details(None, (), {}))


class _Place(NamedTuple):
    """The place of an entry, and its keys."""

    place: int
    seal: bytes
    parent: str | None
    content: tuple[bytes, int, int | None]


def add_all(link: Link, given: Sequence[AddRequest]) -> int:
    """Add to several threads in one transaction, which locks them in one order for all that do."""
    with link.transaction():
        return sum([add(link, each) for each in sorted(given, key=lambda it: it.thread)])


def add(link: Link, given: AddRequest) -> int:
    """Add entries as they are; return how many were new."""
    with link.transaction():
        link.execute(SHARED)
        row = link.row(_LOCK, given.thread)
        if row is None:
            with suppress(ConflictError):  # another caller created it just now
                begun = time_range([row.message for row, _ in given.entries], now_ms())[0]
                create(link, given.thread, uuid7(), given.about, begun)
        known = lock_thread(link, given.thread) if row is None else LockedThread(*row)
        at = _known(link, known, given)
        new = _new_entries(link, known, at, given.entries)
        for branch, head in given.branches.items():
            if head is not None and head not in at:
                raise StoreError(f"thread {known.id}: the head of branch {branch!r} is {head!r}, which is not there")
        missing = [
            each
            for each in missing_blobs(link, [row for row, _ in new])
            if message_codec.blob_for(each).hash not in given.absent
        ]
        if missing:
            raise message_codec.missing_blob(missing[0])
        if new:
            for call in given.calls:
                link.execute(KEEP, *call)
            places = [at[row.id] for row, _ in new]
            link.execute(
                _JOIN,
                known.thread,
                [place.place for place in places],
                [None if place.parent is None else at[place.parent].place for place in places],
                [place.content[0] for place in places],
                [row.sent_at for row, _ in new],
                [row.stamps for row, _ in new],
                [row.id for row, _ in new],
                [place.seal for place in places],
            )
        for branch, head in given.branches.items():
            _set_head(link, known.thread, branch, None if head is None else at[head].place)
        if new or given.branches:
            last = time_range([row.message for row, _ in new], now_ms())[1] if new else 0
            _touch(link, known.thread, last, len(new))
        return len(new)


def _known(link: Link, known: LockedThread, given: AddRequest) -> dict[str, _Place]:
    """Return the places of the existing entries that matter here."""
    ids = {row.id for row, _ in given.entries}
    ids.update(parent for _, parent in given.entries if parent is not None)
    ids.update(head for head in given.branches.values() if head is not None)
    sayable = [name for name in ids if is_encodable(name)]
    return {
        name: _Place(place, seal, parent, (digest, stamps, sent_at))
        for place, name, seal, parent, digest, stamps, sent_at in link.rows(_KNOWN, known.thread, sayable)
    }


def _new_entries(
    link: Link, known: LockedThread, at: dict[str, _Place], entries: Iterable[tuple[Prepared, str | None]]
) -> list[tuple[Prepared, str | None]]:
    """Find places and seals for the new entries; ``at`` receives them."""
    new: list[tuple[Prepared, str | None]] = []
    for row, parent in entries:
        content = (row.packed.body.digest, row.stamps, row.sent_at)
        earlier = at.get(row.id)
        if earlier is None:
            if parent is not None and parent not in at:
                raise StoreError(f"thread {known.id}: entry {row.id} follows {parent!r}, which is not there")
            before = message_codec.first_seal(known.id) if parent is None else at[parent].seal
            seal = message_codec.seal(before, row.id, row.stamps, row.sent_at, row.packed.body.digest)
            at[row.id] = _Place(known.length + len(new), seal, parent, content)
            new.append((row, parent))
        elif (earlier.parent, earlier.content) != (parent, content) and (
            earlier.place >= known.length or queries.entry_at(link, known.id, earlier.place) != row.entry(parent)
        ):
            raise StoreError(f"thread {known.id}: entry {row.id} already exists with other content")
    return new


def missing_blobs(link: Link, rows: Iterable[Prepared]) -> list[bytes]:
    """Return the missing blobs that messages name; ``gc`` waits for the transaction's shared lock."""
    named = dict.fromkeys(digest for row in rows for digest in row.packed.external_blobs)
    if not named:
        return []
    there = {bytes(row[0]) for row in link.rows(_THERE, list(named))}
    return [digest for digest in named if digest not in there]


def put_blob(link: Link, blob: message_codec.StoredBytes) -> None:
    """Store bytes, if they are not stored yet."""
    with link.transaction():
        link.execute(SHARED)
        for call in call_parameters.calls((), [blob]):
            link.execute(KEEP, *call)
