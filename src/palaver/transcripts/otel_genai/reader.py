"""Read spans and lists of messages as conversations.

Rules (docs/spec/dialects.md#8):

- A list is one conversation. Spans make one for each ``gen_ai.conversation.id``, else for each trace: each span repeats
  the earlier messages, so its new ones follow the longest known beginning. If it differs from that, it is a branch.
  Reasoning does not count in the comparison: few programs repeat it.
- The main branch is the longest, of several the last.
- Several output messages are several answers: branches.
- The run of a tool (``execute_tool``) is the result of its call, after the last message, and also the call if no
  message has it.
- System instructions precede the input.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN
from palaver.transcripts import documents, original_bytes
from palaver.transcripts.calls import sum_after
from palaver.transcripts.conversation import Conversation, Session, derived_id
from palaver.transcripts.fields import split, string
from palaver.transcripts.otel_genai.shapes import FINISH, LISTS, NAME, Parts, Span, spans_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw

    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_SPAN: Final = frozenset(("attributes", "context", "traceId", "trace_id", "resourceSpans", *LISTS))
"""The marks of a span, with or without messages: most have none."""


class _New(NamedTuple):
    """A new message of a record: the key of the messages before it, and the key with it."""

    before: str
    said: str
    message: Message


class _Talk:
    """A conversation while it is read: its steps, and the entry of each known beginning."""

    def __init__(self, key: str, named: str | None) -> None:
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, key)
        self.conversation = Conversation(NAME, thread)
        self.said: dict[str, str | None] = {"": None}
        self.depths: dict[str, int] = {"": 0}
        self.longest: str = ""
        self.calls: set[str] = set()
        self.results: set[str | None] = set()
        self.session = Session(file_format=NAME, id=named)


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._talks: dict[str, _Talk] = {}
        self._last: _Talk | None = None

    def record(self, record: Record) -> Iterator[Step]:
        """Read the list, or the next span."""
        if record.fields is None:
            found = None if record.flaw is not None else documents.cut(record.raw)
            yield from self._odd(record) if found is None or found.tail is None else self._list(found)
            if found is not None and found.tail is None:
                self._watch.note("value", "a document that cannot be cut")
            return
        line = record.line if b"\n" not in record.raw.strip() else None
        spans = spans_of(record.fields, self._watch, line)
        if not spans:
            if not _SPAN & record.fields.keys():
                self._watch.note("record", "no span with messages", line)
            yield from self._odd(record)
            return
        yield from self._spans(record, spans, line)

    def end(self) -> Iterator[Step]:
        """End all conversations."""
        for talk in self._talks.values():
            longest = talk.conversation.tip(talk.said[talk.longest]) if talk.longest else talk.conversation.head
            yield talk.conversation.ended({MAIN: longest}, metadata=talk.session.metadata())

    def _talk(self, key: str | None) -> Iterator[Step]:
        named = key if key is not None else self._origin.name
        if named not in self._talks:
            self._talks[named] = _Talk(named, key)
            yield self._talks[named].conversation.began()
        self._last = self._talks[named]

    def _odd(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a record without messages."""
        if self._last is None:
            yield from self._talk(None)
        if self._last is not None:
            yield from self._last.conversation.record(record)

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _list(self, found: documents.Cut) -> Iterator[Step]:
        yield from self._odd(found.head)
        talk = self._last
        if talk is None or found.tail is None:
            return
        parts = Parts(None, self._watch, None)
        if found.items and all(item.fields and "role" not in item.fields for item in found.items):
            yield from self._instructions(talk, found.items, parts)
        else:
            for item in found.items:
                group = self._said(item, parts)
                if group:
                    yield from talk.conversation.join(group, [item])
                else:
                    self._watch.note("unread", "an item that is not a message")
                    yield from talk.conversation.record(item)
        yield from talk.conversation.record(found.tail)

    def _said(self, item: Record, parts: Parts) -> list[Message]:
        if item.fields is None or "role" not in item.fields:
            return []
        try:
            return parts.messages(item.fields)
        except PalaverError as error:
            self._watch.note("unread", str(error))
            return []

    def _instructions(self, talk: _Talk, items: Sequence[Record], parts: Parts) -> Iterator[Step]:
        try:
            message = parts.system([jsontext.raw(item.fields) for item in items])
        except PalaverError as error:
            self._watch.note("unread", str(error))
            for item in items:
                yield from talk.conversation.record(item)
        else:
            yield from talk.conversation.join([message], items)

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _spans(self, record: Record, spans: Sequence[Span], line: int | None) -> Iterator[Step]:
        yield from self._talk(spans[0].key)
        talk = self._last
        if talk is None:
            return
        if any(span.key != spans[0].key for span in spans):
            self._watch.note("link", "several conversations in one record", line)
        new: list[_New] = []
        for span in spans:
            try:
                if span.runs_tool:
                    new += self._tool_run(talk, span, line, new)
                else:
                    new += self._added(talk, span, line, {each.said for each in new})
            except PalaverError as error:
                self._watch.note("unread", str(error), line)
            talk.session = _told(talk.session, span)
        if not new:
            yield from talk.conversation.record(record)
            return
        group = original_bytes.keep(NAME, [each.message for each in new], [record])
        for each, message in zip(new, group, strict=True):
            parent = talk.said[each.before]
            yield from talk.conversation.join([message], parent=parent)
            talk.said[each.said] = talk.conversation.head
            talk.calls.update(call.id for call in message.tool_calls)
            if isinstance(message, ToolMessage):
                talk.results.add(message.tool_call_id)
            depth = talk.depths[each.said] = talk.depths[each.before] + 1
            if depth >= talk.depths[talk.longest]:
                talk.longest = each.said

    def _tool_run(self, talk: _Talk, span: Span, line: int | None, before: list[_New]) -> list[_New]:
        """Return the result of a tool that ran, and its call, after the last message, if they are new."""
        parts = Parts(span.wire, self._watch, line)
        named = string(span.attributes, "gen_ai.tool.call.id")
        messages = [each.message for each in before]
        calls = talk.calls | {call.id for message in messages for call in message.tool_calls}
        results = talk.results | {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
        said = before[-1].said if before else talk.longest
        new: list[_New] = []
        for message in (*_messages(span.input, parts), *_messages(span.output, parts)):
            if named in (results if isinstance(message, ToolMessage) else calls):
                continue
            now = sum_after(said, message)
            new.append(_New(said, now, _at(message, span.ended if isinstance(message, ToolMessage) else span.started)))
            said = now
        return new

    def _added(self, talk: _Talk, span: Span, line: int | None, adding: set[str]) -> list[_New]:
        """Return the new messages of a span."""
        parts = Parts(span.wire, self._watch, line)
        new: list[_New] = []
        said = ""
        before: list[Message] = [parts.system(span.system)] if span.system else []
        for message in (*before, *_messages(span.input, parts)):
            now = sum_after(said, message)
            if now not in talk.said and now not in adding:
                new.append(_New(said, now, _at(message, span.started)))
                adding.add(now)
            said = now
        for place, raw in enumerate(span.output):
            answer = said
            for message in _messages([raw], parts):
                now = sum_after(answer, message)
                if now not in talk.said and now not in adding:
                    new.append(_New(answer, now, _at(_answered(message, span, place), span.ended)))
                    adding.add(now)
                answer = now
        return new


def _messages(raws: Sequence[Raw], parts: Parts) -> Iterator[Message]:
    for raw in raws:
        if fields := split(raw):
            yield from parts.messages(fields)


def _at(message: Message, at: int | None) -> Message:
    return message if at is None or message.sent_at is not None else structs.replace(message, sent_at=at)


def _answered(message: Message, span: Span, place: int) -> Message:
    """Return an answer with the data of the span; the counters go to the first one."""
    if not isinstance(message, AssistantMessage):
        return message
    reason, raw = message.finish_reason, message.finish_reason_raw
    told = span.attributes.get("gen_ai.response.finish_reasons")
    reasons = jsontext.items(told) if told is not None and jsontext.kind(told) == "an array" else []
    if reason is None and len(reasons) > place and jsontext.kind(reasons[place]) == "a string":
        raw = jsontext.text(reasons[place])
        reason = FINISH.get(raw, "other")
    return structs.replace(
        message,
        model=message.model or span.model,
        usage=message.usage or (span.usage if place == 0 else None),
        response_id=message.response_id or string(span.attributes, "gen_ai.response.id"),
        agent=message.agent or string(span.attributes, "gen_ai.agent.name"),
        finish_reason=reason,
        finish_reason_raw=raw,
    )


def _told(session: Session, span: Span) -> Session:
    started = session.started_at if session.started_at is not None else span.started
    return structs.replace(session, model=span.model or session.model, started_at=started)
