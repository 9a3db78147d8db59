"""Claude Code records into messages.

Rules (docs/spec/dialects.md#2):

- The blocks of one response are in several records, with other records between them. A response stays open until its
  writer (the session, a sidechain, a sub-agent) continues: with another response, a prompt, a compaction. Then it is
  added as one message, with the largest usage report, under the ``uuid`` of its last record.
- Records in between that are its descendants are put on one line after it, in the order of their arrival: a plain walk
  would lose all but one of the results of parallel calls. A later result is added to the response that made its call:
  the one that its parent, else its ``sourceToolAssistantUUID`` names, else the only one of its writer with a call of
  that id, unless it is a descendant already, after the messages in between.
- A child of any record of a group follows the group. One whose parent arrives later waits for it (``parents_first``);
  one whose parent is not in the file starts a new root.
- A file that is read while a response grows has it under another ``uuid`` the next time; both are in the tree.
- A ``compact_boundary`` has no parent; its entry follows the one in ``logicalParentUuid``, if it exists, so that people
  see one path. The view of models begins at it: with the summary, and a copy of the preserved messages.
- A title is from a person (``custom-title``), else from a model (``ai-title``), else from a ``summary`` whose leaf is
  in the file: programs wrote those of other sessions too. A single one is accepted.
- ``links`` finds where ``main`` ends; ``injected_text`` finds text that the user did not type.

Stability: experimental.
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.threads.thread import MAIN
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts import extension_slot
from palaver.transcripts.claude_code.injected_text import Attachments, parted
from palaver.transcripts.claude_code.links import Links, Preserved, Recent, Standing
from palaver.transcripts.claude_code.shapes import KEYS, NAME, SESSION, SYNTHETIC, TITLES, WIRE, agent_of, thread_of
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import inner, integer, listed, read_time, string, value
from palaver.transcripts.format import Origin
from palaver.transcripts.record_order import ParentsFirst
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_HELD: Final = 4096
"""The most records that wait behind an open response."""
_MORE: Final = ("slug", "teamName", "sessionKind", "entrypoint", "forkedFrom")


class _Open:
    """A response that may not have ended, and the records after it."""

    def __init__(self, writer: str, key: tuple[str, str | None]) -> None:
        self.writer = writer
        self.key = key
        self.records: list[Record] = []
        self.waiting: list[Record] = []
        self.uuids: set[str] = set()

    def takes(self, key: tuple[str, str | None]) -> bool:
        """Return whether a record is of this response. One that names no request is compared by the message's id."""
        return self.key[0] == key[0] and (self.key[1] == key[1] or None in (self.key[1], key[1]))


