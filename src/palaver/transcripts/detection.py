"""The beginning of a file, as far as it takes to tell what it is.

Rules:

- A transcript format looks at a ``Head`` and gives a ``Detection`` or nothing; it never raises. ``confidence``: 1.0
  for a header that names the format, 0.9 for fields that nobody else has, 0.7 for a shape, 0.5 for one that a
  provider's request has too, below that for what it may be if nothing better is found.
- Looked at are the name and the first 64 KiB, unpacked. A line or document that goes on beyond them is read as far
  as it goes (``stream.partial``).

Stability: experimental.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.stream.partial_json import PartialJSON

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZE: Final = 1 << 16
MARGIN: Final = 0.05
_LINES: Final = 24
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_NOTHING: Final[Mapping[str, Any]] = {}


class Detection(Struct, frozen=True):
    """What a file may be: see the module for ``confidence``. ``version`` is what the file says, where it says one."""

    confidence: float
    version: str | None = None


class Detected(Struct, frozen=True):
    """A transcript format that a file may be written in."""

    file_format: str
    version: str | None
    confidence: float


class Head:
    """The beginning of a file: ``name`` as far as it has one, ``data`` its first bytes, unpacked."""

    def __init__(self, data: bytes, name: str = "") -> None:
        """Look at the first bytes of a file; more than ``SIZE`` of them are passed over."""
        self.name = name
        packed = data[:SIZE]
        raw = _unpacked(packed) if packed.startswith(_ZSTD) else packed
        self.data = raw.removeprefix(b"\xef\xbb\xbf")
        self.whole = len(data) < SIZE and not packed.startswith(_ZSTD)

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The values on the first lines, as far as they go; ``None`` for a line that is no JSON."""
        pieces = self.data.split(b"\n")[:_LINES]
        return tuple([_value(piece) for piece in pieces if piece.strip()])

    @cached_property
    def lines(self) -> tuple[Mapping[str, Any], ...]:
        """The objects on the first lines; the last one may not be whole. What is no object is passed over."""
        return tuple([cast("dict[str, Any]", each) for each in self.values if isinstance(each, dict)])

    @cached_property
    def first(self) -> Mapping[str, Any]:
        """The object on the first line that has one; empty when there is none."""
        return self.lines[0] if self.lines else _NOTHING

    @cached_property
    def document(self) -> Any:
        """The whole as one value, as far as it goes; ``None`` when it is several lines of JSON, or none."""
        text = self.data.strip(b" \t\r\n")
        if b"\n" not in text and text:
            return self.values[0] if self.values else _value(text)
        return _value(self.data)

    @cached_property
    def items(self) -> tuple[Mapping[str, Any], ...]:
        """The objects of the list that the document is; empty when it is none."""
        document: object = self.document
        listed = cast("list[object]", document)[:_LINES] if isinstance(document, list) else ()
        return tuple([found for each in cast("list[object]", listed) if (found := _object(each))])

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The object that the document is; empty when it is none."""
        return _object(self.document)


def word(fields: Mapping[str, Any], key: str) -> str:
    """The text under a key, to be looked for among those that are known; empty for a value of any other type."""
    found = fields.get(key)
    return found if isinstance(found, str) else ""


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _NOTHING


def _value(data: bytes) -> Any:
    """A value, as far as it goes; ``None`` for what is no JSON."""
    try:
        return jsontext.value(data)
    except (PalaverError, UnicodeDecodeError, RecursionError):
        reading = PartialJSON()
        reading.feed(data.decode("utf-8", "replace"))
        return None if reading.error is not None else reading.value


def _unpacked(data: bytes) -> bytes:
    try:
        return zstd.ZstdDecompressor().decompress(data, max_length=SIZE)
    except (zstd.ZstdError, EOFError):
        return b""
