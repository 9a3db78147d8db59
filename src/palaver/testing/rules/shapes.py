"""Shapes: what a JSON value must look like, as values that tables are made of.

- A shape is a function `(value, where, rule) -> violations`. `rule` is the citation of the nearest
  `record`, `tagged` or `union` around it, so a table row names its source once.
- Tables are open, as provider unions are lists of a moment: an unknown `type`, an unknown key of a
  union and unknown fields of a record are allowed. A **known** type with a missing or wrong-typed
  field is a violation. Only `record(closed=True)` refuses unknown fields, for providers that do.
- An optional field may be `null` unless the record says otherwise: clients send explicit nulls and
  providers take them.

Stability: experimental.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping

from palaver.testing.rules.violation import Json, Shape, Violation

EXCERPT = 60


def at(where: str, key: str) -> str:
    """Return the path of field `key` of the object at `where`.

    Stability: experimental.
    """
    return f"{where}.{key}" if where else key


def kind(value: Json) -> str:
    """Name the JSON type of a value; integers are told from other numbers.

    Stability: experimental.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"


def excerpt(text: str) -> str:
    """Quote a text for a message, cut to a length that shows but does not leak.

    Stability: experimental.
    """
    return repr(text if len(text) <= EXCERPT else text[:EXCERPT] + "…")


def _of_kind(*names: str) -> Shape:
    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if kind(value) not in names:
            yield Violation(where, rule, f"expected {' or '.join(names)}, found {kind(value)}")

    return check


STRING = _of_kind("string")
INTEGER = _of_kind("integer")
NUMBER = _of_kind("integer", "number")
BOOLEAN = _of_kind("boolean")
OBJECT = _of_kind("object")
ARRAY = _of_kind("array")


def anything(value: Json, where: str, rule: str) -> Iterator[Violation]:
    """Accept every value.

    Stability: experimental.
    """
    del value, where, rule
    yield from ()


def cited(citation: str, shape: Shape) -> Shape:
    """Give a shape its own citation.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        del rule
        yield from shape(value, where, citation)

    return check


def nullable(shape: Shape) -> Shape:
    """Accept `null` or `shape`.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if value is not None:
            yield from shape(value, where, rule)

    return check


def word(*words: str) -> Shape:
    """Accept exactly these strings.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if value not in words:
            found = excerpt(value) if isinstance(value, str) else kind(value)
            yield Violation(where, rule, f"expected {' | '.join(words)}, found {found}")

    return check


def text(*, like: str = "", least: int = 0, most: int | None = None) -> Shape:
    """Accept a string that matches `like` as a whole and has between `least` and `most` characters.

    Stability: experimental.
    """
    pattern = re.compile(like, re.DOTALL) if like else None

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if not isinstance(value, str):
            yield Violation(where, rule, f"expected string, found {kind(value)}")
        elif len(value) < least or (most is not None and len(value) > most):
            yield Violation(where, rule, f"has {len(value)} characters, allowed {least} to {most or 'any'}")
        elif pattern is not None and not pattern.fullmatch(value):
            yield Violation(where, rule, f"{excerpt(value)} does not match {like}")

    return check


def number(least: float, most: float) -> Shape:
    """Accept a number from `least` to `most`, both included.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Violation(where, rule, f"expected number, found {kind(value)}")
        elif not least <= value <= most:
            yield Violation(where, rule, f"{value} is not within {least} to {most}")

    return check


