"""Claude Code records into messages.

Rules (dialects.md 2):

- The blocks of one response lie in records of their own, with other records between them. A response stays open until
  its writer (the session, a sidechain, a sub-agent) goes on: with another response, a prompt, a compaction. Then it
  joins as one message, its usage the largest report, under the ``uuid`` of its last record; what came in between
  follows.
- The results of its calls stand on one line behind it, in the order in which they came, whichever of its records they
  name: a plain walk would lose all but one.
- A child of any record of a group follows the group.
- A file that is read while a response grows holds it under another ``uuid`` the next time; both are in the tree.
- ``main`` is what ``last-prompt`` names, else the last record of a user or an assistant that is no sidechain, no team
  mate's and not ``isMeta``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, UnsetType, structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Text
from palaver.dialects import carrying
from palaver.dialects.claude_code.forms import (
    INJECTED,
    KEYS,
    NAME,
    SESSION,
    SYNTHETIC,
    TITLES,
    WIRE,
    agent_of,
    as_uuid,
)
from palaver.dialects.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.dialects.dialect import Origin
from palaver.dialects.fields import inner, integer, listed, string, value
from palaver.dialects.times import read_time
from palaver.threads.thread import MAIN
from palaver.threads.view import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.dialects.drift import Watch
    from palaver.dialects.record import Record

_HELD: Final = 4096
"""So many records wait behind an open response, at most."""
_SAID_BY_HOOKS: Final = frozenset(("hook_additional_context", "hook_blocking_error"))


class _Open:
    """A response that may not have ended, and what came behind it."""

    def __init__(self, key: tuple[str, str | None]) -> None:
        self.key = key
        self.records: list[Record] = []
        self.uuids: set[str] = set()
        self.waiting: list[Record] = []


class Reading:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Begin before the first record."""
        self._origin = origin
        self._watch = watch
        self._wire = wires.get(WIRE)
        self._conversation: Conversation | None = None
        self._early: list[Record] = []  # before a record that names the session
        self._session = Session(dialect=NAME)
        self._open: dict[str, _Open] = {}  # by writer
        self._at: dict[str, str] = {}  # records that joined in the group of another: the entry
        self._calls: dict[tuple[str, str], str | None] = {}  # writer and call: the response; None when two claim it
        self._titles: dict[str, str] = {}
        self._last: str | None = None
        self._named: str | None = None
        self._boundary: str | None = None

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
        self._describe(fields)
        writer = _writer(fields)
        opened = self._open.get(writer)
        if string(fields, "type") == "assistant" and (key := _response(fields)) is not None:
            if opened is not None and opened.key != key:
                yield from self._close(writer)
            opened = self._open.setdefault(writer, _Open(key))
            opened.records.append(record)
            opened.uuids.update(filter(None, [string(fields, "uuid")]))
            return
        if opened is None and "uuid" not in fields and self._open:
            opened = next(reversed(self._open.values()))
        if opened is not None and not _goes_on(fields) and len(opened.waiting) < _HELD:
            opened.waiting.append(record)
            return
        if opened is not None:
            yield from self._close(writer)
        yield from self._join(record)

    def end(self) -> Iterator[Step]:
        """Close what is open, and name the leaf."""
        if self._conversation is None:
            if not self._early:
                return
            yield from self._begin(None, {})
        for writer in list(self._open):
            yield from self._close(writer)
        conversation = self._conversation
        if conversation is None:
            return
        main = self._named if self._named in conversation and self._is_leaf(self._named) else self._last
        main = main or conversation.head
        title = next((self._titles[kind] for kind in reversed(TITLES) if kind in self._titles), None)
        yield conversation.ended({MAIN: conversation.tip(main)}, title=title, metadata=self._session.metadata())

    def _is_leaf(self, entry: str | None) -> bool:
        """Whether nothing that a person or a model said follows an entry that ``last-prompt`` names."""
        return entry == self._last or entry is None or self._last is None

    def _begin(self, session: str | None, fields: Fields) -> Iterator[Step]:
        agent = agent_of(self._origin.name)
        if agent is None and value(fields, "isSidechain") is True:
            agent = string(fields, "agentId")
        thread = as_uuid(session) or derived_id(NAME, session or self._origin.name)
        parent, call = None, None
        if agent is not None:
            parent, thread = thread, derived_id(NAME, thread, agent)
            call = string(_beside(self._origin, f"agent-{agent}.meta.json"), "toolUseId")
        self._session = Session(dialect=NAME, id=session, parent=parent, call=call, agent=agent)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            self._describe(record.fields or {})
            yield from self._join(record)

    def _describe(self, fields: Fields) -> None:
        """Take from a record what it says of the session; the last one wins, but for where it began."""
        if "cwd" not in fields and "version" not in fields:
            return
        known = self._session
        self._session = structs.replace(
            known,
            cwd=known.cwd or string(fields, "cwd"),
            program=string(fields, "version") or known.program,
            branch=string(fields, "gitBranch") or known.branch,
            started_at=known.started_at or read_time(value(fields, "timestamp")),
        )

    # -- responses -----------------------------------------------------------------------------------------------------

    def _close(self, writer: str) -> Iterator[Step]:
        """Let an open response join, and what waited behind it."""
        opened = self._open.pop(writer)
        yield from self._answer(writer, opened.records)
        for record in opened.waiting:
            yield from self._join(record)

    def _answer(self, writer: str, records: Sequence[Record]) -> Iterator[Step]:
        conversation = self._conversation
        first, last = records[0].fields, records[-1].fields
        if conversation is None or first is None or last is None:
            return
        for record in records:
            self._known(record)
        try:
            group = self._restored([self.answer([record.fields or {} for record in records])], first)
        except PalaverError as error:
            self._watch.note("value", str(error), records[0].line)
            for record in records:
                yield from self._link(record)
            return
        uuid = string(last, "uuid")
        yield from conversation.join(group, records, ids=[uuid], parent=self._parent(first, records[0].line))
        joined = conversation.head
        self._place([record.fields or {} for record in records], joined)
        for call in group[0].tool_calls:
            known = self._calls.get((writer, call.id), joined)
            self._calls[writer, call.id] = joined if known == joined else None
        self._noted(first, joined)
        if self._session.model is None and isinstance(group[0], AssistantMessage):
            self._session = structs.replace(self._session, model=group[0].model)

    def answer(self, records: Sequence[Fields]) -> AssistantMessage:
        """The message of a response. Raises ``DecodeError``."""
        bodies = [inner(record, "message") for record in records]
        content: list[Raw] = []
        for body in bodies:
            blocks = body.get("content")
            if blocks is not None and jsontext.kind(blocks) == "a string":
                content.append(jsontext.raw({"type": "text", "text": jsontext.text(blocks)}))
            elif blocks is not None and not jsontext.is_null(blocks):
                content.extend(jsontext.items(blocks))
        reports = [body["usage"] for body in bodies if "usage" in body]
        usage = max(reports, key=_generated, default=None)
        stops = (body.get("stop_reason", jsontext.NULL) for body in reversed(bodies))
        stop = next((each for each in stops if each != jsontext.NULL), None)
        whole: dict[str, Any] = {**bodies[-1], "content": content}
        whole |= ({} if usage is None else {"usage": usage}) | ({} if stop is None else {"stop_reason": stop})
        message = self._wire.decode_response(jsontext.encode(whole)).message
        sent_at = read_time(value(records[-1], "timestamp"))
        tags = (PLACEHOLDER,) if message.model == SYNTHETIC or value(records[0], "isApiErrorMessage") is True else ()
        agent = string(records[0], "agentName")
        return structs.replace(message, sent_at=sent_at, tags=tags, agent=agent)

    # -- everything else -----------------------------------------------------------------------------------------------

    def _join(self, record: Record) -> Iterator[Step]:
        """Let a record join that is no part of a response."""
        conversation, fields = self._conversation, record.fields
        if conversation is None:
            return
        if fields is None:
            yield from conversation.record(record)
            return
        self._known(record)
        kind = string(fields, "type")
        if "uuid" not in fields:
            self._session_record(fields, kind)
            yield from conversation.record(record, sent_at=read_time(value(fields, "timestamp")))
            return
        try:
            group = self._restored(self.said(fields), fields)
        except PalaverError as error:
            self._watch.note("value", str(error), record.line)
            group = []
        if not group:
            yield from self._link(record)
            return
        boundary = kind == "system" and string(fields, "subtype") == "compact_boundary"
        parent = self._parent(fields, record.line)
        if kind == "user" and value(fields, "isCompactSummary") is True and parent != self._boundary:
            group = [hidden_before(group[0].sent_at), *group]
        results = [message for message in group if isinstance(message, ToolMessage)]
        owner = self._owner(fields, results) if results else None
        ids = [*[None] * (len(group) - 1), string(fields, "uuid")]
        before = parent if owner is None else conversation.tip(owner)
        yield from conversation.join(group, [record], ids=ids, parent=before)
        if owner is not None:
            conversation.lengthen(before)
        self._place([fields], conversation.head)
        if boundary:
            self._boundary = conversation.head
            self._calls.clear()  # what is kept behind it is a copy, and stands where it says
        else:
            self._noted(fields, conversation.head)

    def _link(self, record: Record) -> Iterator[Step]:
        """Let a record join that nobody said, as a link of the chain."""
        conversation, fields = self._conversation, record.fields or {}
        if conversation is None:
            return
        sent_at = read_time(value(fields, "timestamp"))
        parent = self._parent(fields, record.line)
        yield from conversation.record(record, id=string(fields, "uuid"), parent=parent, sent_at=sent_at)
        self._place([fields], conversation.head)

    def said(self, fields: Fields) -> list[Message]:
        """The messages of a record of the chain; empty when it says nothing. Raises ``DecodeError``."""
        sent_at = read_time(value(fields, "timestamp"))
        match string(fields, "type"):
            case "user":
                return self._user(fields, sent_at)
            case "system" if string(fields, "subtype") == "compact_boundary":
                return [record_message(sent_at), hidden_before(sent_at)]
            case "attachment":
                return _attached(inner(fields, "attachment"), sent_at)
            case _:
                return []

    def _user(self, fields: Fields, sent_at: int | None) -> list[Message]:
        body = fields.get("message")
        if body is None:
            return []
        read = self._wire.decode_request(b'{"messages":[%b]}' % bytes(body)).messages
        if value(fields, "isCompactSummary") is True:
            source = COMPACTION
        elif value(fields, "isMeta") is True:
            source = "meta"
        else:
            source = None
        agent = string(fields, "agentName")
        return [structs.replace(each, sent_at=sent_at, source=source or _injected(each), agent=agent) for each in read]

    def _restored(self, group: list[Any], fields: Fields) -> list[Any]:
        slot = fields.get(carrying.SLOT)
        if slot is None:
            return group
        found = carrying.restored(group, jsontext.value(slot))
        return group if found is None else list(found)

    def _session_record(self, fields: Fields, kind: str | None) -> None:
        """Take what a record says of the session; the last one wins."""
        if kind in TITLES:
            title = string(fields, TITLES[kind])
            if title is not None:
                self._titles[kind] = title
        if kind == "last-prompt":
            leaf = string(fields, "leafUuid")
            self._named = self._at.get(leaf or "", leaf)

    # -- the tree ------------------------------------------------------------------------------------------------------

    def _parent(self, fields: Fields, line: int) -> str | UnsetType | None:
        """The entry that a record follows."""
        conversation = self._conversation
        named = string(fields, "parentUuid")
        if named is None and (logical := string(fields, "logicalParentUuid")) is not None:
            named = logical  # so that people see one path; models begin at the boundary
        if named is None:
            summary = value(fields, "isCompactSummary") is True
            return UNSET if summary else None
        found = self._at.get(named, named)
        if conversation is not None and found not in conversation:
            self._watch.note("link", "parentUuid", line)
            return None
        return found

    def _owner(self, fields: Fields, results: Sequence[ToolMessage]) -> str | None:
        """The response whose calls these results answer; ``None`` when it cannot be told."""
        writer = _writer(fields)
        claimed = [self._calls.get((writer, result.tool_call_id or "")) for result in results]
        for key in ("parentUuid", "sourceToolAssistantUUID"):
            found = self._at.get(string(fields, key) or "")
            if found is not None and found in claimed:
                return found
        return claimed[0] if claimed and claimed[0] is not None else None

    def _place(self, records: Sequence[Fields], entry: str | None) -> None:
        """Remember where the records of a group went."""
        for fields in records:
            uuid = string(fields, "uuid")
            if uuid is not None and entry is not None:
                self._at[uuid] = entry

    def _noted(self, fields: Fields, entry: str | None) -> None:
        """Remember the last thing said on the main line."""
        aside = value(fields, "isSidechain") is True and self._session.agent is None
        unsaid = value(fields, "isMeta") is True and carrying.SLOT not in fields
        if not aside and not unsaid and "teamName" not in fields:
            self._last = entry

    def _known(self, record: Record) -> None:
        """Report what the tables do not have."""
        fields = record.fields or {}
        kind = string(fields, "type")
        if kind in KEYS:
            self._watch.keys(fields, KEYS[kind], kind, record.line)
        elif kind not in SESSION:
            self._watch.note("record", kind or "without a type", record.line)


