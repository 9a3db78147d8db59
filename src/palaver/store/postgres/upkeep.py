"""Upkeep of a PostgreSQL store: deriving every hash again, and removing unused data.

Rules:

- ``verify`` reads one snapshot, through cursors that hold a portion at a time; it does not disturb appends. It derives
  the hash of the bytes of every body and blob; checks that a body is a message, and that its media exist; for every
  thread, the places without gaps, and the seal of each entry from that of its parent; for every other row, its proof;
  and that all references have a target.
- ``gc`` removes bodies that no entry holds and blobs that no body needs, in portions, each under the lock that keeps
  appends out, so that none of them uses a body that is about to be removed. Then it rewrites the tables by ``VACUUM
  (FULL)``, since a plain one leaves the bytes of removed rows in its files; a table is locked meanwhile. ``gc`` does
  not remove data from the write-ahead log, its archive and backups. Only the owner of the tables may rewrite them;
  for other users it raises ``StoreError``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, LiteralString, NamedTuple

from palaver.core.errors import DamageError, DecodeError, PalaverError, StoreError, excerpt
from palaver.store import message_codec
from palaver.store.postgres.database import Link, Row
from palaver.store.store import Damage, DamageKind, Freed, Progress, Verified

_PORTION: Final = 1000
_REPORT_EVERY: Final = 200
_MAX_HELD: Final = 16 << 20  # bytes that are held at once, unless a single row has more

_SIZES: Final[Mapping[str, LiteralString]] = {
    "bodies": "select body, octet_length(data) from {s}.bodies order by body",
    "blobs": "select digest, octet_length(data) from {s}.blobs order by digest",
}
_BODIES: Final = "select body, digest, encoding, size, data from {s}.bodies where body = any(%s::bigint[])"
_BLOBS: Final = "select digest, digest, encoding, size, data from {s}.blobs where digest = any(%b::bytea[])"
_WHOSE: Final = """
select t.id, e.id from {s}.entries e left join {s}.threads t on t.thread = e.thread where e.body = %s
"""
_ENTRIES: Final = """
select e.thread, t.id, t.length, e.place, e.parent, e.id, e.stamps, e.sent_at, e.seal, b.digest
from {s}.entries e left join {s}.threads t on t.thread = e.thread left join {s}.bodies b on b.body = e.body
order by e.thread, e.place
"""

_COUNTS: Final = """
select (select count(*) from {s}.threads), (select count(*) from {s}.entries),
    (select count(*) from {s}.bodies), (select count(*) from {s}.blobs)
