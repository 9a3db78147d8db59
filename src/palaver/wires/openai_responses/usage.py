"""Usage of the Responses wire, read and written (docs/spec/wires.md#1.2).

Source: https://platform.openai.com/docs/api-reference/responses/object, ``usage``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


_counts = msgspec.json.Decoder(_Usage).decode
_NO_INPUT, _NO_OUTPUT = _InputDetails(), _OutputDetails()


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters."""
    try:
        found = _counts(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):  # odd counters count nothing; raw keeps them
        return trusted.Usage(raw_json=jsontext.own(raw))
    read = (found.input_tokens_details or _NO_INPUT).cached_tokens
    written = (found.input_tokens_details or _NO_INPUT).cache_write_tokens
    reasoning = (found.output_tokens_details or _NO_OUTPUT).reasoning_tokens
    output = found.output_tokens
    return trusted.Usage(
        input=json_fields.uncached(found.input_tokens, read, written),
        cache_read=read,
        cache_write=written,
        output=output if output is None or not reasoning else max(0, output - reasoning),
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
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": prompt + completion,
    }
