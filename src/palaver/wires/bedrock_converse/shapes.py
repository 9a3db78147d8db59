"""Values that the reader and the writer of Converse share: names, formats and usage.

A block is an object with one key, its kind. Fields under the key without a neutral place stand under
``provider["bedrock_converse"]``; fields beside the key are the note ``beside``. The counters of usage are disjoint,
cached tokens have two names, and reasoning is not counted apart.

Source: docs/spec/wires.md#1.2, #6.1, #6.4; the shapes of ``bedrock-runtime`` in botocore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.jsontext import NULL
from palaver.core.parts import Audio, File, Image, MalformedToolCall, Media, ToolCall, Video
from palaver.core.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason
    from palaver.core.parts import AssistantPart


WIRE: Final = "bedrock_converse"

FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}
"""docs/spec/wires.md#6.4. ``tool_use`` counts only with a call that the client must answer; every other word is
``other``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filtered",
    "error": "malformed_model_output",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``end_turn``."""

NEAR_WORD: Final[dict[FinishReason, str]] = {"refusal": "content_filtered"}
"""What a reason without a word is sent as, other than ``end_turn``."""

EXCEPTIONS: Final = frozenset(
    {
        "internalServerException",
        "modelStreamErrorException",
        "serviceUnavailableException",
        "throttlingException",
        "validationException",
    }
)
"""How a stream may fail (docs/spec/wires.md#6.3)."""

STARTS: Final = frozenset({"toolUse", "toolResult", "image"})
"""Blocks with a start event."""

DELTAS: Final = frozenset({"text", "toolUse", "toolResult", "reasoningContent", "citation", "image"})
"""What a block may get more of."""

THOUGHTS: Final = ("text", "signature", "redactedContent")
"""The same, of reasoning."""

_DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

KINDS: Final[dict[type[Media], str]] = {Image: "image", File: "document", Video: "video", Audio: "audio"}

FORMATS: Final[dict[str, dict[str, str]]] = {
    "image": {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"},
    "document": {
        "pdf": "application/pdf",
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": _DOCX,
        "xls": "application/vnd.ms-excel",
        "xlsx": _XLSX,
        "html": "text/html",
        "txt": "text/plain",
        "md": "text/markdown",
    },
    "video": {
        "mkv": "video/x-matroska",
        "mov": "video/quicktime",
        "mp4": "video/mp4",
        "webm": "video/webm",
        "flv": "video/x-flv",
        "mpeg": "video/mpeg",
        "mpg": "video/mpeg",
        "wmv": "video/x-ms-wmv",
        "three_gp": "video/3gpp",
    },
    "audio": {
        "mp3": "audio/mpeg",
        "opus": "audio/opus",
        "wav": "audio/wav",
        "aac": "audio/aac",
        "flac": "audio/flac",
        "mp4": "audio/mp4",
        "ogg": "audio/ogg",
        "mkv": "audio/x-matroska",
        "mka": "audio/x-matroska",
        "x-aac": "audio/x-aac",
        "m4a": "audio/mp4",
        "mpeg": "audio/mpeg",
        "mpga": "audio/mpeg",
        "pcm": "audio/pcm",
        "webm": "audio/webm",
    },
}
"""Words of each kind and their media types; where two words share a type, the first is the one we write."""

_ALIASES: Final[dict[str, dict[str, str]]] = {
    "image": {"image/jpg": "jpeg"},
    "document": {"text/x-markdown": "md", "application/csv": "csv"},
    "video": {"video/mpg": "mpeg", "video/x-mkv": "mkv"},
    "audio": {"audio/mp3": "mp3", "audio/x-wav": "wav", "audio/wave": "wav", "audio/m4a": "m4a"},
}

WORDS: Final[dict[str, dict[str, str]]] = {
    kind: {**{media_type: word for word, media_type in reversed(words.items())}, **_ALIASES[kind]}
    for kind, words in FORMATS.items()
}
"""Media types of each kind, and the word that we write."""


def finish(word: str | None, content: Sequence[AssistantPart]) -> FinishReason:
    """Return the reason; ``tool_use`` asks the client for something only when there is a call for it.

    Source: docs/spec/wires.md#6.4.

    A call that a stream spoiled is one too.
    """
    reason = FINISH.get(word or "", "other")
    if reason != "tool_calls":
        return reason
    return reason if any(map(_asks, content)) else "other"


def _asks(part: AssistantPart) -> bool:
    return isinstance(part, MalformedToolCall) or (isinstance(part, ToolCall) and not part.provider_executed)


def choose(rest: Fields, known: Container[str]) -> str | None:
    """Find the kind of a union: its one key, else the first known one that is not null."""
    found = members(rest, known)
    return found[0] if found else None


def members(rest: Fields, known: Container[str]) -> list[str]:
    """Find the known keys of a union; nulls count only where there is nothing else."""
    found = [key for key in rest if key in known]
    if len(found) > 1:
        found = [key for key in found if rest[key] != NULL] or found
    return found


# -- usage ------------------------------------------------------------------------------------------


class _Usage(Struct, gc=False, rename="camel"):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    cache_read_input_token_count: int | None = None
    cache_write_input_token_count: int | None = None


_counts = msgspec.json.Decoder(_Usage).decode


def read_usage(raw: Raw) -> Usage:
    """Read the usage object."""
    try:
        found = _counts(raw)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
    ):  # counters of another type count nothing; the raw object keeps them
        return trusted.Usage(raw_json=jsontext.own(raw))
    read, written = found.cache_read_input_tokens, found.cache_write_input_tokens
    return trusted.Usage(
        input=found.input_tokens,
        cache_read=found.cache_read_input_token_count if read is None else read,
        cache_write=found.cache_write_input_token_count if written is None else written,
        output=found.output_tokens,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage | None) -> Any:
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
    if usage is None:
        usage = trusted.Usage()
    raw = usage.raw_json
    if isinstance(raw, Raw) and read_usage(raw) == usage:
        return raw
    output = (usage.output or 0) + (usage.reasoning or 0)
    fields = {"inputTokens": usage.input or 0, "outputTokens": output, "totalTokens": usage.total}
    if usage.cache_read is not None:
        fields["cacheReadInputTokens"] = usage.cache_read
    if usage.cache_write is not None:
        fields["cacheWriteInputTokens"] = usage.cache_write
    return fields
