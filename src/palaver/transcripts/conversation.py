"""The conversations of a file, as steps while it is read.

Rules:

- A reader yields ``Began``, then ``Joined`` for each ``Entry``, then ``Ended`` with heads, title and metadata, which
  are known last. A file may hold several conversations; their steps may alternate.
- The tree of a thread is the tree of its file. An entry has the id that the file gives it, if that is the first such id
  in this conversation; else one derived from the thread and the place, so that the same file gives the same ids
  (docs/spec/dialects.md#0.3, #17.8).
- A record that is not a message is an entry too: a message without content, tagged ``RECORD``, with its bytes in
  place. It is put on the line of the entry before it: the successor of the entry before it follows it instead. Base64
  of ``LEAST_MEDIA`` characters or more is moved into its content, so that a store keeps an image once.
- Compaction hides, it does not remove: a flush marker (``hidden_before``) is placed where the model's view begins, and
  the messages that the model sees instead follow it with ``source=COMPACTION``, which no view for people shows
  (docs/spec/dialects.md#0.5, #0.6). Record, marker and the following messages are one group:
  ``join([record_message(), hidden_before(), summary], [record])``.
- An id or two for each entry are held in memory.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from palaver.core import trusted
from palaver.core.canonical import content_hash
from palaver.core.errors import DecodeError, MessageError, NotFoundError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, SystemMessage
from palaver.core.request import Loss
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import MAIN, Entry, Thread, verified
from palaver.threads.view import RECORD
from palaver.transcripts.original_bytes import keep, with_records_of
from palaver.transcripts.record import Record
from palaver.transcripts.unknown_fields import UnknownFields, Watch, failure_of, losses_of

M = TypeVar("M", bound=Message)

COMPACTION: Final = "compaction"
"""The ``source`` of messages that replace a compacted part in a model's view."""

LEAST_MEDIA: Final = 1024
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/]{{{LEAST_MEDIA},}}={{0,2}}")
_FIXED: Final = 0xF << 76 | 3 << 62
_VERSION_8: Final = 8 << 76 | 2 << 62
_LONGEST: Final = 200
_WAITING: Final = 1 << 16


class Began(Struct, frozen=True):
    """A conversation begins. ``thread`` is its id: the same conversation always has the same id."""

    thread: str


class Joined(Struct, frozen=True):
    """An entry is added to a conversation; its parent was added before."""

    thread: str
    entry: Entry


class Ended(Struct, frozen=True):
    """A conversation was read to its end. ``branches`` are its heads; its producer would continue at ``main``."""

    thread: str
    branches: Mapping[str, str | None]
    title: str | None = None
    metadata: Mapping[str, Any] = {}


class Noted(Struct, frozen=True):
    """The contents of the file that its transcript format does not expect; the last step, if there are any."""

    unknown: tuple[UnknownFields, ...]


Step: TypeAlias = Began | Joined | Ended | Noted


