"""Usage of Chat Completions, read and written.

Vendors put cached tokens in four places and count reasoning inside or beside the completion; the data tells which,
so no variant is asked (docs/spec/wires.md#1.2, #2.9).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    num_cached_tokens: int | None = None
    cached_tokens: int | None = None


_counts = msgspec.json.Decoder(_Usage).decode
_NO_PROMPT, _NO_COMPLETION = _PromptDetails(), _CompletionDetails()


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters (docs/spec/wires.md#1.2)."""
    try:
        found = _counts(raw)
    except msgspec.DecodeError:  # counters of another type count nothing; the raw object keeps them
        return trusted.Usage(raw_json=jsontext.own(raw))
    prompt, completion = found.prompt_tokens, found.completion_tokens
    read = (found.prompt_tokens_details or _NO_PROMPT).cached_tokens
    if read is None:  # DeepSeek, Mistral, Hugging Face
        named = (found.prompt_cache_hit_tokens, found.num_cached_tokens, found.cached_tokens)
        read = next((count for count in named if count is not None), None)
    written = (found.prompt_tokens_details or _NO_PROMPT).cache_write_tokens
    reasoning = (found.completion_tokens_details or _NO_COMPLETION).reasoning_tokens
    beside = reasoning and found.total_tokens == (prompt or 0) + (completion or 0) + reasoning  # xAI counts it beside
    excluded = prompt is not None and read is not None and read > prompt and not written  # xAI leaves it out
    return trusted.Usage(
        input=prompt if excluded else json_fields.uncached(prompt, read, written),
        cache_read=read,
        cache_write=written,
        output=completion if completion is None or beside or not reasoning else max(0, completion - reasoning),
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage) -> Any:
    """Write usage: the provider's own object when it still says the same, else one made of the counters."""
    raw = usage.raw_json
    if raw is not UNSET and read_usage(raw) == usage:
        return raw
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    completion = (usage.output or 0) + (usage.reasoning or 0)
    fields: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.cache_read is not None:
        fields["prompt_tokens_details"] = {"cached_tokens": usage.cache_read}
    if usage.reasoning is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return fields
