"""JSON text, read without losing how it was written.

Rules:

- An object is split into its fields as raw text (``fields``); a value is parsed only when it is
  read. Unread values stay, byte for byte, and are written back as they came.
- msgspec reads and writes. It refuses three things that occur in practice: lone surrogates, numbers beyond a double,
  and integers of thousands of digits. Those take the slow path through the standard library, and come out the same.
- Raw text that is kept is always valid UTF-8 and valid JSON; a lone surrogate in it is an escape.
- A number keeps its text: an int is an int, a float is a float, and a float whose text Python would
  write differently (``5e-6``, ``1e400``) is a ``Number``, a float that remembers.
- Parsed values are frozen: ``FrozenDict`` and ``FrozenList`` compare equal to, and are, plain dicts
  and lists, and refuse to change.

Lone surrogates, and what a provider gets in their place (CBF-14, docs/spec/message-fields.md#F43,
docs/spec/dialects.md#0.12):

- Text that was cut inside of a UTF-16 pair holds half a character. Python and JSON can express it, as a code point and
  an escape; UTF-8 cannot, and many parsers refuse the escape. So a message keeps it, and a body has U+FFFD in its
  place.
- Two halves that stand side by side, as code points, are the character that they make.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, cast

import msgspec
from msgspec import Raw

from palaver.core.errors import DecodeError, EncodeError, MessageError, excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping


JSONArray: TypeAlias = "list[JSONValue] | tuple[JSONValue, ...]"
JSONValue: TypeAlias = "bool | int | float | str | JSONArray | dict[str, JSONValue] | None"
"""A JSON value as Python sees it; tuples are written as arrays."""

Fields: TypeAlias = "dict[str, Raw]"
"""An object whose values are still text."""

NULL: Final = Raw(b"null")
TRUE: Final = Raw(b"true")
FALSE: Final = Raw(b"false")
EMPTY_OBJECT: Final = Raw(b"{}")

DEEPEST: Final = 200
"""The most levels of nesting in a value from Python code. Readers go deeper, as far as the stack allows."""

READABLE: Final = 500
"""The levels of nesting that can be read in a deep stack too: half of what Python's stack allows."""

TOO_DEEP: Final = "nested too deeply, more than {} levels"
_DEEP: Final = "nested too deeply"
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_rows = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_text = msgspec.json.Decoder(str).decode
_any_raw = msgspec.json.Decoder(Raw).decode


