"""Values that the reader and the writer of Responses share: names, fields with several forms, and usage.

Source: docs/spec/wires.md#1.2, #3.2, #3.6; https://platform.openai.com/docs/api-reference/responses/create;
https://platform.openai.com/docs/api-reference/responses/object, ``usage``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason


WIRE: Final = "openai_responses"

FINISH: Final[dict[str, FinishReason]] = {
    "completed": "stop",
    "incomplete": "other",
    "failed": "error",
    "cancelled": "error",
    "queued": "pause",
    "in_progress": "pause",
}
"""docs/spec/wires.md#3.6. ``completed`` is refined by what the output holds, ``incomplete`` by its reason."""

INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""``incomplete_details.reason``."""

FINISH_WORD: Final[dict[FinishReason, tuple[str, str | None]]] = {
    "stop": ("completed", None),
    "tool_calls": ("completed", None),
    "refusal": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "content_filter": ("incomplete", "content_filter"),
    "error": ("failed", None),
    "other": ("incomplete", None),
}
"""Status, and reason of being incomplete. The others are approximated by ``incomplete``."""

CONTINUES: Final = frozenset({"previous_response_id", "conversation"})
"""Fields that say that earlier items are kept by the provider (docs/spec/wires.md#3.3.4)."""

ELSEWHERE: Final = CONTINUES | {"prompt"}
"""Fields under which ``input`` may be left out (docs/spec/wires.md#3.3.7)."""


def optional(take: Callable[[Fields, str], Any], rest: Fields, key: str) -> Any:
    """Take an optional field out; one of an odd type is left in place."""
    try:
        return take(rest, key)
    except DecodeError:
        return None


def peek(rest: Fields, key: str) -> str | None:
    """Look at a string, and leave it in place."""
    raw = rest.get(key)
    return None if raw is None or jsontext.kind(raw) != "a string" else jsontext.text(raw)


# -- tool choice -----------------------------------------------------------------------------------


def read_tool_choice(raw: Raw) -> ToolChoice | None:
    """Read ``tool_choice``; ``None`` for a form that has no neutral meaning."""
    match jsontext.value(raw):
        case "auto" | "none" | "required" as mode:
            return trusted.ToolChoice(mode)
        case {"type": "function" | "custom", "name": str(name)}:
            return trusted.ToolChoice("required", (name,))
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": [*tools]}:
            names = tuple(_allowed(tool) for tool in cast("list[object]", tools))
            return trusted.ToolChoice(mode, names) if names and all(names) else None
        case _:
            return None


def _allowed(tool: object) -> str:
    match tool:
        case {"type": "function" | "custom", "name": str(name)}:
            return name
        case _:
            return ""


def write_tool_choice(choice: ToolChoice, custom: Collection[str] = ()) -> object:
    """Write ``tool_choice``; ``custom`` names the free-text tools."""
    if not choice.names or choice.mode == "none":
        return choice.mode
    tools = [{"type": "custom" if n in custom else "function", "name": n} for n in choice.names]
    if choice.mode == "required" and len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}


# -- output format ---------------------------------------------------------------------------------

_KINDS: Final = {"text": "text", "json_object": "json", "json_schema": "json_schema"}


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``text.format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    kind = _KINDS.get(optional(json_fields.take_text, rest, "type") or "")
    if kind is None:
        return None
    if kind != "json_schema":
        return trusted.OutputFormat(kind=kind, provider_json=provider(WIRE, rest))  # type: ignore[arg-type] # a word of the table
    schema = rest.pop("schema", UNSET)
    return trusted.OutputFormat(
        kind="json_schema",
        schema_json=UNSET if schema is UNSET else jsontext.own(schema),
        name=optional(json_fields.take_text, rest, "name"),
        description=optional(json_fields.take_text, rest, "description"),
        strict=optional(json_fields.take_bool, rest, "strict"),
        provider_json=provider(WIRE, rest),
    )


def write_output_format(output: OutputFormat) -> object:
    """Write ``text.format``."""
    rest = json_fields.visible(json_fields.native(output, WIRE))
    if output.kind != "json_schema":
        return {"type": "json_object" if output.kind == "json" else "text", **rest}
    fields: dict[str, Any] = {"type": "json_schema", "name": output.name or "output"}
    if output.description is not None:
        fields["description"] = output.description
    if output.schema_json is not UNSET:
        fields["schema"] = output.schema_json
    if output.strict is not None:
        fields["strict"] = output.strict
    return {**fields, **rest}


# -- usage ------------------------------------------------------------------------------------------


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
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
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
