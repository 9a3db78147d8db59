"""Reading everything in a file, and deriving every hash again.

Rules:

- Nothing is changed, and no damage is raised: each is told by table and row. A file that SQLite cannot open is damage
  of the file; a table that it cannot read to the end is damage of the table, and the others are looked at all the same.
- SQLite checks its own structure and its indices (``integrity_check``), and the index of words its own. Here each body
  and blob is compared with its address, each entry with its seal, each other row with its mark, and all that is
  referred to is looked for. What a body needs of blobs is derived from the message again.

Stability: experimental.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import NoneType
from typing import Final

from palaver.core.errors import DamageError, DecodeError, PalaverError
from palaver.store import message_codec
from palaver.store.sqlite.errors import fault
from palaver.store.sqlite.schema import APPLICATION, NEWEST, check, connect_reader, id_text, pragma
from palaver.store.sqlite.wal import look as look_at_log
from palaver.store.store import Damage, DamageKind, Progress, Verified

_STEP: Final = 500
_TYPES: Final = frozenset(
    (int, bytes, parent, int, sent_at, int, bytes, bytes)
    for parent in (int, NoneType)
    for sent_at in (int, NoneType, float)
)
_ALTERED: Final = "its mark does not agree"


class _Look:
    """One look at a file: what was seen, and what was wrong with it."""

    def __init__(self, db: sqlite3.Connection, path: str, progress: Progress | None) -> None:
        self.db = db
        self.path = path
        self.threads = self.entries = self.blobs = self.size = 0
        self.damage: list[Damage] = []
        self.names: dict[int, str] = {}
        self._progress = progress
        self._done = 0
        self._total: int | None = None

    def tell(
        self, kind: DamageKind, place: str, reason: str, thread: int | None = None, entry: bytes | None = None
    ) -> None:
        name = None if thread is None else self.names.get(thread, f"number {thread}")
        self.damage.append(Damage(kind, place, reason, name, None if entry is None else id_text(entry)))

    def step(self) -> None:
        self._done += 1
        if self._progress is not None and self._done % _STEP == 0:
            self._progress(self._done, self._total)

    def finish(self) -> Verified:
        if self._progress is not None:
            self._progress(self._done, self._done)
        return Verified(self.threads, self.entries, self.blobs, self.size, tuple(self.damage))

    @contextmanager
    def table(self, name: str) -> Generator[None]:
        """Tell of a table that cannot be read to its end."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self.tell("unreadable", name, str(error))

    def count(self) -> None:
        with self.table("entries"):
            (entries,) = self.db.execute("SELECT count(*) FROM entries").fetchone()
            (bodies,) = self.db.execute("SELECT count(*) FROM bodies").fetchone()
            self._total = entries + bodies


def verify(path: str | os.PathLike[str], *, timeout: float = 30.0, progress: Progress | None = None) -> Verified:
    """Look at a file, open elsewhere or not."""
    path = os.path.abspath(path)  # noqa: PTH100 (as the store does)
    if not Path(path).exists():
        return Verified(damage=(Damage("missing", path, "there is no such file"),))
    # SQLite takes a log with a damaged frame for one that was cut off there, and says nothing. It is looked at before
    # the snapshot is taken: while one is held, SQLite cannot begin the log anew, and it grows with every write.
    log = look_at_log(path, timeout=timeout).damage
    try:
        with closing(connect_reader(path, timeout=timeout)) as db:
            db.execute("BEGIN")
            application, version = pragma(db, "application_id"), pragma(db, "user_version")
            if application != APPLICATION or not 0 < version <= NEWEST:
                reason = f"its beginning is no store's: application {application}, schema {version}"
                return Verified(damage=(Damage("altered", path, reason),))
            look = _Look(db, path, progress)
            look.count()
            for part in _PARTS:
                part(look)
            if log is not None:
                look.damage.append(log)
            return look.finish()
    except sqlite3.Error as error:
        return Verified(damage=(Damage("unreadable", path, str(fault(error, path))),))


def _structure(look: _Look) -> None:
    with look.table("file"):
        for (line,) in look.db.execute("PRAGMA integrity_check").fetchall():
            if line != "ok":
                look.tell("altered", "file", " ".join(line.split()))


def _threads(look: _Look) -> None:
    with look.table("threads"):
        for row in look.db.execute("SELECT number, id, created_at, updated_at, length, mark FROM threads").fetchall():
            look.threads += 1
            look.names[row[0]] = str(row[1])
            if check(*row[:-1]) != row[-1]:
                look.tell("altered", f"threads {row[0]}", _ALTERED, row[0])
            _entries(look, row[0], look.names[row[0]], row[4] if type(row[4]) is int else 0)
    for table in ("entries", "branches", "keys", "moves", "abouts"):
        with look.table(table):
            query = f"SELECT DISTINCT thread FROM {table} WHERE thread NOT IN (SELECT number FROM threads)"  # noqa: S608 (the names above)
            for (number,) in look.db.execute(query).fetchall():
                look.tell("missing", f"threads {number}", f"{table} refers to it", number)


