"""Messages into a log of ACP updates (docs/spec/dialects.md#13).

Rules:

- A line is a ``session/update`` notification; its ``_meta`` has the time. A part is a chunk; a call is a
  ``tool_call``, its result a ``tool_call_update``.
- The name of a tool is written as its title. Signatures, usage, models, and finish reasons have no update: they are
  carried in ``_meta``, which others ignore.
- Messages that are not shown (system messages, markers) are carried in a ``session_info_update`` with nothing else.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    File,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Url,
)
from palaver.threads.ids import now_ms
from palaver.transcripts import extension_slot
from palaver.transcripts.acp.shapes import CHUNKS, KINDS, NAME, Form, Group, block_of
from palaver.transcripts.conversation import session_of
from palaver.transcripts.fields import inner, iso, one_line, string
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, with_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.threads.thread import Entry


class RecordWriter:
    """Writes the updates of one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Start a log, or continue one."""
        self._writing = writing
        self._form = Form(Watch())
        session = session_of(writing.metadata)
        self._used: set[str] = set()  # ids of written calls
        self._names: dict[str, str] = {}  # those of the current message, by their own ids
        self._session = session.id or writing.thread.id
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = session.started_at or first or now_ms()

    def head(self) -> Iterator[bytes]:
        """Yield the title, if there is one."""
        title = self._writing.take_title()
        if title is not None:
            yield jsontext.encode(self._notice({"sessionUpdate": "session_info_update", "title": title}))

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group an answer with the results of its calls that follow it."""
        return with_results(entries, _call_ids)

    def render(self, group: Sequence[Entry], _old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the updates of a group."""
        messages = [entry.message for entry in group]
        first = messages[0]
        self._names.clear()
        self._at = self._at if first.sent_at is None else first.sent_at
        updates = list(self._updates(group))
        if not updates:
            self._writing.lose("converted", first.role, "ACP has no update for it; carried in _meta", group[0])
            updates = [{"sessionUpdate": "session_info_update"}]
        times = [self._at] * len(updates)
        for place, update in enumerate(updates):
            if update["sessionUpdate"] == "tool_call_update":
                times[place] = self._result_at(group, update["toolCallId"])
        notices = [self._notice(update, at) for update, at in zip(updates, times, strict=True)]
        if self._writing.options.carry:
            slot = extension_slot.carried(messages, self._plain(notices, messages))
            if slot is None and isinstance(first, AssistantMessage):
                slot = {"end": True}  # so that the next answer is another message
            if slot is not None:
                notices[-1]["params"]["_meta"][extension_slot.SLOT] = jsontext.raw(slot)
        yield from map(_line, notices)

    def _result_at(self, group: Sequence[Entry], named: str) -> int:
        found = (entry.message for entry in group if isinstance(entry.message, ToolMessage))
        times = [each.sent_at for each in found if self._names.get(each.tool_call_id or "") == named]
        return self._at if not times or times[0] is None else times[0]

    def _notice(self, update: dict[str, Any], at: int | None = None) -> dict[str, Any]:
        meta = {"timestamp": iso(self._at if at is None else at)}
        params: dict[str, Any] = {"sessionId": self._session, "update": update, "_meta": meta}
        return {"jsonrpc": "2.0", "method": "session/update", "params": params}

    def _plain(self, notices: Sequence[dict[str, Any]], messages: Sequence[Message]) -> list[Message]:
        """Return the messages of the updates as they are read."""
        group: Group | None = None
        for notice in notices:
            fields = inner(inner(jsontext.fields(_line(notice)), "params"), "update")
            kind = string(fields, "sessionUpdate") or ""
            if kind == "session_info_update":
                return []
            group = group or Group(user=kind == "user_message_chunk")
            if kind in CHUNKS:
                part = self._form.block(fields.get("content"))
                if part is not None:
                    group.add(part, thought=CHUNKS[kind] == "thought")
            else:
                group.call(string(fields, "toolCallId") or "", fields, None)
        plain = [] if group is None else group.messages(self._form)
        dated = [*(each.sent_at for each in messages), *[None] * len(plain)]
        return [structs.replace(each, sent_at=at) for each, at in zip(plain, dated, strict=False)]

    # -- updates -------------------------------------------------------------------------------------------------------

    def _updates(self, group: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        entry, message = group[0], group[0].message
        match message:
            case UserMessage():
                yield from self._chunks(entry, "user_message_chunk")
            case AssistantMessage():
                yield from self._answer(entry, message)
                for each in group[1:]:
                    yield from self._result(each)
            case ToolMessage():
                self._writing.lose("converted", "tool result", "it answers no call; one is written for it", entry)
                start = {
                    "toolCallId": self._named(message.tool_call_id, entry.id),
                    "title": message.tool_name or "tool",
                }
                yield {"sessionUpdate": "tool_call", **start, "kind": "other", "status": "pending"}
                yield from self._result(entry)
            case _:
                return

    def _answer(self, entry: Entry, message: AssistantMessage) -> Iterator[dict[str, Any]]:
        lost = {"usage": message.usage, "model": message.model, "finish_reason": message.finish_reason}
        for what in [key for key, stored in lost.items() if stored is not None]:
            self._writing.lose("converted", what, "ACP says it of turns, if at all; carried in _meta", entry)
        yield from self._chunks(entry, "agent_message_chunk")

    def _named(self, called: str | None, otherwise: str) -> str:
        """Return the id of a call: its own, unless an earlier call has it; a log has each call once."""
        own = called or otherwise
        if own not in self._names:
            made = self._names[own] = own if own not in self._used else otherwise
            self._used.add(made)
        return self._names[own]

    def _chunks(self, entry: Entry, variant: str) -> Iterator[dict[str, Any]]:
        named, any_ = {"messageId": entry.id}, False
        for place, part in enumerate(entry.message.content):
            if isinstance(part, ToolCall | MalformedToolCall):
                any_ = True
                yield self._call(entry, place, part)
                continue
            block = self._block(entry, place, part)
            if block is None:
                continue
            any_ = True
            kind = "agent_thought_chunk" if isinstance(part, Reasoning) else variant
            yield {"sessionUpdate": kind, "content": block, **named}
        if not any_:
            yield {"sessionUpdate": variant, "content": {"type": "text", "text": ""}, **named}

    def _call(self, entry: Entry, place: int, part: ToolCall | MalformedToolCall) -> dict[str, Any]:
        if isinstance(part, MalformedToolCall):
            arguments = jsontext.raw(part.raw)
            self._writing.lose(
                "converted", "malformed_tool_call", "its arguments are written as a string", entry, place
            )
        else:
            arguments = one_line(part.arguments_json or "{}")
        kept = part.provider.get(NAME, {})
        kind = kept.get("kind")
        if not kept:
            self._writing.lose("converted", "tool name", "written as the title", entry, place)
        call: dict[str, Any] = {
            "sessionUpdate": "tool_call",
            "toolCallId": self._named(part.id, f"{entry.id}/{place}"),
            "title": part.name or "tool",
            "kind": kind if kind in KINDS else "other",
            "status": "pending",
        }
        if not isinstance(part, ToolCall) or part.arguments_json:
            call["rawInput"] = arguments
        return {**call, "locations": kept["locations"]} if "locations" in kept else call

    def _result(self, entry: Entry) -> Iterator[dict[str, Any]]:
        message = entry.message
        if not isinstance(message, ToolMessage):
            return
        update: dict[str, Any] = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": self._named(message.tool_call_id, entry.id),
        }
        update["status"] = "failed" if message.is_error else "completed"
        content: list[Any] = []
        for place, part in enumerate(message.content):
            if isinstance(part, Json) and "rawOutput" not in update and place == 0:
                update["rawOutput"] = part.value_json
                continue
            if isinstance(part, Opaque) and part.wire == NAME:
                content.append(part.raw_json)
                continue
            block = self._block(entry, place, part)
            if block is not None:
                content.append({"type": "content", "content": block})
        if content:
            update["content"] = content
        yield update

    def _block(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | Raw | None:
        if isinstance(part, Reasoning) and (part.signature is not None or part.encrypted is not None):
            self._writing.lose("converted", "reasoning proof", "carried in _meta", entry, place)
        if isinstance(part, Reasoning) and not part.text:
            return None
        found = block_of(part)
        if found is not None:
            return found
        match part:
            case Refusal():
                self._writing.lose("converted", "refusal", "written as text", entry, place)
                return {"type": "text", "text": part.text}
            case Json():
                self._writing.lose("converted", "json", "written as text", entry, place)
                return {"type": "text", "text": bytes(one_line(bytes(part.value_json).decode())).decode()}
            case Media(source=Url() as source):
                name = part.name if isinstance(part, File) and part.name else source.url
                typed = {} if part.media_type is None else {"mimeType": part.media_type}
                beside = part.provider.get(NAME, {})
                return {"type": "resource_link", "uri": source.url, "name": name, **typed, **beside}
            case Media(source=Inline() as source):
                name = part.name if isinstance(part, File) and part.name else f"{entry.id}/{place}"
                self._writing.lose("converted", "media", "written as an embedded resource", entry, place)
                typed = {} if part.media_type is None else {"mimeType": part.media_type}
                return {"type": "resource", "resource": {"uri": name, "blob": source.data, **typed}}
            case Text():
                return None
            case _:
                self._writing.lose("dropped", "part", f"ACP has no block for {type(part).__name__}", entry, place)
                return None


def _line(notice: dict[str, Any]) -> bytes:
    """Return a notification as a line; results may contain line breaks between their values."""
    return bytes(one_line(jsontext.encode(notice).decode()))


def _call_ids(message: Message) -> list[str | None]:
    return [part.id for part in message.content if isinstance(part, ToolCall | MalformedToolCall)]
