"""Write conversations as messages of the conventions.

Rules (docs/spec/dialects.md#8):

- A conversation from elsewhere is a list: the value of ``gen_ai.input.messages``, system messages in their place.
- An addition to a file of spans is a line of attributes for each answer, with all earlier messages, as in spans.
- In an edited span, the messages that it added are replaced. Later spans still have the old ones.
- Further data of a message are carried in it, under ``palaver``: the conventions allow any key.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
)
from palaver.core.parts import (
    AnyPart,
    File,
    FileId,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.transcripts import extension_slot, original_bytes
from palaver.transcripts.documents import TAIL
from palaver.transcripts.fields import one_line, split
from palaver.transcripts.otel_genai.shapes import CONVERSATION, INPUT, LISTS, NAME, OUTPUT, STOPS, Parts, spans_of
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, is_record, singly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.threads.thread import Entry


class RecordWriter:
    """Writes one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Find the original form of the conversation: a list, lines of spans, or a span that is a document."""
        self._writing = writing
        writing.never_writes("sent_at")
        self._plain = Parts(None, Watch(), None)
        pieces = [
            piece
            for entry in writing.entries
            if writing.native and original_bytes.leads(entry.message, NAME)
            for piece in (original_bytes.records_of(NAME, [entry.message]) or ())
        ]
        self._listed = not writing.native or any(piece.at == TAIL for piece in pieces)
        self._closed = not self._listed and any(b"\n" in piece.raw.strip() for piece in pieces)

    def head(self) -> Iterator[bytes]:
        """Yield the bracket that opens the list."""
        yield b"["

    def tail(self, old: bytes | None) -> bytes:
        """Return the bracket that closes it."""
        return b"]\n" if old is None else old

    def groups(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Group messages: in a list each alone; in spans, those before an answer with it."""
        if self._listed:
            yield from singly(entries)
            return
        group: list[Entry] = []
        for entry in entries:
            group.append(entry)
            if isinstance(entry.message, AssistantMessage):
                yield group
                group = []
        if group:
            yield group

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the records of a group."""
        if old and self._listed:
            for entry, before in zip(group, (*old, *[None] * len(group)), strict=False):
                message = self._message(entry)
                if message is not None and (before is None or "role" in split(Raw(before))):
                    yield jsontext.encode(message)
                elif before is not None:
                    yield from self._parts(entry)
        elif self._listed:
            for entry in group:
                if (message := self._message(entry)) is not None:
                    yield jsontext.encode(message)
        elif old:
            yield self._edited(group, old[0])
        elif self._closed:
            for entry in group:
                self._writing.lose("dropped", entry.message.role, "one span is a document, nothing joins it", entry)
        else:
            yield self._span(group)

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _span(self, group: Sequence[Entry]) -> bytes:
        """Return a line of attributes: all earlier messages, and the answer."""
        path = self._writing.thread.path(self._writing.options.branch)
        ids = [entry.id for entry in path]
        end = ids.index(group[-1].id) if group[-1].id in ids else -1
        told = [entry for entry in path[:end] if not is_record(entry)] if end >= 0 else list(group[:-1])
        last = group[-1]
        answers = isinstance(last.message, AssistantMessage)
        attributes: dict[str, Any] = {CONVERSATION: self._writing.thread.id}
        named = next((key for entry in self._writing.entries if (key := self._key(entry)) is not None), None)
        if named is not None:
            attributes[CONVERSATION] = named
        asked = told if answers else [*told, last]
        attributes[INPUT] = [each for entry in asked if (each := self._message(entry)) is not None]
        if answers:
            attributes[OUTPUT] = [self._message(last)]
        return jsontext.encode(attributes)

    def _key(self, entry: Entry) -> str | None:
        """Return the id of the conversation from one of its records."""
        for piece in original_bytes.records_of(NAME, [entry.message]) or ():
            for span in spans_of(split(Raw(piece.raw.strip())), Watch(), None):
                return span.key
        return None

    def _edited(self, group: Sequence[Entry], old: bytes) -> bytes:
        """Return a span with the messages that it added replaced."""
        fields = split(Raw(old))
        stored = split(fields["attributes"]) if "attributes" in fields else fields
        spans = spans_of(fields, Watch(), None)
        if len(spans) != 1 or not any(key in stored for key in LISTS) or spans[0].system:
            self._writing.lose("dropped", "edit", "such a span is not written", group[0])
            return old
        (span,) = spans
        left, items = len(group), [*span.input, *span.output]
        while items and left > 0:
            left -= max(len(self._count(items.pop())), 1)
        written: list[Any] = [each for entry in group if (each := self._message(entry)) is not None]
        answers = len(span.output)
        told = [*items, *written]
        lists = {INPUT: told[: len(told) - answers], OUTPUT: told[len(told) - answers :]} if answers else {INPUT: told}
        self._writing.lose("approximated", "edit", "other spans still have the old text", group[0])
        changed = {
            key: jsontext.encode(each).decode() if jsontext.kind(stored[key]) == "a string" else each
            for key, each in lists.items()
            if key in stored
        }
        return jsontext.encode({"attributes": changed} if "attributes" in fields else changed)

    def _count(self, raw: Raw) -> list[Message]:
        try:
            return self._plain.plain(split(raw))
        except PalaverError:
            return []

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self, entry: Entry) -> dict[str, Any] | None:
        message = entry.message
        if isinstance(message, (FlushMarker, RescueMarker)):
            self._writing.lose("dropped", message.role, "there is no such mark", entry)
            return None
        written: dict[str, Any] = {"role": message.role, "parts": list(self._parts_of(entry))}
        name = cast("dict[str, Any]", message.provider.get(NAME, {})).get("name")
        if isinstance(message, AssistantMessage):
            name = message.agent
            if message.finish_reason is not None:
                raw = message.finish_reason_raw
                written["finish_reason"] = (
                    raw if isinstance(raw, str) else STOPS.get(message.finish_reason, message.finish_reason)
                )
        if name is not None:
            written["name"] = name
        if self._writing.options.carry:
            fields = jsontext.fields(jsontext.encode(written))
            slot = extension_slot.carried([message], self._plain.plain(fields))
            if slot is not None:
                written[extension_slot.SLOT] = slot
        return written

    def _parts(self, entry: Entry) -> Iterator[bytes]:
        """Yield system instructions: parts without a message."""
        for part in self._parts_of(entry):
            yield jsontext.encode(part)

    def _parts_of(self, entry: Entry) -> Iterator[dict[str, Any]]:
        message = entry.message
        if isinstance(message, ToolMessage):
            yield self._result(entry, message)
            return
        for place, part in enumerate(message.content):
            written = self._part(entry, place, part)
            if written is not None:
                yield written

    def _result(self, entry: Entry, message: ToolMessage) -> dict[str, Any]:
        """Return one part with the whole output of the tool."""
        parts = message.content
        if len(parts) == 1 and isinstance(parts[0], Text):
            response: Any = parts[0].text
        elif len(parts) == 1 and isinstance(parts[0], Json):
            response = one_line(bytes(parts[0].value_json).decode())
        else:
            written = [each for at, part in enumerate(parts) if (each := self._part(entry, at, part)) is not None]
            response = written
            if parts:
                self._writing.lose("converted", "content", "several parts as a JSON list", entry)
        result: dict[str, Any] = {"type": "tool_call_response", "id": message.tool_call_id, "response": response}
        if message.tool_name is not None:
            result["name"] = message.tool_name
        return {**result, "is_error": True} if message.is_error else result

    def _part(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        match part:
            case Text():
                if part.citations:
                    self._writing.lose("dropped", "citations", "there are none", entry, place)
                return {"type": "text", "content": part.text}
            case Refusal():
                return {"type": "refusal", "content": part.text}
            case Json():
                return {"type": "text", "content": bytes(part.value_json).decode()}
            case Reasoning():
                proof = {"signature": part.signature, "encrypted_content": part.encrypted}
                proof = {key: each for key, each in proof.items() if each is not None}
                return {"type": "reasoning", "content": part.text, **proof}
            case ToolCall() if part.provider_executed:
                return {
                    "type": "server_tool_call",
                    "id": part.id,
                    "name": part.name,
                    "server_tool_call": {"type": part.name, "arguments": one_line(part.arguments_json or "{}")},
                }
            case ToolCall():
                arguments: Any = one_line(part.arguments_json) if part.arguments_json.strip() else None
                return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
            case MalformedToolCall():
                self._writing.lose("converted", "malformed_tool_call", "its arguments stay text", entry, place)
                return {"type": "tool_call", "id": part.id, "name": part.name or "", "arguments": part.raw}
            case ServerToolResult():
                said = {"type": part.tool_name or "result", "output": part.output_json}
                return {
                    "type": "server_tool_call_response",
                    "id": part.tool_call_id,
                    "server_tool_call_response": said,
                }
            case Opaque(wire=wire) if wire == NAME and jsontext.kind(part.raw_json) == "an object":
                return cast("dict[str, Any]", jsontext.fields(part.raw_json))
            case Opaque():
                self._writing.lose("converted", "opaque", f"a block of {part.wire}", entry, place)
                return {"type": "palaver", "content": part.raw_json}
            case Media():
                return self._medium(entry, place, part)

    def _medium(self, entry: Entry, place: int, part: Media) -> dict[str, Any] | None:
        kind = cast("str", type(part).__struct_config__.tag)
        told: dict[str, Any] = {"modality": "document" if kind == "file" else kind, "mime_type": part.media_type}
        if isinstance(part, File) and part.name is not None:
            told["name"] = part.name
        match part.source:
            case Inline(data):
                return {"type": "blob", **told, "content": data}
            case Url(url):
                return {"type": "uri", **told, "uri": url}
            case FileId(named):
                return {"type": "file", **told, "file_id": named}
            case _:
                self._writing.lose("dropped", kind, "its bytes are in a store", entry, place)
                return None
