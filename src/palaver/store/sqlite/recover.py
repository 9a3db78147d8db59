"""Recovery of sound data from a damaged SQLite file into another store.

Rules:

- The file is read page by page, without SQLite (``pages``), and not changed, even when SQLite refuses to open it.
- An entry is saved when its row and its body are found, the body has its address, and the seal follows from the entry
  before it. If that row is lost, only the body is checked.
- Nothing is guessed. An entry with a lost parent begins a conversation (``parent`` ``None``) on a branch
  ``recovered-1``, …, and so does the last entry before a gap. A branch with a lost head ends at the last saved entry.
  ``Recovered.lost`` reports all of it.
- A sound message without an entry goes into the thread ``recovered-messages``, without id and time. When a thread was
  deleted since the last ``gc`` and nothing else is lost, such messages are what was deleted, and are not saved.
- Keys of appends are dropped. A thread with a lost row is called ``recovered-thread-N``.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DamageError, DecodeError, PalaverError
from palaver.store import message_codec
from palaver.store.records import decode_entry
from palaver.store.sqlite.pages import PageRow, Pages
from palaver.store.sqlite.schema import UNCLEAN, id_text, row_mark
from palaver.store.store import Damage, Progress, Store
from palaver.threads.thread import MAIN, Entry

_LETTERS: Final[dict[type, str]] = {int: "i", float: "f", bytes: "b", str: "s", type(None): "n"}
_ENTRIES: Final = re.compile("iib[in]i[in]ib")
_BRANCHES: Final = re.compile("is[in]b")
_THREADS: Final = "nsiiib"  # the rowid column is empty in its row
_ABOUTS: Final = "nbb"
_BODIES: Final = "nbiib"
_BLOBS: Final = "nibib"
_DIGEST: Final = 32
_STEP: Final = 100
_BATCH: Final = 500
_ORPHANED_MESSAGES: Final = "recovered-messages"


class Recovered(Struct, frozen=True):
    """The saved data, and what was lost or changed."""

    threads: int = 0
    entries: int = 0
    blobs: int = 0
    lost: tuple[Damage, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything was saved unchanged."""
        return not self.lost


class _Row(NamedTuple):
    """A row of ``entries``."""

    thread: int
    place: int
    id: bytes
    parent: int | None
    stamps: int
    sent_at: int | None
    body: int
    seal: bytes


class _FoundRows:
    """The rows that were found, by table."""

    def __init__(self) -> None:
        self.threads: dict[int, tuple[str, int]] = {}
        self.abouts: dict[int, bytes] = {}
        self.branches: dict[int, dict[str, int | None]] = {}
        self.entries: dict[int, dict[int, list[_Row]]] = {}
        self.bodies: dict[int, list[int]] = {}
        self.blobs: dict[bytes, list[int]] = {}
        self.unclean = False

    def add(self, found: PageRow) -> None:
        """Identify a row by its shape, and keep it when its mark matches."""
        row: Any = found.values
        number = found.rowid
        shape = "".join([_LETTERS[type(value)] for value in row])
        if number is None:
            if _ENTRIES.fullmatch(shape) and len(row[-1]) == _DIGEST:
                entry = _Row(*row)
                self.entries.setdefault(entry.thread, {}).setdefault(entry.place, []).append(entry)
            elif _BRANCHES.fullmatch(shape) and row_mark(*row[:-1]) == row[-1]:
                self.branches.setdefault(row[0], {})[row[1]] = row[2]
            elif row == (UNCLEAN, 1):
                self.unclean = True
        elif shape == _THREADS and row_mark(number, *row[1:-1]) == row[-1]:
            self.threads[number] = (row[1], row[4])
        elif shape == _ABOUTS and row_mark(number, row[1]) == row[2]:
            self.abouts[number] = row[1]
        elif shape == _BODIES:
            self.bodies.setdefault(number, []).append(found.page)
        elif shape == _BLOBS:
            self.blobs.setdefault(row[2], []).append(found.page)


def recover(path: str | os.PathLike[str], into: Store, *, progress: Progress | None = None) -> Recovered:
    """Save the sound data of a damaged file into another store; repeating it adds nothing.

    Raises what ``into.add`` raises, and ``OSError`` for a file that cannot be read at all.
    """
    with closing(Pages(os.path.abspath(path))) as pages:  # noqa: PTH100 (as the store does)
        left = _FoundRows()
        for done, number in enumerate(pages.numbers, 1):
            for row in pages.rows(number):
                left.add(row)
            if progress is not None and done % _STEP == 0:
                progress(done, pages.count)
        return _Recovery(pages, left, into).run()


