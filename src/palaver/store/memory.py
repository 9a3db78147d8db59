"""A store in memory: for tests, for short-lived work, and as the state of every store with a journal.

Rules:

- Each method that writes checks its arguments, makes one ``Change`` and passes it to ``_commit``, under one lock.
  ``MemoryStore`` applies the change; a journal writes it first.
- Each entry has its own copy of its message. ``get_blob`` finds what ``put_blob`` stored.
- The content is lost when the process ends.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from threading import RLock
from typing import Any, assert_never

from msgspec import UNSET, UnsetType

from palaver.core.errors import ConflictError, NotFoundError
from palaver.core.messages import Message
from palaver.core.parts import Blob
from palaver.store import message_codec, search_text
from palaver.store.records import (
    BlobAdded,
    BlobsRemoved,
    Change,
    EntriesAdded,
    ThreadCreated,
    ThreadDeleted,
    ThreadUpdated,
    check_same_messages,
    checked_entry,
    checked_name,
    checked_tags,
    checked_title,
    frozen_metadata,
    prepare,
    time_range,
)
from palaver.store.store import (
    Addition,
    Appended,
    Damage,
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
from palaver.threads.thread import MAIN, Entry, Thread, verified


class ThreadState:
    """A thread and its state."""

    __slots__ = ("created_at", "keys", "metadata", "tags", "title", "tree", "updated_at")

    def __init__(self, change: ThreadCreated) -> None:
        self.tree = Thread(change.thread)
        self.title = change.title
        self.tags = change.tags
        self.metadata = change.metadata
        self.created_at = self.updated_at = change.at
        self.keys: dict[str, tuple[int, int]] = {}

    def info(self) -> ThreadInfo:
        """Return its info."""
        return ThreadInfo(
            id=self.tree.id,
            title=self.title,
            tags=self.tags,
            metadata=self.metadata,
            created_at=self.created_at,
            updated_at=self.updated_at,
            length=len(self.tree),
            branches=dict(self.tree.branches),
        )


class MemoryStore(Store):
    """Keeps threads in this process. ``clock`` gives Unix milliseconds."""

    def __init__(self, *, clock: Callable[[], int] = now_ms) -> None:
        """Make an empty store."""
        self._clock = clock
        self._lock: AbstractContextManager[object] = RLock()
        self._states: dict[str, ThreadState] = {}  # in the order of their last change
        self._blobs: dict[bytes, bytes] = {}

    # -- changes -------------------------------------------------------------------------------------------------------

    def _commit(self, change: Change) -> None:
        """Apply a checked change."""
        self._apply(change)

    def _apply(self, change: Change) -> None:
        match change:
            case ThreadCreated():
                self._states[change.thread] = ThreadState(change)
            case ThreadUpdated():
                held = self._states[change.thread]
                held.title = held.title if change.title is UNSET else change.title
                held.tags = held.tags if change.tags is UNSET else change.tags
                held.metadata = held.metadata if change.metadata is UNSET else change.metadata
            case EntriesAdded():
                held = self._touched(change.thread, change.at)
                if change.key is not None:
                    held.keys[change.key] = (len(held.tree), len(change.entries))
                held.tree.add(change.entries, change.branches)
            case ThreadDeleted():
                del self._states[change.thread]
            case BlobAdded():
                self._blobs[sha256(change.data).digest()] = change.data
            case BlobsRemoved():
                for digest in change.digests:
                    self._blobs.pop(digest, None)
            case _:
                assert_never(change)

    def _touched(self, thread: str, at: int) -> ThreadState:
        held = self._states[thread] = self._states.pop(thread)
        held.updated_at = max(held.updated_at, at)
        return held

    def _state(self, thread: str) -> ThreadState:
        try:
            return self._states[thread]
        except KeyError:
            raise NotFoundError(f"no thread {thread!r}") from None

    # -- threads -------------------------------------------------------------------------------------------------------

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
        held = frozen_metadata({} if metadata is None else metadata)
        checked_title(title)
        labels = checked_tags(tags)
        with self._lock:
            if name in self._states:
                raise ConflictError(f"the thread {name!r} already exists")
            self._commit(ThreadCreated(thread=name, at=self._clock(), title=title, tags=labels, metadata=held))
            return self._states[name].info()

    def info(self, thread: str) -> ThreadInfo:
        """Return the title, tags, metadata, times and heads of a thread."""
        with self._lock:
            return self._state(thread).info()

    def threads(self, *, tag: str | None = None, limit: int | None = None) -> Iterator[ThreadInfo]:
        """Iterate over the threads, the most recently updated first."""
        check_given("threads", tag=tag, limit=limit)
        with self._lock:
            last = sorted(self._states.items(), key=lambda each: each[1].updated_at)
            names = [name for name, held in last if tag is None or tag in held.tags]
        for name in names[::-1][: None if limit is None else max(limit, 0)]:
            with self._lock:
                held = self._states.get(name)
                info = None if held is None else held.info()
            if info is not None:
                yield info

    def update(
        self,
        thread: str,
        *,
        title: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> ThreadInfo:
        """Change the fields that are given."""
        with self._lock:
            held = self._state(thread)
            self._commit(
                ThreadUpdated(
                    thread=thread,
                    at=self._clock(),
                    title=checked_title(title),
                    tags=UNSET if tags is UNSET else checked_tags(tags),
                    metadata=UNSET if metadata is UNSET else frozen_metadata(metadata),
                )
            )
            return held.info()

    def delete(self, thread: str) -> None:
        """Remove a thread."""
        with self._lock:
            self._state(thread)
            self._commit(ThreadDeleted(thread=thread, at=self._clock()))

    # -- messages ------------------------------------------------------------------------------------------------------

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
        given = verified(messages)
        with self._lock:
            held = self._state(thread)
            if key is not None and checked_name(key, "key") in held.keys:
                return self._earlier_append(held, given, key)
            head = held.tree.checked_head(branch, expect)
            now = self._clock()
            entries = held.tree.new_entries(given, head, now)
            self._check_blobs(given)
            heads = {branch: entries[-1].id} if entries else {}
            if entries or key is not None:
                self._commit(EntriesAdded(thread=thread, at=now, entries=entries, branches=heads, key=key))
            return Appended(entries)

    def _earlier_append(self, held: ThreadState, given: list[Message], key: str) -> Appended:
        start, count = held.keys[key]
        earlier = held.tree.entries[start : start + count]
        check_same_messages(earlier, prepare(given), held.tree.id, key)
        return Appended(tuple(earlier), repeated=True)

    def _check_blobs(self, messages: Iterable[Message], absent: Collection[str] = ()) -> None:
        for message in messages:
            for digest in message_codec.blob_digests(message):
                if digest not in self._blobs and message_codec.blob_for(digest).hash not in absent:
                    raise message_codec.missing_blob(digest)

    def add(
        self,
        thread: str,
        entries: Iterable[Entry],
        *,
        branches: Mapping[str, str | None] | None = None,
        absent: Collection[str] = (),
    ) -> int:
        """Add existing entries."""
        return self._add(Addition(thread=thread, entries=tuple(entries), branches=branches or {}), absent)

    def add_all(self, additions: Iterable[Addition]) -> int:
        """Add to several threads."""
        given = list(additions)
        with self._lock:
            return sum([self._add(each) for each in given])

    def _add(self, addition: Addition, absent: Collection[str] = ()) -> int:
        thread, branches = addition.thread, dict(addition.branches)
        given = [checked_entry(entry) for entry in addition.entries]
        for name in branches:
            checked_name(name, "name of the branch")
        checked_title(addition.title)
        tags, metadata = checked_tags(addition.tags), frozen_metadata(addition.metadata)
        with self._lock:
            tree = (
                self._states[thread].tree
                if thread in self._states
                else Thread(checked_name(thread, "id of the thread"))
            )
            new = tree.missing(given, branches)
            self._check_blobs([entry.message for entry in new], absent)
            now = self._clock()
            first, last = time_range([entry.message for entry in new], now)
            if thread not in self._states:
                created = ThreadCreated(thread=thread, at=first, title=addition.title, tags=tags, metadata=metadata)
                self._commit(created)
            if new or branches:
                at = last if new else self._states[thread].updated_at
                self._commit(EntriesAdded(thread=thread, at=at, entries=new, branches=branches))
            return len(new)

    def read(self, thread: str, *, start: int = 0, stop: int | None = None) -> Sequence[Entry]:
        """Return entries in the order of appends."""
        check_given("read", start=start, stop=stop)
        with self._lock:
            return self._state(thread).tree.entries[max(start, 0) : stop]

    def path(self, thread: str, of: str = MAIN, *, last: int | None = None) -> Sequence[Entry]:
        """Return the conversation up to a head or an entry."""
        check_given("path", of=of, last=last)
        with self._lock:
            path = self._state(thread).tree.path(of)
        return path if last is None else path[max(len(path) - max(last, 0), 0) :]

    # -- branches ------------------------------------------------------------------------------------------------------

    def fork(self, thread: str, name: str, *, of: str = MAIN, at: str | UnsetType | None = UNSET) -> str | None:
        """Create a branch."""
        checked_name(name, "name of the branch")
        with self._lock:
            tree = self._state(thread).tree
            head = tree.head(of) if at is UNSET else at
            if head is not None:
                tree.position(head)
            if name in tree.branches:
                raise ConflictError(f"thread {thread}: the branch {name!r} already exists", found=tree.branches[name])
            self._commit(EntriesAdded(thread=thread, at=self._clock(), branches={name: head}))
            return head

    def rewind(
        self, thread: str, to: str | None, *, branch: str = MAIN, expect: str | UnsetType | None = UNSET
    ) -> None:
        """Move the head of a branch."""
        with self._lock:
            tree = self._state(thread).tree
            tree.checked_head(branch, expect)
            if to is not None:
                tree.position(to)
            self._commit(EntriesAdded(thread=thread, at=self._clock(), branches={branch: to}))

    # -- search, media -------------------------------------------------------------------------------------------------

    def search(self, query: Query | str) -> list[Hit]:
        """Return matching messages."""
        query = as_query(query)
        terms = search_text.parse(query.text)
        with self._lock:
            chosen = [
                (entry.message.sent_at or 0, place, name, entry)
                for name, held in self._states.items()
                if query.thread in {None, name}
                for place, entry in enumerate(held.tree.entries)
                if _matches_fields(entry.message, query)
            ]
        chosen.sort(key=lambda each: each[:2], reverse=True)
        hits: list[Hit] = []
        for _, _, name, entry in chosen:
            if len(hits) >= query.limit:
                break
            text = search_text.searchable_text(entry.message)
            if search_text.matches(terms, search_text.normalize(text)):
                hits.append(Hit(name, entry, search_text.excerpt(terms, text)))
        return hits

    def put_blob(self, data: bytes) -> Blob:
        """Store bytes as a blob."""
        data = message_codec.checked_data(data)
        digest = sha256(data).digest()
        with self._lock:
            if digest not in self._blobs:
                self._commit(BlobAdded(data=data))
        return message_codec.blob_for(digest)

    def get_blob(self, blob: Blob | str) -> bytes:
        """Return the bytes of a blob."""
        digest = message_codec.digest_of(blob)
        with self._lock:
            if digest not in self._blobs:
                raise NotFoundError(f"no blob sha256:{digest.hex()}")
            return self._blobs[digest]

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Count the contents, and look for the blobs that messages name; memory has no other damage."""
        with self._lock:
            entries = sum(len(held.tree) for held in self._states.values())
            damage = tuple(
                Damage("missing", f"thread {name}", f"blob sha256:{digest.hex()} is missing", name, entry.id)
                for name, held in self._states.items()
                for entry in held.tree.entries
                for digest in message_codec.blob_digests(entry.message)
                if digest not in self._blobs
            )
            if progress is not None:
                progress(entries, entries)
            size = sum(map(len, self._blobs.values()))
            return Verified(len(self._states), entries, len(self._blobs), size, damage)

    def gc(self, *, progress: Progress | None = None) -> Freed:
        """Remove blobs that no message holds."""
        with self._lock:
            used = {
                digest
                for held in self._states.values()
                for entry in held.tree.entries
                for digest in message_codec.blob_digests(entry.message)
            }
            unused = tuple(digest for digest in self._blobs if digest not in used)
            size = sum(len(self._blobs[digest]) for digest in unused)
            if unused:
                self._commit(BlobsRemoved(digests=unused))
            if progress is not None:
                progress(len(unused), len(unused))
            return Freed(blobs=len(unused), size=size)

    def close(self) -> None:
        """Do nothing: no resource is open."""


def _matches_fields(message: Message, query: Query) -> bool:
    """Return whether all fields of a query except its text match."""
    sent_at = message.sent_at or 0
    return (
        query.role in {None, message.role}
        and query.agent in {None, message.agent}
        and (query.tag is None or query.tag in message.tags)
        and (query.since is None or sent_at >= query.since)
        and (query.until is None or sent_at < query.until)
        and (query.tool is None or query.tool in search_text.tools_of(message))
    )
