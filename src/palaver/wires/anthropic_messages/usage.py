"""Usage of Messages, read and written.

The counters are disjoint already; thinking is counted inside the output and, where the provider tells, apart. Passes of
a compaction, of an advisor and of a fallback model stand beside the top-level counters (docs/spec/wires.md#1.2).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage, UsagePass


class _OutputDetails(Struct, gc=False):
    thinking_tokens: int | None = None


class _Counts(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Iteration(_Counts, gc=False):
    type: str = "message"
    model: str | None = None


class _Usage(_Counts, gc=False):
    iterations: list[_Iteration] | None = None


_counts = msgspec.json.Decoder(_Usage).decode


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters."""
    try:
        found = _counts(raw)
    except msgspec.DecodeError:  # counters of another type count nothing; the raw object keeps them
        return trusted.Usage(raw_json=jsontext.own(raw))
    passes = tuple([_pass(each) for each in found.iterations if each.type != "message"]) if found.iterations else ()
    return _usage(found, passes, jsontext.own(raw))


def _pass(found: _Iteration) -> UsagePass:
    return UsagePass(kind=found.type, model=found.model, usage=_usage(found, (), UNSET))


def _usage(found: _Counts, passes: tuple[UsagePass, ...], raw: Raw | UnsetType) -> Usage:
    output = found.output_tokens
    reasoning = None if found.output_tokens_details is None else found.output_tokens_details.thinking_tokens
    return trusted.Usage(
        input=found.input_tokens,
        cache_read=found.cache_read_input_tokens,
        cache_write=found.cache_creation_input_tokens,
        output=output if output is None or not reasoning else max(0, output - reasoning),
        reasoning=reasoning,
        passes=passes,
        raw_json=raw,
    )


def write_usage(usage: Usage) -> Any:
    """Write usage: the provider's own object when it still says the same, else one made of the counters."""
    raw = usage.raw_json
    if raw is not UNSET and read_usage(raw) == usage:
        return raw
    fields = _written(usage)
    if usage.passes:
        fields["iterations"] = [_written_pass(each) for each in usage.passes]
    return fields


def _written(usage: Usage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "input_tokens": usage.input or 0,
        "output_tokens": (usage.output or 0) + (usage.reasoning or 0),
    }
    if usage.cache_write is not None:
        fields["cache_creation_input_tokens"] = usage.cache_write
    if usage.cache_read is not None:
        fields["cache_read_input_tokens"] = usage.cache_read
    if usage.reasoning is not None:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return fields


def _written_pass(each: UsagePass) -> dict[str, Any]:
    model = {} if each.model is None else {"model": each.model}
    counters = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **_written(each.usage)}
    return {"type": each.kind, **model, **counters}
