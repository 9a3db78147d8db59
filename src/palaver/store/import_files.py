"""Import of transcript files into a store, each once.

Rules:

- Entries are added in slices as the reader yields them, with the ids of the file. So files of any size need little
  memory, an interrupted import keeps what it added, and a second one adds what is new.
- A file with unchanged size and time, or unchanged bytes, is not read again. The metadata of a thread list its files
  under ``files``.
- An entry that is known with another message (an edited file, or an unfinished end) is added beside the old one under
  its own id, and its successors follow the new one.
- A branch moves to the head in the file if it is where a file left it and the file still has that entry: on the path
  to the new end, on another of its branches, or as the first bytes of the record there. Otherwise the branch
  stays, and the end of the file gets a branch ``import-2`` and so on, which later imports move.
- Byte order marks, kinds of line breaks and the order of lines make no difference.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count, takewhile
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import canonical, jsontext
from palaver.core.errors import NotFoundError, StoreError, excerpt
from palaver.core.messages import BOOKKEEPING, Message, UserMessage
from palaver.store import message_codec
from palaver.store.store import Store, ThreadInfo
from palaver.threads.thread import MAIN, Entry
from palaver.threads.view import RECORD, is_shown
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import Began, Ended, Joined, Noted, Step, derived_id
from palaver.transcripts.unknown_fields import UnknownFields

FILES: Final = "files"
"""The key of a thread's metadata that lists its files."""

HEADS: Final = "file_heads"
"""The key of a thread's metadata that says where files left its branches."""

_NUMBER: Final = re.compile(rb'("(?:at|of)":)\d+')
"""The number of a record in its file."""
_SLICE: Final = 256
_TITLE: Final = 80
_BYTES: Final = 4 << 20
_RACY: Final = 2_000_000_000
"""Nanoseconds: a file that changed less than this before it was read may change again with the same time."""


class FileState(Struct, frozen=True):
    """Values that show whether a file changed: size in bytes, times of last change and of reading in nanoseconds."""

    path: str
    size: int
    changed_at: int
    read_at: int


class ImportedConversation(Struct, frozen=True):
    """The result for a conversation of a file. ``messages`` and ``new`` do not count records that are not messages."""

    thread: str
    messages: int
    new: int
    title: str | None = None
    branch: str | None = None
    """The branch that was created or moved because the conversation departs from the thread's own; the first one."""
    more_branches: tuple[str, ...] = ()


class _File(Struct, frozen=True):
    """A file that was read to its end; ``conversations`` are its threads and how many messages they had."""

    size: int
    changed_at: int
    read_at: int
    sha256: str
    conversations: dict[str, int] = {}


class FileImporter:
    """Imports files into one store."""

    def __init__(self, store: Store) -> None:
        """Read from the threads of the store which files it knows."""
        self._store = store
        self._files: dict[str, _File] = {}
        for info in store.threads():
            self._files.update(_known_files(info.metadata))

    def unchanged(self, state: FileState, digest: Callable[[], str]) -> tuple[ImportedConversation, ...] | None:
        """Return the conversations of a file that was read before and has not changed; else ``None``.

        ``digest`` returns the SHA-256 of its bytes, in hex; it is called only when size and time do not decide.
        """
        known = self._files.get(state.path)
        if known is None or known.size != state.size:
            return None
        same_time = known.changed_at == state.changed_at and known.changed_at + _RACY < known.read_at
        if not same_time and digest() != known.sha256:
            return None
        found = [self._known_conversation(thread, messages) for thread, messages in known.conversations.items()]
        return None if any(each is None for each in found) else tuple([each for each in found if each is not None])

    def _known_conversation(self, thread: str, messages: int) -> ImportedConversation | None:
        try:
            return ImportedConversation(thread, messages, 0, self._store.info(thread).title)
        except NotFoundError:
            return None

    def add(
        self,
        steps: Iterable[Step],
        state: FileState | None = None,
        digest: Callable[[], str] = str,
        is_whole: Callable[[], bool] = lambda: True,
    ) -> Iterator[ImportedConversation | tuple[UnknownFields, ...]]:
        """Import what a reader yields; yield the result of each conversation when it ends, and the drift report.

        ``state`` identifies the version of the file; ``digest`` returns the SHA-256 of its bytes when all were read,
        and ``is_whole`` whether all of them were: else the file counts as changed the next time.
        Raises what ``Store.add`` raises.
        """
        taking: dict[str, _ConversationImport] = {}
        done: dict[str, int] = {}
        first: _ThreadDetails | None = None
        for step in steps:
            match step:
                case Began():
                    taking[step.thread] = _ConversationImport(self._store, step.thread)
                case Joined():
                    taking[step.thread].join(step.entry)
                case Ended():
                    filed, described = taking.pop(step.thread).end(step)
                    done[step.thread] = filed.messages
                    if state is not None and first is None:
                        first = described  # written with the state of the file
                    else:
                        described.write(self._store)
                    yield filed
                case Noted():
                    yield step.unknown
        if first is not None and not is_whole():
            first.write(self._store)
        elif state is not None and first is not None:
            file = _File(state.size, state.changed_at, state.read_at, digest(), done)
            files = {**first.metadata.get(FILES, {}), state.path: structs.asdict(file)}
            structs.replace(first, metadata={**first.metadata, FILES: files}).write(self._store)
            self._files[state.path] = file


