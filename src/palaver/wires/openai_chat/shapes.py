"""What both halves of the codec share: words, and fields that have several forms, read and written side by side.

Source: docs/spec/wires.md#2.3, #2.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.request import OutputFormat, ToolChoice
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason

WIRE: Final = "openai_chat"

DETAILS: Final = "reasoning_details"
"""The field of an answer that holds reasoning as a list, with proofs; other fields repeat its text."""
REASONING: Final = (DETAILS, "reasoning_content", "reasoning")
"""Fields of an answer that hold reasoning, as any vendor is known to name them; they are read in this order."""

FAILED_CALL: Final = "the provider could not read the call"
"""Why a call is malformed that stands in the error which ended its stream."""

FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
    "insufficient_system_resource": "error",
    "network_error": "error",
    "model_length": "length",
    "sensitive": "content_filter",
}
"""docs/spec/wires.md#2.7. ``""``, null and absent are derived from the message."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "stop",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``stop``."""

AUDIO_FORMATS: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
AUDIO_WORDS: Final = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

_MODES: Final[dict[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}


def read_tool_choice(raw: Raw) -> ToolChoice | None:
    """Read ``tool_choice``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) == "a string":
        mode = _MODES.get(jsontext.text(raw))
        return None if mode is None else trusted.ToolChoice(mode)
    if jsontext.kind(raw) != "an object":
        return None
    match jsontext.value(raw):
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "custom",
            "custom": {"name": str(name)},
        }:
            return trusted.ToolChoice("required", (name,))
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*tools]},
        }:
            names = [_name_of(tool) for tool in tools]
            found = tuple(name for name in names if name is not None)
            return trusted.ToolChoice(mode, found) if found and len(found) == len(names) else None
        case _:
            return None


def _name_of(tool: Any) -> str | None:
    match tool:
        case {"function": {"name": str(name)}}:
            return name
        case _:
            return None


def write_tool_choice(choice: ToolChoice) -> object:
    """Write ``tool_choice``."""
    if not choice.names or choice.mode == "none":
        return choice.mode
    if choice.mode == "required" and len(choice.names) == 1:
        return {"type": "function", "function": {"name": choice.names[0]}}
    tools = [{"type": "function", "function": {"name": name}} for name in choice.names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}


_KINDS: Final[dict[str, Literal["text", "json", "json_schema"]]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``response_format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    kind = _KINDS.get(json_fields.take_text(rest, "type") or "")
    if kind is None:
        return None
    inner = json_fields.take_fields(rest, "json_schema") or {}
    schema = inner.pop("schema", UNSET)
    return trusted.OutputFormat(
        kind=kind,
        schema_json=UNSET if schema is UNSET else jsontext.own(schema),
        name=json_fields.take_text(inner, "name"),
        description=json_fields.take_text(inner, "description"),
        strict=json_fields.take_bool(inner, "strict"),
        provider_json=provider(WIRE, nested(rest, "json_schema", inner)),
    )


def write_output_format(output: OutputFormat) -> object:
    """Write ``response_format``."""
    rest = json_fields.native(output, WIRE)
    inner = jsontext.fields(rest.pop("json_schema", jsontext.EMPTY_OBJECT))
    if output.kind == "json_schema":
        schema: dict[str, Any] = {"name": output.name or "output"}
        if output.description is not None:
            schema["description"] = output.description
        if output.schema_json is not UNSET:
            schema["schema"] = output.schema_json
        if output.strict is not None:
            schema["strict"] = output.strict
        return {"type": "json_schema", "json_schema": cast("dict[str, Any]", {**schema, **inner}), **rest}
    fields: dict[str, Any] = {"type": "json_object" if output.kind == "json" else output.kind}
    return {**fields, **rest}
