"""Usage of Converse, read and written: the counters are disjoint already, and cached tokens go by two names.

Reasoning is not counted apart. Source: docs/spec/wires.md#1.2.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage


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
    """Write usage: the provider's own object when it still says the same, else one made of the counters."""
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
