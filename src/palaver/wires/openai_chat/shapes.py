"""Values that the reader and the writer of Chat Completions share: names, fields with several forms, and usage.

Vendors put cached tokens in four places and count reasoning inside or beside the completion. The data decides which,
not the variant.

Source: docs/spec/wires.md#1.2, #2.3, #2.7, #2.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.parts import Refusal
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason
    from palaver.core.parts import AssistantPart


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
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``stop``."""

NEAR_WORD: Final[dict[FinishReason, str]] = {"refusal": "content_filter"}
"""What a reason without a word is sent as, other than ``stop``."""

_REFUSAL_WORD: Final[dict[FinishReason, str]] = {**FINISH_WORD, "refusal": "stop"}


def finish_words(content: Sequence[AssistantPart]) -> Mapping[FinishReason, str]:
    """Return the words for an answer with this content: beside a refusal that stands in it, ``stop`` says so."""
    return _REFUSAL_WORD if any(isinstance(part, Refusal) for part in content) else FINISH_WORD


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
        case {"type": "function", "function": {"name": str(name), **inner}, **others} if not (inner or others):
            return name
        case {"type": "custom", "custom": {"name": str(name), **inner}, **others} if not (inner or others):
            return name
        case _:
            return None


_NAMED: Final = ("function", "custom")
_ALLOWED: Final = "allowed_tools"


def beside_tool_choice(raw: Raw) -> Fields:
    """The fields of a ``tool_choice`` that have no neutral meaning, each on its level."""
    if jsontext.kind(raw) != "an object":
        return {}
    left = jsontext.fields(raw)
    kind = jsontext.text(left.pop("type"))
    known = ("mode", "tools") if kind == _ALLOWED else ("name",)
    inner = {key: item for key, item in jsontext.fields(left.pop(kind)).items() if key not in known}
    return nested(left, kind, inner)


def write_tool_choice(choice: ToolChoice, custom: Collection[str] = (), beside: Fields | None = None) -> object:
    """Write ``tool_choice``. ``custom`` are the names of free-text tools; ``beside`` is what was found beside it."""
    if not choice.names or choice.mode == "none":
        return choice.mode
    tools = [_named(name, custom) for name in choice.names]
    allowed: dict[str, Any] = {"type": _ALLOWED, _ALLOWED: {"mode": choice.mode, "tools": tools}}
    fields = tools[0] if choice.mode == "required" and len(tools) == 1 else allowed
    for key, raw in (beside or {}).items():
        if key in fields:
            fields[key] = {**jsontext.fields(raw), **fields[key]}
        elif key not in (*_NAMED, _ALLOWED):
            fields[key] = raw
    return fields


def _named(name: str, custom: Collection[str]) -> dict[str, Any]:
    kind = "custom" if name in custom else "function"
    return {"type": kind, kind: {"name": name}}


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
    inner = (json_fields.take_fields(rest, "json_schema") or {}) if kind == "json_schema" else {}
    schema = inner.pop("schema", UNSET)
    return trusted.OutputFormat(
        kind=kind,
        schema_json=UNSET if schema is UNSET else jsontext.own(schema),
        name=json_fields.take_text(inner, "name"),
        description=json_fields.take_text(inner, "description"),
        strict=json_fields.take_bool(inner, "strict"),
        provider_json=provider(WIRE, nested(rest, "json_schema", inner)),
    )


def write_output_format(output: OutputFormat, *, named: bool = True) -> object:
    """Write ``response_format``; ``named`` gives a schema a name that has none."""
    rest = json_fields.native(output, WIRE)
    if output.kind == "json_schema":
        inner = jsontext.fields(rest.pop("json_schema", jsontext.EMPTY_OBJECT))
        name = output.name or ("output" if named else None)
        schema: dict[str, Any] = {} if name is None else {"name": name}
        if output.description is not None:
            schema["description"] = output.description
        if output.schema_json is not UNSET:
            schema["schema"] = output.schema_json
        if output.strict is not None:
            schema["strict"] = output.strict
        return {"type": "json_schema", "json_schema": cast("dict[str, Any]", {**schema, **inner}), **rest}
    fields: dict[str, Any] = {"type": "json_object" if output.kind == "json" else output.kind}
    return {**fields, **rest}


# -- usage ------------------------------------------------------------------------------------------


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
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
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
    cached = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    if details := {name: count for name, count in cached.items() if count is not None}:
        fields["prompt_tokens_details"] = details
    if usage.reasoning is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return fields
