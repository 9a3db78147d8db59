"""Take the files of dialects into a store, as they are read, each once.

Rules:

- What a reader of ``palaver.dialects`` gives joins as it comes, a slice at a time, with the ids of the file. So a file
  of any size goes in with little memory, what was taken in before an interruption stays, and reading a file again adds
  what is new.
- A file whose size and time have not changed since it was read whole is not read again; neither is one whose bytes have
  not. Which files a thread came from stands in its metadata, under ``files``.
- An entry that is there with another message, because somebody edited the file, or because its end was not yet written,
  joins beside the old one under an id of its own, and what follows it follows the new one.
- A branch moves to where the file says as long as it stands where a file left it. One that somebody else has moved on
  stays, and the file's end gets a branch of its own, ``import-2`` and so on: nothing is lost, and nothing is guessed.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core import canonical
from palaver.core.errors import NotFoundError, StoreError, excerpt
from palaver.core.messages import Message, UserMessage
from palaver.dialects.conversation import Began, Ended, Joined, Noted, Step, derived_id
from palaver.dialects.drift import Drift
from palaver.store import pack
from palaver.store.store import Store, ThreadInfo
from palaver.threads.people_view import is_shown
from palaver.threads.thread import MAIN, Entry
from palaver.threads.view import RECORD

FILES: Final = "files"
"""The key of a thread's metadata that says which files it came from."""

HEADS: Final = "file_heads"
"""The key of a thread's metadata that says where files left its branches."""

_SLICE: Final = 256
_TITLE: Final = 80
_BYTES: Final = 4 << 20
_RACY: Final = 2_000_000_000
"""A file that changed less than this before it was read, in nanoseconds, may change again within the same time."""


class FileState(Struct, frozen=True):
    """What tells whether a file has changed: size in bytes, time of the last change and of reading in nanoseconds."""

    path: str
    size: int
    changed_at: int
    read_at: int


class Filed(Struct, frozen=True):
    """What became of a conversation of a file. ``messages`` and ``new`` do not count records that are no messages."""

    thread: str
    messages: int
    new: int
    title: str | None = None
    branch: str | None = None


class _File(Struct, frozen=True):
    """What is known of a file that was read whole; ``conversations`` are its threads and how many messages they had."""

    size: int
    changed_at: int
    read_at: int
    sha256: str
    conversations: dict[str, int] = {}


class Filing:
    """Takes files into one store."""

    def __init__(self, store: Store) -> None:
        """Learn from the threads of the store which files it knows."""
        self._store = store
        self._files: dict[str, _File] = {}
        for info in store.threads():
            self._files.update(_files(info.metadata))

    def unchanged(self, state: FileState, digest: Callable[[], str]) -> tuple[Filed, ...] | None:
        """The conversations of a file that was read before and has not changed; else ``None``.

        ``digest`` gives the SHA-256 of its bytes, in hex; it is called only where size and time leave it open.
        """
        known = self._files.get(state.path)
        if known is None or known.size != state.size:
            return None
        same_time = known.changed_at == state.changed_at and known.changed_at + _RACY < known.read_at
        if not same_time and digest() != known.sha256:
            return None
        found = [self._filed(thread, messages) for thread, messages in known.conversations.items()]
        return None if any(each is None for each in found) else tuple([each for each in found if each is not None])

    def _filed(self, thread: str, messages: int) -> Filed | None:
        try:
            return Filed(thread, messages, 0, self._store.info(thread).title)
        except NotFoundError:
            return None

    def take(
        self, steps: Iterable[Step], state: FileState | None = None, digest: Callable[[], str] = str
    ) -> Iterator[Filed | tuple[Drift, ...]]:
        """Take in what a reader gives; give what became of each conversation when it ends, and the drift report.

        ``state`` is what the file is known by, ``digest`` gives the SHA-256 of its bytes when all were read. Raises
        what ``Store.add`` raises.
        """
        taking: dict[str, _Taking] = {}
        done: dict[str, int] = {}
        first: _Described | None = None
        for step in steps:
            match step:
                case Began():
                    taking[step.thread] = _Taking(self._store, step.thread)
                case Joined():
                    taking[step.thread].join(step.entry)
                case Ended():
                    filed, described = taking.pop(step.thread).end(step)
                    done[step.thread] = filed.messages
                    if state is not None and first is None:
                        first = described  # written with what the file is known by
                    else:
                        described.write(self._store)
                    yield filed
                case Noted():
                    yield step.drift
        if state is not None and first is not None:
            file = _File(state.size, state.changed_at, state.read_at, digest(), done)
            files = {**first.metadata.get(FILES, {}), state.path: structs.asdict(file)}
            structs.replace(first, metadata={**first.metadata, FILES: files}).write(self._store)
            self._files[state.path] = file


class _Described(Struct, frozen=True):
    """What a thread is to say of itself, beside what it said before."""

    thread: str
    title: str | UnsetType | None
    metadata: Mapping[str, Any]
    before: Mapping[str, Any]

    def write(self, store: Store) -> None:
        """Write it, where it is new."""
        if self.title is not UNSET or self.metadata != self.before:
            store.update(self.thread, title=self.title, metadata=self.metadata)


