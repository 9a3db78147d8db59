"""Writing of Codebuff messages. Each is read again, and compared (``message_list``).

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from palaver.core.messages import (
    DeveloperMessage,
    FlushMarker,
    RescueMarker,
    ToolMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    Video,
)
from palaver.transcripts import extension_slot
from palaver.transcripts.codebuff.options import options_of
from palaver.transcripts.codebuff.reader import CodebuffReader
from palaver.transcripts.codebuff.shapes import (
    ALLOWED,
    CLASSES,
    ERROR,
    EXTRA,
    base64_prefix,
)
from palaver.transcripts.fields import string, value
from palaver.transcripts.message_list import (
    ABSENT,
    Receipt,
    stored,
    tag_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.threads.thread import Entry


class CodebuffForm(CodebuffReader):
    """A message of Codebuff, read and written."""

    def carry(self, record: dict[str, Any], slot: dict[str, Any]) -> None:
        """Add carried data to a message, among its options."""
        record["providerOptions"] = {**record.get("providerOptions", {}), extension_slot.SLOT: slot}

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group a malformed call, the results that follow, and the note after them."""
        group: list[Entry] = []
        for entry in entries:
            message = entry.message
            if group and not (group[0].message.malformed_tool_calls and isinstance(message, ToolMessage)):
                if ERROR in message.tags:
                    self._noted.add(group[0].id)
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    def packs(self, group: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Split a group into single messages, each of which is a record."""
        for entry in group:
            yield (entry,)

    def behind(self, group: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Yield the note on malformed calls, unless the conversation has it already."""
        broken = group[0].message.malformed_tool_calls
        if broken and group[0].id not in self._noted:
            texts = [f"{part.reason}: {part.raw}" for part in broken]
            yield {
                "role": "user",
                "content": [{"type": "text", "text": "A tool call could not be read. " + "\n".join(texts)}],
                "tags": [ERROR],
                "providerOptions": {extension_slot.SLOT: {"note": True}},
            }

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a message."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        result = isinstance(message, ToolMessage)
        content = [_said(part, index, receipt, result=result) for index, part in enumerate(message.content)]
        role = "system" if isinstance(message, DeveloperMessage) else message.role
        cls = CLASSES[role]
        record: dict[str, Any] = {"role": role, "content": [each for each in content if each is not None]}
        for index, each in enumerate(content):
            if isinstance(each, dict) and each["type"] not in ALLOWED[cls]:
                record["content"] = [block for block in record["content"] if block is not each]
                receipt.lose(
                    "dropped", tag_of(message.content[index]), f"a message of role {role} cannot hold it", index
                )
        if isinstance(message, ToolMessage):
            beside = stored(message, EXTRA)
            without = {*beside, *(value(beside, ABSENT) or ())}
            if message.tool_call_id is not None or "toolCallId" not in without:
                record["toolCallId"] = message.tool_call_id or ""
            if message.tool_name is not None or "toolName" not in without:
                record["toolName"] = message.tool_name or self.tools.get(message.tool_call_id or "", "")
        if options := options_of(message, EXTRA):
            record["providerOptions"] = options
        if message.tags:
            record["tags"] = list(message.tags)
        if message.sent_at is not None:
            record["sentAt"] = message.sent_at
        return self.with_rest(record, stored(message, EXTRA))


def _said(part: AnyPart, index: int, receipt: Receipt, *, result: bool) -> dict[str, Any] | Raw | None:
    match part:
        case Opaque(wire="codebuff"):
            return part.raw_json
        case Json() if result:
            return {"type": "json", "value": part.value_json, **stored(part, EXTRA)}
        case MalformedToolCall():
            receipt.lose("converted", "malformed_tool_call", "written as a note after the results", index)
            return None
        case Image() | Audio() | Video() | File():
            block = _said_medium(part, result=result)
        case Text() if not result:
            block = {"type": "text", "text": part.text}
        case Reasoning():
            block = {"type": "reasoning", "text": part.text}
        case ToolCall():
            executed = {"providerExecuted": True} if part.provider_executed else {}
            arguments = receipt.arguments(part, index)
            block = {
                "type": "tool-call",
                "toolCallId": part.id,
                "toolName": part.name,
                "input": arguments,
                **executed,
            }
        case Text():
            receipt.lose("converted", "text", "a result is JSON: written as a string", index)
            return {"type": "json", "value": part.text}
        case _:
            text = receipt.text_for(part, index)
            return None if text is None else {"type": "text", "text": text}
    if block is None:
        receipt.lose("dropped", tag_of(part), "only bytes and URLs can be said, and in a result only bytes", index)
        return None
    options = options_of(part, EXTRA)
    rest = {key: raw for key, raw in stored(part, EXTRA).items() if key not in {"before", ABSENT}}
    return {**block, **({"providerOptions": options} if options and not result else {}), **rest}


def _said_medium(part: Media, *, result: bool) -> dict[str, Any] | None:
    beside = stored(part, EXTRA)
    before = string(beside, "before")
    if result:
        if not isinstance(part.source, Inline):
            return None
        return {"type": "media", "data": part.source.data, "mediaType": part.media_type or "application/octet-stream"}
    kind = "image" if isinstance(part, Image) else "file"
    text = text_of(part, base64_prefix(kind, part.media_type) if before is None else before)
    if text is None:
        return None
    typed = {} if part.media_type is None or value(beside, ABSENT) else {"mediaType": part.media_type}
    if kind == "image":
        return {"type": "image", "image": text, **typed}
    named = {"filename": part.name} if isinstance(part, File) and part.name is not None else {}
    return {"type": "file", "data": text, "mediaType": part.media_type or "application/octet-stream", **named}
