"""What both halves of the Cohere codec share: words, settings, and fields read and written side by side.

Source: docs/spec/wires.md#7, #1.2; https://docs.cohere.com/v2/reference/chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.usage import Usage
from palaver.wires import reading
from palaver.wires.reading import provider

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason

WIRE: Final = "cohere_chat"

FINISH: Final[dict[str, FinishReason]] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR": "error",
    "TIMEOUT": "error",
    "ERROR_TOXIC": "content_filter",
}
"""``finish_reason``; every other word, and none at all, is ``other``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "COMPLETE",
    "refusal": "COMPLETE",
    "length": "MAX_TOKENS",
    "tool_calls": "TOOL_CALL",
    "error": "ERROR",
    "content_filter": "ERROR_TOXIC",
}

SETTINGS: Final = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "top_k": "k",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Neutral settings that are numbers, and their names here."""

INTEGERS: Final = frozenset({"max_tokens", "top_k", "seed"})


# -- fields of a request ---------------------------------------------------------------------------


def read_tool_choice(raw: Raw) -> ToolChoice | None:
    """Read ``tool_choice``; ``None`` for a word that nobody knows."""
    if raw == Raw(b'"REQUIRED"'):
        return ToolChoice("required")
    return ToolChoice("none") if raw == Raw(b'"NONE"') else None


def read_thinking(raw: Raw) -> int | None:
    """Read the token budget out of ``thinking``; ``None`` where there is none, or thinking is not enabled."""
    if jsontext.kind(raw) != "an object":
        return None
    match jsontext.value(raw):
        case {"type": "enabled", "token_budget": int(budget)} if not isinstance(budget, bool):
            return budget
        case _:
            return None


def write_thinking(budget: int) -> dict[str, Any]:
    """Write ``thinking`` with a token budget."""
    return {"type": "enabled", "token_budget": budget}


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``response_format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    kind = rest.pop("type", None)
    if kind == Raw(b'"text"'):
        return OutputFormat(kind="text", provider_json=provider(WIRE, rest))
    if kind != Raw(b'"json_object"'):
        return None
    schema = rest.get("json_schema")
    if schema is None or jsontext.kind(schema) != "an object":
        return OutputFormat(kind="json", provider_json=provider(WIRE, rest))
    del rest["json_schema"]
    return OutputFormat(kind="json_schema", schema_json=jsontext.own(schema), provider_json=provider(WIRE, rest))


def write_output_format(output: OutputFormat) -> dict[str, Any]:
    """Write ``response_format``."""
    fields: dict[str, Any] = {"type": "text" if output.kind == "text" else "json_object"}
    if output.kind == "json_schema" and output.schema_json is not UNSET:
        fields["json_schema"] = output.schema_json
    return {**fields, **reading.visible(reading.native(output, WIRE))}


# -- usage -----------------------------------------------------------------------------------------


class _Tokens(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Usage(Struct, gc=False):
    """The counters we read; what is billed is another count, and stays in the raw object."""

    tokens: _Tokens | None = None
    cached_tokens: int | None = None


_counts = msgspec.json.Decoder(_Usage).decode
_NO_TOKENS = _Tokens()


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters (docs/spec/wires.md#1.2)."""
    try:
        found = _counts(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):  # counters of another type count nothing
        return Usage(raw_json=jsontext.own(raw))
    tokens = found.tokens or _NO_TOKENS
    return Usage(
        input=reading.uncached(tokens.input_tokens, found.cached_tokens, None),
        cache_read=found.cached_tokens,
        output=tokens.output_tokens,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage) -> object:
    """Write usage: Cohere's own object when it still says the same, else one made of the counters that are known."""
    raw = usage.raw_json
    if isinstance(raw, Raw) and "tokens" in jsontext.fields(raw) and read_usage(raw) == usage:
        return raw
    tokens: dict[str, int] = {}
    for key, counts in (
        ("input_tokens", (usage.input, usage.cache_read, usage.cache_write)),
        ("output_tokens", (usage.output, usage.reasoning)),
    ):
        known = [count for count in counts if count is not None]
        if known:
            tokens[key] = sum(known)
    fields: dict[str, Any] = {"tokens": tokens}
    return fields if usage.cache_read is None else {**fields, "cached_tokens": usage.cache_read}