"""


class _Rule(NamedTuple):
    """A query for invalid rows of a table: what to call the row, and its thread."""

    kind: DamageKind
    table: str
    reason: str
    query: LiteralString


def _altered(table: str, query: LiteralString) -> _Rule:
    return _Rule("altered", table, "its checksum does not match", query)


_RULES: Final = (
    _altered("threads", "select id, id from {s}.threads r where proof is distinct from {s}.thread_proof(r)"),
    _altered(
        "branches",
        """select t.id || '@' || r.name, t.id from {s}.branches r left join {s}.threads t using (thread)
        where r.proof is distinct from {s}.branch_proof(r)""",
    ),
    _altered(
        "moves",
        """select r.move::text, t.id from {s}.moves r left join {s}.threads t using (thread)
        where r.proof is distinct from {s}.move_proof(r)""",
    ),
    _altered(
        "keys",
        """select t.id || '/' || r.key, t.id from {s}.keys r left join {s}.threads t using (thread)
        where r.proof is distinct from {s}.key_proof(r)""",
    ),
    _altered("bodies", "select body::text, null from {s}.bodies r where proof is distinct from {s}.body_proof(r)"),
    _altered("words", "select body::text, null from {s}.words r where proof is distinct from {s}.words_proof(r)"),
    _altered(
        "blobs", "select encode(digest, 'hex'), null from {s}.blobs r where proof is distinct from {s}.blob_proof(r)"
    ),
    _Rule(
        "missing",
        "threads",
        "some of its entries are not there",
        """select t.id, t.id from {s}.threads t
        where t.length <> (select count(*) from {s}.entries e where e.thread = t.thread)""",
    ),
    _Rule(
        "missing",
        "threads",
        "it has no branch main",
        """select t.id, t.id from {s}.threads t
        where not exists (select from {s}.branches b where b.thread = t.thread and b.name = 'main')""",
    ),
    _Rule(
        "missing",
        "branches",
        "its thread or head is not there",
        """select coalesce(t.id, '') || '@' || r.name, t.id from {s}.branches r left join {s}.threads t using (thread)
        where t.id is null or r.head >= t.length""",
    ),
    _Rule(
        "missing",
        "moves",
        "its thread is not there",
        """select r.move::text, null from {s}.moves r
        where not exists (select from {s}.threads t where t.thread = r.thread)""",
    ),
    _Rule(
        "missing",
        "words",
        "its message is not there",
        """select w.body::text, null from (select body from {s}.words union all select body from {s}.fresh) w
        where not exists (select from {s}.bodies b where b.body = w.body)""",
    ),
    _Rule(
        "missing",
        "bodies",
        "its words are not there",
        """select b.body::text, null from {s}.bodies b
        where not exists (select from {s}.words w where w.body = b.body)
        and not exists (select from {s}.fresh f where f.body = b.body)""",
    ),
    _Rule(
        "missing",
        "keys",
        "its thread or entries are not there",
        """select coalesce(t.id, '') || '/' || r.key, t.id from {s}.keys r left join {s}.threads t using (thread)
        where t.id is null or r.place + r.count > t.length""",
    ),
)


class Check:
    """One run of ``verify``: its counts and the damage it found."""

    def __init__(self, link: Link, progress: Progress | None) -> None:
        """Start with no counts."""
        self._link = link
        self._progress = progress
        self._done = 0
        self._total: int | None = None
        self._damage: list[Damage] = []
        self._entries = 0
        self._size = 0

    def run(self) -> Verified:
        """Run all checks."""
        link = self._link
        with link.transaction():
            link.execute("set transaction isolation level repeatable read, read only")
            threads, entries, bodies, blobs = link.row(_COUNTS) or (0, 0, 0, 0)
            self._total = entries + bodies + blobs
            for wrong in _RULES:
                self._find(wrong)
            self._seals()
            self._bytes("bodies", _BODIES, self._message)
            self._bytes("blobs", _BLOBS, lambda _: None)
        self._step(0)
        return Verified(threads, entries, blobs, self._size, tuple(self._damage))

    def _step(self, done: int) -> None:
        self._done += done
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _found(
        self, kind: DamageKind, place: str, reason: str, thread: str | None = None, entry: str | None = None
    ) -> None:
        self._damage.append(Damage(kind, place, reason, thread, entry))

    def _find(self, wrong: _Rule) -> None:
        with self._link.stream(wrong.query) as rows:
            for row, thread in rows:
                self._found(wrong.kind, f"{wrong.table} {row}", wrong.reason, thread)

    # -- seals -----------------------------------------------------------------------------------------------------

    def _seals(self) -> None:
        """Derive the seals of every thread, in the order of its places."""
        number: int | None = None
        seals: dict[int, bytes] = {}
        with self._link.stream(_ENTRIES, at_once=_PORTION) as rows:
            for row in rows:
                if row[0] != number:
                    number, seals = row[0], {}
                self._seal(row, seals)
                self._entries += 1
                if self._entries % _PORTION == 0:
                    self._step(_PORTION)
        self._step(self._entries % _PORTION)

    def _seal(self, row: Row, seals: dict[int, bytes]) -> None:
        number, thread, length, place, parent, entry, stamps, sent_at, seal, digest = row
        where = f"entries {thread or number}/{place}"
        seals[place] = seal  # damage is reported where it is, not again by all that follows
        if thread is None:
            return self._found("missing", where, "its thread is not there", None, entry)
        if not 0 <= place < length:
            return self._found("altered", where, "the thread has no such place", thread, entry)
        if digest is None:
            return self._found("missing", where, "its message is not there", thread, entry)
        if parent is not None and (parent >= place or parent not in seals):
            return self._found("missing", where, "the entry before it is not there", thread, entry)
        before = message_codec.first_seal(thread) if parent is None else seals[parent]
        if message_codec.seal(before, entry, stamps, sent_at, digest) != seal:
            self._found("altered", where, "its seal does not match", thread, entry)
        return None

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _bytes(self, table: str, query: LiteralString, look: Callable[[bytes], None]) -> None:
        """Derive the hash of every row of bytes, and check the sound ones."""
        for names in _portions(self._link, _SIZES[table]):
            for name, digest, encoding, size, data in self._link.rows(query, names):
                where = f"{table} {name.hex() if isinstance(name, bytes) else name}"
                self._size += len(data)
                try:
                    text = message_codec.decompress(digest, encoding, data, where)
                    if len(text) != size or encoding not in {message_codec.RAW, message_codec.ZSTD}:
                        self._found("altered", where, "its size does not match")
                    look(text)
                except DamageError as error:
                    self._found("altered", where, str(error).removeprefix(f"{where}: "))
                except DecodeError as error:
                    for thread, entry in [*self._link.rows(_WHOSE, name)] or [(None, None)]:
                        self._found("unreadable", where, f"not a message: {error}", thread, entry)
                except _MissingError as error:
                    for thread, entry in list(self._link.rows(_WHOSE, name)) or [(None, None)]:
                        self._found("missing", where, str(error), thread, entry)
            self._step(len(names))

    def _message(self, text: bytes) -> None:
        """Read a message back as ``read`` would, without the bytes of its media."""
        for digest in message_codec.blob_digests(
            message_codec.unpack(text, "", message_codec.MEDIA_EXTRACTED, None, self._media)
        ):
            self._media(digest)

    def _media(self, digest: bytes) -> bytes:
        if self._link.value("select true from {s}.blobs where digest = %b", digest) is None:
            raise _MissingError(f"its media are not there: blobs {digest.hex()}")
        return b""


class _MissingError(PalaverError):
    """A blob is missing."""


def verify(link: Link, progress: Progress | None) -> Verified:
    """Read everything and derive every hash again."""
    return Check(link, progress).run()


def _portions(link: Link, query: LiteralString) -> Iterator[list[object]]:
    """Yield the names of rows, as many as may be held at once."""
    names: list[object] = []
    held = 0
    with link.stream(query, at_once=_PORTION) as rows:
        for name, size in rows:
            if names and (held + size > _MAX_HELD or len(names) >= _PORTION):
                yield names
                names, held = [], 0
            names.append(name)
            held += size
    if names:
        yield names


# -- removing ------------------------------------------------------------------------------------------------------

_ALONE: Final = "select pg_advisory_xact_lock({lock})"
_NEEDED: Final[LiteralString] = """
select substring(b.uses from 32 * n + 1 for 32) from {s}.bodies b, generate_series(0, octet_length(b.uses) / 32 - 1) n
"""
_UNUSED: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    (
        "select body from {s}.bodies b where not exists (select from {s}.entries e where e.body = b.body)",
        """with gone as (
            delete from {s}.bodies b where body = any(%s::bigint[])
            and not exists (select from {s}.entries e where e.body = b.body) returning body
        ), words as (
            delete from {s}.words where body in (select body from gone)
        ), fresh as (
            delete from {s}.fresh where body in (select body from gone)
        ) select body from gone""",
    ),
    (
        "select digest from {s}.blobs where digest not in (" + _NEEDED + ")",  # noqa: S608 (of constants)
        "delete from {s}.blobs where digest = any(%b::bytea[]) and digest not in (" + _NEEDED + ")",  # noqa: S608 (of constants)
    ),
)
_VACUUM: Final = (
    # Returns the free ends of files, which a full disk needs for the rest.
    "vacuum {s}.bodies, {s}.words, {s}.blobs, {s}.entries",
    "vacuum (full, analyze) {s}.threads",
    "vacuum (full, analyze) {s}.branches",
    "vacuum (full, analyze) {s}.bodies",
    "vacuum (full, analyze) {s}.fresh",
    "vacuum (full, analyze) {s}.words",
    "vacuum (full, analyze) {s}.entries",
    "vacuum (full, analyze) {s}.moves",
    "vacuum (full, analyze) {s}.keys",
    "vacuum (full, analyze) {s}.blobs",
)
_SPACE: Final = """
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relkind = 'r'
"""


def gc(link: Link, progress: Progress | None) -> Freed:
    """Remove unused data, and the bytes of removed rows."""
    before = link.value(_SPACE, link.schema)
    removed = [0, 0]
    for index, (unused, remove) in enumerate(_UNUSED):
        names = [row[0] for row in link.rows(unused)]
        for start in range(0, len(names), _PORTION):
            with link.transaction():
                link.execute(_ALONE)
                removed[index] += link.execute(remove, names[start : start + _PORTION]).rowcount
            if progress is not None:
                progress(sum(removed), None)
    with link.warnings() as warned:
        for vacuum in _VACUUM:
            link.script(vacuum)
    if warned:  # PostgreSQL skips a table of another owner, and reports success
        raise StoreError(f"PostgreSQL: the removed data is still on the disk: {excerpt(warned[0], _REPORT_EVERY)}")
    if progress is not None:
        progress(sum(removed), sum(removed))
    return Freed(removed[0], removed[1], max(before - link.value(_SPACE, link.schema), 0))
