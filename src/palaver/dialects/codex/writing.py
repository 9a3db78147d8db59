"""Messages into Codex rollout lines that the program resumes (dialects.md 3, *Writer*).

Rules:

- Legacy history: ``session_meta`` first, and before each prompt a ``turn_context``. A prompt and an answer are response
  items, and once more events, without which a session is not listed. Usage is a ``token_count`` behind its answer.
- Items are those of the wire: what it cannot say is in its receipt, and so in ours. System and developer messages are
  developer items.
- A compaction is a ``compacted`` line with what the model sees in place of what it hid.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import ToolCall
from palaver.core.request import Request
from palaver.core.usage import Usage
from palaver.dialects import carrying
from palaver.dialects.codex.forms import NAME, WIRE, write_usage
from palaver.dialects.codex.reading import Reading
from palaver.dialects.conversation import COMPACTION, derived_id, session_of
from palaver.dialects.dialect import Origin
from palaver.dialects.drift import Watch
from palaver.dialects.fields import split, string
from palaver.dialects.times import iso
from palaver.dialects.writing import Writing
from palaver.threads.ids import is_uuid, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw

    from palaver.threads.thread import Entry

_VERSION: Final = "0.60.0"
_NO_LOSS: Final = frozenset(("model", "tool call ids"))


class Rendering:
    """Writes the lines of one conversation."""

    def __init__(self, writing: Writing) -> None:
        """Begin a rollout, or go on with one."""
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._session = session_of(writing.metadata)
        self._reader = Reading(Origin(), Watch())
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = self._session.started_at or first or now_ms()
        models = (e.message.model for e in writing.entries if isinstance(e.message, AssistantMessage))
        self._model = next((each for each in models if each is not None), self._session.model or "unknown")
        self._total = Usage()
        self._turns = 0

    def head(self) -> Iterator[bytes]:
        """The line that begins a rollout."""
        own = self._session.dialect == NAME
        named = self._session.id or self._writing.thread.id
        meta = {
            "id": named if is_uuid(named) else derived_id(named),
            "timestamp": iso(self._at),
            "cwd": self._session.cwd or "/",
            "originator": "codex_cli_rs",
            "cli_version": self._session.program if own and self._session.program else _VERSION,
            "source": "cli",
            "model_provider": "openai",
        }
        yield self._line("session_meta", meta)

    def tail(self, old: bytes | None) -> None:
        """Lines have none."""

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """A compaction and what follows in its place share a line; any other message stands alone."""
        place = 0
        while place < len(entries):
            end = place + 1
            if _compacts(entries[place].message):
                while end < len(entries) and _stands_in(entries[end].message):
                    end += 1
            yield entries[place:end]
            place = end

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """The lines of a message; those of its items alone where it had lines before."""
        entry = group[0]
        self._at = self._at if entry.message.sent_at is None else entry.message.sent_at
        if any(_compacts(each.message) for each in group):
            yield self._compacted([each for each in group if _stands_in(each.message)])
            return
        message = entry.message
        if isinstance(message, RescueMarker | FlushMarker):
            self._writing.lose("dropped", message.role, "a rollout has no such line", entry)
            return
        items = self._items(group)
        lines = [self._record("response_item", item) for item in items]
        if not old or carrying.SLOT in jsontext.fields(old[0]):
            self._carry(lines, group, items)
        if old:
            for line, before in zip(lines, (*map(jsontext.fields, old), *[{}] * len(lines)), strict=False):
                yield jsontext.encode(line | {key: before[key] for key in ("timestamp", "ordinal") if key in before})
            return
        yield from self._told(message, lines)

    def _told(self, message: Message, lines: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """The lines of a new message, with those that the screen is drawn from."""
        typed = isinstance(message, UserMessage) and message.source is None
        if typed:
            self._turns += 1
            turn = derived_id(self._writing.thread.id, "turn", self._turns)
            context = {"turn_id": turn, "cwd": self._session.cwd or "/", "approval_policy": "on-request"}
            sandbox = {"sandbox_policy": {"type": "read-only"}, "model": self._model, "summary": "auto"}
            yield self._line("turn_context", {**context, **sandbox})
        yield from map(jsontext.encode, lines)
        if typed:
            images = [each.data_uri for each in message.images if each.data_uri is not None]
            yield self._line("event_msg", {"type": "user_message", "message": message.text, "images": images})
        if isinstance(message, AssistantMessage):
            if message.text:
                yield self._line("event_msg", {"type": "agent_message", "message": message.text})
            if message.usage is not None:
                yield self._count(message.usage)

    def _count(self, usage: Usage) -> bytes:
        self._total = self._total + usage
        info = {"total_token_usage": write_usage(self._total), "last_token_usage": write_usage(usage)}
        return self._line("event_msg", {"type": "token_count", "info": {**info, "model_context_window": None}})

    def _items(self, group: Sequence[Entry]) -> list[Raw]:
        """The items of messages. A result is given a call to answer, which is then left out."""
        messages = [_developer(each.message) for each in group]
        results = [each for each in messages if isinstance(each, ToolMessage) and each.tool_call_id is not None]
        calls = tuple([self._called(each) for each in results])
        before = [AssistantMessage(content=calls)] if calls else []
        asked = [each for each in messages if isinstance(each, AssistantMessage)]
        pending = [call for each in asked for call in each.tool_calls if not call.provider_executed]
        after = [ToolMessage(tool_call_id=call.id, tool_name=call.name) for call in pending]
        encoded = self._wire.encode_request(Request(messages=(*before, *messages, *after)))
        for loss in encoded.losses:
            place = None if loss.message is None else loss.message - len(before)
            if loss.what not in _NO_LOSS and (place is None or 0 <= place < len(group)):
                entry = None if place is None else group[place]
                self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)
        items = jsontext.items(jsontext.fields(encoded.body).get("input", jsontext.raw([])))
        return [_whole(each) for each in items[len(calls) : len(items) - len(after)]]

    def _called(self, result: ToolMessage) -> ToolCall:
        """The call that a result answers, of the kind that it was."""
        named = result.tool_call_id or ""
        for entry in reversed(self._writing.entries):
            for call in entry.message.tool_calls:
                if call.id == named:
                    return call
        return ToolCall(named, result.tool_name or "tool")

    def _compacted(self, kept: Sequence[Entry]) -> bytes:
        summary = next((each.message.text for each in kept), "")
        items = [item for each in kept for item in self._items([each])]
        record = self._record("compacted", {"message": summary, "replacement_history": items})
        return jsontext.encode(record)

    def _carry(self, lines: Sequence[dict[str, Any]], group: Sequence[Entry], items: Sequence[Raw]) -> None:
        if not lines or not self._writing.options.carry:
            return
        read = self._reader.messages(items)
        messages = [each.message for each in group]
        one = messages[0]
        known = {"model": one.model, "usage": one.usage} if isinstance(one, AssistantMessage) else {}
        plain = [structs.replace(self._reader.placed(each), sent_at=one.sent_at) for each in read]
        if known:
            plain = [structs.replace(each, **known) if isinstance(each, AssistantMessage) else each for each in plain]
        slot = carrying.carried(messages, plain)
        if slot is not None:
            lines[0][carrying.SLOT] = slot

    def _record(self, kind: str, payload: object) -> dict[str, Any]:
        return {"timestamp": iso(self._at), "type": kind, "payload": payload}

    def _line(self, kind: str, payload: object) -> bytes:
        return jsontext.encode(self._record(kind, payload))


def _whole(item: Raw) -> Raw:
    """An item with what the wire may leave out and a rollout does not: the type of a message, its content as a list."""
    fields = split(item)
    if "role" not in fields:
        return item
    content = fields.get("content")
    if content is not None and jsontext.kind(content) == "a string":
        kind = "output_text" if string(fields, "role") == "assistant" else "input_text"
        fields["content"] = jsontext.raw([{"type": kind, "text": jsontext.text(content)}])
    return jsontext.raw({"type": "message", **fields})


def _compacts(message: Message) -> bool:
    return isinstance(message, FlushMarker) and message.source == COMPACTION


def _stands_in(message: Message) -> bool:
    """Whether a message stands in a model's view in place of what a compaction hid."""
    return message.source == COMPACTION and not _compacts(message)


def _developer(message: Message) -> Message:
    """A rollout keeps what a system message says as the developer's."""
    if not isinstance(message, SystemMessage):
        return message
    return DeveloperMessage(content=message.content)


def written_name(meta: Raw) -> str:
    """The name that the program gives the file of a session, from its ``session_meta``: its time and its id."""
    fields = split(meta)
    stamp = (string(fields, "timestamp") or "").partition(".")[0].replace(":", "-")
    return f"rollout-{stamp}-{string(fields, 'id') or ''}.jsonl"
