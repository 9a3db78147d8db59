"""Take the known fields out of a provider's JSON, and keep the rest.

- A decoder splits an object into fields that are still text, takes those with a neutral place, and keeps the remaining
  ones under ``provider[wire]``. So ``encode(decode(w)) == w`` holds for unknown fields too.
- A ``null`` field remains: ``null`` and absent differ.
- What a codec must know beside the provider's fields is a *note*, under ``provider["@" + wire]``. How something was
  spelled is no note: an unedited body goes back as its own bytes, and any other is written in one form.
- A known field of the wrong type is a ``DecodeError`` with the path.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import BOOKKEEPING
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


_encode = msgspec.json.Encoder().encode
_integer = msgspec.json.Decoder(int).decode
_truth = msgspec.json.Decoder(bool).decode
_number = msgspec.json.Decoder(float).decode
_native = msgspec.json.Decoder(dict[str, dict[str, Raw]]).decode


_DIGITS: Final = 18
"""Integers of more digits may be too long to be read; shorter ones never are."""

T = TypeVar("T")
V = TypeVar("V", bound=Value)


# -- taking fields ---------------------------------------------------------------------------------


def take_text(rest: Fields, key: str) -> str | None:
    """Take a string out; ``None``, and left in place, when absent or null."""
    raw = rest.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        found = jsontext.text(raw)
    except DecodeError as error:
        raise error.within(key) from None
    del rest[key]
    return found


def need_text(rest: Fields, key: str) -> str:
    """Take a string out that must be there."""
    if key not in rest:
        raise DecodeError("missing", path=key)
    try:
        return jsontext.text(rest.pop(key))
    except DecodeError as error:
        raise error.within(key) from None


def _taken(rest: Fields, key: str, read: Callable[[Raw], T]) -> T | None:
    raw = rest.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        found = read(raw)
    except DecodeError as error:
        raise error.within(key) from None
    del rest[key]
    return found


def integer(raw: Raw) -> int:
    """Read an integer. Raises ``DecodeError``."""
    try:
        return _integer(raw)
    except msgspec.DecodeError:
        raise DecodeError(f"expected an integer, got {_kind(raw)}") from None


def truth(raw: Raw) -> bool:
    """Read a truth value. Raises ``DecodeError``."""
    try:
        return _truth(raw)
    except msgspec.DecodeError:
        raise DecodeError(f"expected true or false, got {_kind(raw)}") from None


def number(raw: Raw) -> float:
    """Read a number, int or float as written. Raises ``DecodeError``."""
    found = jsontext.value(raw)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise DecodeError(f"expected a number, got {jsontext.kind(raw)}")
    return found


def _kind(raw: Raw) -> str:
    """The kind of a value; of an integer that is too long to be read, how many digits it has."""
    digits = bytes(raw).strip().removeprefix(b"-")
    return f"one of {len(digits):,} digits" if digits.isdigit() and len(digits) > _DIGITS else jsontext.kind(raw)


def take_int(rest: Fields, key: str) -> int | None:
    """Take an integer out; ``None``, and left in place, when absent or null."""
    return _taken(rest, key, integer)


def need_int(rest: Fields, key: str) -> int:
    """Take an integer out that must be there."""
    found = take_int(rest, key)
    if found is None:
        raise DecodeError("missing", path=key)
    return found


def take_bool(rest: Fields, key: str) -> bool | None:
    """Take a truth value out; ``None``, and left in place, when absent or null."""
    return _taken(rest, key, truth)


def take_number(rest: Fields, key: str) -> float | None:
    """Take a number out, int or float as written; ``None``, and left in place, when absent or null."""
    return _taken(rest, key, number)


def take_texts(rest: Fields, key: str) -> tuple[str, ...] | None:
    """Take a list of strings out; ``None``, and left in place, when absent, null, or not a list."""
    raw = rest.get(key)
    if raw is None or jsontext.kind(raw) != "an array":
        return None
    try:
        found = tuple(jsontext.text(item) for item in jsontext.items(raw))
    except DecodeError as error:
        raise error.within(key) from None
    del rest[key]
    return found


def take_fields(rest: Fields, key: str) -> Fields | None:
    """Take an object out, split; ``None``, and left in place, when absent or null."""
    raw = rest.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        found = jsontext.fields(raw)
    except DecodeError as error:
        raise error.within(key) from None
    del rest[key]
    return found


def take_items(rest: Fields, key: str) -> list[Raw] | None:
    """Take an array out, split; ``None``, and left in place, when absent or null."""
    raw = rest.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        found = jsontext.items(raw)
    except DecodeError as error:
        raise error.within(key) from None
    del rest[key]
    return found


def need_fields(rest: Fields, key: str) -> Fields:
    """Take an object out that must be there, split."""
    found = take_fields(rest, key)
    if found is None:
        raise DecodeError("missing", path=key)
    return found


def need_items(rest: Fields, key: str) -> list[Raw]:
    """Take an array out that must be there, split."""
    found = take_items(rest, key)
    if found is None:
        raise DecodeError("missing", path=key)
    return found


def each(rest_items: list[Raw], path: str, decode: Callable[[Raw], T]) -> Iterator[T]:
    """Decode item by item; an error names the item."""
    for index, raw in enumerate(rest_items):
        try:
            yield decode(raw)
        except DecodeError as error:
            raise error.within(f"{path}[{index}]") from None


# -- what remains ----------------------------------------------------------------------------------


def provider(wire: str, rest: Fields, notes: Fields | None = None) -> Raw | UnsetType:
    """Keep what remains, as the ``provider_json`` of a value, and notes of our own beside it."""
    stored: dict[str, Fields] = {}
    if rest:
        stored[wire] = rest
    if notes:
        stored[BOOKKEEPING + wire] = notes
    if not stored:
        return UNSET
    try:
        return Raw(_encode(stored))
    except UnicodeEncodeError:  # the name of a field holds a lone surrogate
        return jsontext.raw(stored)


def word(text: str) -> Raw:
    """Spell the value of a note that is a word."""
    return Raw(b'"' + text.encode() + b'"')


def nested(rest: Fields, key: str, inner: Fields) -> Fields:
    """Put what remains of an inner object back where it stood."""
    return {**rest, key: Raw(jsontext.encode(inner))} if inner else rest


def native(value: Value, wire: str) -> Fields:
    """Return the fields that a value keeps for ``wire``, as a dict of one's own; empty when none."""
    stored = value.provider_json
    if stored is UNSET:
        return {}
    try:
        return _native(stored).get(wire, {})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = jsontext.fields(stored).get(wire)
        return {} if raw is None or jsontext.kind(raw) != "an object" else jsontext.fields(raw)


