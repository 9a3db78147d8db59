"""Read records of any shape into conversations.

Stability: experimental.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Raw

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, PalaverError
from palaver.transcripts import documents
from palaver.transcripts.conversation import Conversation, Session, derived_id
from palaver.transcripts.fields import as_object, inner, string
from palaver.transcripts.openai_messages import alpaca, batch, images, sharegpt
from palaver.transcripts.openai_messages.shapes import (
    COLUMNS,
    NAME,
    RESPONSES,
    WIRE,
    Shape,
    bare,
    beside,
    list_shape,
    shape_of,
)
from palaver.transcripts.original_bytes import keep
from palaver.transcripts.record import Record
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Flaw
    from palaver.transcripts.unknown_fields import Watch

Note: TypeAlias = "Callable[[Literal['block', 'unread'], str], None]"

Said: TypeAlias = "tuple[list[Message], list[list[Message]], int]"
"""The messages of a record, those of its other branches, and how many of those are shared with the first."""


_LIST_OF: Final = {WIRE: "messages", RESPONSES: "input"}
"""The key of the messages in a request, by wire."""


def _raise(kind: Literal["block", "unread"], why: str) -> None:  # noqa: ARG001 (a reader that notes nothing)
    """Raise the error."""
    raise DecodeError(why)


class RecordReader:
    """Reads a file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._conversation: Conversation | None = None
        self._early: list[Record] = []
        self._seen: dict[bytes, int] = {}
        self._columns: dict[str, None] = {}  # columns that are in no message of the conversation
        self._id: str | None = None  # the id of the current line of a batch
        self._one: bool | None = None  # whether the file is one conversation

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next conversation, message or document."""
        if record.fields is None and record.raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"[", b"{"} and record.at == 0:
            yield from self._document(record)
            return
        yield from self._line(record)

    def end(self) -> Iterator[Step]:
        """End the last conversation."""
        if self._conversation is None and self._early:
            yield from self._begin(b"".join(record.raw for record in self._early))
        yield from self._ended()

    def _document(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a list of conversations or of messages, or of one conversation."""
        body = record.raw.lstrip(b"\xef\xbb\xbf \t\r\n")
        cut = documents.cut(record.raw) if body.startswith(b"[") else documents.Cut(record)
        if cut.tail is None:
            fields = documents.fields_of(record.raw)
            lists = [] if fields else _lists(record.raw)
            for each in lists or [record if not fields else Record(0, 1, record.raw, fields)]:
                if each.flaw is not None and each.flaw != "blank":
                    self._watch.note(each.flaw, "", each.line)
                yield from self._line(each)
            return
        self._early.append(cut.head)
        for item in cut.items:
            yield from self._line(item)
        if self._conversation is None:
            yield from self._begin(record.raw)
        if self._conversation is not None:
            yield from self._conversation.record(cut.tail)

    def _line(self, record: Record) -> Iterator[Step]:
        fields = record.fields
        shape = list_shape(record.raw) if fields is None else shape_of(fields)
        if shape is None:
            if record.flaw is None:
                holds_messages = fields is None or not COLUMNS.isdisjoint(fields)
                named = ", ".join(fields or ()) or "no object"
                self._watch.note("unread" if holds_messages else "record", named, record.line)
            if self._conversation is None:
                self._early.append(record)
            else:
                yield from self._conversation.record(record)
            return
        self._one = shape == "message" if self._one is None else self._one
        if self._conversation is None or not (self._one and shape == "message"):
            yield from self._ended()
            yield from self._begin(record.raw)
        conversation = self._conversation
        if conversation is None:
            return
        if shape == "batch":
            self._id = string(fields or {}, "custom_id")
        yield from self._said(conversation, record, shape)

    def _begin(self, raw: bytes) -> Iterator[Step]:
        digest = sha256(raw.strip(b" ,\t\r\n")).digest()
        count = self._seen[digest] = self._seen.get(digest, 0) + 1
        self._conversation = Conversation(NAME, derived_id(NAME, digest.hex(), count))
        self._columns = {}
        self._id = None
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._conversation.record(record)

    def _ended(self) -> Iterator[Step]:
        if self._conversation is not None:
            session = Session(file_format=NAME, id=self._id, columns=list(self._columns))
            yield self._conversation.ended(metadata=session.metadata())
            self._conversation = None

    def expects(self, record: Record) -> bool:
        """Return whether a line that is not an object is a list of messages."""
        return list_shape(record.raw) is not None

    def _said(self, conversation: Conversation, record: Record, shape: Shape) -> Iterator[Step]:
        try:
            group, others, shared = read_record(
                record.fields or {}, shape, record.raw, lambda kind, why: self._watch.note(kind, why, record.line)
            )
        except PalaverError as error:
            self._watch.note("unread", str(error), record.line)
            group, others, shared = [], [], 0
        if not group:
            yield from conversation.record(record)
            return
        shown = any(images.stood(message) for message in group)
        self._columns |= dict.fromkeys(beside(record.fields or {}, shape, images=shown))
        # One group, so that an edit of a rejected answer is noticed as well.
        messages = list(keep(NAME, [*group, *(each for other in others for each in other)], [record]))
        place = conversation.head
        for number, step in enumerate(conversation.join(messages[: len(group)]), 1):
            yield step
            if number == shared:
                place = step.entry.id
        main, begun = conversation.head, len(group)
        for other in others:
            yield from conversation.join(messages[begun : begun + len(other)], parent=place)
            begun += len(other)
        conversation.head = main


