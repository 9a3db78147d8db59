"""AG-UI 1.0, and streams of earlier versions (docs/spec/dialects.md#12).

Read: a list of messages, alone or in a ``RunAgentInput`` or a ``MESSAGES_SNAPSHOT``; streams of events, as JSON lines
or as an event stream. A response that spans several messages and events is one message. Activities, state, steps and
other data for the user interface stay in their records. Counters of a run that ends after a tool's result have no
message, and stay in their record too.

Not represented: counters of each call, finish reasons, whether a proof was a signature, citations, media in answers,
JSON results (they become text), markers, times in lists; malformed arguments stay text.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.transcripts.ag_ui.reader import RecordReader
from palaver.transcripts.ag_ui.shapes import EVENTS, NAME
from palaver.transcripts.ag_ui.writer import RecordWriter
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT"]

_OWN: Final = frozenset(("toolCalls", "encryptedValue", "subagentRunId", "activityType"))


def detect(head: Head) -> Detection | None:
    """Detect events by their types and ids, a ``RunAgentInput`` by its keys, a list by keys that only AG-UI has."""
    first = head.first or _streamed(head.data)
    kind = first.get("type")
    if isinstance(kind, str) and kind in EVENTS and kind.upper() == kind and kind:
        return Detection(0.9, _version(first))
    fields = head.fields or first
    listed = fields.get("messages")
    if isinstance(listed, list) and fields.get("type") == "MESSAGES_SNAPSHOT":
        return Detection(0.9)
    if isinstance(listed, list) and "threadId" in fields and ("runId" in fields or "protocolVersion" in fields):
        return Detection(0.95, _version(fields))
    return Detection(0.8) if any(_is_message(item) for item in head.items) else None


def _version(fields: Mapping[str, Any]) -> str | None:
    found = fields.get("protocolVersion")
    return found if isinstance(found, str) else None


def _streamed(data: bytes) -> Mapping[str, Any]:
    """Return the first event of an event stream."""
    for line in data.split(b"\n", 8)[:8]:
        if line.startswith(b"data:"):
            try:
                found: object = jsontext.value(line[5:].strip())
            except PalaverError:
                return {}
            return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {}


def _is_message(item: Mapping[str, Any]) -> bool:
    """Return whether it can only be a message of AG-UI: it has an id, and a key that no other list has."""
    if not isinstance(item.get("id"), str) or not isinstance(item.get("role"), str) or "parts" in item:
        return False
    own = not _OWN.isdisjoint(item) or (item["role"] == "tool" and "toolCallId" in item)
    return own or (item["role"] in {"reasoning", "activity"} and "content" in item and "type" not in item)


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="AG-UI events and messages",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="either",
    many=True,
    history="model",
    extension=".json",
    keeps=("calls and results", "reasoning and its proof", "media of users and tools", "sub-agents", "usage of runs"),
    loses=(
        "usage of each call",
        "finish reasons",
        "times in lists",
        "citations",
        "media in answers",
        "malformed arguments (as text)",
    ),
)