class Number(float):
    """A float that remembers how it was written. ``text`` is the JSON number."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Read ``text``; beyond the range of a double the value is infinite, the text is kept."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[Number], tuple[str]]:
        """Pickle as the text."""
        return (Number, (self.text,))


def _float(text: str) -> float:
    number = float(text)
    return number if "e" not in text and repr(number) == text else Number(text)


def _int(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # longer than the interpreter's limit for integers
        return Number(text)


def _constant(text: str) -> NoReturn:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


_value = msgspec.json.Decoder(float_hook=_float).decode


def _hook(value: object) -> Raw:
    if isinstance(value, Number):
        return Raw(value.text.encode())
    msg = f"{type(value).__name__} is not a JSON value"
    raise TypeError(msg)


_encoder = msgspec.json.Encoder(enc_hook=_hook)


# -- reading ---------------------------------------------------------------------------------------


def _slow(data: bytes | Raw | str) -> Any:
    """Read by the standard library, which takes lone surrogates and any number."""
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_constant)
    except RecursionError:
        raise DecodeError(_DEEP) from None
    except ValueError as error:
        raise DecodeError(_plain(error)) from None


def _plain(error: Exception) -> str:
    text = str(error)
    said = text if text.startswith("NaN") else f"{text[:1].lower()}{text[1:]}"
    return excerpt(f"not JSON: {said}" if text else "not JSON", 120)


def source(data: bytes | bytearray | memoryview | str | Mapping[str, object] | Raw) -> bytes:
    """Return the bytes of a JSON document, from bytes, text, or a parsed object.

    Raises ``DecodeError`` when the bytes are not UTF-8. A byte order mark is skipped.
    """
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            return encode(_slow(data))
    if isinstance(data, (bytes, bytearray, memoryview, Raw)):
        body = data if isinstance(data, bytes) else bytes(data)
        if body.isascii():
            return body
        try:
            body.decode()
        except UnicodeDecodeError as error:
            msg = f"not UTF-8 at byte {error.start}"
            raise DecodeError(msg) from None
        return body.removeprefix(b"\xef\xbb\xbf")
    try:
        return bytes(checked(data, "$"))
    except MessageError as error:
        raise DecodeError(str(error)) from None


def fields(data: bytes | Raw) -> Fields:
    """Split an object into its fields, each still text. Raises ``DecodeError`` when it is none."""
    try:
        return _fields(data)
    except msgspec.ValidationError:
        msg = f"expected an object, got {kind(data)}"
        raise DecodeError(msg) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        parsed = _slow(data)
        if not isinstance(parsed, dict):
            msg = f"expected an object, got {kind(data)}"
            raise DecodeError(msg) from None
        return {key: raw(item) for key, item in cast("dict[str, JSONValue]", parsed).items()}


def items(data: bytes | Raw) -> list[Raw]:
    """Split an array into its items, each still text. Raises ``DecodeError`` when it is none."""
    try:
        return _items(data)
    except msgspec.ValidationError:
        msg = f"expected an array, got {kind(data)}"
        raise DecodeError(msg) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        parsed = _slow(data)
        if not isinstance(parsed, list):
            msg = f"expected an array, got {kind(data)}"
            raise DecodeError(msg) from None
        return [raw(item) for item in cast("list[JSONValue]", parsed)]


def rows(data: bytes | Raw) -> list[Fields]:
    """Split an array of objects, each into its fields, in one pass. Raises ``DecodeError`` naming the item."""
    try:
        return _rows(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        split: list[Fields] = []
        for index, item in enumerate(items(data)):
            try:
                split.append(fields(item))
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
        return split


def text(data: bytes | Raw) -> str:
    """Read a string. Raises ``DecodeError`` when it is none."""
    try:
        return _text(data)
    except msgspec.ValidationError:
        msg = f"expected a string, got {kind(data)}"
        raise DecodeError(msg) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = _slow(data)
        if not isinstance(parsed, str):
            msg = f"expected a string, got {kind(data)}"
            raise DecodeError(msg) from None
        return parsed


def value(data: bytes | Raw | str) -> Any:
    """Read any value into plain, mutable Python. Raises ``DecodeError`` when it is no JSON."""
    try:
        return _value(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return _slow(data)


def is_json(data: bytes | str) -> bool:
    """Whether ``data`` is one JSON value."""
    try:
        _any_raw(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        try:
            _slow(data)
        except (DecodeError, UnicodeError):
            return False
    return True


def is_deep(data: bytes, most: int = DEEPEST) -> bool:
    """Whether a JSON text is nested more than ``most`` levels."""
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    left = _STRING.sub(b"", data).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(most):
        left = left.replace(b"[]", b"")  # the innermost level
        if not left:
            return False
    return True


def unreadable(data: Raw, most: int = DEEPEST) -> str | None:
    """Return why text cannot be kept as JSON: it is not JSON, not UTF-8, or too deep; ``None`` when it can."""
    text = bytes(data)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    if is_deep(text, most):
        return TOO_DEEP.format(most)
    return None if is_json(text) else "not JSON"


_KINDS: Final = {
    b"{": "an object",
    b"[": "an array",
    b'"': "a string",
    b"t": "true",
    b"f": "false",
    b"n": "null",
}


def kind(data: bytes | Raw) -> str:
    """Return the kind that the first byte announces: ``an object``, ``a string``, ``null``, ``a number``."""
    head = bytes(memoryview(data)[:1])
    if head.isspace():
        head = bytes(data).lstrip(b" \t\r\n")[:1]
    return _KINDS.get(head, "a number" if head else "nothing")


def is_null(data: Raw | None) -> bool:
    """Whether a field is there and holds ``null``."""
    return data is not None and data == NULL


# -- writing ---------------------------------------------------------------------------------------


def encode(item: object) -> bytes:
    """Write a value compactly, keys in their order, numbers as they were read.

    Raises ``EncodeError`` for what is no JSON value. A float that is infinite or NaN and has no
    text is written as ``null``: values that a caller built go through ``checked``, which refuses
    it.
    """
    try:
        try:
            return _encoder.encode(item)
        except UnicodeEncodeError:
            return _slow_encode(item)
    except RecursionError:
        raise EncodeError(_DEEP) from None
    except (
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: an integer of thousands of digits
        raise EncodeError(excerpt(str(error), 120)) from None


def _slow_encode(item: object) -> bytes:
    """Write strings that hold lone surrogates: those, and only those, become escapes."""
    match item:
        case str():
            return json.dumps(item, ensure_ascii=False).encode("utf-8", "backslashreplace")
        case dict():
            pairs = (
                _slow_encode(key) + b":" + _slow_encode(value_)
                for key, value_ in cast("dict[str, object]", item).items()
            )
            return b"{" + b",".join(pairs) + b"}"
        case list() | tuple():
            return b"[" + b",".join(_slow_encode(each) for each in cast("list[object]", item)) + b"]"
        case _:
            return _encoder.encode(item)


def pretty(item: object) -> bytes:
    """Write a value for people: indented by two, ending in a line break."""
    return msgspec.json.format(encode(item), indent=2) + b"\n"


def raw(item: object) -> Raw:
    """Write a value and keep it as text."""
    return Raw(encode(item))


def checked(item: object, where: str) -> Raw:
    """Write a value that a caller built; only what JSON can express exactly is taken.

    Raises ``MessageError`` naming ``where`` for infinities, NaN, other types, keys that are no
    strings, and more than ``DEEPEST`` levels.
    """
    try:
        _check(item, where, DEEPEST)
        return raw(item)
    except EncodeError as error:
        raise MessageError(f"{where}: {error}") from None


def _check(item: object, where: str, levels: int) -> None:
    """Check a value that may have so many levels."""
    match item:
        case None | bool() | int() | str() | Number():
            return
        case float():
            if item - item != 0:
                msg = f"{where}: {item} is not a JSON number"
                raise MessageError(msg)
        case dict() | list() | tuple() if not levels:
            raise MessageError(f"{excerpt(where, 40)}: {TOO_DEEP.format(DEEPEST)}")
        case dict():
            for key, each in cast("dict[object, object]", item).items():
                if not isinstance(key, str):
                    msg = f"{where}: the key {excerpt(repr(key))} is not a string"
                    raise MessageError(msg)
                _check(each, f"{where}.{key}", levels - 1)
        case list() | tuple():
            for index, each in enumerate(cast("list[object]", item)):
                _check(each, f"{where}[{index}]", levels - 1)
        case _:
            msg = f"{where}: {type(item).__name__} is not a JSON value"
            raise MessageError(msg)


def own(data: Raw) -> Raw:
    """Copy text out of the document it is a slice of, so that the document can be freed."""
    return Raw(bytes(data))


# -- comparing -------------------------------------------------------------------------------------


def normal(data: bytes | Raw) -> bytes:
    """Write a value in the one form that equal values share: keys sorted, no spaces.

    ``2`` and ``2.0`` differ; ``5e-06`` and ``5e-6`` do not.
    """
    try:
        return encode(_sorted(value(data)))
    except (RecursionError, EncodeError):
        raise DecodeError(_DEEP) from None


def _sorted(item: Any) -> Any:
    if type(item) is str:
        return item
    if isinstance(item, dict):
        table = cast("dict[str, Any]", item)
        return {key: _sorted(table[key]) for key in sorted(table)}
    if isinstance(item, list):
        return [_sorted(each) for each in cast("list[object]", item)]
    if isinstance(item, Number) and item - item == 0:  # finite: let equal floats look equal
        return float(item)
    return item


def equal(one: Raw, other: Raw) -> bool:
    """Whether two texts have the same value; the order of keys does not matter."""
    return one == other or normal(one) == normal(other)


# -- frozen views ----------------------------------------------------------------------------------


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    msg = f"{type(self).__name__} cannot be changed; use replace() on the message"
    raise TypeError(msg)


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change. Equal to, and accepted as, a plain dict."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the plain dict it was made from."""
        return (FrozenDict, (dict(self),))


