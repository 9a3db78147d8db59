"""The store in an SQLite file.

Rules:

- One thread writes for all callers of a store (``writer_thread``). Several processes may write to one file, and wait
  for each other's commits. Readers have their own connections, see the last commit, and never wait.
- With ``sync="full"`` a commit is on the disk when ``append`` returns. With ``sync="normal"`` it survives the death of
  the process; a crash of the machine may lose the last commits, and the file stays whole.
- JSON, hashes, compression and words are computed in the caller's thread.
- The file must be on a local disk (SQLite's log needs shared memory), and be opened again after ``fork``.

Stability: experimental.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, UnsetType

from palaver.core import jsontext
from palaver.core.errors import DamageError, NotFoundError, StoreError
from palaver.core.messages import Message
from palaver.core.parts import Blob
from palaver.store import message_codec, search_text
from palaver.store.records import (
    check_same_messages,
    checked_name,
    checked_tags,
    checked_title,
    frozen_metadata,
    prepare,
    prepare_entry,
)
from palaver.store.sqlite import queries, search_index, updates, upkeep
from palaver.store.sqlite.errors import translated_errors
from palaver.store.sqlite.schema import Sync, checked_reader, connect, connect_reader, writable
from palaver.store.sqlite.verify import verify
from palaver.store.sqlite.wal import inspect
from palaver.store.sqlite.writer_thread import ReadOnlyWriter, Writer
from palaver.store.store import (
    Addition,
    Appended,
    Freed,
    Hit,
    Progress,
    Query,
    Store,
    ThreadInfo,
    Verified,
    as_query,
    check_given,
)
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.thread import MAIN, Entry

_logger: Final = logging.getLogger(__name__)
_IDLE_READERS: Final = 8
_LISTED: Final = 100


class SQLiteStore(Store):
    """Keeps threads in the file ``path``, which is created if it is missing.

    A file that this process may not write is read-only, as with ``read_only``: then every method that writes raises
    ``UnavailableError``. ``timeout`` is how many seconds to wait for another process. ``clock`` gives Unix
    milliseconds. Raises ``StoreError`` for a file that is not a store or of a newer version, and ``UnavailableError``
    for one that cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "full",
        timeout: float = 30.0,
        read_only: bool = False,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Open the file."""
        if sync not in {"full", "normal"}:
            raise StoreError(f"sync is 'full' or 'normal', not {sync!r}")
        self._path = os.path.abspath(path)  # noqa: PTH100 (a name that SQLite cannot take for a special one)
        if "\x00" in self._path:
            raise StoreError(f"no file has the name {self._path!r}")
        self._timeout = timeout
        self._clock = clock
        self._idle: list[sqlite3.Connection] = []
        _refuse_damaged_log(self._path, timeout)
        why = "read_only is set" if read_only else "this process may not write the file, or beside it"
        self._read_only = read_only or (os.path.exists(self._path) and not writable(self._path))  # noqa: PTH110 (a string)
        with translated_errors(self._path):
            if self._read_only:
                checked_reader(self._path, timeout=timeout)
                self._writer: Writer = ReadOnlyWriter(self._path, why)
            else:
                _begin_private(self._path)
                self._writer = Writer(connect(self._path, timeout=timeout, sync=sync), self._path)
        self._close = weakref.finalize(self, _close, self._writer, self._idle)

    @contextmanager
    def _reader(self) -> Generator[sqlite3.Connection]:
        """Yield a connection on one snapshot."""
        self._writer.check()
        with translated_errors(self._path):
            try:
                db = self._idle.pop()
            except IndexError:
                db = connect_reader(self._path, timeout=self._timeout)
            try:
                db.execute("BEGIN")
                yield db
            finally:
                with suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("COMMIT")
                if len(self._idle) < _IDLE_READERS and self._close.alive:
                    self._idle.append(db)
                else:
                    db.close()

    # -- threads ---------------------------------------------------------------------------------------------------

    def create(
        self,
        id: str | None = None,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> ThreadInfo:
        """Create a thread."""
        name = uuid7() if id is None else checked_name(id, "id of the thread")
        about = _details(title, tags, {} if metadata is None else metadata)
        data = _encoded(about)
        now = self._clock()
        row = self._writer.run(lambda db: updates.create(db, name, data, now))
        return ThreadInfo(
            id=name, **about, created_at=row.created_at, updated_at=row.updated_at, length=0, branches={MAIN: None}
        )

    def info(self, thread: str) -> ThreadInfo:
        """Return the title, tags, metadata, times and heads of a thread."""
        with self._reader() as db:
            return queries.info_of(db, queries.thread_of(db, thread))

    def threads(self, *, tag: str | None = None, limit: int | None = None) -> Iterator[ThreadInfo]:
        """Iterate over the threads, the most recently updated first."""
        check_given("threads", tag=tag, limit=limit)
        with self._reader() as db:
            numbers = [
                number for (number,) in db.execute("SELECT number FROM threads ORDER BY updated_at DESC, number DESC")
            ]
        left = len(numbers) if limit is None else max(limit, 0)
        for start in range(0, len(numbers), _LISTED):
            with self._reader() as db:
                infos = list(queries.infos_of(db, numbers[start : start + _LISTED], tag))
            yield from infos[:left]
            left -= len(infos)
            if left <= 0:
                return

    def update(
        self,
        thread: str,
        *,
        title: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> ThreadInfo:
        """Change the fields that are given."""
        given: dict[str, Any] = {
            "title": checked_title(title),
            "tags": UNSET if tags is UNSET else checked_tags(tags),
            "metadata": UNSET if metadata is UNSET else frozen_metadata(metadata),
        }
        changes = {name: value for name, value in given.items() if value is not UNSET}

        def work(db: sqlite3.Connection) -> ThreadInfo:
            found = queries.thread_of(db, thread)
            about = jsontext.encode(dict(queries.details_of(db, found.number)) | changes)
            queries.branches_of(db, found.number)  # raises for damage, before anything is written
            updates.set_details(db, found.number, about)
            return queries.info_of(db, found)

        return self._writer.run(work)

    def delete(self, thread: str) -> None:
        """Remove a thread. ``gc`` removes its messages, and their words, from the disk."""
        self._writer.run(lambda db: updates.delete(db, thread))

    # -- messages --------------------------------------------------------------------------------------------------

    def append(
        self,
        thread: str,
        messages: Iterable[Message],
        *,
        branch: str = MAIN,
        expect: str | UnsetType | None = UNSET,
        key: str | None = None,
    ) -> Appended:
        """Append messages to a branch."""
        now = self._clock()
        rows = prepare(messages, lambda: now)
        if key is not None:
            checked_name(key, "key")
        joined = self._writer.run(lambda db: updates.append(db, thread, rows, branch, expect, key, now))
        if joined.earlier is not None and key is not None:
            first, count = joined.earlier
            with self._reader() as db:
                earlier = queries.read(db, queries.thread_of(db, thread), first, first + count)
            check_same_messages(earlier, rows, thread, key)
            return Appended(tuple(earlier), repeated=True)
        parent, entries = joined.parent, list[Entry]()
        for row in rows:
            entries.append(row.entry(parent))
            parent = row.id
        return Appended(tuple(entries))

    def add(
        self,
        thread: str,
        entries: Iterable[Entry],
        *,
        branches: Mapping[str, str | None] | None = None,
        absent: Collection[str] = (),
    ) -> int:
        """Add existing entries."""
        checked_name(thread, "id of the thread")
        heads = {checked_name(name, "name of the branch"): head for name, head in (branches or {}).items()}
        given = [(entry, prepare_entry(entry)) for entry in entries]
        now = self._clock()
        return self._writer.run(lambda db: updates.add(db, thread, given, heads, absent, now))

    def add_all(self, additions: Iterable[Addition]) -> int:
        """Add to several threads, in one transaction."""
        now = self._clock()
        works = [
            partial(
                updates.add,
                thread=checked_name(each.thread, "id of the thread"),
                given=[(entry, prepare_entry(entry)) for entry in each.entries],
                branches={checked_name(name, "name of the branch"): head for name, head in each.branches.items()},
                absent=(),
                now=now,
                about=_encoded(_details(each.title, each.tags, each.metadata)),
            )
            for each in additions
        ]
        return self._writer.run(lambda db: sum([work(db) for work in works])) if works else 0

    def read(self, thread: str, *, start: int = 0, stop: int | None = None) -> Sequence[Entry]:
        """Return entries in the order of appends."""
        check_given("read", start=start, stop=stop)
        with self._reader() as db:
            return queries.read(db, queries.thread_of(db, thread), start, stop)

    def path(self, thread: str, of: str = MAIN, *, last: int | None = None) -> Sequence[Entry]:
        """Return the conversation that ends in a branch or entry. Costs its length, or ``last``."""
        check_given("path", of=of, last=last)
        with self._reader() as db:
            found = queries.thread_of(db, thread)
            return queries.path(db, found, queries.find(db, found, of), last)

    # -- branches --------------------------------------------------------------------------------------------------

    def fork(self, thread: str, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Create a branch."""
        checked_name(name, "name of the branch")
        now = self._clock()
        return self._writer.run(lambda db: updates.fork(db, thread, name, of, at, now))

    def rewind(
        self, thread: str, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> None:
        """Move the head of a branch."""
        now = self._clock()
        self._writer.run(lambda db: updates.rewind(db, thread, to, branch, expect, now))

    # -- search, media ---------------------------------------------------------------------------------------------

    def search(self, query: Query | str) -> list[Hit]:
        """Index new messages, then find matches. A read-only store is searched without the index when it is behind."""
        query = as_query(query)
        search_text.parse(query.text)
        if not self._read_only:
            self.index()
        try:
            with self._reader() as db:
                return search_index.search(db, query, scan=self._read_only and search_index.is_behind(db))
        except NotFoundError:  # its thread
            return []

    def index(self, *, progress: Progress | None = None) -> int:
        """Index messages appended since the last call, as ``search`` does too; return their number."""
        done = 0
        while not self._read_only:
            with self._reader() as db:
                reach, found = search_index.next_texts(db)
            if not found:
                return done
            self._writer.run(search_index.add_texts(reach, found))
            done += len(found)
            if progress is not None:
                progress(done, None)
        return done

    def put_blob(self, data: bytes) -> Blob:
        """Store bytes as a blob."""
        kept = message_codec.compress(message_codec.checked_data(data))
        self._writer.run(updates.put_blob(kept))
        return message_codec.blob_for(kept.digest)

    def get_blob(self, blob: Blob | str) -> bytes:
        """Return the bytes of a blob."""
        digest = message_codec.digest_of(blob)
        with self._reader() as db:
            return queries.blob_of(db, digest)

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Read everything and derive every hash again."""
        self._writer.check()
        return verify(self._path, timeout=self._timeout, progress=progress)

    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove unused bodies, blobs and words."""
        before = self._size()
        with self._reader() as db:
            bodies = upkeep.unused_bodies(db)
        messages = blobs = 0
        for start in range(0, len(bodies), upkeep.CHUNK):
            with self._reader() as db:
                gone = upkeep.indexed_texts(db, bodies[start : start + upkeep.CHUNK])
            messages += self._writer.run(upkeep.remove_bodies(gone))
            if progress is not None:
                progress(min(start + upkeep.CHUNK, len(bodies)), len(bodies))
        with self._reader() as db:
            unused = upkeep.unused_blobs(db)
        for start in range(0, len(unused), upkeep.CHUNK):
            blobs += self._writer.run(upkeep.remove_blobs(unused[start : start + upkeep.CHUNK]))
        self._writer.run(upkeep.clean, alone=True)
        return Freed(messages, blobs, max(before - self._size(), 0))

    def _size(self) -> int:
        files = (Path(self._path + end) for end in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Finish pending work; the last store to close leaves a single file, without a log."""
        self._close()


def _details(title: str | None, tags: Iterable[str], metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": checked_title(title), "tags": checked_tags(tags), "metadata": frozen_metadata(metadata)}


def _encoded(about: Mapping[str, Any]) -> bytes | None:
    """Return the details of a thread as they are stored; ``None`` where there are none."""
    return jsontext.encode(dict(about)) if any(about.values()) or about["title"] == "" else None


def _begin_private(path: str) -> None:
    """Create a new private file; SQLite gives the files beside it the same rights."""
    with suppress(OSError):  # it exists already, or SQLite reports why not
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _refuse_damaged_log(path: str, timeout: float) -> None:
    """Raise ``DamageError`` for damage that SQLite would drop silently when it opens the file."""
    found = inspect(path, timeout=timeout).damage
    if found is None:
        return
    if found.kind == "torn":
        _logger.warning("%s: %s; it is cut", path, found)
        return
    raise DamageError(
        f"{path}: {found}; nothing was changed, and `palaver verify --store {path} --recover INTO` saves what is sound"
    )


def _close(writer: Writer, idle: list[sqlite3.Connection]) -> None:
    if writer.forked:
        return
    while idle:
        idle.pop().close()
    writer.close()