class _ThreadDetails(Struct, frozen=True):
    """The new details of a thread, besides the old ones."""

    thread: str
    title: str | UnsetType | None
    metadata: Mapping[str, Any]
    before: Mapping[str, Any]

    def write(self, store: Store) -> None:
        """Write the details, if they are new."""
        if self.title is not UNSET or self.metadata != self.before:
            store.update(self.thread, title=self.title, metadata=self.metadata)


class _ConversationImport:
    """Imports one conversation."""

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self._thread = thread
        self._pending: list[Entry] = []
        self._size = 0
        self._messages = self._new = 0
        self._new_ids: dict[str, str] = {}  # entries of the file with another id here
        self._parents: dict[str, str | None] = {}  # the tree of the file, with the ids that entries have here
        self._known: dict[str, Entry] | None = None
        self._earlier: ThreadInfo | None = None
        self._title: str | None = None
        with suppress(NotFoundError):
            self._earlier = store.info(thread)

    def join(self, entry: Entry) -> None:
        self._pending.append(entry)
        if self._title is None and is_shown(entry.message):
            self._title = title_of([entry.message])
        self._size += _entry_size(entry)
        if len(self._pending) >= _SLICE or self._size >= _BYTES:
            self._flush()

    def _flush(self, heads: Mapping[str, str | None] | None = None) -> None:
        """Add the waiting entries, and set heads whose entries all have the ids of the file."""
        entries, self._pending, self._size = self._pending, [], 0
        messages = sum(RECORD not in entry.message.tags for entry in entries)
        self._messages += messages
        if self._known is None:
            try:
                added = self._store.add(
                    self._thread, entries, branches=heads, absent=_missing_blobs(self._store, entries)
                )
                self._count(entries, added, messages)
                self._parents.update((entry.id, entry.parent) for entry in entries)
                return
            except StoreError:
                if self._earlier is None:
                    raise
                self._known = {each.id: each for each in self._store.read(self._thread)}
        fitted = [self._placed_entry(entry, self._known) for entry in entries]
        self._parents.update((entry.id, entry.parent) for entry in fitted)
        new = [entry for entry in fitted if entry.id not in self._known]
        self._known.update((entry.id, entry) for entry in new)
        self._store.add(self._thread, new, absent=_missing_blobs(self._store, new))
        self._count(new, len(new), sum(RECORD not in entry.message.tags for entry in new))

    def _count(self, entries: list[Entry], added: int, messages: int) -> None:
        if added == len(entries):
            self._new += messages
        elif added:  # the last slice
            self._new += sum(RECORD not in entry.message.tags for entry in entries[-added:])

    def _placed_entry(self, entry: Entry, known: Mapping[str, Entry]) -> Entry:
        """Return an entry as it can be added: with an id of its own when another one has its id."""
        parent = self._new_ids.get(entry.parent or "", entry.parent)
        placed = structs.replace(entry, parent=parent)
        before = known.get(entry.id)
        if before is None or before == placed or _same_record(before, placed):
            return placed
        made = derived_id(entry.id, parent, canonical.content_hash(entry.message))
        self._new_ids[entry.id] = made
        return structs.replace(placed, id=made)

    def end(self, end: Ended) -> tuple[ImportedConversation, _ThreadDetails]:
        end = end if end.title is not None else structs.replace(end, title=self._title)
        if self._earlier is None:
            heads = {name: head for name, head in end.branches.items() if head is not None or name == MAIN}
            self._flush(heads)
            described = _ThreadDetails(self._thread, end.title, {**end.metadata, HEADS: heads}, {})
            return ImportedConversation(self._thread, self._messages, self._new, end.title), described
        self._flush()
        heads = {name: self._new_ids.get(head or "", head) for name, head in end.branches.items()}
        return self._update_branches(end, heads, self._earlier)

    def _update_branches(
        self, end: Ended, heads: Mapping[str, str | None], begun: ThreadInfo
    ) -> tuple[ImportedConversation, _ThreadDetails]:
        """Move the branches of an existing thread, as far as they may move."""
        left = _known_heads(begun.metadata)
        moves: dict[str, str | None] = {}
        parted: dict[str, str] = {}
        covered: set[str] = set()
        for head in heads.values():
            covered.update(takewhile(lambda entry: entry not in covered, _ancestors(head, self._parents)))
        tree = _Tree(self._store, self._thread)
        for name, head in sorted(heads.items(), key=lambda each: each[0] != MAIN):
            stands = begun.branches.get(name)
            if head == stands or (name in begun.branches and head is None):
                left[name] = head
            elif stands is None or (
                stands == left.get(name) and (stands in covered or tree.is_written_on(stands, head))
            ):
                moves[name] = left[name] = head
            elif head is not None:
                parted[name] = head
        asides = _side_branches(tree, parted, moves, left, begun) if parted else {}
        if moves:
            self._store.add(self._thread, (), branches=moves)
        own = MAIN not in parted  # else the file is another version, and the thread keeps its own details
        told = {**begun.metadata, **end.metadata} if own else {**end.metadata, **begun.metadata}
        title = UNSET if begun.title is not None or end.title is None else end.title
        named = tuple(dict.fromkeys(asides.values()))
        filed = ImportedConversation(
            self._thread, self._messages, self._new, end.title or begun.title, named[0] if named else None, named[1:]
        )
        return filed, _ThreadDetails(self._thread, title, {**told, HEADS: left}, begun.metadata)