SESSION: Final = "session"
"""The key of a thread's metadata for the session of a program."""


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session data of a file, for writing it in another format: stored in the metadata (``SESSION``).

    ``id`` is the program's own, ``format`` the version of the format, ``program`` that of the program; ``cwd`` the
    working directory; ``started_at`` Unix milliseconds. ``parent`` is the thread that gave this one its task, and
    ``call`` the tool call that did so (docs/spec/dialects.md#0.7). ``columns`` names the fields beside the messages of
    a record that no message has. ``more`` is read by the transcript format only.
    """

    file_format: str = ""
    id: str | None = None
    format: str | None = None
    program: str | None = None
    cwd: str | None = None
    branch: str | None = None
    model: str | None = None
    started_at: int | None = None
    parent: str | None = None
    call: str | None = None
    agent: str | None = None
    columns: list[str] = []
    more: dict[str, Any] = {}

    def metadata(self) -> dict[str, Any]:
        """Return the session as the metadata of a thread."""
        stored = structs.asdict(self)  # ``more`` stays as it is: numbers keep their text
        return {SESSION: {name: each for name, each in stored.items() if each not in (None, "", [], {})}}


def session_of(metadata: Mapping[str, Any]) -> Session:
    """Return the session in the metadata of a thread; an empty one without it."""
    try:
        return msgspec.convert(dict(metadata.get(SESSION, {})), Session)
    except (msgspec.ValidationError, TypeError, ValueError):
        return Session()


def with_messages(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps from the first message on: a file without readable messages yields none of its own.

    Raises ``DecodeError`` at the end when there is no message, and something was not understood. Steps before the first
    message wait, up to ``_WAITING`` of them.
    """
    waiting: list[Step] = []
    unknown: tuple[UnknownFields, ...] = ()
    found = False
    for step in steps:
        if isinstance(step, Noted):
            unknown += step.unknown
        found = found or (isinstance(step, Joined) and RECORD not in step.entry.message.tags)
        waiting.append(step)
        if found or len(waiting) > _WAITING:
            yield from waiting
            waiting.clear()
    if not found and (why := failure_of(unknown)) is not None:
        raise DecodeError(f"no message of it can be read: {why}")
    yield from waiting


class Transcript(Struct, frozen=True):
    """A conversation that was read to its end. ``unread`` are parts of its file that no conversation in it has.

    ``replaced`` names the fields that ``replace`` changed: a file that was read keeps its own, and the receipt lists
    them.
    """

    thread: Thread
    title: str | None = None
    metadata: Mapping[str, Any] = {}
    unread: tuple[Loss, ...] = ()
    replaced: tuple[str, ...] = ()

    def replace(
        self, *, title: str | UnsetType | None = UNSET, metadata: Mapping[str, Any] | UnsetType = UNSET
    ) -> Transcript:
        """Return a copy with another ``title`` or other ``metadata``; omitted fields stay.

        Raises ``MessageError`` for a value of the wrong type.
        """
        given = {"title": title, "metadata": metadata}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
        check_arguments("Transcript.replace", Transcript, changes)
        return structs.replace(self, **changes, replaced=tuple(dict.fromkeys((*self.replaced, *changes))))

    def edit(self, id: str, message: Message) -> Transcript:
        """Return a copy with ``message`` in place of another one, on all branches.

        ``id`` is that of the other's entry, or of the message. The entry and the message keep their ids. Raises
        ``NotFoundError`` for an unknown id, and ``MessageError`` for an invalid message or one with another id.
        """
        check_arguments("Transcript.edit", Transcript.edit, {"id": id})
        entries = [entry for entry in self.thread.entries if RECORD not in entry.message.tags]
        found = [entry.id for entry in entries if entry.id == id] or [
            entry.id for entry in entries if entry.message.id == id
        ]
        if not found:
            raise NotFoundError(f"thread {self.thread.id}: no message {id!r}")
        return self._with(dict.fromkeys(found, message))

    def map(self, change: Callable[[Message], Message]) -> Transcript:
        """Return a copy with ``change(message)`` in place of each message, on all branches.

        Records, which are not messages, stay as they are. Entries and messages keep their ids. Raises ``MessageError``
        when ``change`` returns an invalid message or one with another id.
        """
        check_arguments("Transcript.map", Transcript.map, {"change": change})
        entries = [entry for entry in self.thread.entries if RECORD not in entry.message.tags]
        return self._with({entry.id: change(entry.message) for entry in entries})

    def _with(self, messages: Mapping[str, Message]) -> Transcript:
        """Return a copy with other messages, by the ids of their entries."""
        thread = Thread(self.thread.id)
        for entry in self.thread.entries:
            new = messages.get(entry.id, entry.message)
            message = entry.message if new is entry.message else _in_place_of(entry, new)
            thread.add([Entry(entry.id, entry.parent, message)])
        thread.add((), self.thread.branches)
        return structs.replace(self, thread=thread)


def _in_place_of(entry: Entry, message: Message) -> Message:
    """Return a message with the id and the records of the one that it replaces."""
    try:
        (new,) = verified([message])
    except MessageError as error:
        raise MessageError(f"entry {entry.id}: {str(error).removeprefix('messages[0]: ')}") from None
    if new.id not in {None, entry.message.id}:
        raise MessageError(f"entry {entry.id}: id: expected {entry.message.id!r}, got {new.id!r}")
    return with_records_of(structs.replace(new, id=entry.message.id), entry.message)


def record_message(sent_at: int | None = None) -> SystemMessage:
    """Return the message of a record that is not a message: the first of a group whose first record has no author."""
    return trusted.SystemMessage(tags=(RECORD,), mode="tool", sent_at=sent_at)


def hidden_before(sent_at: int | None = None) -> FlushMarker:
    """Return the marker after which a model's view begins following a compaction."""
    return trusted.FlushMarker(reason=COMPACTION, source=COMPACTION, sent_at=sent_at)


def copied(message: M) -> M:
    """Return a copy of a message that a compaction keeps, without usage, which counts at the original."""
    copy = structs.replace(message, id=None, source=COMPACTION)
    return structs.replace(copy, usage=None, response_id=None) if isinstance(copy, AssistantMessage) else copy


def derived_id(*names: object) -> str:
    """Return an id that depends only on these names: a UUID of version 8 (RFC 9562)."""
    text = "\0".join(map(str, names)).encode("utf-8", "surrogatepass")
    return str(UUID(int=int(sha256(text).hexdigest()[:32], 16) & ~_FIXED | _VERSION_8))


class Conversation:
    """Builds the steps of one conversation. ``file_format`` is the name under which records are kept."""

    def __init__(self, file_format: str, thread: str) -> None:
        """Start an empty conversation."""
        self.file_format = file_format
        self.thread = thread
        self.head: str | None = None
        """The last added entry: the parent of an entry without a parent of its own."""
        self._tips: dict[str | None, str | None] = {}  # the last record on the line of an entry
        self._ids: set[str] = set()
        self._leaves: dict[str, None] = {}
        self._count = 0

    def began(self) -> Began:
        """Return the first step."""
        return Began(self.thread)

    def join(
        self,
        messages: Iterable[Message],
        records: Sequence[Record] = (),
        *,
        ids: Sequence[str | None] = (),
        parent: str | UnsetType | None = UNSET,
    ) -> Iterator[Joined]:
        """Add the messages of a group with their records, in sequence.

        ``ids`` are those that the file gives them, if any. ``parent`` is the entry that they follow; unset, the last
        one added; ``None`` starts a new root. Without ``records``, the bytes are kept elsewhere.
        """
        group = list(messages)
        if records:
            group = list(keep(self.file_format, group, records))
        follows = self.head if parent is UNSET else self.tip(parent)
        for place, message in enumerate(group):
            entry = self._id(ids[place] if place < len(ids) else None)
            stamped = message if message.id is not None else structs.replace(message, id=entry)
            self._leaves.pop(follows or "", None)
            self._leaves[entry] = None
            yield Joined(self.thread, Entry(entry, follows, stamped))
            follows = self.head = entry

    def record(
        self,
        record: Record,
        *,
        id: str | None = None,
        parent: str | UnsetType | None = UNSET,
        sent_at: int | None = None,
        message: Message | None = None,
    ) -> Iterator[Joined]:
        """Add a record that is not a message, on the line of its parent. ``message`` is its message."""
        before = self.head if parent is UNSET else parent
        stored = structs.replace(message or _without_media(record), sent_at=sent_at)
        named = id is not None and id not in self._ids
        yield from self.join([stored], [record], ids=[id], parent=before)
        if not named:
            self._tips[before] = self.head

    def tip(self, entry: str | None) -> str | None:
        """Return the entry that a child of ``entry`` follows: the last record on its line."""
        passed: list[str | None] = []
        while entry in self._tips and entry not in passed:
            passed.append(entry)
            entry = self._tips[entry]
        for each in passed:
            self._tips[each] = entry
        return entry

    def lengthen(self, entry: str | UnsetType | None) -> None:
        """Put the last added entry on the line of an entry: a child of that entry follows the added one."""
        if entry is not UNSET and entry != self.head:
            self._tips[entry] = self.head

    def __contains__(self, entry: object) -> bool:
        """Return whether an entry with that id was added."""
        return entry in self._ids

    def _id(self, wanted: str | None) -> str:
        self._count += 1
        made = wanted
        if not made or made in self._ids or not _usable(made):
            made = derived_id(self.file_format, self.thread, wanted, self._count)
        while made in self._ids:  # one of our ids that was written into the file
            made = derived_id(self.file_format, self.thread, made, self._count)
        self._ids.add(made)
        return made

    def ended(
        self,
        branches: Mapping[str, str | None] | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Ended:
        """Return the last step; ``branches`` are named heads. Without one, the main branch ends in the last entry.

        Every other leaf gets a branch of its own: ``branch-1``, ``branch-2``, in the order of addition.
        """
        heads = {MAIN: self.head} | dict(branches or {})
        others = [leaf for leaf in self._leaves if leaf not in heads.values()]
        named = {f"branch-{number}": leaf for number, leaf in enumerate(others, 1)}
        return Ended(self.thread, {**named, **heads}, title, metadata or {})


def _usable(id: str) -> bool:
    return len(id) <= _LONGEST and id.isprintable() and id == id.strip()


def _without_media(record: Record) -> Message:
    """Return a message for a record that is not one; media in it become its content."""
    found = _BASE64.findall(record.raw.decode("utf-8", "replace")) if len(record.raw) > LEAST_MEDIA else ()
    if not found:
        return record_message()
    parts = tuple([trusted.File(trusted.Inline(data)) for data in dict.fromkeys(found)])
    return trusted.UserMessage(content=parts, tags=(RECORD,), mode="tool")


def collected(
    steps: Iterable[Step], watch: Watch | None = None
) -> tuple[tuple[Transcript, ...], tuple[UnknownFields, ...]]:
    """Gather steps into conversations, in the order in which they began, and the drift report."""
    threads: dict[str, Thread] = {}
    ended: dict[str, Ended] = {}
    unknown: tuple[UnknownFields, ...] = () if watch is None else watch.report
    for step in steps:
        match step:
            case Began():
                threads.setdefault(step.thread, Thread(step.thread))
            case Joined():
                threads[step.thread].add([step.entry])
            case Ended():
                threads[step.thread].add((), step.branches)
                ended[step.thread] = step
            case Noted():
                unknown += step.unknown
    unread = losses_of(unknown)
    return tuple([_transcript(thread, ended.get(name), unread) for name, thread in threads.items()]), unknown


def transcript_of(
    messages: Sequence[Message], *, title: str | None = None, metadata: Mapping[str, Any] | None = None
) -> Transcript:
    """Return a conversation of messages from elsewhere; the same messages give the same ids."""
    thread = Thread(derived_id("messages", *map(content_hash, messages)))
    parent: str | None = None
    for place, message in enumerate(messages):
        entry = Entry(derived_id(thread.id, place), parent, message)
        thread.add([entry], {MAIN: entry.id})
        parent = entry.id
    return Transcript(thread, title, metadata or {})


def _transcript(thread: Thread, end: Ended | None, unread: tuple[Loss, ...]) -> Transcript:
    if end is None:
        return Transcript(thread, unread=unread)
    return Transcript(thread, end.title, end.metadata, unread)