class _Taking:
    """Takes one conversation in."""

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self._thread = thread
        self._waiting: list[Entry] = []
        self._size = 0
        self._messages = self._new = 0
        self._moved: dict[str, str] = {}  # entries of the file that have another id here
        self._known: dict[str, Entry] | None = None
        self._begun: ThreadInfo | None = None
        self._title: str | None = None
        with suppress(NotFoundError):
            self._begun = store.info(thread)

    def join(self, entry: Entry) -> None:
        self._waiting.append(entry)
        if self._title is None and is_shown(entry.message):
            self._title = title_of([entry.message])
        self._size += _size(entry)
        if len(self._waiting) >= _SLICE or self._size >= _BYTES:
            self._flush()

    def _flush(self, heads: Mapping[str, str | None] | None = None) -> None:
        """Let what waits join, and set heads where all of their entries have the ids of the file."""
        entries, self._waiting, self._size = self._waiting, [], 0
        messages = sum(RECORD not in entry.message.tags for entry in entries)
        self._messages += messages
        if self._known is None:
            try:
                added = self._store.add(self._thread, entries, branches=heads, absent=_absent(self._store, entries))
                self._count(entries, added, messages)
                return
            except StoreError:
                if self._begun is None:
                    raise
                self._known = {each.id: each for each in self._store.read(self._thread)}
        fitted = [self._fitted(entry, self._known) for entry in entries]
        new = [entry for entry in fitted if entry.id not in self._known]
        self._known.update((entry.id, entry) for entry in new)
        self._store.add(self._thread, new, absent=_absent(self._store, new))
        self._count(new, len(new), sum(RECORD not in entry.message.tags for entry in new))

    def _count(self, entries: list[Entry], added: int, messages: int) -> None:
        if added == len(entries):
            self._new += messages
        elif added:  # the last ones
            self._new += sum(RECORD not in entry.message.tags for entry in entries[-added:])

    def _fitted(self, entry: Entry, known: Mapping[str, Entry]) -> Entry:
        """Give an entry as it can join: with an id of its own where another one has it."""
        parent = self._moved.get(entry.parent or "", entry.parent)
        placed = structs.replace(entry, parent=parent)
        if entry.id not in known or known[entry.id] == placed:
            return placed
        made = derived_id(entry.id, parent, canonical.content_hash(entry.message))
        self._moved[entry.id] = made
        return structs.replace(placed, id=made)

    def end(self, end: Ended) -> tuple[Filed, _Described]:
        end = end if end.title is not None else structs.replace(end, title=self._title)
        if self._begun is None:
            heads = {name: head for name, head in end.branches.items() if head is not None or name == MAIN}
            self._flush(heads)
            described = _Described(self._thread, end.title, {**end.metadata, HEADS: heads}, {})
            return Filed(self._thread, self._messages, self._new, end.title), described
        self._flush()
        heads = {name: self._moved.get(head or "", head) for name, head in end.branches.items()}
        return self._goes_on(end, heads, self._begun)

    def _goes_on(self, end: Ended, heads: Mapping[str, str | None], begun: ThreadInfo) -> tuple[Filed, _Described]:
        """Move the branches of a thread that was there before, as far as they may move."""
        left = _left(begun.metadata)
        moves: dict[str, str | None] = {}
        aside: str | None = None
        for name, head in heads.items():
            stands = begun.branches.get(name)
            if head == stands or (name in begun.branches and head is None):
                continue
            if name not in begun.branches or stands is None or stands == left.get(name):
                moves[name] = head
            elif head is not None and not self._holds(stands, head):
                aside = self._aside(head, {*begun.branches, *moves}, begun)
                if aside not in begun.branches:
                    moves[aside] = head
        if moves:
            self._store.add(self._thread, (), branches=moves)
        metadata = {**begun.metadata, **end.metadata, HEADS: {**left, **heads}}
        title = UNSET if begun.title is not None or end.title is None else end.title
        filed = Filed(self._thread, self._messages, self._new, end.title or begun.title, aside)
        return filed, _Described(self._thread, title, metadata, begun.metadata)

    def _holds(self, leaf: str, entry: str) -> bool:
        return any(each.id == entry for each in self._store.path(self._thread, leaf))

    def _aside(self, head: str, taken: set[str], begun: ThreadInfo) -> str:
        """The name of a branch for a head that the thread's own branch has left; the one it has, if it has one."""
        for name, stands in begun.branches.items():
            if name.startswith("import-") and stands == head:
                return name
        return next(name for number in range(2, len(taken) + 3) if (name := f"import-{number}") not in taken)


def title_of(messages: Iterable[Message]) -> str | None:
    """The first line that the user said, shortened."""
    said = (line.strip() for each in messages if isinstance(each, UserMessage) for line in each.text.splitlines())
    return next((excerpt(line, _TITLE) for line in said if line), None)


def _absent(store: Store, entries: Iterable[Entry]) -> set[str]:
    """The blobs that a file names and that the store does not have: a file brings none along."""
    absent: set[str] = set()
    for name in pack.blobs_named_by(entries):
        try:
            store.get_blob(name)
        except NotFoundError:
            absent.add(name)
    return absent


def _size(entry: Entry) -> int:
    """About how much an entry holds."""
    held = entry.message.provider_json
    return 0 if held is UNSET else len(memoryview(held))


def _files(metadata: Mapping[str, Any]) -> dict[str, _File]:
    """Read which files a thread came from; what somebody else put under that key says nothing."""
    try:
        return msgspec.convert(dict(metadata.get(FILES, {})), dict[str, _File])
    except (msgspec.ValidationError, TypeError, ValueError):
        return {}


def _left(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    try:
        return msgspec.convert(dict(metadata.get(HEADS, {})), dict[str, str | None])
    except (msgspec.ValidationError, TypeError, ValueError):
        return {}