class _Tree:
    """The entries of a thread, to ask which follow which; they are read at the first question.

    All walks together take at most a few steps for each entry. When the steps are used up, the walks find nothing
    more, and a head gets a branch of its own.
    """

    def __init__(self, store: Store, thread: str) -> None:
        self._store, self._thread = store, thread

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return {each.id: each for each in self._store.read(self._thread)}

    @cached_property
    def _steps(self) -> Iterator[int]:
        return iter(range(_MIN_STEPS + _STEPS * len(self._entries)))

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """The span of each entry and its descendants, in an order where descendants follow their entry."""
        sizes = dict.fromkeys(self._entries, 1)
        for entry in reversed(self._entries.values()):
            if entry.parent is not None:
                sizes[entry.parent] += sizes[entry.id]
        free: dict[str | None, int] = {None: 0}
        spans: dict[str, tuple[int, int]] = {}
        for entry in self._entries.values():
            start = free[entry.parent]
            free[entry.parent] = start + sizes[entry.id]
            free[entry.id] = start + 1
            spans[entry.id] = start, start + sizes[entry.id]
        return spans

    def up(self, entry: str | None) -> Iterator[str]:
        """Yield an entry and its ancestors, back to the first."""
        while entry is not None:
            yield entry
            entry = self._entries[entry].parent

    def parent(self, entry: str) -> str | None:
        """Return the entry that an entry follows."""
        return self._entries[entry].parent

    def walk(self, entry: str | None) -> Iterator[str]:
        """Yield the same, as long as there are steps left."""
        return (each for each, _ in zip(self.up(entry), self._steps, strict=False))

    def leads_to(self, entry: str, leaf: str | None) -> bool:
        """Return whether an entry is on the path to a leaf."""
        start, stop = self._spans[entry]
        return leaf is not None and start <= self._spans[leaf][0] < stop

    def is_written_on(self, stands: str, head: str | None) -> bool:
        """Return whether an entry ends in records that the file has extended since: a torn line, half an answer."""
        written = self._bytes_beside(stands, head)
        return written != b"" and self._bytes_beside(head, stands).startswith(written)

    def _bytes_beside(self, leaf: str | None, other: str | None) -> bytes:
        """Return the bytes of the records between a leaf and the path to another; none when there are too many."""
        messages: list[Message] = []
        for entry in self.walk(leaf):
            if self.leads_to(entry, other):
                return _record_bytes(messages[::-1])
            messages.append(self._entries[entry].message)
        return b"" if leaf is None or next(self._steps, None) is None else _record_bytes(messages[::-1])


_MIN_STEPS: Final = 10_000
_STEPS: Final = 20


