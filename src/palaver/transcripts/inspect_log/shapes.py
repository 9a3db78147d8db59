"""Names and keys of Inspect's logs, version 2, and their JSON, which may hold ``NaN`` and ``Infinity``.

The bytes of a file are cut and kept as they are. Where values are extracted from them, not-a-number becomes a string of
its name (docs/spec/dialects.md#0.11, #11).

Stability: experimental.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.transcripts import documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason

NAME: Final = "inspect"
VERSION: Final = 2

LOG: Final = frozenset(
    (
        *("version", "status", "eval", "plan", "results", "stats", "error", "invalidated", "log_updates"),
        *("config_updates", "tags", "metadata", "samples", "reductions"),
    )
)
SAMPLE: Final = frozenset(
    (
        *("id", "epoch", "input", "choices", "target", "description", "sandbox", "files", "setup", "messages"),
        *("output", "scores", "metadata", "store", "events", "timelines", "model_usage", "role_usage"),
        *("model_fallbacks", "started_at", "completed_at", "total_time", "working_time", "uuid", "invalidation"),
        *("error", "error_retries", "attachments", "events_data", "limit", "turn_count", "message_limit"),
        *("token_limit", "time_limit", "working_limit", "cost_limit", "score", "transcript", "checkpoints"),
    )
)
_MESSAGE: Final = frozenset(("id", "role", "content", "source", "metadata"))
MESSAGES: Final[Mapping[str, frozenset[str]]] = {
    "system": _MESSAGE,
    "user": _MESSAGE | {"tool_call_id"},
    "assistant": _MESSAGE | {"tool_calls", "model"},
    "tool": _MESSAGE | {"tool_call_id", "function", "error", "tool_error"},
}
"""The keys of a message of each role."""

_CONTENT: Final = frozenset(("type", "internal"))
CONTENT: Final[Mapping[str, frozenset[str]]] = {
    "text": _CONTENT | {"text", "refusal", "citations", "cache_breakpoint"},
    "reasoning": _CONTENT | {"reasoning", "summary", "signature", "redacted"},
    "tool_use": _CONTENT | {"tool_type", "id", "name", "context", "arguments", "result", "error"},
    "image": _CONTENT | {"image", "detail"},
    "audio": _CONTENT | {"audio", "format"},
    "video": _CONTENT | {"video", "format"},
    "document": _CONTENT | {"document", "filename", "mime_type", "citations"},
    "data": _CONTENT | {"data"},
}
CALL: Final = frozenset(("id", "function", "arguments", "parse_error", "view", "type"))

EVENTS: Final = frozenset(
    (
        *("anchor", "approval", "branch", "checkpoint", "compaction", "error", "info", "input", "interrupt"),
        *("logger", "model", "sample_init", "sample_limit", "sandbox", "score", "score_edit", "span_begin"),
        *("span_end", "state", "step", "store", "subtask", "tool"),
    )
)
"""Kinds of events. None becomes a message: ``messages`` has their results."""

WIRES: Final[Mapping[str, str]] = {
    "anthropic": "anthropic_messages",
    "openai": "openai_responses",
    "openai-api": "openai_responses",
    "azureai": "openai_responses",
    "google": "google_generate",
    "vertex": "google_generate",
    "bedrock": "bedrock_converse",
}
"""The wire of a model, by the part of its name before the slash; its reasoning has the proof of that wire."""

FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
STOPS: Final[Mapping[str, str]] = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}

AUDIO: Final[Mapping[str, str]] = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
}
VIDEO: Final[Mapping[str, str]] = {
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mov": "video/quicktime",
}
FORMATS: Final[Mapping[str, Mapping[str, str]]] = {"audio": AUDIO, "video": VIDEO}

ATTACHMENT: Final = "attachment://"
FAILURE: Final = "error"
"""The key of a message's metadata for the kind and text of a tool's failure."""


def fields_of(data: bytes) -> Fields:
    """Return the fields of an object; empty for any other value."""
    if found := documents.fields_of(data):
        return found
    parsed = _parsed(data)
    if not isinstance(parsed, dict):
        return {}
    return {key: jsontext.raw(each) for key, each in cast("dict[str, Any]", parsed).items()}


def items_of(data: Raw | None) -> list[Raw]:
    """Return the items of an array; empty for any other value."""
    if data is None or jsontext.kind(data) != "an array":
        return []
    try:
        return jsontext.items(data)
    except DecodeError:
        return list(map(jsontext.raw, _parsed(bytes(data)) or ()))


def is_json(data: bytes) -> bool:
    """Return whether a text is JSON, except for numbers such as ``NaN``."""
    return jsontext.is_json(data) or _parsed(data) is not None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_float=jsontext.Number, parse_constant=str)
    except (ValueError, RecursionError):
        return None