# -- shapes ------------------------------------------------------------------------------------------------------------


def read_record(fields: Fields, shape: Shape, raw: bytes, note: Note = _raise) -> Said:
    """Return the messages of a record. Raises ``PalaverError`` for invalid values."""
    if shape == "list":
        return messages_of(bare(raw), note=note), [], 0
    group, others, shared = _SHAPES[shape](fields, note)
    if "images" not in fields:
        return group, others, shared
    _, before = images.placed(group[:shared], fields)
    return images.placed(group, fields)[0], [images.placed(each, fields, before)[0] for each in others], shared


def _lists(data: bytes) -> list[Record]:
    """Return the lines of a file whose first line is a list of messages; none for any other."""
    lines = data.split(b"\n")
    if len(lines) == 1 or list_shape(lines[0]) is None:
        return []
    ended = [*(line + b"\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]
    return [Record(at, at + 1, line, documents.fields_of(line) or None, _flaw(line)) for at, line in enumerate(ended)]


def _flaw(line: bytes) -> Flaw | None:
    """Return what is wrong with a line."""
    if not line.strip():
        return "blank"
    if jsontext.is_json(line.strip()):
        return None
    return "garbage" if line.endswith(b"\n") else "torn"


def messages_of(raw: bytes | Raw, wire: str = WIRE, key: str = "messages", note: Note = _raise) -> list[Message]:
    """Return a list of messages of a wire, without unreadable ones. Raises ``DecodeError`` when none is readable."""
    decode = wires.get(wire).decode_request

    def read(body: bytes) -> Sequence[Message]:
        return decode(body).messages

    try:
        whole = list(read(b'{"%b":%b}' % (key.encode(), bytes(raw))))
        _check_texts(raw)
        return whole
    except DecodeError as error:
        if note is _raise or jsontext.kind(raw) != "an array":
            raise
        first = error
    made: list[Message] = []
    notes: list[tuple[Literal["block", "unread"], str]] = []

    def later(kind: Literal["block", "unread"], why: str) -> None:
        notes.append((kind, why))

    for number, each in enumerate(jsontext.items(raw)):
        try:
            made += salvaged(read, b'{"%b":[%b]}' % (key.encode(), bytes(each)), NAME, later)
        except PalaverError as error:
            notes.append(("unread", f"message {number}: {error}"))
    if not made:
        raise first
    for kind, why in notes:
        note(kind, why)
    return made


def _check_texts(raw: bytes | Raw) -> None:
    """Check the texts that the wire skips when they have another type."""
    if any(b'"%b"' % key.encode() in bytes(raw) for key in batch.TEXTS):
        for each in jsontext.items(raw):
            message = as_object(each)
            for key in batch.TEXTS:
                string(message, key)


def column(fields: Fields, key: str, role: str, note: Note = _raise) -> list[Message]:
    """Return a column: a list of messages, or a text."""
    raw = fields.get(key)
    if raw is None or jsontext.is_null(raw):
        return []
    if jsontext.kind(raw) == "a string":
        return messages_of(jsontext.encode([{"role": role, "content": jsontext.text(raw)}]))
    if jsontext.kind(raw) == "an object":
        return messages_of(b"[%b]" % bytes(raw), note=note)
    return messages_of(raw, note=note)


def _of_messages(fields: Fields, note: Note) -> Said:
    return messages_of(fields["messages"], note=note), [], 0


def _of_message(fields: Fields, note: Note) -> Said:
    return messages_of(b"[%b]" % jsontext.encode(fields), note=note), [], 0


def _of_completion(fields: Fields, note: Note) -> Said:
    return [*column(fields, "prompt", "user", note), *column(fields, "completion", "assistant", note)], [], 0


def _of_chosen(fields: Fields, note: Note) -> Said:
    asked = column(fields, "prompt" if "prompt" in fields else "messages", "user", note)
    return _parted(
        [*asked, *column(fields, "chosen", "assistant", note)], [*asked, *column(fields, "rejected", "assistant", note)]
    )


def _of_preference(fields: Fields, note: Note) -> Said:
    asked = column(inner(fields, "input"), "messages", "user", note)
    chosen = column(fields, "preferred_output", "assistant", note)
    return _parted([*asked, *chosen], [*asked, *column(fields, "non_preferred_output", "assistant", note)])


def _of_batch(fields: Fields, note: Note) -> Said:
    wire = batch.wire_of_request(fields)
    if wire is None:
        found = batch.answers(fields, note)
        return found[:1], [[each] for each in found[1:]], 0
    body = inner(fields, "body")
    key = _LIST_OF[wire]
    found = messages_of(body[key], wire, key, note)
    return [*_instructions(body), *found] if wire == RESPONSES else found, [], 0


def _instructions(body: Fields) -> list[Message]:
    """Return the system message beside the messages of a request."""
    said = string(body, "instructions")
    return [] if said is None else [trusted.SystemMessage(content=(trusted.Text(said),))]


def _of_sharegpt(fields: Fields, note: Note) -> Said:
    def read(key: str) -> list[Message]:
        return sharegpt.read(sharegpt.with_answer(fields, key), lambda why: note("unread", why))

    if "chosen" not in fields and "rejected" not in fields:
        return sharegpt.read(fields, lambda why: note("unread", why)), [], 0
    return _parted(read("chosen"), read("rejected"))


def _of_alpaca(fields: Fields, note: Note) -> Said:
    del note
    before = alpaca.asked(fields)
    if "chosen" not in fields:
        return [*before, *alpaca.answer(fields, "output")], [], 0
    return _parted([*before, *alpaca.answer(fields, "chosen")], [*before, *alpaca.answer(fields, "rejected")])


def _parted(one: list[Message], other: list[Message]) -> Said:
    """Return two conversations with a common beginning."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return one, [other[shared:]] if other[shared:] else [], shared


_SHAPES: Final[Mapping[Shape, Callable[[Fields, Note], Said]]] = {
    "messages": _of_messages,
    "message": _of_message,
    "completion": _of_completion,
    "chosen": _of_chosen,
    "preference": _of_preference,
    "batch": _of_batch,
    "sharegpt": _of_sharegpt,
    "alpaca": _of_alpaca,
}