class FrozenList(list[Any]):
    """A list that refuses to change. Equal to, and accepted as, a plain list."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the plain list it was made from."""
        return (FrozenList, (list(self),))


def frozen(item: Any) -> Any:
    """Freeze a parsed value, deeply."""
    if isinstance(item, dict):
        return FrozenDict({key: frozen(each) for key, each in cast("dict[str, Any]", item).items()})
    if isinstance(item, (list, tuple)):
        return FrozenList([frozen(each) for each in cast("list[Any]", item)])
    return item


def view(data: bytes | Raw | str) -> Any:
    """Read a value into its frozen form."""
    try:
        return frozen(value(data))
    except RecursionError:
        raise DecodeError(_DEEP) from None


# -- surrogates ------------------------------------------------------------------------------------


_ESCAPE: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def paired(text: str) -> str:
    """Join halves of surrogate pairs that stand side by side; a lone one stays."""
    return _joined(text, "surrogatepass")


def sayable(text: str) -> str:
    """Return text that UTF-8 can express: pairs are joined, and U+FFFD replaces each lone half."""
    return _joined(text, "replace")


def _joined(text: str, lone: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone)
    return text


def sayable_json(text: str) -> str:
    """Return JSON text whose strings UTF-8 can express: ``sayable``, and U+FFFD for escapes of lone surrogates."""
    text = sayable(text)
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: found[0] if found[1] is None else "\\ufffd", text)
