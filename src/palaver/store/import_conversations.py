"""Import of conversations as message lists, each once.

Rules:

- A hash chain over the messages identifies a conversation. One that is known already adds nothing.
- A conversation that begins with a known one continues it: only new messages are added.
- A conversation from a known source that differs in the middle becomes a branch where it differs.
- Anything else is a new thread. Its metadata (``imported``: hashes and sources) record it for the next process.
- The thread id derives from the content, so two processes that import one conversation meet in one thread. Neither sees
  a continuation that the other imports meanwhile.
- An interrupted import resumes: the thread has its source before the first message.
- Nothing is guessed, and nothing is removed.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from palaver.core.errors import ConflictError, NotFoundError
from palaver.core.messages import Message
from palaver.store import message_codec
from palaver.store.store import Store
from palaver.threads.thread import MAIN, Thread

IMPORTED: Final = "imported"
"""The key of a thread's metadata that records what was imported."""

_START: Final = b"palaver conversation"
_SHORT: Final = 32
_FIXED: Final = 0xF << 76 | 3 << 62
_VERSION_8: Final = 8 << 76 | 2 << 62


class _Known(NamedTuple):
    """The end of an imported conversation."""

    thread: str
    branch: str
    head: str | None


class ImportResult(NamedTuple):
    """The result of importing a conversation: where it is, and how many of its messages were new."""

    thread: str
    branch: str
    new: int
    known: int


class _Imported(Struct, frozen=True):
    """The record of imports in the metadata of a thread."""

    conversations: dict[str, tuple[str, str | None]] = {}
    sources: tuple[str, ...] = ()


def _imported(metadata: Mapping[str, Any]) -> _Imported:
    """Return the record; a foreign value under the key counts as none."""
    try:
        return msgspec.convert(metadata.get(IMPORTED, {}), _Imported)
    except msgspec.ValidationError:
        return _Imported()


