"""Values that the reader and the writer of Messages share: names, fields with several forms, and usage.

- ``tool_choice``, ``thinking`` and ``output_config.format`` have a reader and a writer each.
- The counters of usage are disjoint. ``output_tokens`` includes thinking, which some answers also count apart. Passes
  for a compaction, an advisor or a fallback model stand beside the top-level counters.

Source: docs/spec/wires.md#1.2, #4.1, #4.2, #4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.usage import Usage, UsagePass
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import provider

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason


WIRE: Final = "anthropic_messages"

FINISHED: Final = "stop_reason"

FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
}
"""docs/spec/wires.md#4.4. Anything else, null and absent included, is ``other``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
    "refusal": "refusal",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``end_turn``."""

NEAR_WORD: Final[dict[FinishReason, str]] = {"content_filter": "refusal"}
"""What a reason without a word is sent as, other than ``end_turn``."""

IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF: Final = "application/pdf"
PLAIN_TEXT: Final = "text/plain"
TEXT_TYPES: Final = frozenset(
    {PLAIN_TEXT, "text/markdown", "text/csv", "text/html", "text/css", "text/xml", "text/x-python", "application/json"}
)
"""Documents that are sent as a ``text`` source, which calls all of them plain text."""


# -- tool choice -----------------------------------------------------------------------------------


class Choosing(NamedTuple):
    """The two meanings of ``tool_choice``: which tools, and whether several at a time."""

    choice: ToolChoice
    parallel: bool | None


CHOICE_FIELDS: Final = frozenset({"type", "name", "disable_parallel_tool_use"})


def read_tool_choice(raw: Raw) -> Choosing | None:
    """Read ``tool_choice``; ``None`` for a form that has no neutral meaning."""
    found = jsontext.value(raw)
    match found:
        case {"type": "auto" | "none" as mode}:
            choice = trusted.ToolChoice(mode)
        case {"type": "any"}:
            choice = trusted.ToolChoice("required")
        case {"type": "tool", "name": str(name)}:
            choice = trusted.ToolChoice("required", (name,))
        case _:
            return None
    disabled = found.get("disable_parallel_tool_use")
    return Choosing(choice, not disabled if isinstance(disabled, bool) else None)


def write_tool_choice(choosing: Choosing) -> dict[str, Any]:
    """Write ``tool_choice``. Several calls at a time are the default, and ``none`` does not speak of them."""
    choice, parallel = choosing
    if choice.mode == "none":
        return {"type": "none"}
    single = {"disable_parallel_tool_use": True} if parallel is False else {}
    if choice.mode == "required" and len(choice.names) == 1:
        return {"type": "tool", "name": choice.names[0], **single}
    return {"type": "any" if choice.mode == "required" else "auto", **single}


# -- thinking --------------------------------------------------------------------------------------

LEAST_BUDGET: Final = 1024

THINKING_FIELDS: Final = frozenset({"type", "budget_tokens"})

read_thinking = thinking.read_typed("budget_tokens")
write_thinking = thinking.write_typed("budget_tokens", "adaptive")


# -- output format ---------------------------------------------------------------------------------


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``output_config.format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    if rest.pop("type", None) != json_fields.word("json_schema") or "schema" not in rest:
        return None
    schema = jsontext.own(rest.pop("schema"))
    return trusted.OutputFormat(kind="json_schema", schema_json=schema, provider_json=provider(WIRE, rest))


def write_output_format(output: OutputFormat) -> dict[str, Any]:
    """Write ``output_config.format``."""
    schema = jsontext.EMPTY_OBJECT if output.schema_json is UNSET else output.schema_json
    return {"type": "json_schema", "schema": schema, **json_fields.native(output, WIRE)}


# -- usage ------------------------------------------------------------------------------------------


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
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
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
