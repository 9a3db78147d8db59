"""What is wrong in a file of configuration, in words that name its place: pure.

Rules:

- The place is written as in the file: ``models.fast[1].timeout``, ``limits[0].tokens``.
- An unknown field comes with the one that is like it, or with all that are known; a wrong choice with those there are.
- No value is repeated but numbers: what stands at a wrong place may be a key.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from palaver.core.errors import near

_WORDS: Final = re.compile(r"(?P<reason>.*?)(?: - at `\$(?P<place>[^`]*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_CHOICE: Final = re.compile(r"Invalid enum value .*", re.DOTALL)
_TYPES: Final = re.compile(r"`([a-z |]+)`")
_WORDS_OF_TYPES: Final = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def explained(error: msgspec.ValidationError, found: Any, kind: type) -> tuple[str, str]:
    """Return the place and the reason of an error of ``msgspec.convert(found, kind)``."""
    parsed = _WORDS.fullmatch(str(error))
    assert parsed is not None  # noqa: S101 (the pattern takes every text)
    at, value = inspect.type_info(kind), found
    place = ""
    for step in _STEP.finditer(parsed["place"] or ""):
        name: Any = step[1] if step[1] is not None else int(step[2]) if step[2] is not None else None
        if name is None:
            name = _wrong_key(value, found, kind, error)
        at = _inside(at, value, name)
        place += f"[{name}]" if isinstance(name, int) else f".{_written(name)}"
        value = _value(value, name)
    return place.removeprefix("."), _reason(parsed["reason"], at, value)


def _reason(text: str, at: inspect.Type, value: Any) -> str:
    if unknown := _UNKNOWN.fullmatch(text):
        known = [each.encode_name for each in _struct(at)]
        close = near(unknown[1], known)
        hint = f"did you mean {close}?" if close is not None else f"there are {', '.join(known)}"
        return f"there is no field {unknown[1]!r}; {hint}"
    if _CHOICE.fullmatch(text):
        given = f"{value!r} is" if isinstance(value, int | float) else "that is"
        choices = [f'"{each}"' for each in _choices(at)]
        return f"{given} none of {', '.join(choices)}"
    text = _TYPES.sub(lambda types: _plain(types[1].split(" | ")), text)
    return text[:1].lower() + text[1:]


def _plain(types: list[str]) -> str:
    *others, last = [_WORDS_OF_TYPES.get(each, each) for each in types if each != "null"] or ["nothing"]
    return f"{', '.join(others)} or {last}" if others else last


def _written(name: str) -> str:
    return name if _BARE.fullmatch(name) else f'"{name}"'


def _value(value: Any, name: str | int) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        return None


def _wrong_key(value: Any, found: Any, kind: type, error: msgspec.ValidationError) -> str:
    """Return the name in a table of names whose value has the error: the table is tried with each one alone."""
    table = cast("dict[str, Any]", value)
    everything = dict(table)
    for name, each in everything.items():
        table.clear()
        table[name] = each
        try:
            msgspec.convert(found, kind)
        except msgspec.ValidationError as again:
            if str(again) == str(error):
                return name
        finally:
            table.clear()
            table.update(everything)
    return "…"


def _kinds(at: inspect.Type) -> Iterator[inspect.Type]:
    match at:
        case inspect.UnionType():
            for each in at.types:
                yield from _kinds(each)
        case inspect.Metadata():
            yield from _kinds(at.type)
        case _:
            yield at


def _inside(at: inspect.Type, value: Any, name: str | int) -> inspect.Type:
    """Return the type of what stands at a name or a number of a value."""
    for each in _kinds(at):
        match each:
            case inspect.StructType() if isinstance(value, dict):
                field = next((field for field in each.fields if field.encode_name == name), None)
                if field is not None:
                    return field.type
            case inspect.DictType() if isinstance(value, dict):
                return each.value_type
            case inspect.ListType() | inspect.VarTupleType() if isinstance(value, list):
                return each.item_type
            case _:
                pass
    return inspect.AnyType()


def _struct(at: inspect.Type) -> tuple[inspect.Field, ...]:
    return next((each.fields for each in _kinds(at) if isinstance(each, inspect.StructType)), ())


def _choices(at: inspect.Type) -> tuple[Any, ...]:
    return next((each.values for each in _kinds(at) if isinstance(each, inspect.LiteralType)), ())