def integer(least: int) -> Shape:
    """Accept an integer of at least `least`.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield Violation(where, rule, f"expected integer, found {kind(value)}")
        elif value < least:
            yield Violation(where, rule, f"{value} is below {least}")

    return check


def base64_text(value: Json, where: str, rule: str) -> Iterator[Violation]:
    """Accept padded standard base64 of at least one byte.

    Stability: experimental.
    """
    if not isinstance(value, str):
        yield Violation(where, rule, f"expected base64 string, found {kind(value)}")
        return
    try:
        if not base64.b64decode(value, validate=True):
            yield Violation(where, rule, "no bytes")
    except (binascii.Error, ValueError) as error:
        yield Violation(where, rule, f"not base64: {error}")


def json_text(value: Json, where: str, rule: str) -> Iterator[Violation]:
    """Accept a string that is the JSON text of an object.

    Stability: experimental.
    """
    try:
        parsed: object = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        yield Violation(where, rule, "expected the JSON text of an object")


def array(items: Shape, *, least: int = 0, most: int | None = None) -> Shape:
    """Accept a list of between `least` and `most` values of one shape.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        if not isinstance(value, list):
            yield Violation(where, rule, f"expected array, found {kind(value)}")
            return
        if len(value) < least or (most is not None and len(value) > most):
            yield Violation(where, rule, f"has {len(value)} items, allowed {least} to {most or 'any'}")
        for index, item in enumerate(value):
            yield from items(item, f"{where}[{index}]", rule)

    return check


def by_kind(**kinds: Shape) -> Shape:
    """Choose the shape by JSON type; the keywords are `kind` names.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        shape = kinds.get(kind(value))
        if shape is None:
            yield Violation(where, rule, f"expected {' or '.join(kinds)}, found {kind(value)}")
        else:
            yield from shape(value, where, rule)

    return check


def record(
    citation: str,
    required: Mapping[str, Shape] | None = None,
    optional: Mapping[str, Shape] | None = None,
    *,
    some: tuple[str, ...] = (),
    closed: bool = False,
) -> Shape:
    """Accept an object with these fields.

    Of the names in `some`, at least one must be present and not null.

    Stability: experimental.
    """
    must, may = required or {}, optional or {}

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        del rule
        if not isinstance(value, dict):
            yield Violation(where, citation, f"expected object, found {kind(value)}")
            return
        for key, shape in must.items():
            if key in value:
                yield from shape(value[key], at(where, key), citation)
            else:
                yield Violation(at(where, key), citation, "required field is missing")
        for key, shape in may.items():
            if value.get(key) is not None:
                yield from shape(value[key], at(where, key), citation)
        if some and all(value.get(key) is None for key in some):
            yield Violation(where, citation, f"needs one of {', '.join(some)}")
        if closed:
            for key in value.keys() - must.keys() - may.keys():
                yield Violation(at(where, key), citation, "unknown field")

    return check


def tagged(
    citation: str,
    table: Mapping[str, Shape],
    *,
    key: str = "type",
    untagged: Shape | None = None,
    closed: bool = False,
) -> Shape:
    """Choose the shape of an object by the string at `key`.

    An object without the key has shape `untagged`. Unknown tags are allowed unless `closed`.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        del rule
        if not isinstance(value, dict):
            yield Violation(where, citation, f"expected object, found {kind(value)}")
            return
        tag = value.get(key)
        if tag is None and untagged is not None:
            yield from untagged(value, where, citation)
        elif not isinstance(tag, str):
            yield Violation(at(where, key), citation, f"expected string, found {kind(tag)}")
        elif tag in table:
            yield from table[tag](value, where, citation)
        elif closed:
            yield Violation(at(where, key), citation, f"unknown {key} {excerpt(tag)}")

    return check


def union(citation: str, table: Mapping[str, Shape]) -> Shape:
    """Accept an object with exactly one key; a known key chooses the shape of its value.

    Stability: experimental.
    """

    def check(value: Json, where: str, rule: str) -> Iterator[Violation]:
        del rule
        if not isinstance(value, dict):
            yield Violation(where, citation, f"expected object, found {kind(value)}")
            return
        if len(value) != 1:
            yield Violation(where, citation, f"expected exactly one key, found {len(value)}")
        for key, item in value.items():
            if key in table:
                yield from table[key](item, at(where, key), citation)

    return check
