"""A store in a folder of JSON Lines: memory holds the threads, the folder holds their changes.

Rules:

- Each call that changes something is one line on the disk before it returns (``folder``), whole or not at all. A call
  first reads what other processes wrote, so that ``expect`` holds among all of them.
- Everything is in memory: the store suits data that fit there, and opening it reads all of it. For more, use SQLite.
- ``damage`` lists what an earlier crash or a bad disk left: incomplete ends of files, which are cut off, and altered
  lines. All other lines are loaded; an entry whose parent is lost begins a conversation.
- ``gc`` writes the state into one new file and removes the others, and with them deleted data. A damaged file is kept
  aside instead, with all its contents: its owner may remove it.
- A store that was opened before a fork is the parent's; the child opens its own. Needs the file locks of POSIX.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from palaver.core.errors import StoreError
from palaver.core.messages import Message
from palaver.core.parts import Blob
from palaver.store.jsonl import journal
from palaver.store.jsonl.folder import Folder, Sync, Update
from palaver.store.memory import MemoryStore, ThreadState
from palaver.store.records import (
    BlobAdded,
    BlobsRemoved,
    Change,
    EntriesAdded,
    ThreadCreated,
    ThreadDeleted,
    is_unreadable,
)
from palaver.store.store import Addition, Appended, Damage, Freed, Progress, Verified
from palaver.threads.ids import now_ms
from palaver.threads.thread import Entry

if TYPE_CHECKING:
    from types import TracebackType

MAX_BYTES: Final = 64 << 20
_BATCH: Final = 64


class _State(MemoryStore):
    """A store in memory that follows the changes of a folder."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self._garbage = False
        self._dead = 0

    def take(self, news: Update) -> list[Damage]:
        """Apply changes; return the damage."""
        damage = list(news.damage)
        stretches = journal.LostLines(news.lost)
        if news.complete:
            self._states.clear()
            self._blobs.clear()
            self._garbage, self._dead = False, 0
        for step in news.steps:
            for change in step.changes:
                try:
                    self._apply(change)
                except (KeyError, StoreError):  # its base is lost
                    held = self._states.get(getattr(change, "thread", ""))
                    fitted, lost = journal.applicable(
                        change, None if held is None else held.tree, step.place, stretches
                    )
                    damage += lost
                    for each in fitted:
                        self._apply(each)
        return damage

    def _apply(self, change: Change) -> None:
        if isinstance(change, ThreadDeleted) and change.thread in self._states:
            self._dead += len(self._states[change.thread].tree)
        self._garbage = self._garbage or isinstance(change, (ThreadDeleted, BlobsRemoved))
        super()._apply(change)

    def unreadable(self, named: Collection[tuple[str | None, str | None]], place: str) -> list[Damage]:
        """Return the records of unreadable messages that are not reported yet: a rewrite kept them."""
        return [
            Damage("unreadable", place, "a record stands for it", name, entry.id)
            for name, held in self._states.items()
            for entry in held.tree.entries
            if is_unreadable(entry.message) and (name, entry.id) not in named
        ]

    def whole(self) -> Iterator[list[Change]]:
        """Yield the changes that make this state from an empty one, in pieces."""
        for name, held in self._states.items():
            yield [
                ThreadCreated(thread=name, at=held.created_at, title=held.title, tags=held.tags, metadata=held.metadata)
            ]
            entries, at = held.tree.entries, 0
            keyed = sorted((start, count, key) for key, (start, count) in held.keys.items())
            for start, count, key in [*keyed, (len(entries), 0, None)]:
                for first in range(at, start, _BATCH):
                    piece = tuple(entries[first : min(first + _BATCH, start)])
                    yield [EntriesAdded(thread=name, at=held.updated_at, entries=piece)]
                at = start + count
                piece = tuple(entries[start:at])
                heads = dict(held.tree.branches) if key is None else dict[str, str | None]()
                yield [EntriesAdded(thread=name, at=held.updated_at, entries=piece, branches=heads, key=key)]
        for data in self._blobs.values():
            yield [BlobAdded(data=data)]


