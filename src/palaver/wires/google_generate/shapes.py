"""Values that the reader and the writer of Gemini share: names, model generations, forms of fields, and usage.

``thoughtsTokenCount`` is counted beside ``candidatesTokenCount``. Prompts of tools that Google ran are counted apart;
they are input.

Source: docs/spec/wires.md#1.2, #5.1, #5.2, #5.4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from msgspec import Raw, Struct, field

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import Fields
from palaver.core.request import ToolChoice
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires.google_generate import field_names

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason


WIRE: Final = "google_generate"

FINISH: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "LANGUAGE": "error",
    "MALFORMED_FUNCTION_CALL": "error",
    "MALFORMED_RESPONSE": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "CONTINUATION": "pause",
    "OTHER": "other",
    "NO_IMAGE": "other",
    "IMAGE_OTHER": "other",
    "FINISH_REASON_UNSPECIFIED": "other",
}
"""docs/spec/wires.md#5.4; every other word is ``other``. ``STOP`` beside a call is ``tool_calls``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "pause": "CONTINUATION",
    "other": "OTHER",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``OTHER``."""

NEAR_WORD: Final[dict[FinishReason, str]] = {"refusal": "SAFETY"}
"""What a reason without a word is sent as, other than ``OTHER``."""

STAND_IN: Final = "skip_thought_signature_validator"
"""The documented signature for calls that Gemini did not make (docs/spec/wires.md#5.2.5).

https://ai.google.dev/gemini-api/docs/thought-signatures, questions at the end.
"""

_GENERATION: Final = re.compile(r"gemini-(\d+)")
_STRICT_GENERATION: Final = 3


def generation(model: str | None) -> int | None:
    """Return the generation of Gemini by a model's name; ``None`` when it is not known."""
    found = None if model is None else _GENERATION.search(model)
    return None if found is None else int(found[1][:4])


def is_older(model: str | None) -> bool:
    """Whether a model is known to be older than Gemini 3: it checks no signatures and holds no media in results."""
    found = generation(model)
    return found is not None and found < _STRICT_GENERATION


def tells_error(response: Raw) -> bool:
    """Whether a function's response is an error and nothing else: Google's word for it is the key ``error``."""
    fields = jsontext.fields(response)
    return len(fields) == 1 and fields.get("error", jsontext.NULL) != jsontext.NULL


# -- tool choice -----------------------------------------------------------------------------------

_MODES: Final[dict[str, Literal["auto", "required", "none"]]] = {
    "AUTO": "auto",
    "VALIDATED": "auto",
    "ANY": "required",
    "NONE": "none",
}
_MODE_WORDS: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


def read_tool_choice(config: Fields, notes: Fields) -> ToolChoice | None:
    """Take the choice out of ``functionCallingConfig``; ``None``, and left in place, when it has no neutral meaning."""
    found = config.get("mode", jsontext.NULL)
    mode = _MODES.get(jsontext.text(found)) if jsontext.kind(found) == "a string" else None
    names = None if mode is None else field_names.soft(config, "allowedFunctionNames", json_fields.take_texts)
    if mode is None or config.get("allowedFunctionNames", jsontext.NULL) != jsontext.NULL:
        return None
    del config["mode"]
    choice = trusted.ToolChoice(mode, names or ())
    if found != json_fields.word(_mode_word(choice)):
        notes["mode"] = found
    return choice


def write_tool_choice(choice: ToolChoice, mode: Raw | None, *, own: bool) -> dict[str, Any]:
    """Write ``functionCallingConfig``; ``mode`` is the word that was found for the meaning, if it was another."""
    found = None if mode is None or jsontext.kind(mode) != "a string" else jsontext.text(mode)
    named = found is not None and _MODES.get(found) == choice.mode and (own or found == "VALIDATED")
    fields: dict[str, Any] = {"mode": found if named else _mode_word(choice)}
    if choice.names and (own or choice.mode != "none"):
        fields["allowedFunctionNames"] = list(choice.names)
    return fields


def _mode_word(choice: ToolChoice) -> str:
    """The word for a mode; names do not go with ``AUTO`` (5.2.8), but they do with ``VALIDATED``."""
    return "VALIDATED" if choice.names and choice.mode == "auto" else _MODE_WORDS[choice.mode]


# -- schemas ---------------------------------------------------------------------------------------

_SCHEMA_KEYS: Final = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "additional_properties": "additionalProperties",
}
_SCHEMA_COUNTS: Final = frozenset({"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"})
_SCHEMAS_INSIDE: Final = frozenset({"items", "anyOf", "additionalProperties"})


