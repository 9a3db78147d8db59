"""Files whose records are calls of a model: a request and its answer. The common part of such formats.

Rules:

- A transcript format gives a function that makes calls of a record. ``key`` names the conversation of a call; calls
  without one are conversations of their own.
- A call repeats the earlier messages of its conversation, so its new ones follow the longest known beginning. If it
  differs from that, it is a branch. Reasoning, usage and times do not count in the comparison: few programs repeat
  them. Further answers are branches. The main branch is the longest, of several the last.
- A message that is asked has the time at which its first call began, an answer that at which it ended.
- A file may be ``ordered``; else its calls are read in the order of their times, at its end.
- A file is lines, a list, or an object with a list at one of ``paths``. A record without calls keeps its place and its
  bytes, and is noted.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import AnyPart, Reasoning, ToolCall
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN
from palaver.transcripts import documents, original_bytes
from palaver.transcripts.conversation import Conversation, Session, derived_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from palaver.core.jsontext import Fields
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.detection import Head
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

Note: TypeAlias = Callable[[Literal["block", "unread"], str], None]
"""Counts a block or a message that cannot be read."""


class Call(Struct, frozen=True, kw_only=True):
    """A call of a model: the messages that were ``asked``, and its answers, of which there may be several.

    ``outer`` says that it is a whole run, which counts only when no call of the conversation is in the file, and no
    run around it: ``parent`` is the ``id`` of that.
    """

    asked: Sequence[Message] = ()
    answers: Sequence[Message] = ()
    key: str | None = None
    session: Session = Session()
    title: str | None = None
    started: int | None = None
    ended: int | None = None
    outer: bool = False
    id: str | None = None
    parent: str | None = None


Calls: TypeAlias = Callable[["Fields", Note], Sequence[Call]]
"""Returns the calls of a record. Raises ``PalaverError`` for one that cannot be read."""


def calls_reading(
    name: str, calls: Calls, *paths: str, ordered: bool = True
) -> Callable[[Origin, Watch], CallRecordReader]:
    """Return the reader of a format; ``paths`` are the keys of the list in a document that is an object."""
    return lambda _, watch: CallRecordReader(name, calls, paths, watch, ordered=ordered)


def first_record(head: Head, *paths: str) -> Mapping[str, Any]:
    """Return the first record at the beginning of a file: that of a list, under one of ``paths``, or of the lines."""
    fields = head.fields
    for path in paths:
        items: object = fields.get(path)
        first: object = cast("list[object]", items)[0] if isinstance(items, list) and items else None
        if isinstance(first, dict):
            return cast("dict[str, Any]", first)
    return next(iter(head.items), fields or head.first)


def sum_after(before: str, message: Message) -> str:
    """Return the key of a message after others, without fields that not every program repeats."""
    content = [part if isinstance(part, Reasoning) else _bare(part) for part in message.content]
    spoken = [part for part in content if not isinstance(part, Reasoning)] or content
    stored: Any = tuple(spoken)
    plain: Message = type(message)(content=stored) if stored else type(message)()
    if isinstance(message, ToolMessage):
        plain = structs.replace(plain, tool_call_id=message.tool_call_id)
    return original_bytes.sum_of([trusted.SystemMessage(agent=before), plain])


def _bare(part: AnyPart) -> AnyPart:
    """Return a part without what beside it differs between programs, as the spaces in arguments."""
    part = structs.replace(part, provider_json=UNSET)
    if not isinstance(part, ToolCall) or not jsontext.is_json(part.arguments_json):
        return part
    return structs.replace(part, arguments_json=jsontext.encode(jsontext.value(part.arguments_json)).decode())


class _New(Struct, frozen=True):
    """A new message of a record: the key of the messages before it, and the key with it."""

    before: str
    key: str
    message: Message


class _Talk:
    """A conversation while it is read: its steps, and the entry of each known beginning."""

    def __init__(self, name: str, key: str, call: Call) -> None:
        thread = key if is_uuid(key) else derived_id(name, key)
        self.conversation = Conversation(name, thread)
        self.entries: dict[str, str | None] = {"": None}
        self.depths: dict[str, int] = {"": 0}
        self.longest = ""
        self.session, self.title = call.session, call.title

    def new(self, call: Call) -> list[_New]:
        """Return the messages of a call that the conversation does not have yet."""
        found: dict[str, _New] = {}
        last = ""
        for message in call.asked:
            last = self._add(found, last, _dated(message, call.started))
        for message in call.answers:
            self._add(found, last, _dated(message, call.ended))
        return list(found.values())

    def _add(self, found: dict[str, _New], before: str, message: Message) -> str:
        key = sum_after(before, message)
        if key not in self.entries and key not in found:
            found[key] = _New(before, key, message)
        return key

    def joined(self, new: Sequence[_New], messages: Sequence[Message]) -> Iterator[Step]:
        """Yield the steps of new messages, with their records."""
        for each, message in zip(new, messages, strict=True):
            yield from self.conversation.join([message], ids=[message.id], parent=self.entries[each.before])
            self.entries[each.key] = self.conversation.head
            depth = self.depths[each.key] = self.depths[each.before] + 1
            if depth >= self.depths[self.longest]:
                self.longest = each.key

    def ended(self) -> Step:
        """Return the last step."""
        longest = self.conversation.tip(self.entries[self.longest]) if self.longest else self.conversation.head
        return self.conversation.ended({MAIN: longest}, title=self.title, metadata=self.session.metadata())


class CallRecordReader:
    """Reads one file."""

    def __init__(self, name: str, calls: Calls, paths: Sequence[str], watch: Watch, *, ordered: bool) -> None:
        """Start before the first record."""
        self._name = name
        self._calls = calls
        self._paths = paths
        self._watch = watch
        self._talks: dict[str, _Talk] = {}
        self._last: _Talk | None = None
        self._early: list[Record] = []  # those before the first call
        self._waiting: list[tuple[Record, Sequence[Call]]] | None = None if ordered else []

    def record(self, record: Record) -> Iterator[Step]:
        """Read a line, or a document."""
        cut = self._cut(record)
        if cut is None:
            yield from self._record(record)
            return
        yield from self._aside(cut.head)
        for item in cut.items:
            yield from self._record(item)
        if cut.tail is not None:
            yield from self._aside(cut.tail)

    def end(self) -> Iterator[Step]:
        """End all conversations."""
        yield from self._in_order()
        if self._early:
            yield from self._talk("", Call(session=Session(file_format=self._name)))
        for talk in self._talks.values():
            yield talk.ended()

    def _cut(self, record: Record) -> documents.Cut | None:
        """Return a document in pieces; ``None`` for a line, or an object without a list of records."""
        if record.at != 0 or record.flaw is not None:
            return None
        paths = [()] if record.fields is None else [(path,) for path in self._paths if path in record.fields]
        cuts = (documents.cut(record.raw, *path) for path in paths)
        return next((cut for cut in cuts if cut.tail is not None), None)

    def _record(self, record: Record) -> Iterator[Step]:
        line = record.line if b"\n" not in record.raw.strip() else None
        calls: Sequence[Call] = ()
        if record.fields is None:
            if record.flaw is None:
                self._watch.note("unread", "a record that is not an object", line)
        else:
            try:
                calls = self._calls(record.fields, lambda kind, why: self._watch.note(kind, why, line))
            except PalaverError as error:
                self._watch.note("unread", str(error), line)
        if self._waiting is None:
            yield from self._take(record, calls)
        else:
            self._waiting.append((record, calls))

    def _in_order(self) -> Iterator[Step]:
        """Yield the steps of all calls by their times, without those of a run that has calls inside it."""
        waiting, self._waiting = self._waiting or [], None
        every = [call for _, calls in waiting for call in calls]
        inner, ids = {call.key for call in every if not call.outer}, {call.id for call in every if call.id is not None}
        for record, calls in sorted(waiting, key=lambda each: min((call.started or 0 for call in each[1]), default=0)):
            counted = [call for call in calls if not call.outer or (call.key not in inner and call.parent not in ids)]
            yield from self._take(record, sorted(counted, key=lambda call: call.started or 0))

    def _take(self, record: Record, calls: Iterable[Call]) -> Iterator[Step]:
        """Yield the steps of the calls of a record, which stays with the first new message."""
        kept = False
        for place, call in enumerate(calls):
            yield from self._talk(call.key or derived_id(self._name, record.at, place, record.raw), call)
            talk = self._last
            new = [] if talk is None else talk.new(call)
            if talk is None or not new:
                continue
            messages: Sequence[Message] = [each.message for each in new]
            if not kept:
                messages = original_bytes.keep(self._name, messages, [record])
            kept = True
            yield from talk.joined(new, messages)
        if not kept:
            yield from self._aside(record)

    def _talk(self, key: str, call: Call) -> Iterator[Step]:
        if key not in self._talks:
            self._talks[key] = _Talk(self._name, key, call)
            yield self._talks[key].conversation.began()
        self._last = self._talks[key]
        early, self._early = self._early, []
        for record in early:
            yield from self._aside(record)

    def _aside(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a record without new messages."""
        if self._last is None:
            self._early.append(record)
        else:
            yield from self._last.conversation.record(record)


def _dated(message: Message, at: int | None) -> Message:
    return message if at is None or message.sent_at is not None else structs.replace(message, sent_at=at)


def answered(message: AssistantMessage, **beside: Any) -> AssistantMessage:
    """Return an answer with data from beside it, where it has none of its own."""
    lacking = {name: value for name, value in beside.items() if value is not None and getattr(message, name) is None}
    return structs.replace(message, **lacking) if lacking else message
