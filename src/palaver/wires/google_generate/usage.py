"""Usage of Gemini, read and written (docs/spec/wires.md#1.2).

``thoughtsTokenCount`` stands beside ``candidatesTokenCount``; the prompts of tools that Google ran are counted apart
and are input like any other.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields


class _Counts(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    prompt: int | None = field(default=None, name="promptTokenCount")
    cached: int | None = field(default=None, name="cachedContentTokenCount")
    candidates: int | None = field(default=None, name="candidatesTokenCount")
    thoughts: int | None = field(default=None, name="thoughtsTokenCount")
    tools: int | None = field(default=None, name="toolUsePromptTokenCount")
    total: int | None = field(default=None, name="totalTokenCount")


class _SnakeCounts(Struct, gc=False):
    """The same, in the other spelling."""

    prompt: int | None = field(default=None, name="prompt_token_count")
    cached: int | None = field(default=None, name="cached_content_token_count")
    candidates: int | None = field(default=None, name="candidates_token_count")
    thoughts: int | None = field(default=None, name="thoughts_token_count")
    tools: int | None = field(default=None, name="tool_use_prompt_token_count")
    total: int | None = field(default=None, name="total_token_count")


_NONE, _SNAKE_NONE = _Counts(), _SnakeCounts()
_counts = msgspec.json.Decoder(_Counts).decode
_snake_counts = msgspec.json.Decoder(_SnakeCounts).decode


def _found(raw: Raw) -> _Counts | _SnakeCounts | None:
    """Read the counters; ``None`` when there are none, or they are of another type and count nothing."""
    try:
        found = _counts(raw)
        if found != _NONE:
            return found
        other = _snake_counts(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if other == _SNAKE_NONE else other


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters."""
    found = _found(raw)
    if found is None:
        return trusted.Usage(raw_json=jsontext.own(raw))
    prompt = found.prompt if found.cached is None else json_fields.uncached(found.prompt, found.cached, None)
    return trusted.Usage(
        input=prompt if found.tools is None else (prompt or 0) + found.tools,
        cache_read=found.cached,
        output=found.candidates,
        reasoning=found.thoughts,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage, *, own: bool) -> Any:
    """Write usage: the provider's own object when it still says the same, else one made of the counters."""
    raw = usage.raw_json
    if isinstance(raw, Raw) and (own or _found(raw) is not None) and read_usage(raw) == usage:
        return raw
    fields: dict[str, int] = {
        "promptTokenCount": (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0),
        "candidatesTokenCount": usage.output or 0,
    }
    if usage.cache_read is not None:
        fields["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        fields["thoughtsTokenCount"] = usage.reasoning
    fields["totalTokenCount"] = usage.total
    return fields
