"""Fields of a record, read without trust: what is not of the kind that is asked for is not there.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from palaver.core import jsontext
from palaver.core.parts import Reasoning

if TYPE_CHECKING:
    from collections.abc import Collection

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message

_NOTHING: Final[Fields] = {}
_text = msgspec.json.Decoder(str).decode


def value(fields: Fields, key: str) -> Any:
    """Any value, parsed; ``None`` when it is not there."""
    raw = fields.get(key)
    return None if raw is None else jsontext.value(raw)


def string(fields: Fields, key: str) -> str | None:
    """A string."""
    raw = fields.get(key)
    if raw is None:
        return None
    try:
        return _text(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return jsontext.text(raw) if jsontext.kind(raw) == "a string" else None


def integer(fields: Fields, key: str) -> int | None:
    """An integer; a boolean is none."""
    found = value(fields, key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def inner(fields: Fields, key: str) -> Fields:
    """The fields of an object; empty when it is none."""
    raw = fields.get(key)
    return split(raw) if raw is not None else _NOTHING


def split(raw: Raw) -> Fields:
    """The fields of an object; empty when it is none."""
    return jsontext.fields(raw) if jsontext.kind(raw) == "an object" else _NOTHING


def listed(fields: Fields, key: str) -> list[Raw]:
    """The items of an array; empty when it is none."""
    raw = fields.get(key)
    return jsontext.items(raw) if raw is not None and jsontext.kind(raw) == "an array" else []


def wire_of(message: Message, known: Collection[str], otherwise: str) -> str:
    """The wire that a message came by, of those known: that of its reasoning, or that whose fields it keeps."""
    named = [part.wire for part in message.content if isinstance(part, Reasoning) and part.wire]
    return next((each for each in (*named, *message.provider) if each in known), otherwise)


NO_JSON: Final = "INVALID_JSON"
"""The key under which text that should be JSON, and is not, stands in an object, as on the wires."""


def as_json(text: str) -> Raw:
    """JSON text to stand in a document: as it is, where it can be encoded, else written anew.

    Text that is no JSON (the arguments of a call may be any) stands in an object, under ``NO_JSON``.
    """
    if not jsontext.is_json(text):
        return jsontext.raw({NO_JSON: text})
    try:
        return Raw(text.strip().encode())
    except UnicodeEncodeError:
        return jsontext.raw(jsontext.value(text))


def one_line(text: str) -> Raw:
    """JSON text to stand in a line: as ``as_json`` has it, written anew where it has several lines."""
    raw = as_json(text)
    return raw if b"\n" not in bytes(raw) and b"\r" not in bytes(raw) else jsontext.raw(jsontext.value(raw))
