"""Messages into Claude Code records that the program resumes (docs/spec/dialects.md#2, *Writer*; 17.10).

Rules:

- Every record is a link of one chain per branch: a block of an answer, a prompt, a result. An answer's id, request and
  usage are on each of its records, its finish reason on the last.
- Blocks are those of the wire: its losses are on our receipt too.
- Ids are those of the messages if they are UUIDs, else derived from them. The id of a response or of a call is used
  once: the program takes records with the same id for one response, and the provider refuses a repeated call.
- A flush is a ``compact_boundary``, a summary behind it a user record with ``isCompactSummary``.
- An answer that only people were shown is one of the program's own, which it does not send. Messages without a record
  type (system messages, discarded answers, other markers) are a ``system`` record that it ignores.
- A prompt or an answer without content becomes ``(no content)``: the provider refuses an empty one.
- If the conversation ends in an entry that is not a leaf to the program, a notice or a flush, a ``last-prompt`` names
  it.
- A record of an edited answer keeps its ``uuid`` if its block still exists, so that results find it.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.request import Encoded
from palaver.threads.ids import now_ms
from palaver.threads.view import DISCARDED, PLACEHOLDER
from palaver.transcripts import extension_slot
from palaver.transcripts.claude_code.reader import RecordReader
from palaver.transcripts.claude_code.shapes import NAME, SYNTHETIC, WIRE, as_uuid, session_id
from palaver.transcripts.conversation import derived_id, hidden_before, session_of
from palaver.transcripts.fields import inner, iso, listed, string, value
from palaver.transcripts.format import Origin
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.uuid_links import UuidLinks
from palaver.transcripts.writer import WriteState, is_record, on_one_line, singly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

_VERSION: Final = "2.1.0"
_BASE: Final = (
    "parentUuid",
    "isSidechain",
    "userType",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "uuid",
    "timestamp",
    "requestId",
)
_NO_LOSS: Final = frozenset(("max_tokens", "model", "first message", "tool call ids", "usage"))
"""Fields that the provider requires and a record may lack, or has zeros for."""

_EMPTY: Final = "(no content)"
"""The program's own text for an empty content."""

_KEPT: Final = "the program writes its own; kept in a record that it ignores"
_REFUSED: Final = "has a block that the provider does not accept; kept in a record that the program ignores"
_PASSED: Final = {
    "rescue": "no such record; kept in one that the program ignores, so hidden messages are visible",
    "flush": "no such record; kept in one that the program ignores, so hidden messages are visible",
    "assistant": "an answer that was not shown; kept in a record that the program ignores",
}


