"""The common part of all writers: options, the receipt, and the interface of a format's writer.

``assembly`` selects what is written and assembles the file.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from palaver.core.messages import DeveloperMessage, SystemMessage, ToolMessage
from palaver.core.request import Loss
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import MAIN, Entry
from palaver.threads.view import RECORD, for_model, is_shown
from palaver.transcripts import original_bytes

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.core.request import LossKind
    from palaver.transcripts.conversation import Transcript


History: TypeAlias = Literal["model", "user", "all"]
Layout: TypeAlias = Literal["lines", "document", "either"]
"""``either``: a document if the first line of the file is not a whole object, else lines; a conversation from
elsewhere is written as a document if its ``RecordWriter`` has a tail for new ones."""

OnLoss: TypeAlias = Literal["report", "raise"]

LISTED: Final = re.compile(", | and ")
"""The separator of the names in one loss."""


class Options(Struct, frozen=True, kw_only=True):
    """The options of a caller; the module explains them. ``carry`` keeps in the free slot what the format lacks."""

    history: History | None = None
    branch: str = MAIN
    carry: bool = True

    def __post_init__(self) -> None:
        """Raise ``MessageError`` for a value of the wrong type."""
        check_arguments("write", Options, structs.asdict(self))


class Written(Struct, frozen=True):
    """A written file, further files by their relative names, and the receipt."""

    chunks: tuple[bytes, ...]
    losses: tuple[Loss, ...] = ()
    beside: Mapping[str, bytes] = {}

    @property
    def body(self) -> bytes:
        """The file as one ``bytes``."""
        return b"".join(self.chunks)


class WriteState:
    """The state of one writing: the entries, the options, and the losses."""

    def __init__(
        self, file_format: str, transcript: Transcript, entries: Sequence[Entry], options: Options, *, native: bool
    ) -> None:
        """Start without losses. ``entries`` are those to write; ``native`` says that some have records."""
        self.file_format = file_format
        self.transcript = transcript
        self.thread = transcript.thread
        self.entries = entries
        self.options = options
        self.native = native
        self.beside: dict[str, bytes] = {}
        self.edited: list[tuple[Entry, ...]] = []
        """The groups whose records no longer match them, without their new content."""
        self.unwritten: set[str] = set()
        """The first entries of groups without records of their own."""
        self.whole = False
        """Whether the rendering of a record is complete, so that no key of the old one stays."""
        self._title_written = False
        self._places = {entry.id: place for place, entry in enumerate(entries)}
        self._losses: dict[Loss, None] = {}

    def lose(self, kind: LossKind, what: str, why: str, entry: Entry | None = None, part: int | None = None) -> None:
        """Add a loss to the receipt."""
        place = None if entry is None else self._places.get(entry.id)
        self._losses[Loss(kind, what, why, place, part)] = None

    def add(self, losses: Iterable[Loss]) -> None:
        """Add losses with known places to the receipt."""
        self._losses.update(dict.fromkeys(losses))

    def take_title(self) -> str | None:
        """Return the conversation's title for a format that writes it; else the receipt says that it is dropped."""
        self._title_written = True
        return self.transcript.title

    def carry(self, before: int) -> None:
        """Report the losses of a message after the first ``before`` ones as carried by its record."""
        every = list(self._losses)
        self._losses = dict.fromkeys([*every[:before], *map(_carried, every[before:])])

    def never_writes(self, *names: str) -> None:
        """Report fields of new messages that no record of the format has, once."""
        for name in names:
            stored = (getattr(entry.message, name) for entry in self.entries if not is_native(entry, self.file_format))
            if any(each is not None for each in stored):
                self.lose("dropped", name.replace("_", " "), "the format has no place for it")

    def is_native(self, entry: str) -> bool:
        """Return whether an entry has records of the transcript format, so that its id is from the file."""
        return self.native and is_native(self.thread.entry(entry), self.file_format)

    def named(self) -> Callable[[Entry], frozenset[str]]:
        """Return the names on the receipt for an entry, or for all: fields, kinds of parts, ``content`` for any."""
        found: dict[int | None, set[str]] = {None: set()}
        for loss in self._losses:
            names = found.setdefault(loss.message, set())
            names.update((loss.what, *LISTED.split(loss.what.replace("_", " "))))
            if loss.part is not None:
                names.add("content")
        return lambda entry: frozenset(found[None] | found.get(self._places.get(entry.id, -1), set()))

    @property
    def count(self) -> int:
        """The number of losses so far."""
        return len(self._losses)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipt so far."""
        title = self.transcript.title
        if self.native:
            own = [Loss("dropped", name, "the file keeps its own") for name in self.transcript.replaced]
            return (*self._losses, *own)
        if title is None or self._title_written:
            return tuple(self._losses)
        return (*self._losses, Loss("dropped", "title", "the format has no place for it"))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the conversation."""
        return self.transcript.metadata


