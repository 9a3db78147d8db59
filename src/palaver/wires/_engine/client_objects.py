"""Objects of the official clients: pydantic models of answers and chunks, read by what was set on them.

Rules:

- An object may be the body, or stand anywhere inside one: an answer among the messages of the next request.
- What a client leaves out of a body (``NOT_GIVEN``, ``omit``) is left out.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, cast, runtime_checkable

from palaver.core import jsontext
from palaver.core.errors import DecodeError, excerpt


@runtime_checkable
class ClientObject(Protocol):
    """A ``ChatCompletion``, a ``Message``, a chunk of a stream: whatever pydantic made."""

    def model_dump_json(self, *, by_alias: bool, exclude_unset: bool) -> str:
        """Write the object as JSON."""
        ...


_TEXTS: Final[frozenset[type]] = frozenset({bytes, str, bytearray, memoryview})
_LEFT_OUT: Final = frozenset({"NotGiven", "Omit"})
"""The classes by which openai and anthropic say that a field is not sent."""


def source(body: Any) -> bytes:
    """The JSON text of a body, also of a client's object, and of a body with such objects inside.

    Raises ``DecodeError`` for what is no JSON.
    """
    if body.__class__ in _TEXTS:
        return jsontext.source(cast("bytes", body))
    if _is_object(body):
        return _written(body).encode()
    try:
        return jsontext.source(body)
    except DecodeError:
        if not isinstance(body, dict):
            raise
        return jsontext.source(cast("dict[str, Any]", _opened(cast("object", body), jsontext.DEEPEST)))


def _is_object(value: object) -> bool:
    return isinstance(value, ClientObject) and not isinstance(value, type)


def _written(made: ClientObject) -> str:
    """A client's object with the fields that the provider sent."""
    try:
        return made.model_dump_json(by_alias=True, exclude_unset=True)
    except Exception as error:  # whatever the library of the object raises
        raise DecodeError(f"{type(made).__name__} cannot be written: {excerpt(str(error), 120)}") from error


def _opened(value: object, levels: int) -> object:
    """A value whose client objects, at so many levels, are JSON values."""
    if not levels:
        return value
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {key: _opened(each, levels - 1) for key, each in items if type(each).__name__ not in _LEFT_OUT}
    if isinstance(value, list | tuple):
        return [_opened(each, levels - 1) for each in cast("list[object]", value)]
    if _is_object(value):
        return jsontext.value(_written(cast("ClientObject", value)).encode())
    return value