class JsonlStore(_State):
    """Keeps threads in a folder. ``sync``: ``fsync`` (on the disk) or ``flush`` (survives the process only).

    ``timeout`` is how many seconds a call waits for the lock of the folder.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        sync: Sync = "fsync",
        max_bytes: int = MAX_BYTES,
        timeout: float = 30.0,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Open the store in a folder, and create it if missing; a folder without write permission is read-only.

        Raises ``StoreError`` for a folder with other files, or with lines of a newer version.
        """
        if sync not in {"flush", "fsync"}:
            raise StoreError(f"sync: {sync!r} is neither 'flush' nor 'fsync'")
        super().__init__(clock)
        self._process = os.getpid()
        self._name = os.fspath(directory)
        self._damage: dict[Damage, None] = {}
        self._made: list[Change] = []
        self._open = True
        self._lock = self._turn = _LockContext(self._begin)
        self._folder = Folder(Path(directory), sync=sync, max_bytes=max_bytes, timeout=timeout, clock=clock)
        try:
            with self._lock:
                pass
        except BaseException:
            self._folder.close()
            raise

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The damage found when the store was read."""
        return tuple(self._damage)

    def _begin(self, stack: ExitStack) -> None:
        """Before the first step of a call, read what others wrote; after the last, write the new changes."""
        if not self._open:
            raise StoreError(f"{self._name}: the store is closed")
        if os.getpid() != self._process:
            raise StoreError(f"{self._name}: opened before this process was forked; open it again")
        stack.enter_context(self._folder.locked())
        try:
            news = self._folder.updates()
            if news is not None:
                self._damage.update(dict.fromkeys(self.take(news)))
        except BaseException:
            self._folder.forget()
            raise
        stack.push(self._end)

    def _end(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        made, self._made = self._made, []
        if made and kind is None:
            self._folder.write(made)
        elif made:
            self._folder.forget()  # memory is newer than the disk

    def _commit(self, change: Change) -> None:
        self._folder.check_writable()
        self._made.append(change)
        self._apply(change)

    def _earlier_append(self, held: ThreadState, given: list[Message], key: str) -> Appended:
        self._folder.sync_read()  # the first call's line may not be on the disk yet
        return super()._earlier_append(held, given, key)

    def add(
        self,
        thread: str,
        entries: Iterable[Entry],
        *,
        branches: Mapping[str, str | None] | None = None,
        absent: Collection[str] = (),
    ) -> int:
        """Add entries as they are; existing ones are on the disk too when this returns."""
        with self._lock:
            self._folder.sync_read()
            return super().add(thread, entries, branches=branches, absent=absent)

    def add_all(self, additions: Iterable[Addition]) -> int:
        """Add to several threads; existing entries are on the disk too when this returns."""
        with self._lock:
            self._folder.sync_read()
            return super().add_all(additions)

    def put_blob(self, data: bytes) -> Blob:
        """Store bytes as a blob."""
        with self._lock:
            self._folder.sync_read()
            return super().put_blob(data)

    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Read every file again, and compare the result with memory."""
        with self._lock:
            news, size = self._folder.audit()
            again = _State(self._clock)
            damage = again.take(news)
            for name, held in self._states.items():
                copy = again._states.get(name)  # noqa: SLF001 (one of our own)
                if copy is None or (copy.info(), copy.tree.entries) != (held.info(), held.tree.entries):
                    damage.append(Damage("missing", self._name, "the files were changed after they were read", name))
            found = again.verify(progress=progress)
            damage += again.unreadable({(each.thread, each.entry) for each in damage}, self._name)
        return Verified(found.threads, found.entries, found.blobs, size, (*damage, *found.damage))

    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove blobs that no message uses, and all deleted data, from the disk."""
        with self._lock:
            self._folder.check_writable()
            freed = super().gc(progress=progress)
            if not (self._garbage or self._folder.has_leftovers()):
                return freed
            size = self._folder.rewrite(self.whole())
            self._made.clear()  # the new file contains it
            dead, self._dead, self._garbage = self._dead, 0, False
            return Freed(dead, freed.blobs, max(size, 0))

    def close(self) -> None:
        """Close all files."""
        with ExitStack() as stack:
            if os.getpid() == self._process:  # in a forked child, no thread may be left to release it
                stack.enter_context(self._turn.alone)
            self._open = False
            self._folder.close()


class _LockContext(AbstractContextManager[None]):
    """A process lock around the folder's lock: acquired by the first ``with``, released by the last."""

    def __init__(self, begin: Callable[[ExitStack], None]) -> None:
        self._begin = begin
        self.alone = RLock()
        self._stacks: list[ExitStack] = []

    def __enter__(self) -> None:
        self.alone.acquire()
        try:
            stack = ExitStack()
            if not self._stacks:
                with stack:
                    self._begin(stack)
                    stack = stack.pop_all()
            self._stacks.append(stack)
        except BaseException:
            self.alone.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stacks.pop().__exit__(kind, error, trace)
        finally:
            self.alone.release()