def _side_branches(
    tree: _Tree, parted: Mapping[str, str], moves: dict[str, str | None], left: dict[str, str | None], begun: ThreadInfo
) -> dict[str, str]:
    """Give branches of their own to heads that may not move their branch; return the names, by branch."""
    heads = {**begun.branches, **moves}
    holders: dict[str, str] = {}  # a branch on which an entry is
    ours: dict[str, str] = {}  # entries at which such a branch stands, left there by a file
    clear: set[str] = set()  # entries with no such branch above them; none comes, as their ancestors are all stored
    fresh = (each for each in map("import-{}".format, count(2)) if each not in heads)

    def place(name: str, head: str | None) -> None:
        for entry in tree.up(head):
            if entry in holders:
                break
            holders[entry] = name
        if head is not None and _is_side_branch(name) and head == left.get(name):
            ours.setdefault(head, name)

    for name, head in heads.items():
        place(name, head)
    found: dict[str, str] = {}
    for name, head in parted.items():
        if tree.leads_to(head, heads.get(name)):
            continue  # the file ends before the thread does
        holder = holders.get(head)
        if holder is None:
            passed: list[str] = []
            for entry in tree.walk(head):
                if entry in ours or entry in clear:
                    break
                passed.append(entry)
            above = tree.parent(passed[-1]) if passed else head
            stands = above if above in ours else None
            if stands is None:
                clear.update(passed)
            holder = next(fresh) if stands is None else ours.pop(stands)
            moves[holder] = left[holder] = heads[holder] = head
            place(holder, head)
        if _is_side_branch(holder):
            found[name] = holder
    return found


def _is_side_branch(branch: str) -> bool:
    return branch.startswith("import-")


def _ancestors(entry: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield an entry and its ancestors, back to the first."""
    while entry is not None:
        yield entry
        entry = parents.get(entry)


def _same_record(before: Entry, now: Entry) -> bool:
    """Return whether two entries of one id are equal except for what ``_normalised`` removes."""
    return (before.parent, _normalised(before.message)) == (now.parent, _normalised(now.message))


def _normalised(message: Message) -> Message:
    """Return a message whose records have no byte order mark, line breaks of one kind, and no numbers in their file."""
    if message.provider_json is UNSET:
        return message
    fields, kept = jsontext.fields(message.provider_json), original_bytes.formats(message)
    for name, value in fields.items():
        if (
            name.removeprefix(BOOKKEEPING) in kept
        ):  # a quote inside a text is escaped, so that these only match between texts
            text = bytes(value).replace(b'"text":["\xef\xbb\xbf', b'"text":["')
            fields[name] = Raw(_NUMBER.sub(rb"\g<1>0", text.replace(rb'\r\n"]', rb'\n"]')))
    return structs.replace(message, provider_json=jsontext.raw(fields))


def _record_bytes(messages: Sequence[Message]) -> bytes:
    """Return the bytes of the records of messages; none when a message has no record."""
    pieces: list[bytes] = []
    for place, message in enumerate(messages):
        file_format = next(iter(original_bytes.formats(message)), None)
        if file_format is None:
            return b""
        if original_bytes.follows(message, file_format) is None:
            group = [message]
            for each in messages[place + 1 :]:
                if original_bytes.follows(each, file_format) is None:
                    break
                group.append(each)
            pieces += [piece.raw for piece in original_bytes.records_of(file_format, group) or ()]
    return b"".join(pieces)


def title_of(messages: Iterable[Message]) -> str | None:
    """Return the first line of the user, shortened."""
    said = (line.strip() for each in messages if isinstance(each, UserMessage) for line in each.text.splitlines())
    return next((excerpt(line, _TITLE) for line in said if line), None)


def _missing_blobs(store: Store, entries: Iterable[Entry]) -> set[str]:
    """Return the blobs that a file names and the store lacks: files contain none."""
    absent: set[str] = set()
    for name in message_codec.blob_hashes(entries):
        try:
            store.get_blob(name)
        except NotFoundError:
            absent.add(name)
    return absent


def _entry_size(entry: Entry) -> int:
    """Return the approximate size of an entry."""
    held = entry.message.provider_json
    return 0 if held is UNSET else len(memoryview(held))


def _known_files(metadata: Mapping[str, Any]) -> dict[str, _File]:
    """Return the files of a thread; a foreign value under the key counts as none."""
    try:
        return msgspec.convert(dict(metadata.get(FILES, {})), dict[str, _File])
    except (msgspec.ValidationError, TypeError, ValueError):
        return {}


def _known_heads(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    try:
        return msgspec.convert(dict(metadata.get(HEADS, {})), dict[str, str | None])
    except (msgspec.ValidationError, TypeError, ValueError):
        return {}
