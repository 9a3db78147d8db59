"""What both halves of the codec share: words, models, and fields of several forms, read and written side by side.

Source: docs/spec/wires.md#5.1, #5.2, #5.4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.request import ToolChoice
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
"""Neutral reasons that the wire has a word for; the others are approximated."""

STAND_IN: Final = "skip_thought_signature_validator"
"""The documented signature for calls that Gemini did not make (docs/spec/wires.md#5.2.5).

https://ai.google.dev/gemini-api/docs/thought-signatures, questions at the end.
"""

_GENERATION: Final = re.compile(r"gemini-(\d+)")
_STRICT_GENERATION: Final = 3


def generation(model: str | None) -> int | None:
    """Tell the generation of Gemini by a model's name; ``None`` when it is not known."""
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


def read_tool_choice(raw: Raw) -> ToolChoice | None:
    """Read ``functionCallingConfig``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    mode = _MODES.get(field_names.word(rest, "mode") or "")
    names = field_names.soft(rest, "allowedFunctionNames", json_fields.take_texts)
    if mode is None or (names is None and field_names.raw(rest, "allowedFunctionNames") is not None):
        return None
    return trusted.ToolChoice(mode, names or ())


def write_tool_choice(choice: ToolChoice) -> dict[str, Any]:
    """Write ``functionCallingConfig``; names do not go with ``AUTO`` (5.2.8), but they do with ``VALIDATED``."""
    if not choice.names or choice.mode == "none":
        return {"mode": _MODE_WORDS[choice.mode]}
    mode = "VALIDATED" if choice.mode == "auto" else _MODE_WORDS[choice.mode]
    return {"mode": mode, "allowedFunctionNames": list(choice.names)}


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
