"""Read a provider's objects by their shape: one declaration for the known fields, one parser for all shapes.

Rules:

- A shape is a ``Shape`` whose fields are those that a codec reads. All others stay in ``rest``, as text, and come back
  under ``provider[wire]``.
- An object that has no other fields is read in one step by msgspec (the fast path). Any other is read field by field,
  with the same result: a codec does not see which path was taken.
- A ``null`` counts as absent, and stays in ``rest``, unless the field admits ``None`` or is ``Raw``, which takes
  anything (msgspec has ``Raw`` only alone: an optional field is ``Raw`` with the default ``ABSENT``).
- A list that may also be a single object without a list is declared as a union of both, and given as it was found.
- A known field of a wrong type is a ``DecodeError`` with the path, as is a missing one that is required. A field in
  ``SOFT`` stays in ``rest`` instead.
- ``Union`` tells shapes apart by a word, usually ``type``. An object of another word stays text. So it is with
  items of a list of shapes that have a word.

Stability: experimental.
"""

from __future__ import annotations

from functools import cache
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union as AnyOf,
    cast,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType, field, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_REST: Final = "palaver:rest"
"""The name of ``rest`` for msgspec, which wants one; no provider has such a field."""


ABSENT: Final = Raw()
"""The default of an optional field of any kind."""


NOTHING: Final = cast("Fields", MappingProxyType[str, Raw]({}))
"""The ``rest`` of an object without other fields. It cannot be changed."""


if TYPE_CHECKING:
    _Rest = Fields
else:
    _Rest = Annotated[int, Meta(gt=0, lt=0)]
    """A type that no value of JSON has. A body with a field of our name is read field by field, and keeps it."""


