"""Read and write structs field by field, for what the fast path of msgspec refuses.

Rules:

- This path is taken for one message at a time, and only after the fast path has refused it: for
  fields that this version does not know, for lone surrogates, and to say precisely what is wrong.
- A field that a struct does not know is kept as text in ``extra`` and written back in its place.
  So is a word that an optional field of fixed words (``mode``, ``finish_reason``) does not know.
- A part, or a tool, of an unknown ``type`` becomes the member of its union that keeps anything
  (``Opaque``, ``ProviderTool``), with ``wire="palaver"`` and an empty ``extra`` as
  its mark, and is written back as the block itself.
  The same goes for a part that is known but that this role cannot hold, and for one whose media
  comes from an unknown place.
- A known field of a wrong type is a ``DecodeError`` with its path. Nothing is guessed.
- Structs are described by their own annotations; nothing here knows what a message is.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError, excerpt

WIRE: Final = "palaver"
"""The wire of blocks that a newer version of this format wrote."""

Reader: TypeAlias = Callable[[Raw], object]


class Extra:
    """Fields that a newer version wrote and this one does not know, to be written back in place."""

    __slots__ = ("json",)

    def __init__(self, json: Raw) -> None:
        """Keep the fields as one JSON object."""
        object.__setattr__(self, "json", json)

    json: Raw

    def __setattr__(self, name: str, _value: object) -> None:
        """Refuse: values do not change."""
        msg = f"cannot assign to {name!r}"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        """Refuse: values do not change."""
        msg = f"cannot delete {name!r}"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        """Compare the values of the fields."""
        return isinstance(other, Extra) and jsontext.equal(self.json, other.json)

    def __hash__(self) -> int:
        """Hash the normal form."""
        return hash(jsontext.normal(self.json))

    def __repr__(self) -> str:
        """Show the names of the fields."""
        return excerpt(f"Extra({', '.join(jsontext.fields(self.json))})", 160)

    def __reduce__(self) -> tuple[type[Extra], tuple[Raw]]:
        """Pickle as JSON text."""
        return (Extra, (self.json,))


class _UnknownTagError(DecodeError):
    """No member of a union has that tag; a newer version may have written it."""


class _UnknownWordError(DecodeError):
    """A string that the field does not allow; a newer version may have written it."""


class _Field(Struct, frozen=True):
    """One field of a struct: its name in Python and in JSON, how to read it, and its default."""

    name: str
    key: str
    read: Reader
    default: object
    required: bool


# -- reading ---------------------------------------------------------------------------------------


def read(hint: object, data: bytes) -> Any:
    """Read one value of a struct type, or of a union of them. Raises ``DecodeError``."""
    try:
        return _reader(hint)(Raw(data))
    except (_UnknownTagError, _UnknownWordError) as error:
        raise DecodeError(error.reason, path=error.path) from None
    except RecursionError:
        raise DecodeError("nested too deeply") from None


@cache
def _reader(hint: Any) -> Reader:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _reader(arguments[0])
    if origin in {Union, UnionType}:
        return _union(arguments)
    if origin is Literal:
        return _word(arguments)
    if origin is tuple:
        return _many(_reader(arguments[0])) if arguments else _none_at_all
    if issubclass(hint, Struct):
        return _struct(hint)
    return _SCALARS[hint]


def _union(arguments: tuple[Any, ...]) -> Reader:
    members = [each for each in arguments if each not in {NoneType, UnsetType}]
    inner: Reader
    if set(members) == {int, float}:
        inner = _whole_or_not
    else:
        inner = _reader(members[0]) if len(members) == 1 else _tagged(members)
    if NoneType not in arguments:
        return inner
    return lambda data: None if jsontext.is_null(data) else inner(data)


_AS_IT_WAS: Final = Extra(jsontext.EMPTY_OBJECT)
"""Marks a block that was kept whole, so that only this path writes it back."""


def _tagged(members: list[type[Struct]]) -> Reader:
    """Read the member that the tag names.

    A member that keeps anything is the last choice.
    """
    tag_field = cast("str", members[0].__struct_config__.tag_field)
    by_tag = {each.__struct_config__.tag: each for each in members}
    keeper = next((each for each in members if getattr(each, "keeps_unknown", False)), None)

    def read_member(data: Raw) -> object:
        table = jsontext.fields(data)
        if tag_field not in table:
            raise DecodeError("missing required field", path=tag_field)
        try:
            tag = _at(tag_field, jsontext.text, table[tag_field])
            cls = by_tag.get(tag)
            if cls is None:
                raise _UnknownTagError(f"unknown {tag_field} {excerpt(tag)!r}", path=tag_field)  # noqa: TRY301 (one way out for both kinds of error)
            return _made(cls, table)
        except _UnknownTagError:
            if keeper is None:
                raise
            return cast("Any", keeper)(WIRE, data, extra=_AS_IT_WAS)

    return read_member


def _struct(cls: type[Struct]) -> Reader:
    tag_field = cls.__struct_config__.tag_field
    tag = cls.__struct_config__.tag

    def read_struct(data: Raw) -> object:
        table = jsontext.fields(data)
        if tag_field is not None and tag_field in table:
            found = _at(tag_field, jsontext.text, table[tag_field])
            if found != tag:
                reason = f"expected {tag!r}, got {excerpt(found)!r}"
                raise DecodeError(reason, path=tag_field)
        return _made(cls, table)

    return read_struct


def _made(cls: type[Struct], table: jsontext.Fields) -> Struct:
    known: dict[str, object] = {}
    unknown = dict(table)
    unknown.pop(cls.__struct_config__.tag_field or "", None)
    for each in _plan(cls):
        data = table.get(each.key)
        if data is None:
            if each.required:
                raise DecodeError("missing required field", path=each.key)
            continue
        try:
            known[each.name] = _at(each.key, each.read, data)
        except _UnknownWordError:
            if each.required:
                raise
            continue
        del unknown[each.key]
    if unknown:
        pairs = (jsontext.encode(key) + b":" + bytes(data) for key, data in unknown.items())
        known["extra"] = Extra(Raw(b"{" + b",".join(pairs) + b"}"))
    return cls(**known)


@cache
def _plan(cls: type[Struct]) -> tuple[_Field, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Field(each.name, each.encode_name, _reader(hints[each.name]), each.default, each.required)
        for each in structs.fields(cls)
        if each.name != "extra"
    )


def _at(step: str, reader: Callable[[Raw], Any], data: Raw) -> Any:
    try:
        return reader(data)
    except DecodeError as error:
        raise error.within(step) from None


def _many(reader: Reader) -> Reader:
    def read_items(data: Raw) -> object:
        found = enumerate(jsontext.items(data))
        return tuple([_at(f"[{index}]", reader, item) for index, item in found])

    return read_items


def _none_at_all(data: Raw) -> object:
    if jsontext.items(data):
        raise DecodeError("expected an empty array")
    return ()


def _word(words: tuple[str, ...]) -> Reader:
    def read_word(data: Raw) -> object:
        found = jsontext.text(data)
        if found not in words:
            raise _UnknownWordError(f"unknown value {excerpt(found)!r}")
        return found

    return read_word


def _integer(data: Raw) -> object:
    found = jsontext.value(data)
    if type(found) is not int:
        raise DecodeError(f"expected an integer, got {_got(data, found)}")
    return found


def _number(data: Raw) -> object:
    found = jsontext.value(data)
    if type(found) is bool or not isinstance(found, (int, float)):
        raise DecodeError(f"expected a number, got {_got(data, found)}")
    try:
        number = float(found)
    except OverflowError:
        raise DecodeError("number out of range") from None
    if number - number != 0:
        raise DecodeError("number out of range")
    return number


def _whole_or_not(data: Raw) -> object:
    found = jsontext.value(data)
    return found if type(found) is int else _number(data)


def _truth(data: Raw) -> object:
    found = jsontext.value(data)
    if type(found) is not bool:
        raise DecodeError(f"expected true or false, got {_got(data, found)}")
    return found


def _got(data: Raw, found: object) -> str:
    return "not a number" if type(found) is float else jsontext.kind(data)


def _anything(data: Raw) -> Raw:
    return data


_SCALARS: Final[dict[object, Reader]] = {
    str: jsontext.text,
    int: _integer,
    float: _number,
    bool: _truth,
    Raw: _anything,
}


# -- writing ---------------------------------------------------------------------------------------


def write(value: Struct) -> bytes:
    """Write a struct: its tag, its fields, then the fields it does not know, all on one level.

    Raises ``EncodeError`` for a field that holds what JSON cannot express.
    """
    return b"{" + b",".join(_pairs(value)) + b"}"


def _pairs(value: Struct) -> Iterator[bytes]:
    cls = type(value)
    config = cls.__struct_config__
    if config.tag_field is not None:
        yield jsontext.encode(config.tag_field) + b":" + jsontext.encode(config.tag)
    written: set[str] = set()
    for each in _plan(cls):
        item = getattr(value, each.name)
        if item is UNSET or _is_default(item, each.default):
            continue
        written.add(each.key)
        yield jsontext.encode(each.key) + b":" + _write(item, each.read)
    extra = getattr(value, "extra", UNSET)
    if isinstance(extra, Extra):
        for key, data in jsontext.fields(extra.json).items():
            if key not in written:
                yield jsontext.encode(key) + b":" + bytes(data)


def _is_default(item: object, default: object) -> bool:
    return item is default or (type(item) is type(default) and item == default)


def _write(item: object, reader: Reader) -> bytes:
    match item:
        case Raw():
            return bytes(item)
        case tuple() | list():
            items = cast("list[object]", item)
            return b"[" + b",".join([_write_item(each, reader) for each in items]) + b"]"
        case Struct():
            return write(item)
        case _:
            return jsontext.encode(item)


def _write_item(item: object, reader: Reader) -> bytes:
    """Write a kept block as the block itself, if reading that gives the same item again."""
    if getattr(item, "keeps_unknown", False):
        block = cast("Any", item)
        if block.wire == WIRE and _reads_back(block, reader):
            return bytes(block.raw_json)
    return write(item) if isinstance(item, Struct) else jsontext.encode(item)


def _reads_back(block: Any, reader: Reader) -> bool:
    try:
        return reader(Raw(b"[" + bytes(block.raw_json) + b"]")) == (block,)
    except DecodeError:
        return False