def _entries(look: _Look, number: int, name: str, length: int) -> None:
    """The entries of a thread: places without gaps, parents before them, seals that follow from each other."""
    seals: dict[int | None, bytes] = {None: message_codec.first_seal(name)}
    with look.table("entries"):
        for place, entry, parent, stamps, sent_at, body, seal, digest in look.db.execute(
            "SELECT e.place, e.id, e.parent, e.stamps, e.sent_at, e.body, e.seal, b.digest"
            " FROM entries e LEFT JOIN bodies b ON b.id = e.body WHERE e.thread = ? ORDER BY e.place",
            (number,),
        ):
            look.entries += 1
            look.step()
            where = f"entries {number} {place}"
            if digest is None:
                look.tell("missing", where, f"bodies {body} is not there", number, entry)
            elif tuple(map(type, (place, entry, parent, stamps, sent_at, body, seal, digest))) not in _TYPES:
                look.tell("altered", where, "a column has a value of another type", number, entry)
                continue  # its place and seal are nothing that others can follow
            elif parent not in seals or (parent is not None and parent >= place):
                look.tell("missing", where, f"entries {number} {parent}, which it follows, is not there", number, entry)
            elif not message_codec.is_sealed(seal, seals[parent], id_text(entry), stamps, sent_at, digest):
                look.tell("altered", where, "its seal does not agree", number, entry)
            elif type(sent_at) is float:  # an older version stored it
                look.tell("unreadable", where, f"its time is no integer but {sent_at}", number, entry)
            seals[place] = seal
    if len(seals) - 1 != length or any(place not in seals for place in range(length)):
        look.tell("missing", f"threads {number}", f"{len(seals) - 1} of {length} entries are there", number)
    _of_thread(look, number, seals, length)


def _of_thread(look: _Look, number: int, seals: dict[int | None, bytes], length: int) -> None:
    with look.table("branches"):
        rows = look.db.execute("SELECT name, head, mark FROM branches WHERE thread = ?", (number,)).fetchall()
        for name, head, mark in rows:
            if check(number, name, head) != mark:
                look.tell("altered", f"branches {number} {name!r}", _ALTERED, number)
            elif head not in seals:
                look.tell("missing", f"branches {number} {name!r}", f"its head, place {head}, is not there", number)
        if not rows:
            look.tell("missing", f"branches {number}", "there is none", number)
    with look.table("keys"):
        for key, first, count, mark in look.db.execute(
            "SELECT key, first, count, mark FROM keys WHERE thread = ?", (number,)
        ):
            if check(number, key, first, count) != mark or first + count > length:
                look.tell("altered", f"keys {number} {key!r}", _ALTERED, number)


def _marked(look: _Look) -> None:
    with look.table("abouts"):
        for number, data, mark in look.db.execute("SELECT thread, data, mark FROM abouts"):
            if check(number, data) != mark:
                look.tell("altered", f"abouts {number}", _ALTERED, number)
    with look.table("moves"):
        for *row, mark in look.db.execute("SELECT thread, number, at, branch, head, mark FROM moves"):
            if check(*row) != mark:
                look.tell("altered", f"moves {row[0]} {row[1]}", _ALTERED, row[0])


def _bodies(look: _Look) -> None:
    with look.table("bodies"):
        for row, digest, encoding, size, data in look.db.execute("SELECT id, digest, encoding, size, data FROM bodies"):
            look.step()
            try:
                text = message_codec.restored(digest, encoding, data, f"bodies {row}")
                uses = _uses(text)
            except PalaverError as error:
                _tell_body(look, row, error)
                continue
            look.size += len(data)
            if size != len(text):
                _tell_body(look, row, f"its size is not {size}")
            known = {blob for (blob,) in look.db.execute("SELECT blob FROM uses WHERE body = ?", (row,))}
            if known != uses:
                look.tell("altered", f"uses {row}", "these are not the blobs of the message")
            for blob in uses:
                if look.db.execute("SELECT 1 FROM blobs WHERE digest = ?", (blob,)).fetchone() is None:
                    _tell_body(look, row, f"missing: blob sha256:{blob.hex()}")


def _uses(text: bytes) -> set[bytes]:
    """The blobs that a body cannot be read without, and those that it names."""
    uses: set[bytes] = set()

    def note(digest: bytes) -> bytes:
        uses.add(digest)
        return b""

    uses.update(message_codec.addresses(message_codec.unpack(text, "", message_codec.MOVED, None, note)))
    return uses


def _tell_body(look: _Look, id: int, error: object) -> None:
    """Name a body, and each entry that says it."""
    kind: DamageKind = "missing" if "missing" in str(error) else "altered"
    if isinstance(error, DecodeError):
        kind = "unreadable"
    whose = look.db.execute("SELECT thread, id FROM entries WHERE body = ?", (id,)).fetchall()
    for thread, entry in whose or [(None, None)]:
        look.tell(kind, f"bodies {id}", _reason(error), thread, entry)


def _reason(error: object) -> str:
    return str(error) if not isinstance(error, DamageError | DecodeError) else str(error).partition(": ")[2]


def _blobs(look: _Look) -> None:
    with look.table("blobs"):
        for row, digest, encoding, size, data in _each_blob(look):
            look.blobs += 1
            try:
                found = message_codec.restored(digest, encoding, data, f"blobs {row}")
            except PalaverError as error:
                look.tell("altered", f"blobs {row}", _reason(error))
                continue
            look.size += len(data)
            if len(found) != size:
                look.tell("altered", f"blobs {row}", f"its size is not {size}")


def _each_blob(look: _Look) -> Iterator[tuple[int, bytes, int, int, bytes]]:
    yield from look.db.execute("SELECT id, digest, encoding, size, data FROM blobs")


_PARTS: Final[tuple[Callable[[_Look], None], ...]] = (_structure, _threads, _marked, _bodies, _blobs)