class _Line:
    """The line of a response: its entry, and the records on the line after it."""

    def __init__(self, entry: str, uuids: set[str]) -> None:
        self.entry = entry
        self.uuids = uuids


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._wire = wires.get(WIRE)
        self._attachments = Attachments()
        self._links = Links()
        self._order = ParentsFirst()
        self._conversation: Conversation | None = None
        self._early: list[Record] = []  # before a record that names the session
        self._session = Session(file_format=NAME)
        self._open: dict[str, _Open] = {}  # by writer
        self._at: dict[str, str] = {}  # by uuid: the entry of a record
        self._calls: dict[tuple[str, str], tuple[str, ...]] = {}  # by writer and call: the responses with it
        self._titles: dict[str, str] = {}
        self._summaries: dict[str, str | None] = {}
        self._boundary: str | None = None  # the last entry after a boundary without a summary yet
        self._metadata: Fields = {}  # of that boundary
        self._recent = Recent()

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next record."""
        fields = record.fields or {}
        if self._conversation is None:
            session = string(fields, "sessionId")
            if session is None and len(self._early) < _HELD:
                self._early.append(record)
                return
            yield from self._begin(session, fields)
        yield from self._take(record)

    def _take(self, record: Record) -> Iterator[Step]:
        """Note the session data of a record, and read the records whose parents are known now."""
        fields = record.fields or {}
        self._describe(fields)
        for ready in self._order.take(record, _link_id(fields), _named(fields)):
            yield from self._read(ready)

    def _read(self, record: Record) -> Iterator[Step]:
        """Read a record whose parent was read, or is missing in the file."""
        fields = record.fields or {}
        writer, named = _writer(fields), string(fields, "parentUuid")
        for other in [each for each, stored in self._open.items() if each != writer and named in stored.uuids]:
            yield from self._close(other)
        opened = self._open.get(writer)
        if (key := _response(fields)) is not None:
            if opened is not None and not opened.takes(key):
                yield from self._close(writer)
            opened = self._open.setdefault(writer, _Open(writer, key))
            opened.records.append(record)
        else:
            if opened is None and _link_id(fields) is None and self._open:
                opened = next(reversed(self._open.values()))
            if opened is None or _goes_on(fields) or len(opened.waiting) >= _HELD:
                if opened is not None:
                    yield from self._close(opened.writer)
                yield from self._join(record)
                return
            opened.waiting.append(record)
        if (uuid := _link_id(fields)) is not None:
            opened.uuids.add(uuid)

    def end(self) -> Iterator[Step]:
        """Close open responses, and name the leaf."""
        if self._conversation is None:
            if not self._early:
                return
            yield from self._begin(None, {})
        for record in self._order.rest():
            yield from self._read(record)
        for writer in list(self._open):
            yield from self._close(writer)
        conversation = self._conversation
        if conversation is None:
            return
        main = self._at.get(self._links.end() or "", conversation.head)
        yield conversation.ended({MAIN: conversation.tip(main)}, title=self._title(), metadata=self._session.metadata())

    def _title(self) -> str | None:
        told = [each for each, leaf in self._summaries.items() if leaf in self._links]
        summary = told[-1] if told else next(iter(self._summaries), None) if len(self._summaries) == 1 else None
        return next((self._titles[kind] for kind in TITLES if kind in self._titles), summary)

    def _begin(self, session: str | None, fields: Fields) -> Iterator[Step]:
        agent = agent_of(self._origin.name)
        if agent is None and value(fields, "isSidechain") is True:
            agent = string(fields, "agentId")
        name = self._origin.name
        parent, call, more = None, None, dict[str, Any]()
        if agent is not None:
            meta = _beside(self._origin, f"agent-{agent}.meta.json")
            parent = thread_of(session, name, string(meta, "parentAgentId"))
            call = string(meta, "toolUseId")
            more = {key: jsontext.value(meta[key]) for key in ("agentType", "worktreePath") if key in meta}
        self._session = Session(file_format=NAME, id=session, parent=parent, call=call, agent=agent, more=more)
        self._conversation = Conversation(NAME, thread_of(session, name, agent))
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._take(record)

    def _describe(self, fields: Fields) -> None:
        """Read the session data of a record, in the file's order, as the leaf is the last there."""
        kind = string(fields, "type")
        if (uuid := _link_id(fields)) is not None:
            self._links.add(uuid, string(fields, "parentUuid"), self._standing(fields, kind))
        elif kind == "last-prompt":
            self._links.name(string(fields, "leafUuid"))
        elif kind == "summary" and (summary := string(fields, "summary")) is not None:
            self._summaries.pop(summary, None)
            self._summaries[summary] = string(fields, "leafUuid")
        elif kind in TITLES and (title := string(fields, TITLES[kind])) is not None:
            self._titles[kind] = title
        elif kind == "tag" and (tag := string(fields, "tag")) is not None:
            self._session = structs.replace(self._session, more={**self._session.more, "tag": tag})
        if "cwd" not in fields and "version" not in fields:
            return
        known = self._session
        more = {key: jsontext.value(fields[key]) for key in _MORE if key in fields and key not in known.more}
        self._session = structs.replace(
            known,
            cwd=known.cwd or string(fields, "cwd"),
            program=string(fields, "version") or known.program,
            branch=string(fields, "gitBranch") or known.branch,
            started_at=known.started_at or read_time(value(fields, "timestamp")),
            more={**known.more, **more} if more else known.more,
        )

    def _standing(self, fields: Fields, kind: str | None) -> Standing:
        if kind not in {"user", "assistant"}:
            return "link"
        if self._session.agent is not None:
            return "main"
        aside = value(fields, "isSidechain") is True or value(fields, "isMeta") is True or "teamName" in fields
        return "aside" if aside else "main"

    # -- responses -----------------------------------------------------------------------------------------------------

    def _close(self, writer: str) -> Iterator[Step]:
        """Add an open response, and the records that waited behind it."""
        opened = self._open.pop(writer)
        yield from self._answer(writer, opened.records)
        first = string(opened.records[0].fields or {}, "uuid")
        entry = self._at.get(first or "")
        uuids = {uuid for each in opened.records if (uuid := string(each.fields or {}, "uuid")) is not None}
        line = None if entry is None else _Line(entry, uuids)
        for record in opened.waiting:
            yield from self._join(record, line)

    def _answer(self, writer: str, records: Sequence[Record]) -> Iterator[Step]:
        conversation = self._conversation
        if conversation is None:
            return
        stored = [record.fields or {} for record in records]
        try:
            plain = self.answer(stored, records[0].line)
            group = self._restored([plain], stored[0])
        except PalaverError as error:
            if len(records) > 1:  # an unreadable one does not affect the others
                for record in records:
                    yield from self._answer(writer, [record])
                return
            self._watch.note("unread", str(error), records[0].line)
            yield from self._link(records[0])
            return
        for record in records:
            self._known(record)
        uuid = string(stored[-1], "uuid")
        yield from conversation.join(group, records, ids=[uuid], parent=self._parent(stored[0], records[0].line))
        joined = conversation.head or ""
        self._place(stored, joined)
        self._recent.add(uuid or joined, group, sum(len(record.raw) for record in records))
        calls = [*(call.id for call in plain.tool_calls), *(call.id or "" for call in plain.malformed_tool_calls)]
        for call in calls:  # by the id that the file gives it
            made = self._calls.get((writer, call), ())
            self._calls[writer, call] = made if joined in made else (*made, joined)
        named = next((each.model for each in group if isinstance(each, AssistantMessage)), None)
        if self._session.model is None and named != SYNTHETIC:
            self._session = structs.replace(self._session, model=named)

    def answer(self, records: Sequence[Fields], line: int | None = None) -> AssistantMessage:
        """Return the message of a response; with ``line``, unreadable blocks are left out.

        Raises ``DecodeError``.
        """
        bodies = [inner(record, "message") for record in records]
        content: list[Raw] = []
        for body in bodies:
            blocks = body.get("content")
            if blocks is not None and jsontext.kind(blocks) == "a string":
                content.append(jsontext.raw({"type": "text", "text": jsontext.text(blocks)}))
            elif blocks is not None and not jsontext.is_null(blocks):
                content.extend(listed(body, "content"))
        reports = [body["usage"] for body in bodies if "usage" in body]
        usage = max(reports, key=_generated, default=None)
        stops = (body.get("stop_reason", jsontext.NULL) for body in reversed(bodies))
        stop = next((each for each in stops if each != jsontext.NULL), None)
        whole: dict[str, Any] = {**bodies[-1], "content": content}
        whole |= ({} if usage is None else {"usage": usage}) | ({} if stop is None else {"stop_reason": stop})
        message: AssistantMessage
        (message,) = self._salvaged(self._answers, jsontext.encode(whole), line, outside=0)
        sent_at = read_time(value(records[-1], "timestamp"))
        tags = (PLACEHOLDER,) if message.model == SYNTHETIC or value(records[0], "isApiErrorMessage") is True else ()
        agent = string(records[0], "agentName")
        return structs.replace(message, sent_at=sent_at, tags=tags, agent=agent)

    # -- everything else -----------------------------------------------------------------------------------------------

    def _join(self, record: Record, line: _Line | None = None) -> Iterator[Step]:
        """Add a record that is not part of a response; ``line`` is that of the response for which it waited."""
        conversation, fields = self._conversation, record.fields
        if conversation is None:
            return
        if fields is None:
            yield from conversation.record(record)
            return
        self._known(record)
        try:
            plain = self.read_record(fields, record.line)
            group = self._restored(plain, fields)
        except PalaverError as error:
            self._watch.note("unread", str(error), record.line)
            plain = group = []
        if not group:
            yield from self._link(record, line)
            return
        if _link_id(fields) is None:
            before = conversation.tip(conversation.head)
            yield from conversation.join(group, [record], parent=before)
            conversation.lengthen(before if before is not None else UNSET)
            return
        parent = self._parent(fields, record.line)
        kept: Preserved | None = None
        if value(fields, "isCompactSummary") is True:
            kept = self._recent.preserved(self._metadata, self._at)
            marker = [] if parent == self._boundary else [hidden_before(group[0].sent_at)]
            copies = [structs.replace(each, source=COMPACTION, id=None) for each in kept.messages]
            group = [*marker, *group, *copies]
        ids = [*[None] * (len(group) - 1), string(fields, "uuid")]
        behind = self._behind(fields, plain, line)
        if behind is None:
            yield from conversation.join(group, [record], ids=ids, parent=parent)
        else:
            yield from conversation.join(group, [record], ids=ids, parent=behind)
            conversation.lengthen(behind)
        self._place([fields], conversation.head or "")
        if kept is not None:
            self._compacted(kept)
            return
        self._recent.add(string(fields, "uuid") or "", group, len(record.raw))
        if _is_boundary(fields):
            self._boundary, self._metadata = conversation.head, inner(fields, "compactMetadata")
            self._calls.clear()  # the messages kept after it are copies, placed by their own links
        elif string(fields, "type") == "attachment" and parent == self._boundary:
            self._boundary = conversation.head

    def _compacted(self, kept: Preserved) -> None:
        """Continue after a compaction: children of a preserved record follow its copy."""
        head = self._conversation.head if self._conversation is not None else None
        for uuid in kept.uuids:
            self._at[uuid] = head or ""
        self._recent.compacted(kept)
        self._metadata, self._boundary = {}, None

    def _link(self, record: Record, line: _Line | None = None) -> Iterator[Step]:
        """Add a record without messages; one with a ``uuid`` as a link of the chain."""
        conversation, fields = self._conversation, record.fields or {}
        if conversation is None:
            return
        sent_at, uuid = read_time(value(fields, "timestamp")), _link_id(fields)
        if uuid is None:
            yield from conversation.record(record, sent_at=sent_at)
            return
        parent = self._parent(fields, record.line)
        behind = self._behind(fields, (), line)
        follows = parent if behind is None else behind
        yield from conversation.record(record, id=uuid, parent=follows, sent_at=sent_at)
        if behind is not None:
            conversation.lengthen(behind)
        self._place([fields], conversation.head or "")
        if parent == self._boundary and parent is not None:
            self._boundary = conversation.head

    def read_record(self, fields: Fields, line: int | None = None) -> list[Message]:
        """Return the messages of a record that is not an answer; empty without any. Raises ``DecodeError``."""
        sent_at = read_time(value(fields, "timestamp"))
        match string(fields, "type"):
            case "user" if "uuid" in fields:
                return self._user(fields, sent_at, line)
            case "system" if _is_boundary(fields):
                return [record_message(sent_at), hidden_before(sent_at)]
            case "attachment" if "uuid" in fields:
                return self._attachments.told(inner(fields, "attachment"), sent_at)
            case "queue-operation":
                return self._attachments.queued(fields, sent_at)
            case _:
                return []

    def _user(self, fields: Fields, sent_at: int | None, line: int | None) -> list[Message]:
        body = fields.get("message")
        if body is None:
            return []
        read = self._salvaged(self._prompts, b'{"messages":[%b]}' % bytes(body), line, outside=2)
        agent = string(fields, "agentName")
        if value(fields, "isCompactSummary") is True:
            return [structs.replace(each, sent_at=sent_at, source=COMPACTION, agent=agent) for each in read]
        source = "meta" if value(fields, "isMeta") is True else None
        stamped = [structs.replace(each, sent_at=sent_at, agent=agent) for each in read]
        return [each for message in stamped for each in parted(message, source)]

    def _answers(self, body: bytes) -> Sequence[Any]:
        return [self._wire.decode_response(body).message]

    def _prompts(self, body: bytes) -> Sequence[Any]:
        return self._wire.decode_request(body).messages

    def _salvaged(
        self, read: Callable[[bytes], Sequence[Any]], body: bytes, line: int | None, *, outside: int
    ) -> Sequence[Any]:
        if line is None:
            return read(body)
        return salvaged(read, body, NAME, lambda kind, why: self._watch.note(kind, why, line), outside=outside)

    def _restored(self, group: list[Any], fields: Fields) -> list[Any]:
        slot = fields.get(extension_slot.SLOT)
        if slot is None:
            return group
        found = extension_slot.restored(group, jsontext.value(slot))
        return group if found is None else list(found)

    # -- the tree ------------------------------------------------------------------------------------------------------

    def _parent(self, fields: Fields, line: int) -> str | None:
        """Return the entry that a record follows."""
        conversation = self._conversation
        named = _named(fields)
        if named is None:
            return None
        found = self._at.get(named, named)
        if conversation is not None and found not in conversation:
            self._watch.note("link", "parentUuid", line)
            return None
        return found

    def _behind(self, fields: Fields, group: Sequence[Message], line: _Line | None) -> str | None:
        """Return the end of the line after a response, for records that belong there; else ``None``."""
        conversation = self._conversation
        if conversation is None:
            return None
        entry = self._owner(fields, [each for each in group if isinstance(each, ToolMessage)])
        if line is not None and string(fields, "parentUuid") in line.uuids:
            entry = line.entry
            line.uuids.update(filter(None, [string(fields, "uuid")]))
        return None if entry is None else conversation.tip(entry)

    def _owner(self, fields: Fields, results: Sequence[ToolMessage]) -> str | None:
        """Return the response to which these results must be moved; ``None`` if it is unknown, or they are there."""
        writer, parent = _writer(fields), string(fields, "parentUuid")
        claimed = [self._calls.get((writer, result.tool_call_id or ""), ()) for result in results]
        for place, key in enumerate((parent, string(fields, "sourceToolAssistantUUID"))):
            found = self._at.get(key or "")
            if found is not None and any(found in made for made in claimed):
                return found if place == 0 or not self._is_below(parent, found) else None
        found = next((made[0] for made in claimed if len(made) == 1), None)
        return None if found is None or self._is_below(parent, found) else found

    def _is_below(self, uuid: str | None, entry: str) -> bool:
        """Return whether a record is a descendant of an entry."""
        return any(self._at.get(each) == entry for each in self._links.above(uuid))

    def _place(self, records: Sequence[Fields], entry: str) -> None:
        """Remember the entries of a group's records."""
        for fields in records:
            uuid = string(fields, "uuid")
            if uuid is not None:
                self._at[intern(uuid)] = intern(entry)

    def _known(self, record: Record) -> None:
        """Report what the tables lack."""
        fields = record.fields or {}
        kind = string(fields, "type")
        if kind in KEYS:
            self._watch.keys(fields, KEYS[kind], kind, record.line)
        elif kind not in SESSION:
            self._watch.note("record", kind or "without a type", record.line)
        if kind == "attachment" and not self._attachments.knows(attached := inner(fields, "attachment")):
            self._watch.note("record", f"attachment {string(attached, 'type')}", record.line)


