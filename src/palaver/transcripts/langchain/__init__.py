"""LangChain messages (docs/spec/dialects.md#15).

Read: lists of ``messages_to_dict``, of flat dumps and of the constructor form, alone, in a state (``messages``,
``values.messages``), or one message on each line; no class is ever constructed. ``lc_source: summarization`` is a
compaction. Keys of ``additional_kwargs`` and ``response_metadata`` other than model, finish reason, arguments,
reasoning and proof stay in their record. A tool's ``artifact`` is the payload of its message. Checkpoints of LangGraph
in a database are not read, and neither are several lists, one on each line.

Not represented: times, markers other than the removal of everything, arguments that are not an object, JSON as a
result (it becomes text), branches.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.langchain.reader import RecordReader
from palaver.transcripts.langchain.shapes import NAME, ROOTS, kind_of
from palaver.transcripts.langchain.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FORMAT"]

_SURE: Final = frozenset(
    ("additional_kwargs", "response_metadata", "invalid_tool_calls", "usage_metadata", "tool_call_chunks", "example")
)
_OWN: Final = frozenset(("human", "ai", "remove"))


def detect(head: Head) -> Detection | None:
    """Detect a message with ``data`` or in the constructor form, in a list or on a line; a flat one by its own keys."""
    items = [*head.items, *_listed(head.fields), *_listed(head.first), *head.lines[:8]]
    found = [confidence for each in items[:16] if (confidence := _confidence(each))]
    if not found:
        return None
    versions = (_metadata(each).get("output_version") for each in items)
    return Detection(max(found), next((each for each in versions if isinstance(each, str)), None))


def _listed(fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    for path in ROOTS:
        stored: Any = fields
        for key in path:
            stored = _object(stored).get(key)
        if isinstance(stored, list):
            return [_object(each) for each in cast("list[object]", stored)]
    return ()


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    data = _object(item.get("data")) or _object(item.get("kwargs")) or item
    return _object(data.get("response_metadata"))


def _confidence(item: Mapping[str, Any]) -> float | None:
    if item.get("lc") == 1 and item.get("type") == "constructor":
        path = item.get("id")
        last = cast("list[object]", path)[-1] if isinstance(path, list) and path else None
        return 0.95 if isinstance(last, str) and kind_of(last) else None
    named = item.get("type")
    kind = kind_of(named) if isinstance(named, str) else None
    if kind is None:
        return None
    data = _object(item.get("data"))
    if "content" in data or (data and kind == "remove"):
        return 0.95
    if "content" in item and not _SURE.isdisjoint(item):
        return 0.9
    return 0.7 if "content" in item and kind in _OWN and "role" not in item else None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="LangChain messages",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="either",
    many=True,
    history="model",
    extension=".json",
    keeps=("reasoning with proof", "usage and model of each answer", "media", "malformed calls", "tool errors"),
    loses=("times", "branches", "markers", "arguments that are not an object", "JSON results (as text)"),
)