class RecordWriter:
    """Writes the records of one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Start a session, or continue one."""
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._reader = RecordReader(Origin(), Watch())
        session = session_of(writing.metadata)
        own = session.file_format == NAME
        self._session = session_id(session, writing.thread.id)
        self._version = session.program if own and session.program else _VERSION
        self._branch = session.branch or ""
        self._cwd = session.cwd or "/"
        self._agent = session.agent if own else None
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = session.started_at or first or now_ms()
        path = [entry.id for entry in writing.thread.path(writing.options.branch) if not is_record(entry)]
        self._main = path[-1] if path else None
        self._links = UuidLinks(writing)
        self._responses: dict[str, str] = {}  # by the id of a response: the entry that has it
        self._called: dict[str, str] = {}  # by the id of a call: the entry that had it first
        for entry in writing.entries:
            if writing.is_native(entry.id) and isinstance(entry.message, AssistantMessage):
                self._responses.setdefault(entry.message.response_id or "", entry.id)
                for each in entry.message.tool_calls:
                    self._called.setdefault(each.id, entry.id)

        self._followed: set[str] = set()  # entries with a message after them: a boundary needs one
        for entry in reversed(writing.thread.entries):
            if isinstance(entry.message, UserMessage | AssistantMessage | ToolMessage) or entry.id in self._followed:
                self._followed.update(filter(None, [entry.parent]))

    groups = staticmethod(singly)

    def head(self) -> Iterator[bytes]:
        """Yield the title, if there is one; a session has no header."""
        title = self._writing.take_title()
        if title is not None:
            yield jsontext.encode({"type": "custom-title", "customTitle": title, "sessionId": self._session})

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the records of a message, or of the messages that shared one."""
        olds = [jsontext.fields(each) for each in old]
        times = (entry.message.sent_at for entry in group)
        self._at = next((at for at in times if at is not None), self._at)
        try:
            records = self._records(group, olds)
        except DecodeError:  # a block of the wire that it refuses
            records = [self._aside(entry, {}, _REFUSED) for entry in group]
        yield from map(jsontext.encode, records)

    def _records(self, group: Sequence[Entry], olds: Sequence[Fields]) -> list[dict[str, Any]]:
        first, old = group[0].message, olds[0] if olds else {}
        if len(group) > 1:
            return [self._shared(group, old)]
        if isinstance(first, AssistantMessage) and DISCARDED not in first.tags:
            return self._answer(group[0], first, olds)
        record = self._other(group[0], old)
        if (record["type"] != "user" or "isMeta" in record) and group[0].id == self._main and not olds:
            return [record, {"type": "last-prompt", "leafUuid": record["uuid"], "sessionId": self._session}]
        return [record]

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(self, entry: Entry, message: AssistantMessage, olds: Sequence[Fields]) -> list[dict[str, Any]]:
        said = self._with_own_calls(entry, message)
        shown = PLACEHOLDER in message.tags
        encoded = self._wire.encode_response(trusted.Response(said.replace(model=SYNTHETIC) if shown else said))
        self._lose(encoded, [entry])
        body = jsontext.fields(encoded.body)
        blocks = jsontext.items(body["content"])
        if not blocks:
            blocks = [jsontext.raw({"type": "text", "text": _EMPTY})]
            self._writing.lose("converted", "assistant", f"without a block it says {_EMPTY!r}", entry)
        named = self._response_id(entry, message)
        first = olds[0] if olds else {}
        request = string(first, "requestId") or f"req_{derived_id(named).replace('-', '')[:24]}"
        matched = _matched(blocks, olds)
        uuids = self._block_uuids(entry, matched)
        parent: Any = first.get("parentUuid", self._links.parent(entry))
        records: list[dict[str, Any]] = []
        for place, (block, old) in enumerate(zip(blocks, matched, strict=True)):
            stop = {} if place == len(blocks) - 1 else {"stop_reason": None}
            base = self._base("assistant", uuids[place], parent, old)
            if len(blocks) != len(olds):
                base["parentUuid"] = parent
            record = {"requestId": request, **base, "uuid": uuids[place]}
            record["message"] = {**body, "id": named, "content": [block], **stop}
            if shown and (not old or value(old, "isApiErrorMessage") is True):
                record["isApiErrorMessage"] = True
            records.append(record)
            parent = uuids[place]
        plain = self._reader.answer([jsontext.fields(on_one_line(jsontext.encode(each))) for each in records])
        self._carry(records[0], [message], [structs.replace(plain, tags=(PLACEHOLDER,) if shown else ())])
        return records

    def _response_id(self, entry: Entry, message: AssistantMessage) -> str:
        """Return the id of a response, which is unique in this file."""
        named = message.response_id
        if named and self._responses.setdefault(named, entry.id) == entry.id:
            return named
        return f"msg_{derived_id(entry.id).replace('-', '')[:24]}"

    def _with_own_calls(self, entry: Entry, message: AssistantMessage) -> AssistantMessage:
        """Return the message with ids for its calls that no earlier call has."""
        content = [
            part.replace(id=self._call_id(entry, part.id or ""))
            if isinstance(part, ToolCall | MalformedToolCall)
            else part
            for part in message.content
        ]
        return message if tuple(content) == message.content else message.replace(content=tuple(content))

    def _call_id(self, entry: Entry, named: str) -> str:
        """Return the id of a call, which is unique in this file."""
        if named and self._called.setdefault(named, entry.id) == entry.id:
            return named
        return f"toolu_{derived_id(entry.id, named).replace('-', '')[:24]}"

    def _block_uuids(self, entry: Entry, matched: Sequence[Fields]) -> list[str]:
        """Return the ``uuid`` of each record of an answer: that of its old record, the entry's own, or a new one."""
        kept_on = [as_uuid(string(old, "uuid")) for old in matched]
        own = self._links.uuid(entry)
        if own not in kept_on:
            kept_on[-1] = own
        return [uuid or derived_id(own, place) for place, uuid in enumerate(kept_on)]

    # -- everything else -----------------------------------------------------------------------------------------------

    def _other(self, entry: Entry, old: Fields) -> dict[str, Any]:
        message = entry.message
        uuid, parent = self._links.uuid(entry), self._links.parent(entry)
        if isinstance(message, FlushMarker) and _is_boundary(message) and entry.id in self._followed:
            return self._boundary(message, uuid, parent, old)
        if isinstance(message, UserMessage | ToolMessage):
            record = {**self._base("user", uuid, parent, old), "message": self._body([entry])}
            if isinstance(message, UserMessage) and self._compacts(entry):
                record |= {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
            elif isinstance(message, UserMessage) and (message.source is not None or message.mode == "tool"):
                record["isMeta"] = True
            self._carry(record, [message], self._plain(record))
            return record
        return self._aside(entry, old, _PASSED.get(message.role, _KEPT))

    def _aside(self, entry: Entry, old: Fields, why: str) -> dict[str, Any]:
        """Return a record that the program ignores; it carries the message."""
        self._writing.lose("converted" if self._writing.options.carry else "dropped", entry.message.role, why, entry)
        kept_in: dict[str, Any] = {"subtype": "palaver", "content": "", "level": "info", "isMeta": True}
        record = {**self._base("system", self._links.uuid(entry), self._links.parent(entry), old), **kept_in}
        if self._writing.options.carry:
            record[extension_slot.SLOT] = extension_slot.carried([entry.message], [])
        return record

    def _boundary(self, message: FlushMarker, uuid: str, parent: str | None, old: Fields) -> dict[str, Any]:
        meta = old.get("compactMetadata", {"trigger": "auto", "preTokens": 0})
        boundary = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info"}
        base = self._base("system", uuid, None, old)
        record = {**base, "logicalParentUuid": parent, **boundary, "isMeta": False, "compactMetadata": meta}
        if extension_slot.carried([message], [hidden_before(message.sent_at)]) is not None:
            self._carry(record, [message], self._plain(record))
        return record

    def _shared(self, group: Sequence[Entry], old: Fields) -> dict[str, Any]:
        """Return messages that shared a record, and were edited: prompts and results, or a compaction."""
        marker = next((entry for entry in group if isinstance(entry.message, FlushMarker)), None)
        if marker is not None and string(old, "type") == "system":
            return self._other(marker, old)
        said = [entry for entry in group if isinstance(entry.message, UserMessage | ToolMessage)]
        summary = value(old, "isCompactSummary") is True
        if summary:  # the rest of its group is written elsewhere
            said = said[:1]
        record = self._base("user", self._links.uuid(group[-1]), self._links.parent(group[0]), old)
        record["message"] = self._body(said)
        if not summary:
            self._carry(record, [entry.message for entry in said], self._plain(record))
        return record

    def _plain(self, record: dict[str, Any]) -> Sequence[Message]:
        return self._reader.read_record(jsontext.fields(on_one_line(jsontext.encode(record))))

    def _body(self, entries: Sequence[Entry]) -> object:
        """Return the wire's message of prompts and results; the request around them is left out."""
        messages: list[Message] = []
        calls: list[ToolCall] = []
        for entry in entries:
            message, caller = entry.message, self._caller(entry)
            if isinstance(message, ToolMessage) and caller is not None:
                call = trusted.ToolCall(self._call_id(caller, message.tool_call_id or ""), message.tool_name or "tool")
                message = structs.replace(message, tool_call_id=call.id)
                calls.append(call)
            messages.append(message)
        before: list[Message] = [trusted.UserMessage(content=(trusted.Text("."),))]
        before += [trusted.AssistantMessage(content=tuple(calls))] if calls else []
        encoded = self._wire.encode_request(trusted.Request(messages=(*before, *messages)), join_neighbors=False)
        self._lose(encoded, [*[None] * len(before), *entries])
        wire = jsontext.items(jsontext.fields(encoded.body)["messages"])[len(before) :]
        said = [jsontext.fields(each) for each in wire]
        blocks = [block for each in said for block in _blocks(each["content"])]
        if len(said) == 1 and blocks:
            return said[0]
        if not blocks:
            self._writing.lose("converted", "user", f"without a block it says {_EMPTY!r}", next(iter(entries), None))
        return {"role": "user", "content": blocks or _EMPTY}

    def _caller(self, entry: Entry) -> Entry | None:
        """Return the answer with a result's call: the nearest one with that id that the program still sees."""
        named, at = entry.message.tool_call_id if isinstance(entry.message, ToolMessage) else None, entry.parent
        while named is not None and at is not None:
            before = self._writing.thread.entry(at)
            if _is_boundary(before.message):
                break
            if any(call.id == named for call in _calls_of(before.message)):
                return before
            at = before.parent
        return None

    # -- what every record has -----------------------------------------------------------------------------------------

    def _base(self, kind: str, uuid: str, parent: str | None, old: Fields) -> dict[str, Any]:
        base: dict[str, Any] = {
            "parentUuid": parent,
            "isSidechain": self._agent is not None,
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._session,
            "version": self._version,
            "gitBranch": self._branch,
            **({} if self._agent is None else {"agentId": self._agent}),
            "type": kind,
            "uuid": uuid,
            "timestamp": iso(self._at),
        }
        return base | {key: old[key] for key in _BASE if key in old}

    def _carry(self, record: dict[str, Any], messages: Sequence[Message], plain: Sequence[Message]) -> None:
        if not self._writing.options.carry or not messages:
            return
        at = messages[0].sent_at
        slot = extension_slot.carried(messages, [structs.replace(each, sent_at=at) for each in plain])
        if slot is not None:
            record[extension_slot.SLOT] = slot

    def _compacts(self, entry: Entry) -> bool:
        """Return whether a message is the summary of a compaction: it follows its marker."""
        if not entry.message.is_summary:
            return False
        before = None if entry.parent is None else self._writing.thread.entry(entry.parent).message
        return isinstance(before, FlushMarker)

    def _lose(self, encoded: Encoded, entries: Sequence[Entry | None]) -> None:
        for loss in encoded.losses:
            if loss.what in _NO_LOSS:
                continue
            entry = entries[loss.message] if loss.message is not None and loss.message < len(entries) else None
            self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)


