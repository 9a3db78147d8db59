"""Files whose records are messages: a list, a single message, or one on each line. The common part of such formats.

Rules (docs/spec/message-fields.md#5):

- A transcript format is a ``Form``: ``plain`` reads a record, ``write_record`` writes one. Import and export of what a
  form can express give equal JSON: contents of a record beyond the neutral fields are kept under
  ``provider[form.extra]`` of its message or part. ``"-"`` there lists keys that we would write and the record lacked.
- Export and import of any message give the same message except for what the receipt names. For that, each written
  record is read again and compared: a difference is a loss.
- If the form allows foreign keys, what it cannot represent is carried (``extension_slot``); it is still a loss for the
  program, and named as ``converted``.
- A record that cannot be read as a message keeps its place and its bytes.

Stability: experimental.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import Inline, Json, MalformedToolCall, Refusal, ToolCall, Url
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.conversation import Conversation, Session, derived_id
from palaver.transcripts.detection import Detection, word
from palaver.transcripts.fields import as_json, split, value
from palaver.transcripts.record import Record
from palaver.transcripts.unknown_fields import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart, Media
    from palaver.core.request import LossKind
    from palaver.core.value import Value
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.detection import Head
    from palaver.transcripts.format import Origin
    from palaver.transcripts.writer import WriteState

ABSENT: Final = "-"
"""The key beside a message or part that lists the keys which its record lacked."""

ALONE: Final = documents.TAIL - 1
"""The number of a message that is its whole document: no item of a list has it."""

_DEFAULTS: Final = frozenset((b"null", b'""', b"[]", b"{}", b"0", b"false"))
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DATA: Final = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)
_NEVER_TOLD: Final = frozenset(("content", "id", "extra"))
_ONCE: Final = frozenset(("sent_at", "agent", "mode"))


class Receipt:
    """The losses of one record while it is written: kind, name, reason, message of the record, part."""

    def __init__(self) -> None:
        """Start without losses."""
        self.losses: list[tuple[LossKind, str, str, int, int | None]] = []

    def lose(self, kind: LossKind, what: str, why: str, part: int | None = None, message: int = 0) -> None:
        """Note one loss."""
        self.losses.append((kind, what, why, message, part))

    def text_for(self, part: AnyPart, index: int, message: int = 0) -> str | None:
        """Return the text that stands for a part that the form cannot represent; ``None`` when there is none."""
        match part:
            case Refusal():
                text = part.text
            case Json():
                text = bytes(part.value_json).decode()
            case MalformedToolCall():
                text = part.raw
            case _:
                self.lose("dropped", tag_of(part), "the format has no such part", index, message)
                return None
        self.lose("converted", tag_of(part), "written as text", index, message)
        return text

    def arguments(self, call: ToolCall, index: int, message: int = 0) -> Raw:
        """Return the arguments of a call as an object; other values are put into one."""
        text = call.arguments_json.strip() or "{}"
        if not call.custom and text.startswith("{") and jsontext.is_json(text):
            return as_json(text)
        self.lose("converted", "arguments", "the format takes an object only", index, message)
        stored = as_json(text) if jsontext.is_json(text) else jsontext.raw(text)
        return jsontext.raw({"input": stored})


class Form(ABC):
    """The messages of a transcript format. Made for one file, so that it can remember its calls."""

    name: ClassVar[str]
    extra: ClassVar[str]
    """The key under ``provider`` for contents beyond the neutral fields."""
    keys: ClassVar[frozenset[str]]
    """The keys that are read into neutral fields."""
    always: ClassVar[frozenset[str]] = frozenset()
    """The keys that every written record has."""
    paths: ClassVar[tuple[tuple[str, ...], ...]] = ((),)
    """The paths of the list in a document."""
    lines: ClassVar[bool] = False
    """Whether a file has one message on each line, and no brackets."""
    unsupported: ClassVar[Mapping[str, str]] = {}
    """Fields that no record of the form has; reported once a file. Field: reason."""

    def __init__(self, watch: Watch) -> None:
        """Start without calls."""
        self.watch = watch
        self.line: int | None = None
        self.title: str | None = None
        """The title of the conversation, known at the end."""
        self.tools: dict[str, str] = {}

    @abstractmethod
    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record, without carried data; empty when it is not a message.

        Raises ``DecodeError`` for invalid values.
        """

    @abstractmethod
    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of messages that share one; ``None`` when the form has no such message."""

    def id_of(self, fields: Fields) -> str | None:  # noqa: ARG002 (most forms have none)
        """Return the id of a record."""
        return None

    def open(self, document: Fields, origin: Origin, session: Session) -> Session:  # noqa: ARG002 (for forms that do)
        """Look at the fields of a document, and at the files beside it."""
        return session

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:  # noqa: ARG002 (for forms that do)
        """Look at all records of a document before the first is read."""
        return session

    def slot(self, fields: Fields) -> Any:
        """Return the carried data of a record."""
        return value(fields, extension_slot.SLOT)

    def carry(self, record: dict[str, Any], slot: dict[str, Any]) -> None:
        """Add carried data to a record."""
        record[extension_slot.SLOT] = slot

    def holds(self, message: Message) -> bool:  # noqa: ARG002 (for forms that lack some)
        """Return whether a record can be such a message; else it is only carried by the record of another."""
        return True

    def start(self, writing: WriteState) -> None:  # noqa: B027 (most forms need nothing)
        """Look at the conversation before its first record is written."""

    def head(self, writing: WriteState) -> bytes:  # noqa: ARG002 (for forms with fields around the list)
        """Return the text before the first record of a new document, or the first line."""
        return b"" if self.lines else b"["

    def tail(self) -> bytes:
        """Return the text behind the last record of a new document."""
        return b"]"

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Split entries into groups that share records."""
        for entry in entries:
            yield (entry,)

    def packs(self, group: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Split a group into parts that share one record."""
        yield group

    def behind(self, group: Sequence[Entry]) -> Iterator[dict[str, Any]]:  # noqa: ARG002 (for forms that have some)
        """Yield records that follow those of a group, and have no messages of their own."""
        return iter(())

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, fields: Fields, line: int | None) -> list[Message]:
        """Return the messages of a record, with carried data. Raises ``DecodeError`` as ``plain`` does."""
        self.line = line
        plain = self.plain(fields)
        slot = self.slot(fields)
        restored = None if slot is None else extension_slot.restored(plain, slot)
        if restored is None:
            return plain
        self.know(restored)
        at = plain[0].sent_at if plain else None
        return [structs.replace(each, sent_at=at) if each.sent_at is None else each for each in restored]

    def know(self, messages: Sequence[Message]) -> None:
        """Remember the calls of carried messages: in the file they may have other ids."""
        self.tools.update((call.id, call.name) for each in messages for call in each.tool_calls)

    def rest(self, fields: Fields, *, leave: Collection[str] = ()) -> dict[str, Any]:
        """Return the contents of a record beyond the neutral fields, without the keys in ``leave``."""
        self.watch.keys(fields, self.keys | {extension_slot.SLOT}, "message", self.line)
        stored: dict[str, Any] = {
            key: jsontext.own(raw)
            for key, raw in fields.items()
            if key not in self.keys and key not in leave and key != extension_slot.SLOT
        }
        absent = sorted(self.always - fields.keys())
        return {**stored, ABSENT: absent} if absent else stored

    def with_rest(self, record: dict[str, Any], stored: Fields) -> dict[str, Any]:
        """Restore a record's contents beyond the neutral fields, unless other values have replaced them."""
        absent: list[str] = value(stored, ABSENT) or []
        for key, raw in stored.items():
            if key != ABSENT and (key not in record or _is_default(record[key])):
                record[key] = raw
        for key in absent:
            if key in record and _is_default(record[key]):
                del record[key]
        return record


def message_classes(
    user: str = "user", assistant: str = "assistant", tool: str = "tool", system: str = "system"
) -> dict[str, type[Any]]:
    """Return the message classes of each role, by the form's names of the roles."""
    return {user: UserMessage, assistant: AssistantMessage, tool: ToolMessage, system: SystemMessage}


def document_reading(form: Callable[[Watch], Form]) -> Callable[[Origin, Watch], DocumentRecordReader]:
    """Return the reader of documents of a form."""
    return lambda origin, watch: DocumentRecordReader(form(watch), origin)


def line_reading(form: Callable[[Watch], Form]) -> Callable[[Origin, Watch], LineRecordReader]:
    """Return the reader of lines of a form."""
    return lambda origin, watch: LineRecordReader(form(watch), origin)


def list_rendering(form: Callable[[Watch], Form]) -> Callable[[WriteState], ListRecordWriter]:
    """Return the writer of documents or lines of a form."""
    return lambda writing: ListRecordWriter(form, writing)


def with_next(entries: Sequence[Entry], holds: Callable[[Message], bool]) -> Iterator[Sequence[Entry]]:
    """Group each entry alone; those that cannot stand alone with the next that can, or with the last one."""
    group: list[Entry] = []
    last = max((place for place, entry in enumerate(entries) if holds(entry.message)), default=-1)
    for place, entry in enumerate(entries):
        group.append(entry)
        if holds(entry.message) and place != last:
            yield group
            group = []
    if group:
        yield group


def tag_of(part: AnyPart) -> str:
    """Return the name of a kind of part."""
    return cast("str", type(part).__struct_config__.tag)


def _is_default(item: object) -> bool:
    return (bytes(item) if isinstance(item, Raw) else jsontext.encode(item)) in _DEFAULTS


def stored(of: Value, key: str) -> Fields:
    """Return the fields of a message or part under ``provider[key]``."""
    if of.provider_json is UNSET:
        return {}
    raw = jsontext.fields(of.provider_json).get(key)
    return {} if raw is None else split(raw)


def built(cls: type[Any], **fields: Any) -> Message:
    """Return a message of a class from a table."""
    made: Message = cls(**fields)
    return made


def provider_of(fields: Mapping[str, Any]) -> Any:
    """Return ``provider_json`` of kept fields, by name, with sorted keys; unset when all are empty."""
    full = {name: {key: each[key] for key in sorted(each)} for name, each in fields.items() if each}
    return jsontext.raw(full) if full else UNSET


def known_messages(head: Head, roles: Collection[str]) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Return the messages with these roles at the beginning of a document, and whether they are most of it."""
    found = head.items or ((head.fields,) if head.fields else ())
    known = [each for each in found if word(each, "role") in roles]
    return known, bool(known) and len(known) * 2 >= len(found)


def empty(head: Head) -> Detection | None:
    """Detect an empty list, which any transcript format of lists may have."""
    return Detection(0.2) if head.data.strip() == b"[]" else None


# -- media as one text -------------------------------------------------------------------------------------------------


def source_of(text: str) -> tuple[Inline | Url, str | None, str] | None:
    """Return the source of media in a data URI, a URL or base64: source, media type, and the text before the base64.

    ``None`` for a data URI that is not base64.
    """
    if found := _DATA.match(text):
        return trusted.Inline(text[found.end() :]), found[1] or None, found[0]
    if text[:5].lower() == "data:":
        return None
    return (trusted.Url(text), None, "") if _SCHEME.match(text) else (trusted.Inline(text), None, "")


def text_of(part: Media, before: str | None) -> str | None:
    """Return media as one text; ``before`` as it was read, else a data URI if the type is known.

    ``None`` for a text that would be read as something else.
    """
    match part.source:
        case Url():
            return part.source.url if _SCHEME.match(part.source.url) else None
        case Inline() if part.source.valid:
            if before is None:
                before = "" if part.media_type is None else f"data:{part.media_type};base64,"
            return before + part.source.data
        case _:
            return None


# -- reading -----------------------------------------------------------------------------------------------------------


class _RecordReader:
    """The common part of reading documents and lines."""

    def __init__(self, form: Form, origin: Origin) -> None:
        self._form = form
        self._origin = origin
        self._conversation: Conversation | None = None
        self._session = Session(file_format=form.name)

    def end(self) -> Iterator[Step]:
        """End the conversation at the end of its file."""
        if self._conversation is not None:
            yield self._conversation.ended(title=self._form.title, metadata=self._session.metadata())

    def _started(self, first: bytes) -> Conversation:
        thread = derived_id(self._form.name, self._session.id or self._origin.name, len(first), first)
        return Conversation(self._form.name, thread)

    def _take(self, conversation: Conversation, record: Record, line: int | None) -> Iterator[Step]:
        fields = record.fields
        messages: list[Message] = []
        if fields is not None:
            try:
                messages = self._form.read(fields, line)
            except PalaverError as error:
                self._form.watch.note("unread", str(error), line)
        if not messages:
            yield from conversation.record(record)
            return
        named = None if fields is None else self._form.id_of(fields)
        yield from conversation.join(messages, [record], ids=[named])


class DocumentRecordReader(_RecordReader):
    """Reads a list of messages, or a single message."""

    _key = ""
    """The key of the list."""

    def record(self, record: Record) -> Iterator[Step]:
        """Cut the document, and read its items."""
        data = record.raw
        cut = self._cut(data)
        alone = None if cut.tail is not None else self._alone(data)
        items = [*cut.items] if alone is None else [alone]
        self._session = self._form.open(documents.fields_of(data), self._origin, self._session)
        self._session = self._form.begin([item.fields for item in items], self._session)
        self._conversation = conversation = self._started(items[0].raw if items else data)
        yield conversation.began()
        if alone is None:
            yield from conversation.record(cut.head)
        if cut.tail is None and alone is None:
            self._form.watch.note("garbage", "")
        for item in items:
            if item.fields is None:
                self._form.watch.note("unread", f"an item of {self._key or 'the list'} that is no object")
            yield from self._take(conversation, item, None)
        if cut.tail is not None:
            yield from conversation.record(cut.tail)

    def _cut(self, data: bytes) -> documents.Cut:
        whole = documents.Cut(Record(0, 1, data))
        try:
            jsontext.source(data)
        except DecodeError:
            return whole
        for path in self._form.paths:
            cut = documents.cut(data, *path)
            if cut.tail is not None:
                self._key = path[-1] if path else ""
                return cut
        return whole

    def _alone(self, data: bytes) -> Record | None:
        """Return the document as a single message."""
        fields = documents.fields_of(data)
        return Record(ALONE, 1, data, fields) if "role" in fields else None


class LineRecordReader(_RecordReader):
    """Reads one message from each line."""

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next line."""
        if self._conversation is None:
            self._session = self._form.begin([record.fields], self._session)
            self._conversation = self._started(record.raw)
            yield self._conversation.began()
        yield from self._take(self._conversation, record, record.line)


# -- writing -----------------------------------------------------------------------------------------------------------


class ListRecordWriter:
    """Writes messages as records."""

    def __init__(self, form: Callable[[Watch], Form], writing: WriteState) -> None:
        """Start; the calls of the conversation are known already."""
        self._writing = writing
        self._form = form(Watch())
        self._form.tools.update(
            (part.id, part.name)
            for entry in writing.entries
            for part in entry.message.content
            if isinstance(part, ToolCall)
        )
        writing.whole = True
        self._form.start(writing)
        numbers = [original_bytes.numbers_of(entry.message, writing.file_format) for entry in writing.entries]
        self._alone = writing.native and [each for each in numbers if each] == [(ALONE,)] and self._all_native()

    def _all_native(self) -> bool:
        return all(self._writing.is_native(entry.id) for entry in self._writing.entries)

    def groups(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Group entries as the form does."""
        return self._form.groups(entries)

    def head(self) -> Iterator[bytes]:
        """Yield the text before the list; nothing for a single message."""
        if head := self._form.head(self._writing):
            yield b"" if self._alone else head

    def tail(self, old: bytes | None) -> bytes:
        """Return the text behind the list."""
        return old if old is not None else b"" if self._alone else self._form.tail()

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:  # noqa: ARG002 (laid over later)
        """Yield the records of a group."""
        for pack in self._form.packs(group):
            record = self._record(pack)
            if record is not None:
                yield jsontext.encode(record)
        for each in self._form.behind(group):
            yield jsontext.encode(each)

    def _record(self, entries: Sequence[Entry]) -> dict[str, Any] | None:
        receipt = Receipt()
        record = self._form.write_record(entries, receipt)
        if record is None:
            for entry in entries:
                self._writing.lose("dropped", entry.message.role, "the format has no such message", entry)
            return None
        messages = [extension_slot.without_records(entry.message) for entry in entries]
        plain = self._form.plain(jsontext.fields(jsontext.encode(record)))
        slot = extension_slot.carried(messages, plain) if self._writing.options.carry else None
        if slot is not None:
            self._form.carry(record, slot)
            # A lone surrogate in carried data makes the record one that is read another way, which drops spaces.
            plain = self._form.plain(jsontext.fields(jsontext.encode(record)))
            slot = extension_slot.carried(messages, plain) or slot
            self._form.carry(record, slot)
            self._form.know(messages)
        for place, entry in enumerate(entries):
            told = [each for each in receipt.losses if each[3] == place]
            for kind, what, why, _, part in told:
                self._writing.lose("converted" if slot is not None else kind, what, why, entry, part)
            if not self._form.holds(entry.message):
                kind = "dropped" if slot is None else "converted"
                self._writing.lose(kind, entry.message.role, "the format has no such message", entry)
                continue
            number = sum(self._form.holds(each.message) for each in entries[:place])
            said = plain[number] if number < len(plain) else None
            parts = {part for *_, part in told if part is not None}
            self._compare(entry, messages[place], said, parts, carried=slot is not None)
        return record

    def _compare(self, entry: Entry, message: Message, said: Message | None, told: set[int], *, carried: bool) -> None:
        """Report what a record lacks of a message."""
        lose = self._writing.lose
        for what, why in self._form.unsupported.items():
            if getattr(message, what) is not None:
                lose("dropped", what, why)
        if said is None:
            lose("dropped", message.role, "it cannot be read again", entry)
            return
        if said.role != message.role:
            lose("converted", message.role, f"written as {said.role}", entry)
        kind: LossKind = "converted" if carried else "dropped"
        for name in type(message).__struct_fields__:
            if name in _NEVER_TOLD or _same(getattr(message, name), getattr(said, name, None)):
                continue
            if name in self._form.unsupported:
                continue
            what = name.removesuffix("_json")
            if name in _ONCE and (name == "sent_at" or getattr(message, name) is None):
                lose("approximated", what, "the format needs it, or has it less exactly")
            else:
                lose(kind, what, "carried along" if carried else "the format has no place for it", entry)
        known = extension_slot.Known(said.content)
        for place, part in enumerate(message.content):
            if place not in told and part not in known:
                lose("converted" if carried else "approximated", tag_of(part), "written only in part", entry, place)
        if not told and message.content != said.content and all(part in known for part in message.content):
            lose("converted" if carried else "approximated", "content", "parts are written in another order", entry)


def _same(one: object, other: object) -> bool:
    if isinstance(one, Raw) and isinstance(other, Raw):
        return jsontext.equal(one, other)
    return one == other
