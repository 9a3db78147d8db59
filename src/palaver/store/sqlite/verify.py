"""Verification of an SQLite file: everything is read, and every hash derived again.

Rules:

- Nothing is changed, and damage is reported by table and row, not raised. A table that SQLite cannot read to its end is
  damage of that table; the others are still checked.
- SQLite checks its structure, its indexes (``integrity_check``) and the index of words. This module compares each body
  and blob with its address, each entry with its seal and each other row with its mark, looks up every reference, and
  derives from each message which blobs it needs.

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
from palaver.store.sqlite.errors import store_error
from palaver.store.sqlite.schema import APPLICATION, NEWEST, connect_reader, id_text, pragma, row_mark
from palaver.store.sqlite.wal import inspect as inspect_log
from palaver.store.store import Damage, DamageKind, Progress, Verified

_STEP: Final = 500
_TYPES: Final = frozenset(
    (int, bytes, parent, int, sent_at, int, bytes, bytes)
    for parent in (int, NoneType)
    for sent_at in (int, NoneType, float)
)
_ALTERED: Final = "its checksum does not match"


class _Verification:
    """One verification of a file: what was counted, and the damage."""

    def __init__(self, db: sqlite3.Connection, path: str, progress: Progress | None) -> None:
        self.db = db
        self.path = path
        self.threads = self.entries = self.blobs = self.size = 0
        self.damage: list[Damage] = []
        self.names: dict[int, str] = {}
        self._progress = progress
        self._done = 0
        self._total: int | None = None

    def report(
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
        """Report a table that cannot be read to its end."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            self.report("unreadable", name, str(error))

    def count(self) -> None:
        with self.table("entries"):
            (entries,) = self.db.execute("SELECT count(*) FROM entries").fetchone()
            (bodies,) = self.db.execute("SELECT count(*) FROM bodies").fetchone()
            self._total = entries + bodies


def verify(path: str | os.PathLike[str], *, timeout: float = 30.0, progress: Progress | None = None) -> Verified:
    """Verify a file, open elsewhere or not."""
    path = os.path.abspath(path)  # noqa: PTH100 (as the store does)
    if not Path(path).exists():
        return Verified(damage=(Damage("missing", path, "there is no such file"),))
    # SQLite treats a log with a damaged frame as one that was cut off there, and reports nothing. It is checked before
    # the snapshot is taken: during a snapshot, SQLite cannot restart the log, which grows with every write.
    log = inspect_log(path, timeout=timeout).damage
    try:
        with closing(connect_reader(path, timeout=timeout)) as db:
            db.execute("BEGIN")
            application, version = pragma(db, "application_id"), pragma(db, "user_version")
            if application != APPLICATION or not 0 < version <= NEWEST:
                reason = f"its header is not that of a store: application {application}, schema {version}"
                return Verified(damage=(Damage("altered", path, reason),))
            run = _Verification(db, path, progress)
            run.count()
            for part in _PARTS:
                part(run)
            if log is not None:
                run.damage.append(log)
            return run.finish()
    except sqlite3.Error as error:
        return Verified(damage=(Damage("unreadable", path, str(store_error(error, path))),))


def _structure(run: _Verification) -> None:
    with run.table("file"):
        for (line,) in run.db.execute("PRAGMA integrity_check").fetchall():
            if line != "ok":
                run.report("altered", "file", " ".join(line.split()))


def _threads(run: _Verification) -> None:
    with run.table("threads"):
        for row in run.db.execute("SELECT number, id, created_at, updated_at, length, mark FROM threads").fetchall():
            run.threads += 1
            run.names[row[0]] = str(row[1])
            if row_mark(*row[:-1]) != row[-1]:
                run.report("altered", f"threads {row[0]}", _ALTERED, row[0])
            _entries(run, row[0], run.names[row[0]], row[4] if type(row[4]) is int else 0)
    for table in ("entries", "branches", "keys", "moves", "abouts"):
        with run.table(table):
            query = f"SELECT DISTINCT thread FROM {table} WHERE thread NOT IN (SELECT number FROM threads)"  # noqa: S608 (the names above)
            for (number,) in run.db.execute(query).fetchall():
                run.report("missing", f"threads {number}", f"{table} refers to it", number)