def _is_boundary(message: Message) -> bool:
    """Return whether a message hides all messages before it from the program."""
    return isinstance(message, FlushMarker) and message.scope in {None, "thread"}


def _calls_of(message: Message) -> Sequence[ToolCall | MalformedToolCall]:
    return (*message.tool_calls, *message.malformed_tool_calls)


def _blocks(content: Raw) -> list[Raw]:
    """Return the blocks of content, even if it is a string."""
    if jsontext.kind(content) == "an array":
        return jsontext.items(content)
    text = jsontext.text(content) if jsontext.kind(content) == "a string" else ""
    return [jsontext.raw({"type": "text", "text": text})] if text.strip() else []


def _matched(blocks: Sequence[Raw], olds: Sequence[Fields]) -> list[Fields]:
    """Return the old record of each block; the same number of blocks stays in place."""
    if len(blocks) == len(olds):
        return list(olds)
    left = {_identity(found[0]): old for old in olds if (found := listed(inner(old, "message"), "content"))}
    return [left.pop(_identity(block), {}) for block in blocks]


def _identity(block: Raw) -> str:
    """Return the identity of a block: the id of a call, else all of it."""
    fields = jsontext.fields(block) if jsontext.kind(block) == "an object" else {}
    return string(fields, "id") or bytes(jsontext.normal(block)).decode()
