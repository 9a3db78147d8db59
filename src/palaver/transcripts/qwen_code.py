"""Qwen Code sessions: JSON Lines, a tree of records (docs/spec/dialects.md#14).

Read: the contents are those of ``google_generate``, as they were sent and received. Successive records of one answer
with the same prompt count are one message; its usage, which grows, is the largest. A ``tool_result`` is a message for
each response in it. ``chat_compression`` hides the messages before it; those that it keeps follow with
``source="compaction"``. Prompts that nobody typed (``subtype``, ``provenance``) have a ``source``. Other ``system``
records are records. The last record of a file is its leaf. A sub-agent's file is a thread of its own.

Not represented: system and developer messages and markers (kept in ``system`` records that the program ignores),
reasoning of other providers as such, why an answer ended, refusals as such, malformed calls.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, ServerToolResult
from palaver.core.request import Encoded
from palaver.threads.ids import is_uuid, now_ms
from palaver.threads.thread import MAIN
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    derived_id,
    hidden_before,
    record_message,
    session_of,
)
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import inner, integer, iso, listed, one_line, read_time, split, string, value
from palaver.transcripts.format import Origin, TranscriptFormat
from palaver.transcripts.record_order import ParentsFirst
from palaver.transcripts.salvage import salvaged
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.uuid_links import UuidLinks
from palaver.transcripts.writer import WriteState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.record import Record

NAME: Final = "qwen_code"
WIRE: Final = "google_generate"
_VERSION: Final = "0.19.0"
_HELD: Final = 4096
"""The most records that wait for one that names the session."""

_TYPES: Final = frozenset(("user", "assistant", "tool_result", "system"))
_KEYS: Final = frozenset(
    (
        "uuid",
        "parentUuid",
        "sessionId",
        "timestamp",
        "type",
        "subtype",
        "cwd",
        "version",
        "gitBranch",
        "message",
        "model",
        "usageMetadata",
        "contextWindowSize",
        "provenance",
        "promptId",
        "daemonPromptId",
        "goalContext",
        "backgroundTurn",
        "deliveredTurn",
        "toolCallResult",
        "systemPayload",
        "agentId",
        "agentName",
        "agentColor",
        "isSidechain",
        "externalInputKind",
        "forkedFrom",
        extension_slot.SLOT,
    )
)
_TYPED: Final = frozenset(("mid_turn_user_message", "user_text_elements", "at_command", "realtime_message"))
_SAID_BY_PEOPLE: Final = frozenset(("real_user", "assistant_output", "tool_result"))
_FAILED: Final = frozenset(("error", "cancelled"))
_AGENT: Final = re.compile(r"(?:^|[/\\])agent-([^/\\]+)\.jsonl$")
_NO_LOSS: Final = frozenset(("model", "first message", "tool call ids", "message"))
"""Fields that a request requires and a record may lack."""
_BASE: Final = ("uuid", "parentUuid", "sessionId", "timestamp", "cwd", "version", "gitBranch")


def detect(head: Head) -> Detection | None:
    """Detect records of a tree whose messages have parts."""
    for line in head.lines:
        if "uuid" not in line or "parentUuid" not in line:
            continue
        message: Any = line.get("message")
        version: Any = line.get("version")
        named = version if isinstance(version, str) else None
        if isinstance(message, dict) and "parts" in message:
            return Detection(1.0, named)
        if line.get("type") == "system" and "systemPayload" in line:
            return Detection(0.95, named)
    return None


# -- reading -----------------------------------------------------------------------------------------------------------


class _RecordReader:
    def __init__(self, origin: Origin, watch: Watch) -> None:
        self._origin = origin
        self._watch = watch
        self._wire = wires.get(WIRE)
        self._conversation: Conversation | None = None
        self._early: list[Record] = []
        self._session = Session(file_format=NAME)
        self._title: str | None = None
        self._answer: list[Record] = []  # the records of an answer that may continue
        self._order = ParentsFirst()
        self._leaf: str | None = None  # the last record of the file that has an id
        self._at: dict[str, str] = {}  # records that were added in the group of another: the entry

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next record."""
        if self._conversation is None:
            self._early.append(record)
            named = string(record.fields or {}, "sessionId")
            if named is not None or len(self._early) >= _HELD:
                yield from self._begin(named)
            return
        yield from self._take(record)

    def end(self) -> Iterator[Step]:
        """Name the leaf: the last record of the file."""
        if self._conversation is None:
            if not self._early:
                return
            yield from self._begin(None)
        for record in self._order.rest():
            yield from self._read(record)
        yield from self._close()
        if self._conversation is not None:
            leaf = self._at.get(self._leaf or "") if self._order.reordered else None
            main = {MAIN: self._conversation.head if leaf is None else self._conversation.tip(leaf)}
            yield self._conversation.ended(main, title=self._title, metadata=self._session.metadata())

    def _begin(self, named: str | None) -> Iterator[Step]:
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        nothing: Fields = {}
        first = next((each.fields for each in self._early if each.fields), nothing)
        found = _AGENT.search(self._origin.name)
        agent = found[1] if found else string(first, "agentId") if value(first, "isSidechain") is True else None
        parent = None if agent is None else thread
        thread = thread if agent is None else derived_id(NAME, thread, agent)
        self._session = Session(file_format=NAME, id=named, parent=parent, agent=agent)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._take(record)

    def _take(self, record: Record) -> Iterator[Step]:
        """Read the records whose parents are known now."""
        fields = record.fields or {}
        if (named := string(fields, "uuid")) is not None:
            self._leaf = named
        for ready in self._order.take(record, named, string(fields, "parentUuid")):
            yield from self._read(ready)

    def _read(self, record: Record) -> Iterator[Step]:
        fields = record.fields
        if fields is not None:
            self._describe(fields)
            kind = string(fields, "type") or ""
            if kind in _TYPES:
                self._watch.keys(fields, _KEYS, kind, record.line)
            else:
                self._watch.note("record", kind or "without a type", record.line)
            if kind == "assistant" and "message" in fields:
                if self._answer and not _goes_on(self._answer[-1].fields or {}, fields):
                    yield from self._close()
                self._answer.append(record)
                return
        yield from self._close()
        yield from self._join([record])

    def _close(self) -> Iterator[Step]:
        records, self._answer = self._answer, []
        if records:
            yield from self._join(records)

    def _describe(self, fields: Fields) -> None:
        """Read the session data of a record; the last one wins, except for the start."""
        known = self._session
        self._session = structs.replace(
            known,
            cwd=known.cwd or string(fields, "cwd"),
            program=string(fields, "version") or known.program,
            branch=string(fields, "gitBranch") or known.branch,
            model=known.model or string(fields, "model"),
            started_at=known.started_at or read_time(value(fields, "timestamp")),
        )
        if string(fields, "type") == "system" and string(fields, "subtype") == "custom_title":
            payload = inner(fields, "systemPayload")
            self._title = string(payload, "customTitle") or string(payload, "title") or self._title

    def _join(self, records: Sequence[Record]) -> Iterator[Step]:
        conversation = self._conversation
        if conversation is None:
            return
        rows = [record.fields or {} for record in records]
        parent = self._parent(rows[0], records[0].line)
        uuid = string(rows[-1], "uuid")
        try:
            group = self.messages(rows)
        except PalaverError as error:
            self._watch.note("unread", str(error), records[0].line)
            group = []
        if group:
            ids = [*[None] * (len(group) - 1), uuid]
            yield from conversation.join(group, records, ids=ids, parent=parent)
        else:
            for record, row in zip(records, rows, strict=True):
                sent_at = read_time(value(row, "timestamp"))
                yield from conversation.record(record, id=string(row, "uuid"), parent=parent, sent_at=sent_at)
                parent = UNSET
        for row in rows:
            named = string(row, "uuid")
            if named is not None and conversation.head is not None:
                self._at[named] = conversation.head

    def _parent(self, fields: Fields, line: int) -> str | UnsetType | None:
        """Return the entry that a record follows; a line that is not a record follows the last one."""
        if "parentUuid" not in fields or self._conversation is None:
            return UNSET
        named = string(fields, "parentUuid")
        found = None if named is None else self._at.get(named)
        if named is not None and found is None:
            self._watch.note("link", "parentUuid", line)
            return UNSET
        return found

    # -- messages ------------------------------------------------------------------------------------------------------

    def messages(self, rows: Sequence[Fields]) -> list[Message]:
        """Return the messages of a record, or of one answer's records, with carried data. Raises ``PalaverError``."""
        plain = self.plain(rows)
        slot = rows[0].get(extension_slot.SLOT)
        found = None if slot is None else extension_slot.restored(plain, jsontext.value(slot))
        return plain if not found else list(found)

    def plain(self, rows: Sequence[Fields]) -> list[Message]:
        """Return the messages without carried data; empty for a record without any. Raises ``PalaverError``."""
        fields = rows[0]
        sent_at = read_time(value(rows[-1], "timestamp"))
        kind, subtype = string(fields, "type"), string(fields, "subtype")
        if kind == "system" and subtype == "chat_compression":
            return self._compression(inner(fields, "systemPayload"), sent_at)
        if kind not in {"user", "assistant", "tool_result"} or not inner(fields, "message"):
            return []
        if kind == "assistant":
            return [structs.replace(self._said(rows), sent_at=sent_at)]
        read = self._contents([fields["message"]])
        if kind == "user":
            source = _source(fields)
            return [structs.replace(each, sent_at=sent_at, source=source) for each in read]
        failed = string(inner(fields, "toolCallResult"), "status") in _FAILED
        return [structs.replace(each, sent_at=sent_at) for each in _results(read, failed=failed)]

    def _contents(self, contents: Sequence[Any]) -> tuple[Message, ...]:
        body = jsontext.encode({"contents": list(contents)})
        return tuple(salvaged(lambda given: self._wire.decode_request(given).messages, body, NAME, self._watch.note))

    def _said(self, rows: Sequence[Fields]) -> AssistantMessage:
        parts = [part for row in rows for part in listed(inner(row, "message"), "parts")]
        body: dict[str, Any] = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
        counts = [row["usageMetadata"] for row in rows if inner(row, "usageMetadata")]
        if counts:
            body["usageMetadata"] = max(counts, key=_total)
        model = next((found for row in reversed(rows) if (found := string(row, "model"))), None)
        if model is not None:
            body["modelVersion"] = model
        (message,) = salvaged(self._answers, jsontext.encode(body), NAME, self._watch.note, outside=3)
        return structs.replace(message, agent=string(rows[0], "agentName"))

    def _answers(self, body: bytes) -> list[AssistantMessage]:
        return [self._wire.decode_response(body).message]

    def _compression(self, payload: Fields, sent_at: int | None) -> list[Message]:
        """Return what a model sees from here on; nothing when the compression failed."""
        contents = listed(payload, "compressedHistory")
        if not contents:
            return []
        said = [structs.replace(each, source=COMPACTION, sent_at=sent_at) for each in self._contents(contents)]
        return [record_message(sent_at), hidden_before(sent_at), *said]