class ConversationImporter:
    """Imports conversations into one store."""

    def __init__(self, store: Store) -> None:
        """Read from the threads of the store what was imported before."""
        self._store = store
        self._by_hash: dict[str, _Known] = {}
        self._by_source: dict[str, str] = {}
        for info in store.threads():
            self._learn(info.id, info.metadata)

    def _learn(self, thread: str, metadata: Mapping[str, Any]) -> bool:
        """Add the imports in the metadata of a thread; return whether one of them was new."""
        known = _imported(metadata)
        before = len(self._by_hash)
        for each, (branch, head) in known.conversations.items():
            self._by_hash[each] = _Known(thread, branch, head)
        for source in known.sources:
            self._by_source[source] = thread
        return len(self._by_hash) > before

    def add(
        self,
        messages: Sequence[Message],
        *,
        source: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ImportResult:
        """Import a conversation. ``source`` names its origin; title and metadata are those of a new thread.

        Raises what ``Store.append`` raises.
        """
        digests = [message_codec.pack(message).body.digest for message in messages]
        chain = _hash_chain(digests)
        found = self._find_known(chain[-1])
        if found is not None:
            self._record_import(found.thread, {}, source)
            return ImportResult(found.thread, found.branch, 0, len(messages))
        place = self._find_continued(chain) or self._find_edited(digests, source)
        if place is None:
            begun: dict[str, Any] = {IMPORTED: {"conversations": {}, "sources": [] if source is None else [source]}}
            place = ImportResult(_thread_id(chain), MAIN, 0, 0)
            try:
                self._store.create(place.thread, title=title, metadata={**(metadata or {}), **begun})
            except ConflictError:
                place = self._branch_off(self._store.load(place.thread), digests)
        rest = messages[place.known :]
        if messages and not rest:
            self._learn(place.thread, self._store.info(place.thread).metadata)
            return place
        appended = self._store.append(place.thread, rest, branch=place.branch, key=f"import {chain[-1]}")
        self._record_import(place.thread, {chain[-1]: (place.branch, appended.head)}, source)
        return place._replace(new=0 if appended.repeated else len(rest))

    def _find_continued(self, chain: Sequence[str]) -> ImportResult | None:
        """Find the longest imported beginning whose branch still ends there."""
        length = len(chain) - 1
        while length > 0:
            found = self._find_known(chain[length - 1])
            if found is not None:
                info = self._store.info(found.thread)
                if info.branches.get(found.branch) == found.head:
                    return ImportResult(found.thread, found.branch, 0, length)
                if self._learn(found.thread, info.metadata):  # another process has imported more of it
                    length = len(chain)
            length -= 1
        return None

    def _find_known(self, chained: str) -> _Known | None:
        """Return where an imported conversation ends; ``None`` also when its thread was deleted since."""
        found = self._by_hash.get(chained)
        if found is None:
            return None
        try:
            self._store.info(found.thread)
        except NotFoundError:
            self._by_hash = {each: known for each, known in self._by_hash.items() if known.thread != found.thread}
            self._by_source = {each: thread for each, thread in self._by_source.items() if thread != found.thread}
            return None
        return found

    def _find_edited(self, digests: Sequence[bytes], source: str | None) -> ImportResult | None:
        """Find where a conversation departs from the last one of its source; ``None`` when they share nothing."""
        thread = self._by_source.get(source or "")
        if thread is None:
            return None
        tree = self._store.load(thread)
        if len(tree) and _common_prefix(tree, digests)[0] is None:
            return None
        return self._branch_off(tree, digests)

    def _branch_off(self, tree: Thread, digests: Sequence[bytes]) -> ImportResult:
        """Find where a conversation departs from a thread, and create a branch there."""
        if not len(tree):
            return ImportResult(tree.id, MAIN, 0, 0)  # the import that created it was interrupted, or still runs
        place, length = _common_prefix(tree, digests)
        if length == len(digests):
            return ImportResult(tree.id, MAIN if place is None else _branch_through(tree, place), 0, length)
        number = next(n for n in range(2, len(tree) + 3) if f"import-{n}" not in tree.branches)
        branch = f"import-{number}"
        self._store.fork(tree.id, branch, at=place)
        return ImportResult(tree.id, branch, 0, length)

    def _record_import(
        self, thread: str, conversations: Mapping[str, tuple[str, str | None]], source: str | None
    ) -> None:
        """Record the import in the thread."""
        metadata = dict(self._store.info(thread).metadata)
        known = _imported(metadata)
        sources = [*known.sources]
        if source is not None and source not in sources:
            sources.append(source)
        elif not conversations:
            return
        metadata[IMPORTED] = {
            "conversations": {**known.conversations, **conversations},
            "sources": sources,
        }
        self._learn(thread, self._store.update(thread, metadata=metadata).metadata)


def _hash_chain(digests: Sequence[bytes]) -> list[str]:
    chain: list[str] = []
    last = sha256(_START).digest()
    for digest in digests:
        last = sha256(last + digest).digest()
        chain.append(last.hex()[:_SHORT])
    return chain or [last.hex()[:_SHORT]]


def _thread_id(chain: Sequence[str]) -> str:
    """Return the id of the thread of a conversation, the same in every process: a UUID of version 8 (RFC 9562)."""
    return str(UUID(int=int(chain[-1], 16) & ~_FIXED | _VERSION_8))


def _common_prefix(tree: Thread, digests: Sequence[bytes]) -> tuple[str | None, int]:
    """Walk down a tree as far as its messages are the same; return the last entry and the number of messages."""
    place: str | None = None
    for length, digest in enumerate(digests):
        for child in tree.children(place):
            if message_codec.pack(message_codec.unstamped(tree.entry(child))[0]).body.digest == digest:
                place = child
                break
        else:
            return place, length
    return place, len(digests)


def _branch_through(tree: Thread, entry: str) -> str:
    """Return the first branch that contains an entry."""
    return next((name for name in tree.branches if any(each.id == entry for each in tree.path(name))), MAIN)