class RecordWriter(Protocol):
    """Writes messages without records, of one conversation. Records are JSON without line break or separator."""

    def head(self) -> Iterable[bytes]:
        """Return the text before the first message, for a conversation without records of the transcript format.

        In a document, it ends with the bracket that opens the list.
        """
        ...

    def groups(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Split neighbouring entries into groups that share records."""
        ...

    def render(self, group: Sequence[Entry], old: Sequence[bytes], /) -> Iterable[bytes]:
        """Return the records of a group; ``old`` are its records before the edit (without separators)."""
        ...

    def tail(self, old: bytes | None, /) -> bytes | None:
        """Return the text behind the last item of a document; ``old`` is the earlier text. ``None`` for lines."""
        ...


@runtime_checkable
class Continuing(Protocol):
    """An additional method of a ``RecordWriter`` for growing records: a call and its result share one."""

    def continues(self, before: Sequence[Entry], group: Sequence[Entry], /) -> bool:
        """Return whether new entries belong to the record of the last messages that have one."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """An additional method of a ``RecordWriter`` for records that repeat earlier messages."""

    def repeat(self, group: Sequence[Entry], old: Sequence[bytes], /) -> Sequence[bytes]:
        """Return the records of an unedited group, as many, with the edits of messages that they repeat."""
        ...


def singly(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Group each entry alone: ``RecordWriter.groups`` for a format in which each message is a record."""
    for entry in entries:
        yield (entry,)


def grouped(entries: Iterable[Entry], joins: Callable[[Sequence[Entry], Message], bool]) -> Iterator[Sequence[Entry]]:
    """Put each entry into the group before it if its message ``joins`` that, and into a new one otherwise."""
    group: list[Entry] = []
    for entry in entries:
        if group and not joins(group, entry.message):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def with_results(
    entries: Iterable[Entry], calls_of: Callable[[Message], Iterable[str | None]], *, repeated: bool = False
) -> Iterator[Sequence[Entry]]:
    """Group a message with the results that follow it, of the calls in it whose ids ``calls_of`` returns.

    A second result of the same call starts a new group, unless results may be ``repeated``.
    """
    waiting: set[str | None] = set()

    def joins(group: Sequence[Entry], message: Message) -> bool:
        nonlocal waiting
        if len(group) == 1:
            waiting = set(calls_of(group[0].message))
        if not isinstance(message, ToolMessage) or message.tool_call_id not in waiting:
            return False
        if not repeated:
            waiting.remove(message.tool_call_id)
        return True

    return grouped(entries, joins)


def unsupported(value: Struct, said: Collection[str]) -> list[str]:
    """Return the non-empty fields of a message or a part that are not among those that a format has.

    The fields are read from the class, so that a new field is on the receipt until a format supports it.
    """
    return [
        field.name.removesuffix("_json").replace("_", " ")
        for field in original_bytes.fields_of(type(value))
        if field.name not in said and getattr(value, field.name) != field.default
    ]


def is_record(entry: Entry) -> bool:
    """Return whether an entry is not a message, but a record of a runtime or a file."""
    return RECORD in entry.message.tags


def chosen_history(path: Sequence[Entry], history: History) -> Iterator[Entry]:
    """Yield what the model sees at the end of a path, what its user saw (and its system messages), or all of it."""
    match history:
        case "model":
            known_messages = {id(message) for message in for_model(path)}
            yield from (entry for entry in path if id(entry.message) in known_messages)
        case "user":
            told = (SystemMessage, DeveloperMessage)
            yield from (
                entry
                for entry in path
                if not is_record(entry) and (is_shown(entry.message) or isinstance(entry.message, told))
            )
        case "all":
            yield from (entry for entry in path if not is_record(entry))


def is_native(entry: Entry, file_format: str) -> bool:
    """Return whether an entry has records of a transcript format, or shares those of another."""
    return (
        original_bytes.leads(entry.message, file_format)
        or original_bytes.follows(entry.message, file_format) is not None
    )


def _carried(loss: Loss) -> Loss:
    """Return a loss of a message that its record carries whole."""
    if loss.kind != "dropped" or loss.message is None or "carried" in loss.why:
        return loss
    return structs.replace(loss, kind="converted", why=f"{loss.why}; carried along")


def on_one_line(raw: bytes) -> bytes:
    """Return a record for a line: strings escape line breaks, so any others are between tokens."""
    return raw.replace(b"\n", b" ")