def json_schema(raw: Raw) -> Raw:
    """Read Gemini's own ``Schema``, a part of OpenAPI 3.0, as JSON Schema; one that is both stays as it is."""
    found = jsontext.value(raw)
    try:
        converted = _schema(found)
    except RecursionError:
        raise DecodeError("nested too deeply") from None
    return jsontext.own(raw) if converted == found else jsontext.raw(converted)


def _schema(item: Any) -> Any:
    if isinstance(item, list):
        return [_schema(each) for each in cast("list[object]", item)]
    if not isinstance(item, dict):
        return item
    out: dict[str, Any] = {}
    for spelled, each in cast("dict[str, Any]", item).items():
        key = _SCHEMA_KEYS.get(spelled, spelled)
        if key == "type" and isinstance(each, str):
            out[key] = each.lower()
        elif key == "properties" and isinstance(each, dict):
            table = cast("dict[str, Any]", each)
            out[key] = {name: _schema(inner) for name, inner in table.items()}
        elif key in _SCHEMA_COUNTS and isinstance(each, str) and each.isdecimal():
            out[key] = int(each)
        else:
            out[key] = _schema(each) if key in _SCHEMAS_INSIDE else each
    if out.get("nullable") is True and isinstance(out.get("type"), str):
        del out["nullable"]
        out["type"] = [out["type"], "null"]
    return out


def gemini_schema(raw: Raw) -> Raw:
    """Write JSON Schema as Gemini's own ``Schema``: types in capitals, and ``nullable`` for a type that may be null."""
    try:
        return jsontext.raw(_gemini(jsontext.value(raw)))
    except RecursionError:
        return raw


def _gemini(item: Any) -> Any:
    if isinstance(item, list):
        return [_gemini(each) for each in cast("list[object]", item)]
    if not isinstance(item, dict):
        return item
    out: dict[str, Any] = {}
    for key, each in cast("dict[str, Any]", item).items():
        match key, each:
            case "type", str():
                out[key] = each.upper() if each in _TYPES else each
            case "type", [str() as name, "null"] if name in _TYPES:
                out |= {key: name.upper(), "nullable": True}
            case "properties", dict():
                out[key] = {name: _gemini(inner) for name, inner in cast("dict[str, Any]", each).items()}
            case _:
                out[key] = _gemini(each) if key in _SCHEMAS_INSIDE else each
    return out


_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


# -- usage ------------------------------------------------------------------------------------------


class _Counts(Struct, gc=False):
    """The counters we read; every other field is skipped here and kept in the raw object."""

    prompt: int | None = field(default=None, name="promptTokenCount")
    cached: int | None = field(default=None, name="cachedContentTokenCount")
    candidates: int | None = field(default=None, name="candidatesTokenCount")
    thoughts: int | None = field(default=None, name="thoughtsTokenCount")
    tools: int | None = field(default=None, name="toolUsePromptTokenCount")
    total: int | None = field(default=None, name="totalTokenCount")


_NONE = _Counts()
_counts = msgspec.json.Decoder(_Counts).decode


def _found(raw: Raw) -> _Counts | None:
    """Read the counters; ``None`` when there are none, or they are of another type and count nothing."""
    try:
        found = _counts(raw)
        if found == _NONE:
            found = _counts(jsontext.encode(field_names.camel(jsontext.fields(raw))))
    except (msgspec.DecodeError, UnicodeDecodeError, DecodeError):
        return None
    return None if found == _NONE else found


def read_usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters."""
    found = _found(raw)
    if found is None:
        return trusted.Usage(raw_json=jsontext.own(raw))
    prompt = found.prompt if found.cached is None else json_fields.uncached(found.prompt, found.cached, None)
    return trusted.Usage(
        input=prompt if found.tools is None else (prompt or 0) + found.tools,
        cache_read=found.cached,
        output=found.candidates,
        reasoning=found.thoughts,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage, *, own: bool) -> Any:
    """Write usage: the provider's own object when it still has the same meaning, else one made of the counters."""
    raw = usage.raw_json
    if isinstance(raw, Raw) and (own or _found(raw) is not None) and read_usage(raw) == usage:
        return raw
    fields: dict[str, int] = {}
    prompt = [count for count in (usage.input, usage.cache_read, usage.cache_write) if count is not None]
    if prompt:
        fields["promptTokenCount"] = sum(prompt)
    if usage.output is not None:
        fields["candidatesTokenCount"] = usage.output
    if usage.cache_read is not None:
        fields["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        fields["thoughtsTokenCount"] = usage.reasoning
    return {**fields, "totalTokenCount": usage.total} if fields else fields