def notes(value: Value, wire: str) -> Fields:
    """Return what a value says about itself on ``wire``, beside the provider's own fields; empty when nothing.

    A note says which of several features of the provider a value is (the field where reasoning stood, the kind of a
    server call), or holds the provider's fields from around a message. It never says how something was spelled.
    """
    return native(value, BOOKKEEPING + wire)


def keeps(value: Value, wire: str) -> bool:
    """Whether a value keeps fields or notes for ``wire``: it came from there."""
    stored = value.provider
    return wire in stored or BOOKKEEPING + wire in stored


def with_native(value: V, wire: str, rest: Mapping[str, Any]) -> V:
    """A value that keeps ``rest`` for ``wire``, and for other wires what it kept."""
    stored: Fields = {} if value.provider_json is UNSET else jsontext.fields(value.provider_json)
    others: dict[str, Any] = {key: item for key, item in stored.items() if key != wire}
    mixed = {**others, wire: rest} if rest else others
    return structs.replace(value, provider_json=jsontext.raw(mixed) if mixed else UNSET)


def without(value: V, wire: str) -> V:
    """A value without fields and notes for ``wire``, and for other wires with what it kept."""
    return with_native(with_native(value, wire, {}), BOOKKEEPING + wire, {})


_FRAMING: Final = frozenset({"id", "index", "status", "type", "object", "created"})
"""Fields by which every provider keeps its books; outside their wire they mean nothing, and nothing is lost."""


AROUND: Final = frozenset(
    {
        "beside",
        "candidate",
        "choice",
        "content",
        "effort",
        "item",
        "message",
        "output",
        "reasoning_tokens",
        "result",
        "thinking",
        "tool_choice",
    }
)
"""Notes that hold fields of the provider: from around a message, or beside those that have a neutral meaning."""


