"""Messages of the OpenTelemetry conventions for generative AI (docs/spec/dialects.md#8).

Read: the value of ``gen_ai.input.messages``, ``gen_ai.output.messages`` or ``gen_ai.system_instructions``; an object of
span attributes with these, structured or as JSON text; a span around them (of the SDK, or of OTLP), and lines of such
objects: messages that a span repeats are read once. The runs of tools (``execute_tool``) are read. Older generations
(``gen_ai.prompt.0.role``, events of a span) are read, never written. JSON text that was cut is reported, and kept.

Not represented: citations, cache marks, markers; arguments that are not JSON stay text; usage, model, times and ids
are a span's, and a conversation from elsewhere is written as a list of messages.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.otel_genai.reader import RecordReader
from palaver.transcripts.otel_genai.shapes import NAME, PARTS
from palaver.transcripts.otel_genai.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FORMAT"]

_NAME: Final = re.compile(
    r"gen_ai\.((input|output)\.messages|system_instructions)$|gen_ai\.(prompt|completion)\.0\."
    r"|gen_ai\.(choice|(system|user|assistant|tool)\.message|tool\.call\.id)$"
)
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset(("content",)),
    "reasoning": frozenset(("content",)),
    "tool_call": frozenset(("name",)),
    "tool_call_response": frozenset(("response", "result")),
    "server_tool_call": frozenset(("server_tool_call",)),
    "server_tool_call_response": frozenset(("server_tool_call_response",)),
    "blob": frozenset(("content",)),
    "file": frozenset(("file_id",)),
    "uri": frozenset(("uri",)),
}


def detect(head: Head) -> Detection | None:
    """Detect attributes by their names; a list of messages, or of parts, by the keys of the parts."""
    if head.data.lstrip()[:1] == b"{":
        if b'"gen_ai.' not in head.data:
            return None
        return Detection(0.9) if any(map(_is_record, (head.fields, *head.lines))) else None
    items = head.items
    if not items:
        return None
    if all(_is_part(item) for item in items):
        return Detection(0.6)
    parts = [part for item in items if isinstance(item.get("role"), str) for part in _parts(item)]
    if not parts:
        empty = all("role" in item and item.get("parts") == [] and not {"content", "id"} & set(item) for item in items)
        return Detection(0.4) if empty else None
    return Detection(0.85) if any(_is_part(part) for part in parts) else None


def _is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the attributes of the conventions at the place of spans and events.

    A tool that keeps spans in documents of its own has the same names deeper inside.
    """
    if isinstance(record.get("resourceSpans"), list):
        return True
    events: object = record.get("events")
    told = [record, *(cast("list[object]", events) if isinstance(events, list) else ())]
    return any(_NAME.match(name) for each in told for name in _names(each))


def _names(span: object) -> Iterator[str]:
    """Yield the name of a span or an event, and the names of its attributes."""
    if not isinstance(span, dict):
        return
    fields = cast("dict[str, Any]", span)
    attributes: object = fields.get("attributes", fields)
    if isinstance(attributes, dict):
        found = cast("dict[str, Any]", attributes)
        yield from found
        fields = {**fields, "event.name": found.get("event.name")}
    elif isinstance(attributes, list):
        for pair in cast("list[object]", attributes):
            named = cast("dict[str, object]", pair).get("key") if isinstance(pair, dict) else None
            yield from (named,) if isinstance(named, str) else ()
    for key in ("name", "event.name"):
        named = fields.get(key)
        if isinstance(named, str):
            yield named


def _parts(item: Mapping[str, Any]) -> list[object]:
    found = item.get("parts")
    return cast("list[object]", found) if isinstance(found, list) else []


def _is_part(part: object) -> bool:
    """Return whether a value is a part of the conventions: of a type with a key that Gemini and UIMessage lack."""
    if not isinstance(part, dict):
        return False
    fields = cast("dict[str, Any]", part)
    kind = fields.get("type")
    if not isinstance(kind, str) or "role" in fields:
        return False
    return kind in PARTS and not _KEYS.get(kind, frozenset()).isdisjoint(fields) and "text" not in fields


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="OpenTelemetry GenAI messages",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="either",
    many=True,
    history="model",
    extension=".json",
    keeps=("calls and results", "media", "reasoning", "usage, model and times of spans", "branches of spans"),
    loses=("citations", "cache marks", "markers", "malformed arguments (as text)", "usage, model and times in lists"),
)
