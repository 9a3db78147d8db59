"""What both halves of the Cohere codec share: words, settings, and fields read and written side by side.

Source: docs/spec/wires.md#7, #1.2; https://docs.cohere.com/v2/reference/chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import provider, word

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields
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
    "length": "MAX_TOKENS",
    "tool_calls": "TOOL_CALL",
    "error": "ERROR",
    "content_filter": "ERROR_TOXIC",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``COMPLETE``."""

NEAR_WORD: Final[dict[FinishReason, str]] = {"refusal": "ERROR_TOXIC"}
"""What a reason without a word is sent as, other than ``COMPLETE``."""

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
    """Read ``tool_choice``; ``None`` for an unknown word."""
    if raw == Raw(b'"REQUIRED"'):
        return trusted.ToolChoice("required")
    return trusted.ToolChoice("none") if raw == Raw(b'"NONE"') else None


THINKING_FIELDS: Final = frozenset({"type", "token_budget"})

_read_typed = thinking.read_typed("token_budget")


def read_thinking(raw: Raw) -> int | None:
    """Read ``thinking``; ``None`` for a form that has no neutral meaning."""
    budget = _read_typed(raw)
    return None if budget == thinking.DYNAMIC and jsontext.fields(raw)["type"] != word("enabled") else budget


write_thinking = thinking.write_typed("token_budget")


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``response_format``; ``None`` for a form that has no neutral meaning.

    The schema stands in ``json_schema``, or in ``schema``, as in v1 and in the guide to structured output.
    """
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    kind = rest.pop("type", None)
    if kind == Raw(b'"text"'):
        return trusted.OutputFormat(kind="text", provider_json=provider(WIRE, rest))
    if kind != Raw(b'"json_object"'):
        return None
    key = schema_field(rest)
    if key is None:
        return trusted.OutputFormat(kind="json", provider_json=provider(WIRE, rest))
    schema = jsontext.own(rest.pop(key))
    return trusted.OutputFormat(kind="json_schema", schema_json=schema, provider_json=provider(WIRE, rest))


def schema_field(fields: Fields) -> str | None:
    """Return the name of the field of ``response_format`` that holds the schema."""
    names = (key for key in ("json_schema", "schema") if key in fields and jsontext.kind(fields[key]) == "an object")
    return next(names, None)


def write_output_format(output: OutputFormat, field: str = "json_schema") -> dict[str, Any]:
    """Write ``response_format``, with the schema in ``field``."""
    fields: dict[str, Any] = {"type": "text" if output.kind == "text" else "json_object"}
    if output.kind == "json_schema" and output.schema_json is not UNSET:
        fields[field] = output.schema_json
    return {**fields, **json_fields.native(output, WIRE)}


# -- usage -----------------------------------------------------------------------------------------


class _Tokens(Struct, gc=False):
    input_tokens: int | float | None = None  # the client's own objects have 9.0
    output_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    """The counters we read; what is billed is another count, and stays in the raw object."""

    tokens: _Tokens | None = None
    cached_tokens: int | float | None = None


_counts = msgspec.json.Decoder(_Usage).decode
_NO_TOKENS = _Tokens()


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters (docs/spec/wires.md#1.2)."""
    try:
        found = _counts(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):  # counters of another type count nothing
        return trusted.Usage(raw_json=jsontext.own(raw))
    tokens = found.tokens or _NO_TOKENS
    cached = _count(found.cached_tokens)
    return trusted.Usage(
        input=json_fields.uncached(_count(tokens.input_tokens), cached, None),
        cache_read=cached,
        output=_count(tokens.output_tokens),
        raw_json=jsontext.own(raw),
    )


def _count(number: float | None) -> int | None:
    """A whole number; a part of a token counts nothing."""
    return int(number) if number is not None and number == int(number) else None


def write_usage(usage: Usage) -> object:
    """Write usage: Cohere's own object when it still has the same meaning, else one made of the counters."""
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
