"""Read Codex rollout lines into messages.

Rules (docs/spec/dialects.md#3):

- The items that a model made in a row are one message. It stays open until the model continues after results, a
  ``token_count`` with new totals or a ``turn_context``, or until another role follows. Results and other lines wait
  for it.
- ``user_message`` and ``agent_message`` events repeat the items for the screen (in a paginated file ``item_completed``
  does). An event and an item with the same text are one message, each counted once, whichever comes first; the event's
  line belongs to its message. An event that no item repeats by the end of its turn was shown to people only, and is a
  placeholder; so is an error.
- Text that the program added for the model (``<environment_context>`` and the like) has a ``source``: people do not see
  it. In a paginated file, so has any prompt without an event.
- Usage is the ``last_token_usage`` of the first count with new totals after an answer, or its ``token_usage_record``;
  lines that a sub-agent's file copied (``subagent_history_start_ordinal``) are not counted again. Before the first
  answer of a file, a count is a record with the usage.
- ``compacted`` hides the messages before it; its ``replacement_history`` follows, in older files its message.
- ``thread_rolled_back`` removes the last prompts: the next lines continue before them, and they stay as a branch.
- Copied lines of a fork are read like any others: the model saw them. ``turns`` in the session lists the turns of a
  file, so that two files can be compared.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Text
from palaver.threads.ids import is_uuid
from palaver.threads.view import RECORD
from palaver.transcripts import extension_slot
from palaver.transcripts.codex.shapes import (
    ENDS,
    EVENTS,
    ITEMS,
    LINE,
    NAME,
    PAYLOADS,
    RESULTS,
    TYPES,
    UNKNOWN,
    UNSUPPORTED,
    Items,
    Open,
    answered,
    begins_turn,
    claimed,
    event_text,
    injected,
    is_made,
    is_unsaid,
    kind_and_payload,
    read_usage,
    shown,
    timed,
)
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    Step,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import as_object, inner, integer, listed, read_time, string, value
from palaver.transcripts.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_HELD: Final = 4096
"""The most lines that wait for an open message."""
_EARLY: Final = 64
_RECENT: Final = 64
"""The most messages without an event, and the most events without an item, that are remembered."""
_ROLES: Final = {
    "user_message": "user",
    "agent_message": "assistant",
    "UserMessage": "user",
    "AgentMessage": "assistant",
}
_MORE: Final = (
    "session_id", "originator", "source", "thread_source", "model_provider", "history_mode", "history_base",
    "forked_from_id", "subagent_history_start_ordinal", "git",
)  # fmt: skip
_NAMED: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl(?:\.zst)?$")


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first line."""
        self._origin = origin
        self._watch = watch
        self._items = Items(watch.note)
        self._conversation: Conversation | None = None
        self._early: list[Record] = []
        self._session = Session(file_format=NAME)
        self._described = False
        self._title: str | None = None
        self._model: str | None = None
        self._paginated = False
        self._own_from = 0  # the ordinal of the first line that is not a copy
        self._total: bytes | None = None
        self._has_answer = False
        self._unanswered: dict[int, Raw] = {}  # usage of calls, by the number of the line
        self._counted_by: str | None = None  # the type of the lines with usage
        self._open: Open | None = None
        self._loose: list[tuple[str, str, Record]] = []  # events without an item so far: role, text
        self._recent: deque[tuple[str, list[frozenset[str]]]] = deque(maxlen=_RECENT)
        self._names: dict[str, str] = {}  # names of the called tools, by the id of the call
        self._turns: list[str | None] = []  # the entry before each prompt
        self._turn_ids: dict[str, None] = {}

    # -- lines ---------------------------------------------------------------------------------------------------------

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next line."""
        if self._conversation is None:
            if record.fields is None and len(self._early) < _EARLY:
                self._early.append(record)
                return
            yield from self._begin(record.fields or {})
        fields = record.fields
        if fields is None:
            yield from self._aside(record)
            return
        kind, payload = kind_and_payload(fields)
        self._known(fields, kind, payload, record.line)
        match kind:
            case "response_item":
                yield from self._item(record, fields, payload)
            case "event_msg":
                yield from self._event(record, fields, payload)
            case "session_meta":
                yield from self._meta(record, fields, payload)
            case "compacted":
                yield from self._compacted(record, fields, payload)
            case "inter_agent_communication" if (text := string(payload, "content")) is not None:
                yield from self._close()
                said = trusted.UserMessage(
                    content=(trusted.Text(text),), agent=string(payload, "author"), source="agent_message"
                )
                yield from self._prompt(said, record, fields)
            case "turn_context":
                yield from self._turn(record, payload)
            case "token_usage_record":
                if not self._spent(record, payload.get("usage"), string(payload, "response_id"), fields):
                    yield from self._aside(record)
            case _:
                yield from self._aside(record)

    def end(self) -> Iterator[Step]:
        """Close the open message."""
        if self._conversation is None:
            if not self._early:
                return
            yield from self._begin({})
        yield from self._settle()
        if self._conversation is not None:
            more = dict(self._session.more)
            if self._turn_ids and ("forked_from_id" in more or self._session.parent is not None):
                more["turns"] = list(self._turn_ids)
            session = structs.replace(self._session, more=more)
            yield self._conversation.ended(title=self._title, metadata=session.metadata())

    def _begin(self, fields: Fields) -> Iterator[Step]:
        kind, payload = kind_and_payload(fields)
        named = string(payload, "id") if kind == "session_meta" else None
        if named is None and (found := _NAMED.search(self._origin.name)):
            named = found[1]
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        self._session = structs.replace(self._session, id=named)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._conversation.record(record)

    def _describe(self, meta: Fields) -> None:
        """Read the first ``session_meta``; a second one is the copied head of another file."""
        self._described = True
        self._paginated = string(meta, "history_mode") == "paginated"
        self._own_from = integer(meta, "subagent_history_start_ordinal") or 0
        source = as_object(meta.get("source", jsontext.NULL))  # else a name
        spawned = inner(as_object(source.get("subagent", jsontext.NULL)), "thread_spawn")
        self._session = Session(
            file_format=NAME,
            id=self._session.id or string(meta, "id"),
            format=string(meta, "history_mode") or "legacy",
            program=string(meta, "cli_version"),
            cwd=string(meta, "cwd"),
            branch=string(inner(meta, "git"), "branch"),
            started_at=read_time(value(meta, "timestamp")),
            parent=string(meta, "parent_thread_id") or string(spawned, "parent_thread_id"),
            agent=string(meta, "agent_nickname") or string(spawned, "agent_nickname") or string(spawned, "agent_role"),
            more={key: value(meta, key) for key in _MORE if key in meta},
        )

    def _meta(self, record: Record, fields: Fields, payload: Fields) -> Iterator[Step]:
        if self._described:
            yield from self._aside(record)
            return
        self._describe(payload)
        if value(payload, "history_base") is not None:
            self._watch.note("link", "history_base", record.line)
        text = string(inner(payload, "base_instructions"), "text")
        if text is None or self._conversation is None:
            yield from self._aside(record)
            return
        group = _restored([trusted.SystemMessage(content=(trusted.Text(text),))], fields)
        yield from self._conversation.join(timed(group, fields), [record])

    def _turn(self, record: Record, payload: Fields) -> Iterator[Step]:
        model = string(payload, "model") or self._model
        self._model = None if model == UNKNOWN else model
        known = self._session
        cwd, model = known.cwd or string(payload, "cwd"), known.model or self._model
        self._session = structs.replace(known, cwd=cwd, model=model)
        if (turn := string(payload, "turn_id")) is not None:
            self._turn_ids[turn] = None
        if self._open is not None:
            self._open.ended = True
        yield from self._aside(record)

    def _aside(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a line without messages: it goes to the open message, if any."""
        if self._open is None and self._conversation is not None:
            yield from self._later(record)
        elif self._open is not None:
            self._open.waiting.append(record)
            if len(self._open.waiting) >= _HELD:
                yield from self._close()

    # -- items ---------------------------------------------------------------------------------------------------------

    def _item(self, record: Record, fields: Fields, payload: Fields) -> Iterator[Step]:
        item = fields.get("payload") or jsontext.raw(fields)
        kind = string(payload, "type")
        if kind in UNSUPPORTED:
            yield from self._kept(record, fields) if extension_slot.SLOT in fields else self._aside(record)
        elif is_made(item):
            if self._open is None or self._open.role != "assistant" or self._open.ended:
                yield from self._close()
                self._open = Open("assistant", self._model)
                self._has_answer = True
            self._add(self._open, record, item)
        elif kind in RESULTS or kind == "tool_search_output":
            if self._open is not None:
                self._open.ended = True
            yield from self._aside(record)
        elif kind == "message" and string(payload, "role") == "user":
            yield from self._close()
            yield from self._settle("assistant")
            self._open = Open("user")
            self._add(self._open, record, item)
        else:
            yield from self._close()
            yield from self._later(record)

    def _add(self, opened: Open, record: Record, item: Raw) -> None:
        opened.add(record, item)
        for loose in list(self._loose):
            role, text, line = loose
            if role == opened.role and opened.claim(text):
                opened.beside.append(line)
                self._loose.remove(loose)

    def _close(self) -> Iterator[Step]:
        """Add an open message, and the lines that waited for it."""
        opened, self._open = self._open, None
        if opened is None:
            return
        bad = self._unread(opened)
        items = [(record, item) for record, item in opened.items if record.at not in bad]
        if items:
            yield from self._joined(opened, items)
        else:
            bad.update((record.at, record) for record in opened.beside)
        for record in sorted([*bad.values(), *opened.waiting], key=lambda each: each.at):
            yield from self._later(record, said=record.at not in bad)

    def _unread(self, opened: Open) -> dict[int, Record]:
        """Return the lines of unreadable items, by their number."""
        bad: dict[int, Record] = {}
        try:
            self._items.read([item for _, item in opened.items])
        except DecodeError:
            for record, item in opened.items:
                try:
                    self._items.read([item])
                except DecodeError as error:
                    self._watch.note("unread", str(error), record.line)
                    bad[record.at] = record
        return bad

    def _joined(self, opened: Open, items: list[tuple[Record, Raw]]) -> Iterator[Step]:
        fields = items[0][0].fields or {}
        group = self._items.read([item for _, item in items])
        if opened.role == "assistant":
            usage = None if opened.usage is None else read_usage(opened.usage)
            group = [answered(each, opened.model, usage, opened) for each in group]
        else:
            group = [self._sourced(each, opened) for each in group]
        group = timed(_restored(group, fields), items[-1][0].fields or {})
        if opened.claims:
            self._recent.append((opened.role, opened.claims))
        records = sorted([*(record for record, _ in items), *opened.beside], key=lambda each: each.at)
        conversation = self._conversation
        if conversation is None:
            return
        for message in group:
            self._names.update((call.id, call.name) for call in message.tool_calls)
            if isinstance(message, UserMessage) and begins_turn(message):
                self._turns.append(conversation.head)
        yield from conversation.join(group, records)

    def _sourced(self, message: Message, opened: Open) -> Message:
        """Set the source of a prompt that nobody typed."""
        if not isinstance(message, UserMessage) or opened.told:
            return message
        texts = [part.text for part in message.content if isinstance(part, Text)]
        source = injected(texts) or ("context" if self._paginated else None)
        return structs.replace(message, source=source)

    def _later(self, record: Record, *, said: bool = True) -> Iterator[Step]:
        """Add a line that belongs to no open message: a result, a developer's message, or none."""
        conversation, fields = self._conversation, record.fields
        if conversation is None:
            return
        sent_at = None if fields is None else read_time(value(fields, "timestamp"))
        group: list[Message] = []
        if said and fields is not None:
            kind, payload = kind_and_payload(fields)
            item = fields.get("payload") or jsontext.raw(fields)
            if kind == "response_item" and not is_made(item) and string(payload, "type") not in UNSUPPORTED:
                try:
                    group = [self._named(each) for each in self._items.read([item])]
                except PalaverError as error:
                    self._watch.note("unread", str(error), record.line)
        if not group or fields is None:
            usage = self._unanswered.pop(record.at, None)
            spent = None if usage is None else self._without_answer(usage)
            yield from conversation.record(record, sent_at=sent_at, message=spent)
        elif isinstance(group[0], UserMessage) and begins_turn(group[0]):
            yield from self._prompt(group[0], record, fields)
        else:
            yield from conversation.join(timed(_restored(group, fields), fields), [record])

    def _named(self, message: Message) -> Message:
        """Return a result with the name of its tool."""
        if isinstance(message, ToolMessage) and message.tool_name is None:
            return structs.replace(message, tool_name=self._names.get(message.tool_call_id or ""))
        return message

    def _prompt(self, message: Message, record: Record, fields: Fields) -> Iterator[Step]:
        """Add a line that starts a turn."""
        if self._conversation is not None:
            self._turns.append(self._conversation.head)
            yield from self._conversation.join(timed(_restored([message], fields), fields), [record])

    def _kept(self, record: Record, fields: Fields) -> Iterator[Step]:
        """Add a line that the program ignores, and that carries messages."""
        yield from self._close()
        group = _restored([], fields)
        if not group:
            yield from self._later(record)
        elif self._conversation is not None:
            yield from self._conversation.join(timed(group, fields), [record])

    # -- events --------------------------------------------------------------------------------------------------------

    def _event(self, record: Record, fields: Fields, payload: Fields) -> Iterator[Step]:
        kind = string(payload, "type") or ""
        told = inner(payload, "item") if kind == "item_completed" else payload
        role = _ROLES.get(string(told, "type") or "")
        if role is not None and (kind == "item_completed") == self._paginated:
            yield from self._told(record, fields, role, event_text(told))
            return
        match kind:
            case "token_count":
                if self._count(record, inner(payload, "info"), fields):
                    return
            case "thread_name_updated":
                self._title = string(payload, "thread_name") or string(payload, "name") or self._title
            case "turn_aborted" if self._open is not None and not self._open.ended:
                self._open.aborted = string(payload, "reason") or "aborted"
            case _:
                pass
        if kind not in {"thread_rolled_back", "error"}:
            yield from self._aside(record)
        if kind in ENDS:
            yield from self._settle()
        elif kind == "thread_rolled_back":
            yield from self._settle()
            yield from self._rolled_back(record, integer(payload, "num_turns") or 0)
        elif kind == "error":
            yield from self._close()
            yield from self._shown("assistant", string(payload, "message") or "", record, failed=True)

    def _told(self, record: Record, fields: Fields, role: str, text: str) -> Iterator[Step]:
        """Find the item that an event repeats."""
        if extension_slot.SLOT in fields:
            yield from self._close()
            yield from self._shown(role, text, record)
        elif self._open is not None and self._open.role == role and self._open.claim(text):
            self._open.beside.append(record)
        elif any(each == role and claimed(claims, text) for each, claims in self._recent):
            yield from self._aside(record)
        else:
            self._loose.append((role, text, record))
            if len(self._loose) > _RECENT:
                yield from self._settle()

    def _settle(self, role: str | None = None) -> Iterator[Step]:
        """Close the open message; events without an item were shown to people only."""
        yield from self._close()
        loose, self._loose = self._loose, []
        for each, text, record in loose:
            if role is None or each == role:
                yield from self._shown(each, text, record)
            else:
                self._loose.append((each, text, record))

    def _shown(self, role: str, text: str, record: Record, *, failed: bool = False) -> Iterator[Step]:
        fields = record.fields or {}
        group = timed(_restored([shown(role, text, failed=failed)], fields), fields)
        if self._conversation is not None:
            yield from self._conversation.join(group, [record])

    def _count(self, record: Record, info: Fields, fields: Fields) -> bool:
        """Set the usage of the call that just ended; repeated totals add nothing."""
        taken = False
        total = info.get("total_token_usage")
        normal = None if total is None or jsontext.is_null(total) else jsontext.normal(total)
        if normal is None or normal != self._total:
            taken = self._spent(record, info.get("last_token_usage"), None, fields)
        self._total = normal or self._total
        return taken

    def _spent(self, record: Record, usage: Raw | None, response: str | None, fields: Fields) -> bool:
        """Set the usage of the open message; return whether the line is a part of it now."""
        opened = self._open
        if usage is None or jsontext.kind(usage) != "an object":
            return False
        if opened is None or opened.role != "assistant":
            self._alone(record, usage, fields)
            return False
        opened.ended = True
        opened.response = opened.response or response
        if opened.usage is not None or (integer(fields, "ordinal") or 0) < self._own_from:
            return False
        opened.usage = usage
        opened.beside.append(record)
        return True

    def _alone(self, record: Record, usage: Raw, fields: Fields) -> None:
        """Note the usage of a call in a file without an answer so far; of two types of lines with it, one counts."""
        kind = string(fields, "type")
        self._counted_by = self._counted_by or kind
        if not self._has_answer and kind == self._counted_by and (integer(fields, "ordinal") or 0) >= self._own_from:
            self._unanswered[record.at] = usage

    def _without_answer(self, usage: Raw) -> AssistantMessage:
        """Return the usage of a call without an answer in the file: a record that only counts."""
        return trusted.AssistantMessage(tags=(RECORD,), model=self._model, usage=read_usage(usage))

    # -- what was hidden -----------------------------------------------------------------------------------------------

    def _compacted(self, record: Record, fields: Fields, payload: Fields) -> Iterator[Step]:
        yield from self._settle()
        conversation = self._conversation
        if conversation is None:
            return
        sent_at = read_time(value(fields, "timestamp"))
        group = self.in_place(payload, record.line)
        shown_now = timed(_restored([hidden_before(sent_at), *group], fields), fields)
        self._turns.clear()
        self._recent.clear()
        before = None
        for step in conversation.join([record_message(sent_at), *shown_now], [record]):
            if isinstance(step.entry.message, UserMessage) and begins_turn(step.entry.message, COMPACTION):
                self._turns.append(before)
            before = step.entry.id
            yield step

    def in_place(self, payload: Fields, line: int = 0) -> list[Message]:
        """Return what a model sees in place of compacted messages."""
        if "replacement_history" in payload and not jsontext.is_null(payload["replacement_history"]):
            items = [
                each
                for each in listed(payload, "replacement_history")
                if string(as_object(each), "type") not in UNSUPPORTED
            ]
            said = self._items.read_well(items, lambda error: self._watch.note("unread", str(error), line))
        else:
            said = [trusted.UserMessage(content=(trusted.Text(string(payload, "message") or ""),))]
        return [structs.replace(each, source=COMPACTION) for each in said]

    def reads(self, item: Raw) -> bool:
        """Return whether an item in place of hidden messages has content."""
        return not is_unsaid(item) and bool(self._items.read_well([item]))

    def _rolled_back(self, record: Record, turns: int) -> Iterator[Step]:
        conversation = self._conversation
        if conversation is None:
            return
        if turns <= 0 or not self._turns:
            yield from self._later(record)
            return
        before = self._turns[-turns] if turns <= len(self._turns) else self._turns[0]
        del self._turns[-turns:]
        yield from conversation.record(
            record, parent=before, sent_at=read_time(value(record.fields or {}, "timestamp"))
        )

    # -- drift ---------------------------------------------------------------------------------------------------------

    def _known(self, fields: Fields, kind: str | None, payload: Fields, line: int) -> None:
        """Report what the tables lack."""
        if "payload" not in fields:
            if kind not in {"response_item", "session_meta"} and "record_type" not in fields:
                self._watch.note("record", kind or "without a type", line)
            return
        self._watch.keys(fields, LINE, "line", line)
        said = string(payload, "type") or ""
        if kind not in TYPES:
            self._watch.note("record", kind or "without a type", line)
        elif kind == "response_item":
            if said in ITEMS:
                self._watch.keys(payload, ITEMS[said], said, line)
            else:
                self._watch.note("block", f"response_item {said}", line)
        elif kind == "event_msg" and said not in EVENTS:
            self._watch.note("block", f"event_msg {said}", line)
        elif kind in PAYLOADS:
            self._watch.keys(payload, PAYLOADS[kind], kind, line)


def _restored(group: list[Any], fields: Fields) -> list[Any]:
    slot = fields.get(extension_slot.SLOT)
    found = None if slot is None else extension_slot.restored(group, jsontext.value(slot))
    return group if found is None else list(found)