class Shape(Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Base of all shapes. ``rest`` has the fields that the shape does not name."""

    SOFT: ClassVar[frozenset[str]] = frozenset()
    """Optional fields of which only the type that is declared has a meaning to us."""

    rest: _Rest = field(default=NOTHING, name=_REST)

    @classmethod
    def canonical(cls, rest: Fields) -> Fields:
        """Give fields the names that a shape declares, on a wire where they have several."""
        return rest


S = TypeVar("S", bound=Shape)

REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the fast path raises for an object of another shape, for odd text, and for one that is nested too deeply."""


def fast(shape: type[S]) -> Callable[[bytes | Raw], S]:
    """Return the fast path of a shape alone, for who reads one object in many ways. It raises one of ``REFUSED``."""
    return msgspec.json.Decoder(shape).decode


def reader(shape: type[S]) -> Callable[[bytes | Raw], S]:
    """Return the parser of one shape. It raises ``DecodeError`` with a path."""
    attempt = fast(shape)

    def read(data: bytes | Raw) -> S:
        try:
            return attempt(data)
        except REFUSED:
            return from_fields(shape, jsontext.fields(data))

    return read


def list_reader(shape: type[S]) -> Callable[[bytes | Raw], list[S]]:
    """Return the parser of an array of one shape. It raises ``DecodeError`` that names the item."""
    several: Any = GenericAlias(list, (shape,))
    attempt: Callable[[bytes | Raw], list[S]] = msgspec.json.Decoder(several).decode
    each = reader(shape)

    def read(data: bytes | Raw) -> list[S]:
        try:
            return attempt(data)
        except REFUSED:
            return list(json_fields.each(jsontext.items(data), "", each))

    return read


def from_fields(shape: type[S], rest: Fields) -> S:
    """Read an object that is split already; what the shape does not name is its ``rest``. Raises ``DecodeError``."""
    known, tag = _table(shape)
    rest = shape.canonical(rest)
    if tag is not None:
        rest.pop(tag, None)
    made: dict[str, object] = {}
    for name, key, read, null, required in known:
        raw = rest.get(key)
        if raw is None or (raw == NULL and not null):
            if required:
                raise DecodeError("missing", path=key)
            continue
        try:
            made[name] = read(raw)
        except DecodeError as error:
            if key in shape.SOFT:
                continue
            raise error.within(key) from None
        del rest[key]
    return shape(rest=rest, **made)


class Union(Generic[S]):
    """Shapes that a word tells apart, such as the blocks of a content."""

    def __init__(self, *shapes: type[S], tag: str = "type") -> None:
        """Read these shapes, which are struct classes with a ``tag``."""
        self._tag = tag
        self._shapes = {str(shape.__struct_config__.tag): shape for shape in shapes}
        union: Any = _union(shapes)
        if len(shapes) == 1:  # alone, msgspec would take an object without the word
            never: Any = Annotated[int, Meta(gt=0, lt=0)]
            union |= msgspec.defstruct("Other", [("never", never)], tag_field=tag, tag="palaver:other")
        self._one: Callable[[bytes | Raw], S] = msgspec.json.Decoder(union).decode
        self._many: Callable[[bytes | Raw], list[S]] = msgspec.json.Decoder(list[union]).decode

    def items(self, data: bytes | Raw) -> list[S | Raw]:
        """Read an array; an item of an unknown word stays text. Raises ``DecodeError`` that names the item."""
        try:
            return cast("list[S | Raw]", self._many(data))
        except REFUSED:
            return list(json_fields.each(jsontext.items(data), "", self.item))

    def item(self, data: Raw) -> S | Raw:
        """Read one object; one of an unknown word stays text. Raises ``DecodeError``."""
        try:
            return self._one(data)
        except REFUSED:
            rest = jsontext.fields(data)
            shape = self._shapes.get(json_fields.need_text(rest, self._tag))
            return data if shape is None else from_fields(shape, rest)


# -- a field that several wires share ----------------------------------------------------------------

_ASSISTANT: Final = (json_fields.word("assistant"), NULL, ABSENT)


def role_note(role: Raw) -> Fields | None:
    """Make the note for the role of an answer, where it is not the assistant's."""
    return None if role in _ASSISTANT else {"role": role}


# -- fields by their type --------------------------------------------------------------------------


@cache
def _table(shape: type[Shape]) -> tuple[list[tuple[str, str, Callable[[Raw], object], bool, bool]], str | None]:
    known: list[tuple[str, str, Callable[[Raw], object], bool, bool]] = []
    for each in structs.fields(shape):
        if each.encode_name == _REST:
            continue
        kinds = get_args(each.type) if get_origin(each.type) in (AnyOf, UnionType) else (each.type,)
        plain = [kind for kind in kinds if kind not in (NoneType, UnsetType)]
        read = _nullable(_reader_of(plain)) if NoneType in kinds else _reader_of(plain)
        known.append((each.name, each.encode_name, read, NoneType in kinds or Raw in kinds, each.required))
    return known, shape.__struct_config__.tag_field


def _nullable(read: Callable[[Raw], object]) -> Callable[[Raw], object]:
    return lambda raw: None if raw == NULL else read(raw)


def _reader_of(kinds: list[Any]) -> Callable[[Raw], object]:
    if len(kinds) == 1 and kinds[0] in _READERS:
        return _READERS[kinds[0]]
    if set(kinds) == {int, float}:
        return json_fields.number
    if all(isinstance(kind, type) and issubclass(kind, Shape) for kind in kinds):
        return reader(kinds[0]) if len(kinds) == 1 else Union(*kinds).item
    if len(kinds) == 1 and get_origin(kinds[0]) is list:
        item: Any = get_args(kinds[0])[0]
        shapes: tuple[Any, ...] = get_args(item) or (item,)
        if all(isinstance(each, type) and issubclass(each, Shape) for each in shapes):
            tag = shapes[0].__struct_config__.tag_field
            return list_reader(item) if tag is None else Union(*shapes, tag=tag).items
    if len(kinds) == _TWO and kinds[0] is str and get_origin(kinds[1]) is list:
        return _text_or(_reader_of(kinds[1:]))
    for many in kinds:
        if get_origin(many) is list and {many, *get_args(many)} == set(kinds):
            return _list_or_one(_reader_of([many]), _reader_of([*get_args(many)]))
    return _any_of(kinds)


_TWO: Final = 2


def _text_or(items: Callable[[Raw], object]) -> Callable[[Raw], object]:
    def read(raw: Raw) -> object:
        match jsontext.kind(raw):
            case "a string":
                return jsontext.text(raw)
            case "an array":
                return items(raw)
            case kind:
                raise DecodeError(f"expected a string or an array, got {kind}")

    return read


def _list_or_one(many: Callable[[Raw], object], one: Callable[[Raw], object]) -> Callable[[Raw], object]:
    return lambda raw: one(raw) if jsontext.kind(raw) == "an object" else many(raw)


def _union(kinds: Iterable[Any]) -> Any:
    first, *others = kinds
    for each in others:
        first |= each
    return first


def _any_of(kinds: list[Any]) -> Callable[[Raw], object]:
    decode = msgspec.json.Decoder(_union(kinds)).decode
    words = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
    expected = f"one of {', '.join(map(str, words[0]))}" if words else "another type"

    def read(raw: Raw) -> object:
        try:
            return decode(raw)
        except REFUSED:
            raise DecodeError(f"expected {expected}, got {jsontext.kind(raw)}") from None

    return read


_READERS: Final[dict[object, Callable[[Raw], object]]] = {
    str: jsontext.text,
    int: json_fields.integer,
    bool: json_fields.truth,
    Raw: lambda raw: raw,
    list[Raw]: jsontext.items,
    list[str]: lambda raw: list(json_fields.each(jsontext.items(raw), "", jsontext.text)),
    list[dict[str, Raw]]: jsontext.rows,
    dict[str, Raw]: jsontext.fields,
}
