"""Write messages as pi entries, of version 3.

Stability: experimental.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, assert_never, cast

from msgspec import structs

from palaver.core import jsontext, trusted
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
from palaver.core.parts import (
    AnyPart,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from palaver.threads.ids import now_ms
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import (
    COMPACTION,
    hidden_before,
    session_of,
)
from palaver.transcripts.fields import inner, iso, one_line, wire_of
from palaver.transcripts.format import Origin
from palaver.transcripts.pi.reader import RecordReader, usage_of
from palaver.transcripts.pi.shapes import APIS, PROVIDERS, STOPS, VERSION
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry


class RecordWriter:
    """Writes one session."""

    def __init__(self, writing: WriteState) -> None:
        """Start a session, or continue one."""
        self._writing = writing
        self._session = session_of(writing.metadata)
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = self._session.started_at or first or now_ms()
        """The time of entries without one: that of the entry before."""
        self._reader = RecordReader(Origin(), Watch())

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group each message alone; the marker of a compaction with its summary, which are one entry."""
        place = 0
        while place < len(entries):
            marked = _marks(entries[place]) and place + 1 < len(entries) and self._compacts(entries[place + 1])
            end = place + 1 + (marked and entries[place + 1].parent == entries[place].id)
            yield entries[place:end]
            place = end

    def head(self) -> Iterator[bytes]:
        """Yield the header."""
        yield jsontext.encode(
            {
                "type": "session",
                "version": VERSION,
                "id": self._session.id or self._writing.thread.id,
                "timestamp": iso(self._at),
                "cwd": self._session.cwd or "/",
            }
        )

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the entry of a message."""
        marker = next((entry for entry in group if _marks(entry)), None)
        if marker is not None and (summary := _behind(group, marker)) is not None:
            yield jsontext.encode(self._entry(summary, old[0] if old else None, marker=marker))
            return
        for entry, before in zip(group, (*old, *[None] * len(group)), strict=False):
            yield jsontext.encode(self._entry(entry, before))

    def _entry(self, entry: Entry, old: bytes | None, *, marker: Entry | None = None) -> dict[str, Any]:
        message = entry.message
        at = self._at = self._at if message.sent_at is None else message.sent_at
        known: Fields = {} if old is None else jsontext.fields(old)
        place: dict[str, Any] = {"id": self._id(entry.id), "parentId": self._parent(entry), "timestamp": iso(at)}
        if old is not None:
            place = {key: known[key] for key in ("id", "parentId", "timestamp") if key in known}
        said = self._said(entry, at, inner(known, "message"))
        if said is None:
            self._writing.lose("converted", message.role, "pi has no such message; kept in a custom entry", entry)
            slot = extension_slot.carried([message], [])
            return {"type": "custom", **place, "customType": extension_slot.SLOT, "data": slot}
        record: dict[str, Any] = {"type": "message", **place, "message": said}
        if self._compacts(entry):
            kept = {"firstKeptEntryId": place.get("id"), "tokensBefore": 0}
            kept |= {key: known[key] for key in (*kept, "firstKeptEntryIndex") if key in known}
            record = {"type": "compaction", **place, "summary": message.text, **kept}
        if self._writing.options.carry:
            plain = self._reader.plain(jsontext.fields(jsontext.encode(record)))
            lead = [] if marker is None or _is_plain(marker.message) else [marker.message]
            messages = [structs.replace(each, sent_at=message.sent_at) for each in plain]
            slot = extension_slot.carried([*lead, message], messages)
            if slot is not None:
                record[extension_slot.SLOT] = slot
        return record

    def _compacts(self, entry: Entry) -> bool:
        """Return whether a message is the summary of a compaction: it follows its marker."""
        if not isinstance(entry.message, UserMessage) or not entry.message.is_summary:
            return False
        before = None if entry.parent is None else self._writing.thread.entry(entry.parent).message
        return isinstance(before, FlushMarker)

    def _said(self, entry: Entry, at: int, old: Fields) -> dict[str, Any] | None:
        message = entry.message
        match message:
            case UserMessage():
                return {"role": "user", "content": self._blocks(entry), "timestamp": at}
            case AssistantMessage():
                return self._assistant(entry, message, at, old)
            case ToolMessage():
                return {
                    "role": "toolResult",
                    "toolCallId": message.tool_call_id or "",
                    "toolName": message.tool_name or "",
                    "content": self._blocks(entry),
                    "isError": message.is_error,
                    "timestamp": at,
                }
            case SystemMessage() | DeveloperMessage() | RescueMarker() | FlushMarker():
                return None
            case _:
                assert_never(message)

    def _assistant(self, entry: Entry, message: AssistantMessage, at: int, old: Fields) -> dict[str, Any]:
        wire = wire_of(message, APIS, "openai_chat")
        usage = message.usage or trusted.Usage()
        counts: Any = {
            "input": usage.input or 0,
            "output": (usage.output or 0) + (usage.reasoning or 0),
            "cacheRead": usage.cache_read or 0,
            "cacheWrite": usage.cache_write or 0,
            "totalTokens": usage.total,
            "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
        }
        if message.usage is not None and message.usage == usage_of(old):
            counts = old["usage"]
        failed = message.metadata.get("error")  # text in this format; opencode has an object
        failed = failed if failed is None or isinstance(failed, str) else jsontext.encode(failed).decode()
        return {
            "role": "assistant",
            "content": self._blocks(entry),
            "api": old.get("api", APIS.get(wire, wire)),
            "provider": old.get("provider", PROVIDERS.get(wire, "unknown")),
            "model": message.model or "unknown",
            "usage": counts,
            "stopReason": STOPS.get(message.finish_reason or "", "toolUse" if message.tool_calls else "stop"),
            "timestamp": at,
            **({} if failed is None else {"errorMessage": failed}),
        }

    def _blocks(self, entry: Entry) -> list[dict[str, Any]]:
        blocks = (self._block(entry, place, part) for place, part in enumerate(entry.message.content))
        return [block for block in blocks if block is not None]

    def _block(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text}
            case Refusal():
                self._writing.lose("converted", "refusal", "written as text", entry, place)
                return {"type": "text", "text": part.text}
            case Json():
                self._writing.lose("converted", "json", "written as text", entry, place)
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Reasoning():
                proof = part.signature if part.signature is not None else part.encrypted
                signed = {} if proof is None else {"thinkingSignature": proof}
                redacted = {"redacted": True} if part.encrypted is not None and part.signature is None else {}
                return {"type": "thinking", "thinking": part.text, **signed, **redacted}
            case Image(source=Inline() as source):
                return {"type": "image", "data": source.data, "mimeType": part.media_type or "image/png"}
            case ToolCall() if not part.provider_executed and not part.custom:
                arguments = one_line(part.arguments_json or "{}")
                return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": arguments}
            case MalformedToolCall():
                self._writing.lose("converted", "malformed_tool_call", "written as text", entry, place)
                return {"type": "text", "text": part.raw}
            case _:
                kind = cast("str", type(part).__struct_config__.tag)
                self._writing.lose("dropped", kind, "pi has no block for it", entry, place)
                return None

    def _parent(self, entry: Entry) -> str | None:
        """Return the id of the entry before, which may be one that was left out."""
        parent = entry.parent
        while parent is not None and parent not in self._ids and not self._writing.is_native(parent):
            parent = self._writing.thread.entry(parent).parent
        return None if parent is None else self._ids.get(parent, parent)

    def _id(self, entry: str) -> str:
        """Return eight hex digits, unique in the file."""
        if self._writing.is_native(entry):
            return entry
        digits = entry
        while (short := sha256(digits.encode("utf-8", "surrogatepass")).hexdigest()[:8]) in self._taken:
            digits += "+"
        self._taken.add(short)
        self._ids[entry] = short
        return short


def _marks(entry: Entry) -> bool:
    """Return whether an entry is the marker of a compaction."""
    return isinstance(entry.message, FlushMarker) and entry.message.source == COMPACTION


def _behind(group: Sequence[Entry], marker: Entry) -> Entry | None:
    """Return the summary after a marker."""
    return next((each for each in group if each.parent == marker.id), None)


def _is_plain(marker: Message) -> bool:
    """Return whether a marker has no data of its own beyond the compaction."""
    return structs.replace(extension_slot.without_records(marker), id=None, sent_at=None) == hidden_before()
