"""AG-UI, read: lists of messages, and streams of events as JSON lines or as an event stream (SSE).

Rules (docs/spec/dialects.md#12):

- A response is open until an event of something else arrives; records between its events belong to it. ``RUN_FINISHED``
  gives the counters of its run to the response that is open then.
- A list that begins with the earlier messages adds the rest (``RUN_STARTED.input``, ``MESSAGES_SNAPSHOT``, a whole
  ``RunAgentInput``). Any other list replaces the earlier messages: these are hidden, and the list follows; its messages
  that occurred before have ``source="compaction"`` there.
- In a stream a sub-agent has a thread of its own; in a list it is a branch, named ``subagent-<id>``.
- Events before 1.0 (``THINKING_…``) are reasoning.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.threads.ids import is_uuid
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.ag_ui import shapes
from palaver.transcripts.ag_ui.shapes import EVENTS, NAME, ROLES, SPOKEN, VERSION, Piece, Response
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import inner, listed, read_time, split, string, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_FIELDS_OF_STREAMS: Final = (b"event:", b"id:", b"retry:", b":")


class _Talk:
    """A conversation, or the branch of a sub-agent in one."""

    def __init__(self, conversation: Conversation, session: Session) -> None:
        self.conversation = conversation
        self.session = session
        self.head: str | None = None
        self.open: Response | None = None
        self.keys: list[str] = []
        self.last: dict[str, str] = {}


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._talks: dict[tuple[str | None, str | None], _Talk] = {}
        self._thread: str | None = None
        self._names: dict[str, str] = {}
        self._document = False
        self._turns = 0
        self._early: list[Record] = []

    def expects(self, record: Record) -> bool:
        """Return whether a line that is not an object is part of an event stream."""
        body = record.raw.strip()
        return event_of(record) is not None or body.startswith(_FIELDS_OF_STREAMS)

    def record(self, record: Record) -> Iterator[Step]:
        """Read the list, or the next event."""
        fields = event_of(record)
        if fields is None and record.flaw is None:
            yield from self._list(documents.cut(record.raw))
        elif fields is None and not self._talks:
            self._early.append(record)
        elif fields is None:
            yield from self._passed(self._known(), record)
        elif record.flaw is None and "messages" in fields and b"\n" in record.raw.strip():
            self._opened(fields)
            yield from self._list(documents.cut(record.raw, "messages"))
        else:
            try:
                yield from self._event(record, fields)
            except PalaverError as error:
                self._watch.note("unread", str(error), record.line)
                yield from self._passed(self._known(), record)

    def end(self) -> Iterator[Step]:
        """End all conversations."""
        if self._early:
            yield from self._talk(self._known())
        ended: dict[str, tuple[_Talk, dict[str, str | None]]] = {}
        for (_, sub), talk in self._talks.items():
            yield from self._close(talk)
            first, heads = ended.setdefault(talk.conversation.thread, (talk, {}))
            heads["main" if talk is first else f"subagent-{sub}"] = talk.head
        for talk, heads in ended.values():
            named = {name: talk.conversation.tip(head) for name, head in heads.items() if head is not None}
            yield talk.conversation.ended(named, metadata=talk.session.metadata())

    # -- conversations -------------------------------------------------------------------------------------------------

    def _known(self, sub: str | None = None) -> _Talk | tuple[str | None, str | None]:
        key = (self._thread, sub)
        return self._talks.get(key, key)

    def _talk(self, found: _Talk | tuple[str | None, str | None]) -> Iterator[Step]:
        """Yield a conversation, which is started if it is new."""
        if isinstance(found, _Talk):
            return
        thread, sub = found
        session = Session(file_format=NAME, id=thread)
        main = thread if thread is not None and is_uuid(thread) else derived_id(NAME, thread or self._origin.name)
        if sub is None or not self._document:
            named = main if sub is None else derived_id(NAME, main, sub)
            if sub is not None:
                session = Session(file_format=NAME, id=sub, parent=main)
            talk = _Talk(Conversation(NAME, named), session)
            yield talk.conversation.began()
        else:
            yield from self._talk(self._known())
            talk = _Talk(self._talks[thread, None].conversation, session)
        self._talks[found] = talk
        early, self._early = self._early, []
        for record in early:
            yield from self._passed(talk, record)

    def _opened(self, fields: Fields) -> None:
        """Note the thread of a run."""
        self._thread = string(fields, "threadId") or self._thread
        version = string(fields, "protocolVersion")
        if version is not None and version != VERSION:
            self._watch.note("version", version)

    def _passed(self, found: _Talk | tuple[str | None, str | None], record: Record) -> Iterator[Step]:
        """Yield the steps of a record without messages: it belongs to the open response."""
        yield from self._talk(found)
        talk = found if isinstance(found, _Talk) else self._talks[found]
        if talk.open is not None:
            talk.open.records.append(record)
            return
        for step in talk.conversation.record(record, parent=talk.head):
            talk.head = step.entry.id
            yield step

    def _join(
        self, talk: _Talk, group: Sequence[Message], records: Sequence[Record], ids: Sequence[str | None]
    ) -> Iterator[Step]:
        for step in talk.conversation.join(group, records, ids=ids, parent=talk.head):
            talk.head = step.entry.id
            talk.keys.append(_key(step.entry.message))
            yield step

    def _close(self, talk: _Talk) -> Iterator[Step]:
        response, talk.open = talk.open, None
        if response is None:
            return
        message = response.message
        yield from self._join(talk, [message], response.records, [response.id])

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _list(self, found: documents.Cut) -> Iterator[Step]:
        self._document = True
        if found.tail is None:
            self._watch.note("value", "a document that cannot be cut")
        yield from self._passed(self._known(), found.head)
        for item in found.items:
            fields = item.fields or {}
            sub = self._known(string(fields, "subagentRunId"))
            yield from self._talk(sub)
            talk = sub if isinstance(sub, _Talk) else self._talks[sub]
            yield from self._item(talk, item, fields)
        if found.tail is not None:
            main = self._talks[self._thread, None]
            for talk in self._talks.values():
                yield from self._close(talk)
            yield from self._passed(main, found.tail)

    def _item(self, talk: _Talk, item: Record, fields: Fields) -> Iterator[Step]:
        role, kind = string(fields, "role") or "", string(fields, "type") or ""
        known = None if kind in EVENTS and kind else ROLES.get(role)  # the start of a message has a role, too
        if known is None:
            what = f"a message of role {role}" if not kind else f"{kind}: events are read one to a line, not in a list"
            self._watch.note("unread", what)
            yield from self._passed(talk, item)
            return
        self._watch.keys(fields, known, role)
        if role in {"assistant", "reasoning"}:
            if talk.open is not None and not shapes.goes_on(talk.open, fields):
                yield from self._close(talk)
            talk.open = talk.open or Response()
            talk.open.records.append(item)
            shapes.told(talk.open, fields)
            self._named(talk.open)
            return
        try:
            message = self._plain(fields, None)
        except PalaverError as error:
            self._watch.note("unread", str(error))
            message = None
        if message is None:
            yield from self._passed(talk, item)
            return
        yield from self._close(talk)
        yield from self._join(talk, [message], [item], [string(fields, "id")])

    def _plain(self, fields: Fields, line: int | None) -> Message | None:
        plain = shapes.plain_message(fields, self._names, self._watch, line)
        slot = shapes.slot_of(fields)
        found = None if slot is None or plain is None else extension_slot.restored([plain], slot)
        return found[0] if found else plain

    def _named(self, response: Response) -> None:
        self._names |= {piece.id: piece.name for piece in response.pieces if piece.kind == "call"}

    def _whole(self, talk: _Talk, record: Record, raws: Sequence[Raw]) -> Iterator[Step]:
        """Yield the steps of a list in one record: it adds to the earlier messages, or replaces them."""
        yield from self._close(talk)
        units = list(self.units(raws, record.line))
        keys = [_key(message) for message, _, _ in units]
        if keys[: len(talk.keys)] == talk.keys:
            units = units[len(talk.keys) :]
            if not units:
                yield from self._passed(talk, record)
                return
            group, ids = [message for message, _, _ in units], [named for _, named, _ in units]
            yield from self._join(talk, group, [record], ids)
            return
        said = set(talk.keys)
        copies = [
            structs.replace(message, source=COMPACTION) if key in said and message.source is None else message
            for (message, _, _), key in zip(units, keys, strict=True)
        ]
        talk.keys = []
        yield from self._join(talk, [record_message(), hidden_before(), *copies], [record], ())
        talk.keys = keys

    def units(self, raws: Sequence[Raw], line: int | None) -> Iterator[tuple[Message, str | None, list[Raw]]]:
        """Yield the messages of a list, each with its id and its source."""
        response, told = Response(), list[Raw]()
        for raw in raws:
            fields = split(raw)
            role = string(fields, "role") or ""
            if role not in ROLES:
                self._watch.note("unread", f"a message of role {role}", line)
                continue
            self._watch.keys(fields, ROLES[role], role, line)
            if role not in {"assistant", "reasoning"} or (told and not shapes.goes_on(response, fields)):
                if told:
                    yield response.message, response.id, told
                response, told = Response(), []
            if role in {"assistant", "reasoning"}:
                shapes.told(response, fields)
                self._named(response)
                told.append(raw)
            elif (message := self._plain(fields, line)) is not None:
                yield message, string(fields, "id"), [raw]
        if told:
            yield response.message, response.id, told

    # -- events --------------------------------------------------------------------------------------------------------

    def _event(self, record: Record, fields: Fields) -> Iterator[Step]:
        kind = string(fields, "type") or ""
        if kind not in EVENTS or (not kind and "messages" not in fields):
            self._watch.note("record", kind or "without a type", record.line)
        else:
            self._watch.keys(fields, EVENTS[kind], kind or "RunAgentInput", record.line)
        if kind in {"RUN_STARTED", ""} and string(fields, "threadId"):
            if (open_ := self._talks.get((self._thread, None))) is not None:
                yield from self._close(open_)
            self._opened(fields)
        sub = string(fields, "subagentRunId")
        found = self._known(sub)
        yield from self._talk(found)
        talk = found if isinstance(found, _Talk) else self._talks[found]
        at = read_time(value(fields, "timestamp"))
        match kind:
            case "MESSAGES_SNAPSHOT":
                yield from self._whole(talk, record, listed(fields, "messages"))
            case "RUN_STARTED" if "input" in fields:
                yield from self._whole(talk, record, listed(inner(fields, "input"), "messages"))
            case "" if "messages" in fields:
                yield from self._whole(talk, record, listed(fields, "messages"))
            case "RUN_STARTED" | "STEP_STARTED":
                yield from self._close(talk)
                yield from self._passed(talk, record)
            case "RUN_FINISHED" | "RUN_ERROR" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
                yield from self._finished(talk, record, fields)
            case "TOOL_CALL_RESULT":
                yield from self._close(talk)
                message = shapes.result(fields, self._names, self._watch, record.line)
                slot = shapes.slot_of(fields)
                restored = None if slot is None else extension_slot.restored([message], slot)
                given = structs.replace(restored[0] if restored else message, sent_at=at)
                yield from self._join(talk, [given], [record], [string(fields, "messageId")])
            case _:
                if kind == "SUBAGENT_STARTED":
                    session = structs.replace(talk.session, call=string(fields, "parentToolCallId"))
                    talk.session = structs.replace(session, agent=string(fields, "name"))
                if kind.startswith(SPOKEN):
                    yield from self._spoken(talk, kind, fields, at)
                yield from self._passed(talk, record)
                if kind == "TEXT_MESSAGE_END" and talk.open is not None and talk.open.role != "assistant":
                    yield from self._close(talk)

    def _finished(self, talk: _Talk, record: Record, fields: Fields) -> Iterator[Step]:
        if isinstance(talk.open, Response) and talk.open.role == "assistant":
            talk.open.usage, talk.open.model = shapes.usage_of(listed(fields, "usage"))
            if string(fields, "type") in {"RUN_ERROR", "SUBAGENT_ERROR"}:
                talk.open.error = string(fields, "message") or ""
        yield from self._passed(talk, record)
        yield from self._close(talk)

    def _spoken(self, talk: _Talk, kind: str, fields: Fields, at: int | None) -> Iterator[Step]:
        """Yield the steps of an event of a message."""
        family, _, step = kind.rpartition("_")
        if kind == "REASONING_ENCRYPTED_VALUE":
            self._sealed(talk, fields)
            return
        if family in {"REASONING", "THINKING"}:
            if family == "THINKING" and step == "START":
                self._turns += 1
            return
        which = {"TEXT_MESSAGE": "text", "TOOL_CALL": "call"}.get(family, "reasoning")
        key = "toolCallId" if which == "call" else "messageId"
        named = string(fields, key) or (talk.last.get(which) if step == "CHUNK" else None)
        named = named or f"{'thinking' if family.startswith('THINKING') else which}-{self._turns}"
        piece = None if talk.open is None else talk.open.find(which, named)
        if piece is None or step == "START":
            yield from self._begin(talk, which, named, fields)
            if talk.open is None:
                return
            if step in {"CONTENT", "ARGS"}:
                self._watch.note("link", kind)
            piece = Piece(which, named)
            piece.name = string(fields, "toolCallName") or ""
            talk.open.pieces.append(piece)
            talk.open.at = talk.open.at if talk.open.at is not None else at
            self._named(talk.open)
        talk.last[which] = named
        if talk.open is not None:
            talk.open.slot = shapes.slot_of(fields) or talk.open.slot
        piece.texts.append(string(fields, "delta") or "")

    def _begin(self, talk: _Talk, which: str, named: str, fields: Fields) -> Iterator[Step]:
        """Open a response for a new piece that the open one does not take."""
        role = (string(fields, "role") or "assistant") if which == "text" else "assistant"
        if talk.open is not None and (role != "assistant" or not talk.open.takes(which, named)):
            yield from self._close(talk)
        talk.open = talk.open or Response(role)
        if which == "text":
            talk.open.id = talk.open.id or named
            talk.open.name = talk.open.name or string(fields, "name")
        elif which == "call":
            talk.open.id = talk.open.id or string(fields, "parentMessageId") or named

    def _sealed(self, talk: _Talk, fields: Fields) -> None:
        of, sealed = string(fields, "entityId") or "", string(fields, "encryptedValue")
        which = "call" if string(fields, "subtype") == "tool-call" else "reasoning"
        piece = None if talk.open is None else talk.open.find(which, of)
        if piece is None:
            self._watch.note("link", "REASONING_ENCRYPTED_VALUE")
        else:
            piece.sealed = sealed


def event_of(record: Record) -> Fields | None:
    """Return the fields of an event: of the line, or of the data of an event stream."""
    if record.fields is not None:
        return record.fields
    body = record.raw.strip().removeprefix(b"\xef\xbb\xbf")
    if not body.startswith(b"data:"):
        return None
    try:
        return jsontext.fields(jsontext.source(body[5:].strip()))
    except PalaverError:
        return None


def _key(message: Message) -> str:
    """Return the content of a message, without fields that a list of messages leaves out."""
    said: list[object] = [message.role, message.text]
    said += [[call.id, call.name, call.arguments_json] for call in message.tool_calls]
    said += [[call.id, call.name, call.raw] for call in message.malformed_tool_calls]
    if isinstance(message, ToolMessage):
        said.append(message.tool_call_id)
    if isinstance(message, AssistantMessage) and len(said) == 2 and not message.text:  # noqa: PLR2004 (role and text)
        said.append(message.reasoning)
    return jsontext.encode(said).decode("utf-8", "replace")
