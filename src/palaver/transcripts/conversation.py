"""The conversations of a file, told step by step while it is read.

Rules:

- A reader gives ``Began``, then an ``Entry`` at a time (``Joined``), then ``Ended`` with heads, title and metadata,
  which are known last. A file may hold several conversations; their steps may alternate.
- The tree of a thread is the tree of its file. An entry has the id that the file gives it, where that is the first of
  its name in this conversation; else one that is derived from the thread and the place, so that the same file gives
  the same ids (docs/spec/dialects.md#0.3, #17.8).
- A record that is no message is an entry too: a message without content, tagged ``RECORD``, that keeps its bytes in
  its place. It is put on the line of what stands before it: what follows the message before it follows it as well.
  Base64 of ``LEAST_MEDIA`` characters or more leaves it and becomes its content, so that a store keeps an image once.
- Compaction hides, it does not remove: a flush marker (``hidden_before``) stands where the model's view begins, and
  what the model sees instead follows it with ``source=COMPACTION``, which no view for people shows
  (docs/spec/dialects.md
  0.5, 0.6).
  Record, marker and what follows are one group: ``join([record_message(), hidden_before(), summary], [record])``.
- What is held in memory is an id or two for each entry.

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
"""The ``source`` of what stands in a model's view in place of what a compaction hid."""

LEAST_MEDIA: Final = 1024
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/]{{{LEAST_MEDIA},}}={{0,2}}")
_FIXED: Final = 0xF << 76 | 3 << 62
_VERSION_8: Final = 8 << 76 | 2 << 62
_LONGEST: Final = 200
_WAITING: Final = 1 << 16


class Began(Struct, frozen=True):
    """A conversation begins. ``thread`` is its id: the same for the same conversation, whenever it is read."""

    thread: str


class Joined(Struct, frozen=True):
    """An entry joins a conversation; its parent joined before."""

    thread: str
    entry: Entry


class Ended(Struct, frozen=True):
    """A conversation was read to its end. ``branches`` are its heads; ``main`` is where its producer would go on."""

    thread: str
    branches: Mapping[str, str | None]
    title: str | None = None
    metadata: Mapping[str, Any] = {}


class Noted(Struct, frozen=True):
    """What the file held that its transcript format does not foresee; the last step, where there is anything to say."""

    unknown: tuple[UnknownFields, ...]


Step: TypeAlias = Began | Joined | Ended | Noted


