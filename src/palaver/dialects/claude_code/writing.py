"""Messages into Claude Code records that the program resumes (dialects.md 2, *Writer*).

Rules:

- Every record is a link of one chain per branch: a block of an answer, a prompt, a result. An answer's id, request and
  usage stand on each of its records.
- Blocks are those of the wire: what it cannot say is in its receipt, and so in ours.
- A compaction is a ``compact_boundary`` and a user record with ``isCompactSummary``.
- What the program has no record for (system messages, markers) is a ``system`` record that it passes over.
- Ids are those of the messages where they are UUIDs, else derived from them.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, FlushMarker, Message, ToolMessage, UserMessage
from palaver.core.parts import ToolCall
from palaver.core.request import Encoded, Request, Response
from palaver.dialects import carrying, kept
from palaver.dialects.claude_code.forms import NAME, WIRE, as_uuid
from palaver.dialects.claude_code.reading import Reading
from palaver.dialects.conversation import COMPACTION, derived_id, session_of
from palaver.dialects.dialect import Origin
from palaver.dialects.documents import lead_of
from palaver.dialects.drift import Watch
from palaver.dialects.fields import string
from palaver.dialects.times import iso
from palaver.dialects.writing import Writing, singly
from palaver.threads.ids import now_ms

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
    "type",
    "uuid",
    "timestamp",
    "requestId",
)
_NO_LOSS: Final = frozenset(("max_tokens", "model", "first message", "tool call ids"))
"""What a request must have, and a record need not."""


class Rendering:
    """Writes the records of one conversation."""

    def __init__(self, writing: Writing) -> None:
        """Begin a session, or go on with one."""
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._reader = Reading(Origin(), Watch())
        session = session_of(writing.metadata)
        own = session.dialect == NAME
        thread = as_uuid(writing.thread.id) or derived_id(writing.thread.id)
        self._session = as_uuid(session.id) or thread
        self._version = session.program if own and session.program else _VERSION
        self._branch = session.branch or ""
        self._cwd = session.cwd or "/"
        self._agent = session.agent if own else None
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = session.started_at or first or now_ms()
        self._uuids: dict[str, str] = {}
        self._answers: dict[str, str] = {}  # by the id of an answer: the entry that has it

    groups = staticmethod(singly)

    def head(self) -> Iterator[bytes]:
        """A session has no header."""
        return iter(())

    def tail(self, old: bytes | None) -> None:
        """Lines have none."""

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """The records of a message, or of the messages that shared one."""
        olds = [jsontext.fields(each) for each in old]
        if len(group) > 1:
            yield from self._shared(group, olds)
            return
        (entry,) = group
        self._at = self._at if entry.message.sent_at is None else entry.message.sent_at
        if isinstance(entry.message, AssistantMessage):
            yield from self._answer(entry, entry.message, olds)
        else:
            yield jsontext.encode(self._other(entry, olds[0] if olds else {}))

    # -- one record, or several ----------------------------------------------------------------------------------------

    def _answer(self, entry: Entry, message: AssistantMessage, olds: Sequence[Fields]) -> Iterator[bytes]:
        encoded = self._wire.encode_response(Response(message))
        self._lose(encoded, [entry])
        body = jsontext.fields(encoded.body)
        blocks = jsontext.items(body["content"]) or [jsontext.raw({"type": "text", "text": ""})]
        if not message.content:
            self._writing.lose("converted", "assistant", "an empty answer is written as an empty text", entry)
        named = message.response_id
        if not named or (not olds and self._answers.setdefault(named, entry.id) != entry.id):
            # Records of one id are one answer: an answer that is told twice has another id the second time.
            named = f"msg_{derived_id(entry.id).replace('-', '')[:24]}"
        request = f"req_{derived_id(named).replace('-', '')[:24]}"
        parent = self._parent(entry)
        records: list[dict[str, Any]] = []
        for place, block in enumerate(blocks):
            last = place == len(blocks) - 1
            uuid = self._uuid(entry) if last else derived_id(self._uuid(entry), place)
            said = {**body, "id": named, "content": [block]} | ({} if last else {"stop_reason": None})
            base = self._base("assistant", uuid, parent, olds[place] if place < len(olds) else {})
            record: dict[str, Any] = {"requestId": request, **base, "message": said}
            records.append(record)
            own = record["uuid"]
            parent = own if isinstance(own, str) else uuid
        # As it will stand in its line: line breaks between the tokens of arguments become spaces there.
        plain = self._reader.answer([jsontext.fields(jsontext.encode(each).replace(b"\n", b" ")) for each in records])
        self._carry(records[0], [message], [plain])
        yield from map(jsontext.encode, records)

    def _other(self, entry: Entry, old: Fields) -> dict[str, Any]:
        message = entry.message
        uuid, parent = self._uuid(entry), self._parent(entry)
        if isinstance(message, FlushMarker) and message.source == COMPACTION:
            meta = {"trigger": "auto", "preTokens": 0}
            boundary = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info"}
            base = self._base("system", uuid, None, old)
            return {**base, "logicalParentUuid": parent, **boundary, "isMeta": False, "compactMetadata": meta}
        if isinstance(message, UserMessage | ToolMessage):
            record = {**self._base("user", uuid, parent, old), "message": self._body([entry])}
            if isinstance(message, UserMessage) and self._compacts(entry):
                record |= {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
            elif message.source is not None:
                record["isMeta"] = True
            self._carry(record, [message], self._reader.said(jsontext.fields(jsontext.encode(record))))
            return record
        self._writing.lose("converted", message.role, "no such record; kept in one that is passed over", entry)
        kept_in: dict[str, Any] = {"subtype": "palaver", "content": "", "level": "info", "isMeta": True}
        record = {**self._base("system", uuid, parent, old), **kept_in}
        if self._writing.options.carry:
            record[carrying.SLOT] = carrying.carried([message], [])
        return record

    def _shared(self, group: Sequence[Entry], olds: Sequence[Fields]) -> Iterator[bytes]:
        """Messages that stood in one record, and were edited."""
        old = olds[0] if olds else {}
        base = self._base("user", self._uuid(group[-1]), self._parent(group[0]), old)
        said = [entry for entry in group if isinstance(entry.message, UserMessage | ToolMessage)]
        record = {**base, "message": self._body(said)} if said else base
        yield jsontext.encode(record)

    def _body(self, entries: Sequence[Entry]) -> object:
        """The wire's message of prompts and results; a result is given a call to answer, which is then left out."""
        messages: list[Message] = [entry.message for entry in entries]
        results = [each for each in messages if isinstance(each, ToolMessage) and each.tool_call_id is not None]
        calls = tuple([ToolCall(each.tool_call_id or "", each.tool_name or "tool") for each in results])
        before = [AssistantMessage(content=calls)] if calls else []
        encoded = self._wire.encode_request(Request(messages=(*before, *messages)))
        self._lose(encoded, [*[None] * len(before), *entries])
        wire = jsontext.items(jsontext.fields(encoded.body)["messages"])
        return wire[-1] if wire else {"role": "user", "content": ""}

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
        if not self._writing.options.carry:
            return
        at = messages[0].sent_at
        slot = carrying.carried(messages, [structs.replace(each, sent_at=at) for each in plain])
        if slot is not None:
            record[carrying.SLOT] = slot

    def _compacts(self, entry: Entry) -> bool:
        """Whether a message is the summary of a compaction: it stands behind its marker."""
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

    def _uuid(self, entry: Entry) -> str:
        """The ``uuid`` of an entry's last record."""
        known = self._uuids.get(entry.id)
        if known is None:
            own = self._recorded(entry)
            known = self._uuids[entry.id] = own or as_uuid(entry.id) or derived_id(entry.id)
        return known

    def _parent(self, entry: Entry) -> str | None:
        """The ``uuid`` of the record before: that of the nearest entry that has one, and is written."""
        parent = entry.parent
        while parent is not None:
            before = self._writing.thread.entry(parent)
            if self._writing.is_native(parent):
                found = self._recorded(before)
                if found is not None:
                    return found
            elif parent in self._uuids:
                return self._uuids[parent]
            parent = before.parent
        return None

    def _recorded(self, entry: Entry) -> str | None:
        """The ``uuid`` that an entry has in its file: its own, where the last of its records names it."""
        if not self._writing.is_native(entry.id):
            return None
        pieces = kept.records_of(NAME, [entry.message])
        if not pieces:
            return entry.id if as_uuid(entry.id) is not None else None
        body = pieces[-1].raw[len(lead_of(pieces[-1].raw)) :].strip()
        return string(jsontext.fields(body), "uuid") if body.startswith(b"{") and jsontext.is_json(body) else None