def _writer(fields: Fields) -> str:
    """Who writes a record: the session, a sidechain of it, or a sub-agent."""
    side = "side" if value(fields, "isSidechain") is True else ""
    return f"{side} {string(fields, 'agentId') or ''}"


def _response(fields: Fields) -> tuple[str, str | None] | None:
    """What makes records of one response: its id and that of its request; ``None`` without an id."""
    named = string(inner(fields, "message"), "id")
    return None if named is None else (named, string(fields, "requestId"))


def _goes_on(fields: Fields) -> bool:
    """Whether a record ends the response before it: a prompt or a compaction, not a result or what stands beside."""
    match string(fields, "type"):
        case "user":
            content = inner(fields, "message").get("content")
            return content is None or b'"tool_result"' not in memoryview(content).tobytes()
        case "system":
            return string(fields, "subtype") == "compact_boundary"
        case "assistant":
            return True
        case _:
            return False


def _generated(usage: Raw) -> int:
    return integer(jsontext.fields(usage), "output_tokens") or 0 if jsontext.kind(usage) == "an object" else 0


def _injected(message: Message) -> str | None:
    """Says where a text comes from that nobody typed."""
    if not isinstance(message, UserMessage) or not message.content:
        return None
    texts = [part.text for part in message.content if isinstance(part, Text)]
    found = [INJECTED.fullmatch(text) for text in texts]
    return found[0][1] if len(texts) == len(message.content) and all(found) and found[0] else None


def _attached(fields: Fields, sent_at: int | None) -> list[Message]:
    """What an attachment tells the model."""
    kind = string(fields, "type")
    if kind == "queued_command":
        text = string(fields, "prompt")
        return [] if text is None else [UserMessage(content=(Text(text),), sent_at=sent_at)]
    if kind not in _SAID_BY_HOOKS:
        return []
    lines = [string(fields, "content"), *(_line(each) for each in listed(fields, "content"))]
    text = "\n".join(filter(None, [*lines, string(fields, "blockingError")]))
    return [UserMessage(content=(Text(text),), source="hook", sent_at=sent_at)] if text else []


def _line(raw: Raw) -> str | None:
    return jsontext.text(raw) if jsontext.kind(raw) == "a string" else None


def _beside(origin: Origin, name: str) -> Fields:
    data = origin.beside(name)
    if data is None:
        return {}
    try:
        return jsontext.fields(jsontext.source(data))
    except PalaverError:
        return {}