def _goes_on(before: Fields, fields: Fields) -> bool:
    """Return whether a record is of the same answer as the one before: it follows it, with the same prompt count."""
    one, other = inner(before, "usageMetadata"), inner(fields, "usageMetadata")
    prompt = integer(one, "promptTokenCount")
    if prompt is None or prompt != integer(other, "promptTokenCount") or extension_slot.SLOT in before:
        return False
    named = string(fields, "parentUuid")
    return named is not None and named == string(before, "uuid") and before.get("model") == fields.get("model")


def _total(raw: Any) -> int:
    counts = split(raw)
    return integer(counts, "totalTokenCount") or integer(counts, "candidatesTokenCount") or 0


def _source(fields: Fields) -> str | None:
    """Return the source of a prompt that nobody typed."""
    subtype, provenance = string(fields, "subtype"), string(fields, "provenance")
    if subtype is not None and subtype not in _TYPED:
        return subtype
    return provenance if provenance is not None and provenance not in _SAID_BY_PEOPLE else None


def _results(read: Sequence[Message], *, failed: bool) -> list[Message]:
    """Return the results of a record; media beside a single one belong to it."""
    results = [each for each in read if isinstance(each, ToolMessage)]
    if len(results) == 1:
        content: Any = tuple([part for each in read for part in each.content])
        return [results[0].replace(content=content, is_error=results[0].is_error or failed)]
    return [
        structs.replace(each, is_error=each.is_error or failed) if isinstance(each, ToolMessage) else each
        for each in read
    ]