SESSION: Final = "session"
"""The key of a thread's metadata that says which session of which program it is."""


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file says of its session, for those who write it in another format: stored in the metadata (``SESSION``).

    ``id`` is the program's own, ``format`` the version of the format, ``program`` that of the program; ``cwd`` the
    working directory; ``started_at`` Unix milliseconds. ``parent`` is the thread that gave this one its task, and
    ``call`` the tool call by which it did (docs/spec/dialects.md#0.7). ``columns`` names what stands beside the
    messages of a record and is in none of them. ``more`` is what only the transcript format itself reads.
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
        """Give it as the metadata of a thread."""
        stored = structs.asdict(self)  # what ``more`` holds stays as it is: numbers know how they were written
        return {SESSION: {name: each for name, each in stored.items() if each not in (None, "", [], {})}}


def session_of(metadata: Mapping[str, Any]) -> Session:
    """Read it from the metadata of a thread; an empty one where there is none."""
    try:
        return msgspec.convert(dict(metadata.get(SESSION, {})), Session)
    except (msgspec.ValidationError, TypeError, ValueError):
        return Session()


def with_messages(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps from the first message on: a file of which no message can be read gives none of its own.

    Raises ``DecodeError`` at the end when there is no message, and something was not understood. What stands before the
    first message waits, up to ``_WAITING`` steps.
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
    """A conversation that was read whole. ``unread`` is what its file holds and no conversation in it has.

    ``replaced`` names the fields that ``replace`` changed: a file that was read keeps its own, and the receipt says so.
    """

    thread: Thread
    title: str | None = None
    metadata: Mapping[str, Any] = {}
    unread: tuple[Loss, ...] = ()
    replaced: tuple[str, ...] = ()

    def replace(
        self, *, title: str | UnsetType | None = UNSET, metadata: Mapping[str, Any] | UnsetType = UNSET
    ) -> Transcript:
        """Return a copy with another ``title`` or other ``metadata``; what is left out stays.

        Raises ``MessageError`` for a value of the wrong type.
        """
        given = {"title": title, "metadata": metadata}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
        check_arguments("Transcript.replace", Transcript, changes)
        return structs.replace(self, **changes, replaced=tuple(dict.fromkeys((*self.replaced, *changes))))

    def edit(self, id: str, message: Message) -> Transcript:
        """Return a copy with ``message`` in the place of another one, on all branches.

        ``id`` is that of the other's entry, else of the message. The entry and the message keep their ids. Raises
        ``NotFoundError`` when no message has it, and ``MessageError`` for what is no sound message or has another id.
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
        """Return a copy in which ``change(message)`` stands in the place of each message, on all branches.

        Records, which are no messages, stay as they are. Entries and messages keep their ids. Raises ``MessageError``
        where ``change`` returns what is no sound message or has another id.
        """
        check_arguments("Transcript.map", Transcript.map, {"change": change})
        entries = [entry for entry in self.thread.entries if RECORD not in entry.message.tags]
        return self._with({entry.id: change(entry.message) for entry in entries})

    def _with(self, messages: Mapping[str, Message]) -> Transcript:
        """A copy with other messages, by the ids of their entries."""
        thread = Thread(self.thread.id)
        for entry in self.thread.entries:
            new = messages.get(entry.id, entry.message)
            message = entry.message if new is entry.message else _in_place_of(entry, new)
            thread.add([Entry(entry.id, entry.parent, message)])
        thread.add((), self.thread.branches)
        return structs.replace(self, thread=thread)


def _in_place_of(entry: Entry, message: Message) -> Message:
    """A message with the id and the records of the one that it replaces."""
    try:
        (new,) = verified([message])
    except MessageError as error:
        raise MessageError(f"entry {entry.id}: {str(error).removeprefix('messages[0]: ')}") from None
    if new.id not in {None, entry.message.id}:
        raise MessageError(f"entry {entry.id}: id: expected {entry.message.id!r}, got {new.id!r}")
    return with_records_of(structs.replace(new, id=entry.message.id), entry.message)


def record_message(sent_at: int | None = None) -> SystemMessage:
    """The message of a record that is none: what leads a group whose first record nobody said."""
    return trusted.SystemMessage(tags=(RECORD,), mode="tool", sent_at=sent_at)


def hidden_before(sent_at: int | None = None) -> FlushMarker:
    """The marker behind which a model's view begins after a compaction."""
    return trusted.FlushMarker(reason=COMPACTION, source=COMPACTION, sent_at=sent_at)


def copied(message: M) -> M:
    """A copy of a message that a compaction keeps: what it cost was counted where it stands first."""
    copy = structs.replace(message, id=None, source=COMPACTION)
    return structs.replace(copy, usage=None, response_id=None) if isinstance(copy, AssistantMessage) else copy


def derived_id(*names: object) -> str:
    """An id that is the same whenever it is made of the same names: a UUID of version 8 (RFC 9562)."""
    text = "\0".join(map(str, names)).encode("utf-8", "surrogatepass")
    return str(UUID(int=int(sha256(text).hexdigest()[:32], 16) & ~_FIXED | _VERSION_8))


class Conversation:
    """Builds the steps of one conversation. ``file_format`` is the name under which records are kept."""

    def __init__(self, file_format: str, thread: str) -> None:
        """Begin an empty conversation."""
        self.file_format = file_format
        self.thread = thread
        self.head: str | None = None
        """The entry that joined last: what an entry without a parent of its own follows."""
        self._tips: dict[str | None, str | None] = {}  # what was put on the line behind an entry
        self._ids: set[str] = set()
        self._leaves: dict[str, None] = {}
        self._count = 0

    def began(self) -> Began:
        """The first step."""
        return Began(self.thread)

    def join(
        self,
        messages: Iterable[Message],
        records: Sequence[Record] = (),
        *,
        ids: Sequence[str | None] = (),
        parent: str | UnsetType | None = UNSET,
    ) -> Iterator[Joined]:
        """Let the messages of a group join with the records they came from, one behind the other.

        ``ids`` are those that the file gives them, as far as it does. ``parent`` is the entry that they follow; unset,
        the one that joined last; ``None`` begins anew. Without ``records``, the bytes are kept elsewhere.
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
        """Let a record that is no message join, on the line of what it follows. ``message`` is what it counts as."""
        before = self.head if parent is UNSET else parent
        stored = structs.replace(message or _without_media(record), sent_at=sent_at)
        named = id is not None and id not in self._ids
        yield from self.join([stored], [record], ids=[id], parent=before)
        if not named:
            self._tips[before] = self.head

    def tip(self, entry: str | None) -> str | None:
        """What an entry that names ``entry`` as its parent follows: the last record that was put on its line."""
        passed: list[str | None] = []
        while entry in self._tips and entry not in passed:
            passed.append(entry)
            entry = self._tips[entry]
        for each in passed:
            self._tips[each] = entry
        return entry

    def lengthen(self, entry: str | UnsetType | None) -> None:
        """What joined last is put on the line of an entry: what follows that follows this."""
        if entry is not UNSET and entry != self.head:
            self._tips[entry] = self.head

    def __contains__(self, entry: object) -> bool:
        """Whether an entry of that id has joined."""
        return entry in self._ids

    def _id(self, wanted: str | None) -> str:
        self._count += 1
        made = wanted
        if not made or made in self._ids or not _usable(made):
            made = derived_id(self.file_format, self.thread, wanted, self._count)
        while made in self._ids:  # an id of ours that was written into the file
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
        """The last step; ``branches`` are heads that have names, without one the main branch ends in what joined last.

        Every other leaf gets a branch of its own: ``branch-1``, ``branch-2``, in the order in which they joined.
        """
        heads = {MAIN: self.head} | dict(branches or {})
        others = [leaf for leaf in self._leaves if leaf not in heads.values()]
        named = {f"branch-{number}": leaf for number, leaf in enumerate(others, 1)}
        return Ended(self.thread, {**named, **heads}, title, metadata or {})


def _usable(id: str) -> bool:
    return len(id) <= _LONGEST and id.isprintable() and id == id.strip()


def _without_media(record: Record) -> Message:
    """A message for a record that is none; what looks like media becomes its content."""
    found = _BASE64.findall(record.raw.decode("utf-8", "replace")) if len(record.raw) > LEAST_MEDIA else ()
    if not found:
        return record_message()
    parts = tuple([trusted.File(trusted.Inline(data)) for data in dict.fromkeys(found)])
    return trusted.UserMessage(content=parts, tags=(RECORD,), mode="tool")


def collected(
    steps: Iterable[Step], watch: Watch | None = None
) -> tuple[tuple[Transcript, ...], tuple[UnknownFields, ...]]:
    """Gather steps into whole conversations, in the order in which they began, and the drift report."""
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
    """A conversation of messages that come from elsewhere; the same messages give the same ids."""
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