class _Recovery:
    """Writes the found rows into a store."""

    def __init__(self, pages: Pages, left: _FoundRows, into: Store) -> None:
        self._pages = pages
        self._rows = left
        self._into = into
        self._lost: list[Damage] = []
        self._saved_blobs: set[bytes] = set()
        if pages.log.damage is not None:
            self._lost.append(pages.log.damage)

    def run(self) -> Recovered:
        left = self._rows
        blobs = sum(self._save_blob(digest) for digest in left.blobs)
        entries = threads = 0
        for number in sorted(left.threads.keys() | left.entries.keys()):
            known = left.threads.get(number)
            name = f"recovered-thread-{number}" if known is None else known[0]
            if known is None:
                self._lost.append(Damage("missing", f"threads {number}", "its own row is lost", name))
            entries += self._save_thread(number, name, known)
            threads += 1
        nameless = self._save_orphaned_messages()
        return Recovered(threads + bool(nameless), entries + nameless, blobs, tuple(self._lost))

    def _save_orphaned_messages(self) -> int:
        """Save the messages whose entries are lost, in the order in which they were first written."""
        if self._rows.unclean and not self._lost:
            return 0  # nothing is lost: these messages were deleted
        named = {row.body for rows in self._rows.entries.values() for each in rows.values() for row in each}
        entries: list[Entry] = []
        for number in sorted(self._rows.bodies.keys() - named):
            for body in self._bodies(number):
                try:
                    text = message_codec.decompress(body.digest, body.encoding, body.data)
                    message = message_codec.unpack(text, "", message_codec.MEDIA_EXTRACTED, None, self._needed_blob)
                except (PalaverError, TypeError, ValueError, OverflowError):
                    continue
                made = f"recovered-{body.digest.hex()[:32]}"
                entries.append(Entry(made, entries[-1].id if entries else None, message))
                reason = f"its entry is lost; it is saved in the thread {_ORPHANED_MESSAGES}"
                self._lost.append(Damage("missing", f"bodies {number}", reason, _ORPHANED_MESSAGES, made))
                break
        if entries:
            heads = {MAIN: entries[-1].id}
            self._into.add(
                _ORPHANED_MESSAGES, entries, branches=heads, absent=self._missing_blobs(entries, _ORPHANED_MESSAGES)
            )
        return len(entries)

    def _save_blob(self, digest: bytes) -> bool:
        data = self._blob_bytes(digest)
        if data is None:
            self._lost.append(Damage("altered", f"blob sha256:{digest.hex()}", "its hash does not match"))
            return False
        self._into.put_blob(data)
        self._saved_blobs.add(digest)
        return True

    def _missing_blobs(self, entries: list[Entry], thread: str) -> set[str]:
        """Return the blobs that messages name and that were not saved; each is reported where it is named."""
        absent: set[str] = set()
        for entry in entries:
            for digest in message_codec.blob_digests(entry.message):
                if digest not in self._saved_blobs:
                    name = message_codec.blob_for(digest).hash
                    absent.add(name)
                    self._lost.append(Damage("missing", f"blob {name}", "a message names it", thread, entry.id))
        return absent

    def _blob_bytes(self, digest: bytes) -> bytes | None:
        for page in self._rows.blobs.get(digest, ()):
            for found in self._pages.rows(page):
                row: Any = found.values
                if len(row) == 5 and row[2] == digest:  # noqa: PLR2004 (columns)
                    try:
                        return message_codec.decompress(digest, row[1], row[4])
                    except (PalaverError, TypeError):
                        continue
        return None

    # -- a thread --------------------------------------------------------------------------------------------------

    def _save_thread(self, number: int, name: str, known: tuple[str, int] | None) -> int:
        rows: dict[int, _Row] = {}
        saved: dict[int, Entry] = {}
        began: list[int] = []
        for place, candidates in sorted(self._rows.entries.get(number, {}).items()):
            found = self._find_entry(candidates, rows, saved, known)
            rows[place] = found[0]
            entry = found[1]
            if entry is None:
                where = f"entries {number} {place}"
                self._lost.append(Damage("altered", where, "its message is lost", name, id_text(found[0].id)))
                continue
            saved[place] = entry
            if entry.parent is None and found[0].parent is not None:
                began.append(place)
        length = len(rows) if known is None else known[1]
        held = [-1, *sorted(place for place in rows if 0 <= place < length), length]  # a length may say any number
        for first, last in ((before + 1, after - 1) for before, after in pairwise(held) if after - before > 1):
            gap = f"entries {number} {first}" if first == last else f"entries {number} {first} to {last}"
            self._lost.append(Damage("missing", gap, "its row is lost", name))
        branches = self._branches(number, name, rows, saved, began)
        given = list(saved.values())
        absent = self._missing_blobs(given, name)
        for start in range(0, len(given), _BATCH):
            self._into.add(name, given[start : start + _BATCH], absent=absent)
        self._into.add(name, (), branches=branches)
        self._save_details(number, name)
        return len(saved)

    def _find_entry(
        self, candidates: list[_Row], rows: dict[int, _Row], saved: dict[int, Entry], known: tuple[str, int] | None
    ) -> tuple[_Row, Entry | None]:
        """Return the sound row and its entry; without a sound row, the last row and no entry."""
        for row in reversed(candidates):
            before = rows.get(row.parent) if row.parent is not None and row.parent < row.place else None
            if row.parent is not None:
                sealed = None if before is None else before.seal
            else:
                sealed = None if known is None else message_codec.first_seal(known[0])
            parent = saved.get(row.parent) if row.parent is not None and before is not None else None
            for body in self._bodies(row.body):
                try:
                    found = sealed and message_codec.seal(sealed, id_text(row.id), row.stamps, row.sent_at, body.digest)
                    if found is not None and found != row.seal:
                        continue
                    entry = decode_entry(
                        id_text(row.id),
                        None if parent is None else parent.id,
                        row.stamps,
                        None if row.sent_at is None else int(row.sent_at),
                        body,
                        self._needed_blob,
                        "",
                        strict=True,
                    )
                except (PalaverError, TypeError, ValueError, OverflowError):
                    continue
                return row, entry
        return candidates[-1], None

    def _bodies(self, number: int) -> Iterator[message_codec.StoredBytes]:
        for page in self._rows.bodies.get(number, ()):
            for found in self._pages.rows(page):
                row: Any = found.values
                if found.rowid == number and len(row) == 5 and isinstance(row[1], bytes):  # noqa: PLR2004 (columns)
                    yield message_codec.StoredBytes(row[1], row[2], row[4], row[3])

    def _needed_blob(self, digest: bytes) -> bytes:
        data = self._blob_bytes(digest)
        if data is None:
            raise DamageError("its blob is lost")
        return data

    def _branches(
        self, number: int, name: str, rows: dict[int, _Row], saved: dict[int, Entry], began: list[int]
    ) -> dict[str, str | None]:
        branches: dict[str, str | None] = {}
        for branch, head in self._rows.branches.get(number, {}).items():
            place = head
            while place is not None and place not in saved:
                place = rows[place].parent if place in rows and (rows[place].parent or 0) < place else None
            branches[branch] = None if place is None else saved[place].id
            if place != head:
                where = f"branches {number} {branch!r}"
                self._lost.append(Damage("missing", where, f"its head, place {head}, is lost", name))
        return branches | self._new_branches(number, name, rows, saved, set(branches.values()), began)

    def _new_branches(  # noqa: PLR0917 (all that is known of a thread)
        self,
        number: int,
        name: str,
        rows: dict[int, _Row],
        saved: dict[int, Entry],
        named: set[str | None],
        began: list[int],
    ) -> dict[str, str | None]:
        """Return a branch for each leaf of a new conversation, and for each leaf whose successors are lost."""
        follows = {rows[place].parent for place in saved if place not in began}
        cut = {row.parent for place, row in rows.items() if place not in saved or place in began}
        nameless = number not in self._rows.branches or self._pages.log.damaged is not None  # heads may be old
        starts: dict[int, int] = {}
        branches: dict[str, str | None] = {}
        for place, entry in saved.items():
            parent = rows[place].parent
            starts[place] = place if entry.parent is None or parent is None else starts[parent]
            start = starts[place]
            if place in follows:
                continue
            if start in began or ((place in cut or nameless) and entry.id not in named):
                branches[f"recovered-{len(branches) + 1}"] = entry.id
            if start in began:
                where = f"entries {number} {start}"
                reason = f"its parent is lost; it starts the branch recovered-{len(branches)}"
                self._lost.append(Damage("missing", where, reason, name, saved[start].id))
        return branches

    def _save_details(self, number: int, name: str) -> None:
        data = self._rows.abouts.get(number)
        if data is None:
            return
        try:
            about: dict[str, Any] = jsontext.view(data)
        except DecodeError:
            return
        self._into.update(
            name, title=about.get("title"), tags=about.get("tags", ()), metadata=about.get("metadata", {})
        )