# -- writing -----------------------------------------------------------------------------------------------------------


class _RecordWriter:
    def __init__(self, writing: WriteState) -> None:
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._reader = _RecordReader(Origin(), Watch())
        session = session_of(writing.metadata)
        own = session.file_format == NAME
        thread = writing.thread.id if is_uuid(writing.thread.id) else derived_id(writing.thread.id)
        self._session = session.id if session.id is not None and (own or is_uuid(session.id)) else thread
        self._version = session.program if own and session.program else _VERSION
        self._branch = session.branch
        self._cwd = session.cwd or "/"
        self._agent = session.agent if own else None
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = session.started_at or first or now_ms()
        self._links = UuidLinks(writing)

    def head(self) -> Iterator[bytes]:
        """Yield a record with the title; a session has no header."""
        title = self._writing.take_title()
        if title is not None:
            uuid = derived_id(self._session, "title")
            place = {"uuid": uuid, "parentUuid": None, "sessionId": self._session, "timestamp": iso(self._at)}
            about = {"cwd": self._cwd, "version": self._version}
            payload = {"customTitle": title, "titleSource": "manual"}
            yield jsontext.encode(
                {**place, "type": "system", "subtype": "custom_title", **about, "systemPayload": payload}
            )

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group entries: each message alone; a compaction with the messages it kept."""
        group: list[Entry] = []
        for entry in entries:
            goes_on = group and entry.message.is_summary and entry.parent == group[-1].id
            if goes_on and not isinstance(entry.message, FlushMarker):
                group.append(entry)
                continue
            if group:
                yield group
                group = []
            if isinstance(entry.message, FlushMarker) and entry.message.source == COMPACTION:
                group = [entry]
            else:
                yield (entry,)
        if group:
            yield group

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the record of a message, or of those that shared one."""
        known: Fields = jsontext.fields(old[-1]) if old and jsontext.is_json(old[-1]) else {}
        messages = [entry.message for entry in group]
        at = next((each.sent_at for each in messages if each.sent_at is not None), None)
        self._at = self._at if at is None else at
        record = {**self._base(group, known), **self._said(group)}
        if self._writing.options.carry:
            plain = self._read_back(record)
            dated = [*(each.sent_at for each in messages), *[None] * len(plain)]
            plain = [structs.replace(each, sent_at=at) for each, at in zip(plain, dated, strict=False)]
            slot = extension_slot.carried(messages, plain)
            if slot is not None:
                record[extension_slot.SLOT] = jsontext.raw(slot)  # separately: its escapes leave the record as it is
        yield _line(record)

    def _read_back(self, record: dict[str, Any]) -> list[Message]:
        """Return the messages of a record as it is read; nothing when the wire cannot read its own output."""
        try:
            return self._reader.plain([jsontext.fields(_line(record))])
        except PalaverError:
            return []

    def _base(self, group: Sequence[Entry], old: Fields) -> dict[str, Any]:
        base: dict[str, Any] = {
            "uuid": self._links.uuid(group[-1]),
            "parentUuid": self._links.parent(group[0]),
            "sessionId": self._session,
            "timestamp": iso(self._at),
            "type": "system",
            "cwd": self._cwd,
            "version": self._version,
        }
        if self._branch is not None:
            base["gitBranch"] = self._branch
        if self._agent is not None:
            base |= {"agentId": self._agent, "isSidechain": True}
        return base | {key: old[key] for key in _BASE if key in old}

    def _said(self, group: Sequence[Entry]) -> dict[str, Any]:
        entry, message = group[0], group[0].message
        match message:
            case AssistantMessage():
                return self._answer(entry, message)
            case UserMessage() if len(group) == 1:
                said: dict[str, Any] = {"type": "user", "message": {"role": "user", "parts": self._sent([entry])}}
                return said if message.source is None else {**said, "subtype": message.source}
            case ToolMessage():
                parts = [part for each in group for part in self._sent([each])]
                status = "error" if message.is_error else "success"
                result = {"callId": message.tool_call_id or "", "status": status}
                said = {"type": "tool_result", "message": {"role": "user", "parts": parts}}
                return {**said, "toolCallResult": result}
            case _ if any(each.message.is_summary and each.message.content for each in group):
                return self._compressed(group)
            case _:
                self._writing.lose(
                    "converted", message.role, "no such record; kept in one that the program ignores", entry
                )
                return {"subtype": extension_slot.SLOT, "systemPayload": {}}

    def _compressed(self, group: Sequence[Entry]) -> dict[str, Any]:
        kept_ = [entry for entry in group if entry.message.content]
        encoded = self._wire.encode_request(
            trusted.Request(messages=tuple([entry.message for entry in kept_])), join_neighbors=False
        )
        self._lose(encoded, kept_)
        info = {"originalTokenCount": 0, "newTokenCount": 0, "compressionStatus": 1}
        payload = {"info": info, "compressedHistory": listed(jsontext.fields(encoded.body), "contents")}
        return {"subtype": "chat_compression", "systemPayload": payload}

    def _answer(self, entry: Entry, message: AssistantMessage) -> dict[str, Any]:
        places = [place for place, part in enumerate(message.content) if _is_sound(part)]
        for place in sorted({*range(len(message.content))} - {*places}):
            self._writing.lose("dropped", "server tool result", "not of Gemini's form", entry, place)
        sound = message.replace(content=[message.content[place] for place in places])
        encoded = self._wire.encode_response(trusted.Response(sound))
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS:
                part = places[loss.part] if loss.part is not None and loss.part < len(places) else None
                self._writing.lose(loss.kind, loss.what, loss.why, entry, part)
        body = jsontext.fields(encoded.body)
        candidates = listed(body, "candidates")
        parts = listed(inner(split(candidates[0]), "content"), "parts") if candidates else []
        said: dict[str, Any] = {"type": "assistant", "message": {"role": "model", "parts": parts}}
        if message.model is not None:
            said["model"] = message.model
        if message.usage is not None and "usageMetadata" in body:
            said["usageMetadata"] = body["usageMetadata"]
        return said

    def _sent(self, entries: Sequence[Entry]) -> list[Any]:
        """Return the parts of a prompt or a result; a result gets a call to answer, which is then left out."""
        entry, message = entries[-1], entries[-1].message
        before: list[Message] = []
        if isinstance(message, ToolMessage):
            called, name = message.tool_call_id or derived_id(entry.id), message.tool_name or self._named(entry)
            before = [trusted.AssistantMessage(content=(trusted.ToolCall(called, name),))]
            message = message.replace(tool_call_id=called, tool_name=name)
        encoded = self._wire.encode_request(trusted.Request(messages=(*before, message)), join_neighbors=False)
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS and loss.message in {None, len(before)}:
                self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)
        contents = listed(jsontext.fields(encoded.body), "contents")
        return listed(split(contents[-1]), "parts") if contents else []

    def _named(self, entry: Entry) -> str:
        """Return the name of a result's tool."""
        wanted = entry.message.tool_call_id if isinstance(entry.message, ToolMessage) else None
        parent = entry.parent
        while parent is not None:
            before = self._writing.thread.entry(parent)
            found = [call.name for call in before.message.tool_calls if call.id == wanted]
            if found:
                return found[0]
            parent = before.parent if not isinstance(before.message, UserMessage) else None
        return "tool"

    def _lose(self, encoded: Encoded, entries: Sequence[Entry]) -> None:
        for loss in encoded.losses:
            if loss.what in _NO_LOSS:
                continue
            entry = entries[loss.message] if loss.message is not None and loss.message < len(entries) else None
            self._writing.lose(loss.kind, loss.what, loss.why, entry or entries[0], loss.part)


def _line(record: dict[str, Any]) -> bytes:
    """Return a record as it is written; arguments and results may hold line breaks between their values."""
    return bytes(one_line(jsontext.encode(record).decode()))


def _is_sound(part: AnyPart) -> bool:
    """Return whether a result of a tool run by Google is valid for its wire; results of other wires always are."""
    if not isinstance(part, ServerToolResult) or part.wire != WIRE:
        return True
    output = split(part.output_json)
    return any(string(output, key) is not None for key in ("toolType", "outcome"))


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Qwen Code sessions",
    fidelity="bytes",
    detector=detect,
    record_reader=_RecordReader,
    record_writer=_RecordWriter,
    tree=True,
    resumes=True,
    history="all",
    keeps=(
        "branches, sub-agents",
        "thoughts, signatures of Gemini",
        "usage and model of each answer",
        "images, audio, video, files",
        "failed results",
        "compressions",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "other providers' reasoning as theirs (kept beside)",
        "why an answer ended",
        "refusals (as text), malformed calls",
    ),
)
