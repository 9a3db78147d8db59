"""Kairo messages in the form of its documentation: role, content, tool calls, metadata.

Source: docs/spec/message-fields.md#5.

A list of messages, or a single one: ``{"role": "tool", "content": "18 degrees", "toolName": "weather", "metadata":
{}}``. A call is ``{"toolId", "toolName", "input"}``, as in Kairo's own JSON (``kairo_a2a``). A tool message has the
name of its tool and no call, as Kairo's factory makes it: its call is not guessed.

Not represented: ids and times, the call of a result, failed results, images and other media, reasoning, the
order of text and calls, malformed calls (they become text), usage and model, agents, tags, markers.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
)
from palaver.core.parts import AnyPart, Opaque, Text, ToolCall
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import listed, split, string
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import (
    Form,
    Receipt,
    built,
    document_reading,
    empty,
    known_messages,
    list_rendering,
    message_classes,
    provider_of,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry

NAME: Final = "kairo"

_CLASSES: Final = message_classes()
_OWN: Final = frozenset(("toolCalls", "toolName"))
_CALL: Final = frozenset(("toolId", "toolName", "input"))


def detect(head: Head) -> Detection | None:
    """Return messages with text for content, and ``metadata``, ``toolCalls`` or ``toolName``."""
    found, most = known_messages(head, _CLASSES)
    if not most:
        return empty(head)
    if any(not isinstance(each.get("content", ""), str) for each in found):
        return None
    if any("agentName" in each or "timestamp" in each for each in found):
        return None
    if any(_OWN & each.keys() for each in found):
        return Detection(0.9)
    return Detection(0.7) if all(isinstance(each.get("metadata"), dict) for each in found) else None


class KairoForm(Form):
    """A message of Kairo's documentation."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = frozenset(("role", "content", "toolCalls", "toolName", "metadata"))
    always: ClassVar[frozenset[str]] = frozenset(("content", "metadata"))
    unsupported: ClassVar[Mapping[str, str]] = {
        "id": "a documented message of Kairo has no id",
        "sent_at": "a documented message of Kairo has no time",
    }

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        beside = self.rest(fields)
        calls = listed(fields, "toolCalls") if cls is AssistantMessage else []
        text, name = string(fields, "content"), string(fields, "toolName")
        parts: list[AnyPart] = [trusted.Text(text)] if text is not None and (text or not calls) else []
        parts += [_call(raw) for raw in calls]
        says: dict[str, Any] = {"tool_name": name} if cls is ToolMessage else {}
        metadata = fields.get("metadata")
        if metadata is not None and jsontext.kind(metadata) == "an object" and jsontext.fields(metadata):
            says["metadata_json"] = jsontext.own(metadata)
        read = {
            "content": text is not None,
            "toolCalls": bool(calls),
            "toolName": cls is ToolMessage and name is not None,
        }
        read["metadata"] = metadata is not None and jsontext.kind(metadata) == "an object"
        beside.update((key, jsontext.own(fields[key])) for key, done in read.items() if not done and key in fields)
        return [built(cls, content=tuple(parts), provider_json=provider_of({NAME: beside}), **says)]

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the record of a message."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        texts: list[str] = []
        calls: list[Any] = []
        for index, part in enumerate(message.content):
            match part:
                case Text():
                    texts.append(part.text)
                case ToolCall() if not part.provider_executed:
                    call = {"toolId": part.id, "toolName": part.name, "input": receipt.arguments(part, index)}
                    calls.append({**call, **stored(part, NAME)})
                case Opaque(wire="kairo"):
                    calls.append(part.raw_json)
                case _:
                    if (text := receipt.text_for(part, index)) is not None:
                        texts.append(text)
        role = "system" if isinstance(message, DeveloperMessage) else message.role
        metadata = message.metadata_json
        record: dict[str, Any] = {"role": role, "content": "".join(texts)}
        if calls:
            record["toolCalls"] = calls
        if isinstance(message, ToolMessage) and message.tool_name is not None:
            record["toolName"] = message.tool_name
        record["metadata"] = jsontext.EMPTY_OBJECT if metadata is UNSET else metadata
        return self.with_rest(record, stored(message, NAME))


def _call(raw: Raw) -> ToolCall | Opaque:
    fields = split(raw)
    called, name, given = string(fields, "toolId"), string(fields, "toolName"), fields.get("input")
    if called is None or name is None or given is None or jsontext.kind(given) != "an object":
        return trusted.Opaque(NAME, jsontext.own(raw))
    beside = {key: each for key, each in fields.items() if key not in _CALL}
    return trusted.ToolCall(called, name, bytes(given).decode(), provider_json=provider_of({NAME: beside}))


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Kairo messages, as documented",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(KairoForm),
    record_writer=list_rendering(KairoForm),
    layout="document",
    extension=".json",
    keeps=("roles and text", "tool calls", "names of tools", "metadata"),
    loses=(
        "ids and times",
        "which call a result answers",
        "failed results",
        "media",
        "reasoning",
        "malformed calls (as text)",
        "usage and model",
        "markers",
    ),
)