def _entries(run: _Verification, number: int, name: str, length: int) -> None:
    """Check the entries of a thread: places without gaps, parents before them, seals that follow from each other."""
    seals: dict[int | None, bytes] = {None: message_codec.first_seal(name)}
    with run.table("entries"):
        for place, entry, parent, stamps, sent_at, body, seal, digest in run.db.execute(
            "SELECT e.place, e.id, e.parent, e.stamps, e.sent_at, e.body, e.seal, b.digest"
            " FROM entries e LEFT JOIN bodies b ON b.id = e.body WHERE e.thread = ? ORDER BY e.place",
            (number,),
        ):
            run.entries += 1
            run.step()
            where = f"entries {number} {place}"
            if digest is None:
                run.report("missing", where, f"bodies {body} is not there", number, entry)
            elif tuple(map(type, (place, entry, parent, stamps, sent_at, body, seal, digest))) not in _TYPES:
                run.report("altered", where, "a column has a value of another type", number, entry)
                continue  # other entries cannot follow its place and seal
            elif parent not in seals or (parent is not None and parent >= place):
                run.report(
                    "missing", where, f"entries {number} {parent}, which it follows, is not there", number, entry
                )
            elif not message_codec.is_sealed(seal, seals[parent], id_text(entry), stamps, sent_at, digest):
                run.report("altered", where, "its seal does not match", number, entry)
            elif type(sent_at) is float:  # an older version stored it
                run.report("unreadable", where, f"its time is not an integer: {sent_at}", number, entry)
            seals[place] = seal
    if len(seals) - 1 != length or any(place not in seals for place in range(length)):
        run.report("missing", f"threads {number}", f"{len(seals) - 1} of {length} entries are there", number)
    _branches_and_keys(run, number, seals, length)


def _branches_and_keys(run: _Verification, number: int, seals: dict[int | None, bytes], length: int) -> None:
    with run.table("branches"):
        rows = run.db.execute("SELECT name, head, mark FROM branches WHERE thread = ?", (number,)).fetchall()
        for name, head, mark in rows:
            if row_mark(number, name, head) != mark:
                run.report("altered", f"branches {number} {name!r}", _ALTERED, number)
            elif head not in seals:
                run.report("missing", f"branches {number} {name!r}", f"its head, place {head}, is not there", number)
        if not rows:
            run.report("missing", f"branches {number}", "there is none", number)
    with run.table("keys"):
        for key, first, count, mark in run.db.execute(
            "SELECT key, first, count, mark FROM keys WHERE thread = ?", (number,)
        ):
            if row_mark(number, key, first, count) != mark or first + count > length:
                run.report("altered", f"keys {number} {key!r}", _ALTERED, number)


def _details_and_moves(run: _Verification) -> None:
    with run.table("abouts"):
        for number, data, mark in run.db.execute("SELECT thread, data, mark FROM abouts"):
            if row_mark(number, data) != mark:
                run.report("altered", f"abouts {number}", _ALTERED, number)
    with run.table("moves"):
        for *row, mark in run.db.execute("SELECT thread, number, at, branch, head, mark FROM moves"):
            if row_mark(*row) != mark:
                run.report("altered", f"moves {row[0]} {row[1]}", _ALTERED, row[0])


def _bodies(run: _Verification) -> None:
    with run.table("bodies"):
        for row, digest, encoding, size, data in run.db.execute("SELECT id, digest, encoding, size, data FROM bodies"):
            run.step()
            try:
                text = message_codec.decompress(digest, encoding, data, f"bodies {row}")
                uses = _uses(text)
            except PalaverError as error:
                _report_body(run, row, error)
                continue
            run.size += len(data)
            if size != len(text):
                _report_body(run, row, f"its size is not {size}")
            known = {blob for (blob,) in run.db.execute("SELECT blob FROM uses WHERE body = ?", (row,))}
            if known != uses:
                run.report("altered", f"uses {row}", "the blobs are not those of the message")
            for blob in uses:
                if run.db.execute("SELECT 1 FROM blobs WHERE digest = ?", (blob,)).fetchone() is None:
                    _report_body(run, row, f"missing: blob sha256:{blob.hex()}")


def _uses(text: bytes) -> set[bytes]:
    """Return the blobs that a body needs to be read, and those that it names."""
    uses: set[bytes] = set()

    def note(digest: bytes) -> bytes:
        uses.add(digest)
        return b""

    uses.update(message_codec.blob_digests(message_codec.unpack(text, "", message_codec.MEDIA_EXTRACTED, None, note)))
    return uses


def _report_body(run: _Verification, id: int, error: object) -> None:
    """Report a body, and each entry with it."""
    kind: DamageKind = "missing" if "missing" in str(error) else "altered"
    if isinstance(error, DecodeError):
        kind = "unreadable"
    whose = run.db.execute("SELECT thread, id FROM entries WHERE body = ?", (id,)).fetchall()
    for thread, entry in whose or [(None, None)]:
        run.report(kind, f"bodies {id}", _reason(error), thread, entry)


def _reason(error: object) -> str:
    return str(error) if not isinstance(error, DamageError | DecodeError) else str(error).partition(": ")[2]


def _blobs(run: _Verification) -> None:
    with run.table("blobs"):
        for row, digest, encoding, size, data in _each_blob(run):
            run.blobs += 1
            try:
                found = message_codec.decompress(digest, encoding, data, f"blobs {row}")
            except PalaverError as error:
                run.report("altered", f"blobs {row}", _reason(error))
                continue
            run.size += len(data)
            if len(found) != size:
                run.report("altered", f"blobs {row}", f"its size is not {size}")


def _each_blob(run: _Verification) -> Iterator[tuple[int, bytes, int, int, bytes]]:
    yield from run.db.execute("SELECT id, digest, encoding, size, data FROM blobs")


_PARTS: Final[tuple[Callable[[_Verification], None], ...]] = (_structure, _threads, _details_and_moves, _bodies, _blobs)
