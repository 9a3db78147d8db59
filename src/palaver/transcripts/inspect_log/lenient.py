"""JSON as Python's programs write it, with ``NaN`` and ``Infinity``.

Rules (docs/spec/dialects.md#0.11, #11):

- The bytes of a file are cut and kept as they are; this is only for what is read out of them. There a number that is
  none becomes a string of its name.

Stability: experimental.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.transcripts import documents

if TYPE_CHECKING:
    from msgspec import Raw

    from palaver.core.jsontext import Fields


def fields_of(data: bytes) -> Fields:
    """The fields of an object; empty when it is none."""
    if found := documents.fields_of(data):
        return found
    parsed = _parsed(data)
    if not isinstance(parsed, dict):
        return {}
    return {key: jsontext.raw(each) for key, each in cast("dict[str, Any]", parsed).items()}


def items_of(data: Raw | None) -> list[Raw]:
    """The items of an array; empty when it is none."""
    if data is None or jsontext.kind(data) != "an array":
        return []
    try:
        return jsontext.items(data)
    except DecodeError:
        return list(map(jsontext.raw, _parsed(bytes(data)) or ()))


def is_json(data: bytes) -> bool:
    """Whether it is JSON, or would be but for numbers that are none."""
    return jsontext.is_json(data) or _parsed(data) is not None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_float=jsontext.Number, parse_constant=str)
    except (ValueError, RecursionError):
        return None
