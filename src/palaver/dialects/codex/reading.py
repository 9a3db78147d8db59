"""Codex rollout lines into messages.

Rules (dialects.md 3):

- The items that a model made in a row are one message. It stays open until the model is heard again behind results, or
  somebody else speaks; a ``token_count`` with new totals is its usage. Results and what else came wait behind it.
- In a legacy file the response items are the conversation; ``user_message`` and ``agent_message`` events repeat it for
  the screen, and stay records. In a paginated file ``item_completed`` events are the prompts and answers, and the
  messages among the response items stay records; reasoning, calls and results are items in both.
- What the program put in for the model (``<environment_context>`` and the like) has a ``source``: people do not see it.
- ``compacted`` hides what stands before it; its ``replacement_history`` follows, in older files its message.
- ``thread_rolled_back`` takes the last turns back: what follows goes on before them, and they stay as a branch.
- The files of sub-agents name their parent. Lines that a fork copied are read like any other.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Text
from palaver.core.usage import Usage
from palaver.dialects import carrying
from palaver.dialects.codex.forms import EVENTS, INJECTED, ITEMS, LINE, MADE, NAME, RESULTS, TYPES, WIRE, read_usage
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
from palaver.dialects.fields import inner, integer, listed, split, string, value
from palaver.dialects.times import read_time
from palaver.threads.ids import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.dialects.drift import Watch
    from palaver.dialects.record import Record

_HELD = 4096


class Reading:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Begin before the first line."""
        self._origin = origin
        self._watch = watch
        self._wire = wires.get(WIRE)
        self._conversation: Conversation | None = None
        self._session = Session(dialect=NAME)
        self._title: str | None = None
        self._model: str | None = None
        self._paginated = False
        self._open: list[tuple[Record, Raw]] = []  # lines of a message that may not have ended, and their items
        self._usage: Usage | None = None
        self._total: Any = None
        self._waiting: list[Record] = []
        self._heard = False  # whether results came behind what is open
        self._names: dict[str, str] = {}  # of the tools called, by the id of the call
        self._turns: list[str | None] = []  # what stood before each turn

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next line."""
        if self._conversation is None:
            yield from self._begin(record)
        fields = record.fields or {}
        kind = string(fields, "type")
        item = self._item(fields, kind)
        if item is not None and self._made(item):
            if self._heard:
                yield from self._close()
            self._open.append((record, item))
            return
        if self._open and self._is_count(fields, kind):
            self._count(inner(inner(fields, "payload"), "info"))
            self._waiting.append(record)
            if self._usage is not None:
                yield from self._close()
            return
        if self._open and len(self._waiting) < _HELD and not self._speaks(item, kind, fields):
            self._heard = self._heard or (item is not None and string(split(item), "type") in RESULTS)
            self._waiting.append(record)
            return
        yield from self._close()
        yield from self._join(record, item)

    def end(self) -> Iterator[Step]:
        """Close what is open."""
        yield from self._close()
        if self._conversation is not None:
            session = structs.replace(self._session, model=self._session.model or self._model)
            yield self._conversation.ended(title=self._title, metadata=session.metadata())

    # -- what a line is ------------------------------------------------------------------------------------------------

    def _item(self, fields: Fields, kind: str | None) -> Raw | None:
        """The response item that a line holds, or is in the oldest files; ``None`` for any other line."""
        payload = fields.get("payload")
        if payload is None:
            return jsontext.raw(fields) if kind in ITEMS else None
        if kind == "response_item":
            said = string(split(payload), "type") == "message" and string(split(payload), "role") != "developer"
            return None if self._paginated and said else payload
        if kind == "event_msg" and self._paginated:
            return _completed(split(payload))
        return None

    def _made(self, item: Raw) -> bool:
        fields = split(item)
        kind = string(fields, "type")
        return kind in MADE or (kind == "message" and string(fields, "role") == "assistant")

    def _speaks(self, item: Raw | None, kind: str | None, fields: Fields) -> bool:
        """Whether a line ends what a model said before it."""
        if item is not None:
            return string(split(item), "type") not in RESULTS
        event = string(inner(fields, "payload"), "type")
        return kind == "compacted" or (kind == "event_msg" and event in {"thread_rolled_back", "turn_aborted"})

    def _is_count(self, fields: Fields, kind: str | None) -> bool:
        return kind == "event_msg" and string(inner(fields, "payload"), "type") == "token_count"

    def _count(self, info: Fields) -> None:
        """Take the usage of the call that just ended; totals that repeat say nothing new."""
        total = value(info, "total_token_usage")
        if "last_token_usage" in info and (total is None or total != self._total):
            self._usage = read_usage(info["last_token_usage"])
        self._total = total if total is not None else self._total

    # -- joining -------------------------------------------------------------------------------------------------------

    def _begin(self, record: Record) -> Iterator[Step]:
        fields = record.fields or {}
        meta = inner(fields, "payload") if string(fields, "type") == "session_meta" else fields
        named = string(meta, "id")
        self._paginated = string(meta, "history_mode") == "paginated"
        git = inner(meta, "git")
        source = inner(inner(inner(meta, "source"), "subagent"), "thread_spawn")
        more: dict[str, Any] = {
            key: value(meta, key) for key in ("forked_from_id", "originator", "model_provider") if key in meta
        }
        self._session = Session(
            dialect=NAME,
            id=named,
            format=string(meta, "history_mode"),
            program=string(meta, "cli_version"),
            cwd=string(meta, "cwd"),
            branch=string(git, "branch"),
            started_at=read_time(value(meta, "timestamp")),
            parent=string(meta, "parent_thread_id") or string(source, "parent_thread_id"),
            more=more,
        )
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        self._conversation = Conversation(NAME, thread)
        yield self._conversation.began()

    def _close(self) -> Iterator[Step]:
        """Let what a model said join, and what waited behind it."""
        opened, self._open, self._heard = self._open, [], False
        waiting, self._waiting = self._waiting, []
        usage, self._usage = self._usage, None
        if opened:
            yield from self._answer(opened, usage)
        for record in waiting:
            yield from self._join(record, self._item(record.fields or {}, string(record.fields or {}, "type")))

    def _answer(self, opened: Sequence[tuple[Record, Raw]], usage: Usage | None) -> Iterator[Step]:
        conversation = self._conversation
        records = [record for record, _ in opened]
        for record in records:
            self._known(record)
        if conversation is None:
            return
        fields = records[0].fields or {}
        sent_at = read_time(value(records[-1].fields or {}, "timestamp"))
        try:
            group = self.messages([item for _, item in opened])
        except PalaverError as error:
            self._watch.note("value", str(error), records[0].line)
            for record in records:
                yield from conversation.record(record)
            return
        group = [_answered(each, self._model, usage, sent_at) for each in group]
        group = self._restored(group, fields)
        for message in group:
            self._names.update((call.id, call.name) for call in message.tool_calls)
        yield from conversation.join(group, records)

    def _join(self, record: Record, item: Raw | None) -> Iterator[Step]:
        conversation, fields = self._conversation, record.fields
        if conversation is None:
            return
        if fields is None:
            yield from conversation.record(record)
            return
        self._known(record)
        kind = string(fields, "type")
        sent_at = read_time(value(fields, "timestamp"))
        try:
            group = self._said(fields, kind, item, sent_at)
            group = self._restored(group, fields)
        except PalaverError as error:
            self._watch.note("value", str(error), record.line)
            group = []
        if group and isinstance(group[0], UserMessage) and group[0].source is None:
            self._turns.append(conversation.head)
        if group:
            yield from conversation.join(group, [record])
        else:
            yield from conversation.record(record, sent_at=sent_at)
        self._noted(fields, kind)

    def _said(self, fields: Fields, kind: str | None, item: Raw | None, sent_at: int | None) -> list[Message]:
        """The messages of a line that no model made; empty when it says nothing."""
        if kind == "compacted":
            payload = inner(fields, "payload")
            items = listed(payload, "replacement_history")
            text = UserMessage(content=(Text(string(payload, "message") or ""),))
            shown = self.messages(items) if items else [text]
            kept = [structs.replace(each, source=COMPACTION, sent_at=sent_at) for each in shown]
            return [record_message(sent_at), hidden_before(sent_at), *kept]
        if item is None:
            return []
        return [structs.replace(self.placed(each), sent_at=sent_at) for each in self.messages([item])]

    def messages(self, items: Sequence[Raw]) -> list[Message]:
        """The messages of items in a row. Raises ``DecodeError``."""
        return list(self._wire.decode_request(b'{"input":[%b]}' % b",".join(map(bytes, items))).messages)

    def placed(self, message: Message) -> Message:
        """Say where a text comes from that nobody typed, and which tool a result is of."""
        if isinstance(message, UserMessage) and (found := INJECTED.match(message.text)) is not None:
            return structs.replace(message, source=found[1] or "instructions")
        if isinstance(message, ToolMessage) and message.tool_name is None:
            return structs.replace(message, tool_name=self._names.get(message.tool_call_id or ""))
        return message

    def _restored(self, group: list[Any], fields: Fields) -> list[Any]:
        slot = fields.get(carrying.SLOT)
        found = None if slot is None else carrying.restored(group, jsontext.value(slot))
        return group if found is None else list(found)

    def _noted(self, fields: Fields, kind: str | None) -> None:
        """Take what a line says of the session."""
        payload = inner(fields, "payload")
        if kind == "turn_context":
            self._model = string(payload, "model") or self._model
            self._session = structs.replace(self._session, cwd=self._session.cwd or string(payload, "cwd"))
        if kind != "event_msg":
            return
        match string(payload, "type"):
            case "thread_name_updated":
                self._title = string(payload, "thread_name") or string(payload, "name") or self._title
            case "thread_rolled_back":
                self._roll_back(integer(payload, "num_turns") or 0)
            case "token_count":
                self._count(inner(payload, "info"))
                self._usage = None
            case _:
                pass

    def _roll_back(self, turns: int) -> None:
        conversation = self._conversation
        if conversation is not None and turns > 0 and self._turns:
            conversation.head = self._turns[-turns] if turns <= len(self._turns) else self._turns[0]
            del self._turns[-turns:]

    def _known(self, record: Record) -> None:
        """Report what the tables do not have."""
        fields = record.fields or {}
        kind = string(fields, "type")
        if "payload" not in fields:
            if kind is not None and kind not in ITEMS:
                self._watch.note("record", kind, record.line)
            return
        self._watch.keys(fields, LINE, "line", record.line)
        payload = string(inner(fields, "payload"), "type") or ""
        if kind not in TYPES:
            self._watch.note("record", kind or "without a type", record.line)
        elif kind == "response_item" and payload not in ITEMS:
            self._watch.note("block", f"response_item {payload}", record.line)
        elif kind == "event_msg" and payload not in EVENTS:
            self._watch.note("block", f"event_msg {payload}", record.line)


def _answered(message: Message, model: str | None, usage: Usage | None, sent_at: int | None) -> Message:
    """Give an answer what the lines around it say."""
    if not isinstance(message, AssistantMessage):
        return structs.replace(message, sent_at=sent_at)
    return structs.replace(message, model=message.model or model, usage=message.usage or usage, sent_at=sent_at)


def _completed(payload: Fields) -> Raw | None:
    """The item that a paginated file tells by an event: a prompt or an answer."""
    if string(payload, "type") != "item_completed":
        return None
    item = inner(payload, "item")
    kind = string(item, "type")
    texts = [split(each) for each in listed(item, "content")]
    said = [string(each, "text") or "" for each in texts if "text" in each]
    if kind == "UserMessage":
        content = [{"type": "input_text", "text": text} for text in said]
        return jsontext.raw({"type": "message", "role": "user", "content": content})
    if kind == "AgentMessage":
        answer = [{"type": "output_text", "text": text} for text in said]
        return jsontext.raw({"type": "message", "role": "assistant", "content": answer})
    return None