def _writer(fields: Fields) -> str:
    """Return the writer of a record: the session, a sidechain of it, or a sub-agent."""
    side = "side" if value(fields, "isSidechain") is True else ""
    return f"{side} {string(fields, 'agentId') or ''}"


def _named(fields: Fields) -> str | None:
    """Return the parent of a record of the chain."""
    return None if _link_id(fields) is None else string(fields, "parentUuid") or string(fields, "logicalParentUuid")


def _link_id(fields: Fields) -> str | None:
    """Return the ``uuid`` of a link of the chain; some programs give records of a session one too."""
    return None if string(fields, "type") in SESSION else string(fields, "uuid")


def _is_boundary(fields: Fields) -> bool:
    return string(fields, "subtype") == "compact_boundary" and string(fields, "type") == "system" and "uuid" in fields


def _response(fields: Fields) -> tuple[str, str | None] | None:
    """Return the key of a response's records: its id and that of its request. Without an id, a record is alone."""
    if string(fields, "type") != "assistant" or "message" not in fields or "uuid" not in fields:
        return None
    message = inner(fields, "message")
    if not message:
        return None
    named = string(message, "id")
    return (f"uuid {string(fields, 'uuid')}" if named is None else named), string(fields, "requestId")


def _goes_on(fields: Fields) -> bool:
    """Return whether a record ends the response before it: a prompt or a compaction, but not a result."""
    match string(fields, "type"):
        case "user" if value(fields, "isMeta") is True:
            return False
        case "user":
            content = inner(fields, "message").get("content")
            return content is None or b'"tool_result"' not in memoryview(content).tobytes()
        case "system":
            return _is_boundary(fields)
        case "assistant":
            return True
        case _:
            return False


def _generated(usage: Raw) -> int:
    return integer(jsontext.fields(usage), "output_tokens") or 0 if jsontext.kind(usage) == "an object" else 0


def _beside(origin: Origin, name: str) -> Fields:
    data = origin.beside(name)
    if data is None:
        return {}
    try:
        return jsontext.fields(jsontext.source(data))
    except PalaverError:
        return {}