def foreign(value: Value, wire: str) -> Iterator[tuple[str, str, Raw]]:
    """Name what a value keeps for other wires: wire, field, value; no nulls, no mere framing, no other notes."""
    stored = value.provider_json
    if stored is UNSET:
        return
    for name, raw in jsontext.fields(stored).items():
        owner = name.removeprefix(BOOKKEEPING)
        if owner == wire or jsontext.kind(raw) != "an object":
            continue
        for key, item in jsontext.fields(raw).items():
            if owner == name:
                if item != NULL:
                    yield from ((owner, path, found) for path, found in fields_of(key, item))
            elif key in AROUND and jsontext.kind(item) == "an object":
                around = jsontext.fields(item).items()
                yield from ((owner, each, found) for each, found in around if each not in _FRAMING and found != NULL)


_TAKEN_APART: Final = frozenset(
    {
        "additionalModelRequestFields",
        "chat_template_kwargs",
        "file",
        "function",
        "functionCall",
        "functionCallingConfig",
        "functionResponse",
        "generationConfig",
        "image_url",
        "inferenceConfig",
        "inputSchema",
        "input_audio",
        "json_schema",
        "options",
        "outputConfig",
        "output_config",
        "reasoning",
        "source",
        "stream_options",
        "text",
        "thinking",
        "thinkingConfig",
        "toolConfig",
    }
)
"""Objects that decoders read field by field: what is kept of one is what had no neutral place, and not the whole."""


def fields_of(key: str, item: Raw) -> Iterator[tuple[str, Raw]]:
    """Name what is kept under ``key``, with its value: field by field where a decoder took the object apart."""
    if key in _TAKEN_APART and jsontext.kind(item) == "an object":
        for name, value in jsontext.fields(item).items():
            if name not in _FRAMING and value != NULL:
                yield from ((f"{key}.{path}", found) for path, found in fields_of(name, value))
    elif (path := named(key, item)) is not None:
        yield path, item


def named(key: str, item: Raw) -> str | None:
    """The name of what is kept: of the one field inside an object, else of the object; ``None`` for mere framing."""
    if key in _FRAMING:
        return None
    if jsontext.kind(item) != "an object":
        return key
    inner = list(jsontext.fields(item))
    if len(inner) == 1 and inner[0] != "type":
        framing = inner[0] in _FRAMING and inner[0] != "id"  # the object has only an id
        return None if framing else f"{key}.{inner[0]}"
    return key


# -- tool calls ------------------------------------------------------------------------------------


def call(
    call_id: str,
    name: str,
    arguments: str,
    stored: Raw | UnsetType,
    *,
    provider_executed: bool = False,
) -> ToolCall | MalformedToolCall:
    """Make the part for a call whose arguments came as text; text that is no JSON is malformed (C23)."""
    if arguments and not jsontext.is_json(arguments) and not arguments.isspace():
        return trusted.MalformedToolCall(arguments, "the arguments are not JSON", name, call_id, provider_json=stored)
    return trusted.ToolCall(call_id, name, arguments, provider_executed=provider_executed, provider_json=stored)


# -- objects with one meaning ----------------------------------------------------------------------


def take_object(
    rest: Fields, notes: Fields, key: str, read: Callable[[Raw], T | None], known: Collection[str]
) -> T | None:
    """Take out an object with one neutral meaning; ``None``, and left in place, when absent or without such a meaning.

    ``known`` are the fields that ``read`` looks at; the others are kept as the note ``key``.
    """
    raw = rest.get(key)
    found = None if raw is None else read(raw)
    if raw is None or found is None:
        return None
    del rest[key]
    others = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
    left = {name: item for name, item in others.items() if name not in known}
    if left:
        notes[key] = Raw(jsontext.encode(left))
    return found


def with_note(written: dict[str, Any], notes: Fields, key: str) -> dict[str, Any]:
    """Write the fields that ``take_object`` kept beside those of an object."""
    raw = notes.get(key)
    return written if raw is None else {**jsontext.fields(raw), **written}


# -- usage -----------------------------------------------------------------------------------------


def uncached(prompt: int | None, read: int | None, written: int | None) -> int | None:
    """Prompt tokens neither read from nor written to a cache (docs/spec/wires.md#1.2).

    The same tokens can be reported as read and as written; then the larger of the two is taken off.
    """
    if prompt is None:
        return None
    both = (read or 0) + (written or 0)
    return max(0, prompt - (both if both <= prompt else max(read or 0, written or 0)))
