"""AWS event streams, ``application/vnd.amazon.eventstream``: binary messages with two checksums.

https://smithy.io/2.0/aws/amazon-eventstream.html

::

    total length   4 bytes, of the whole message, big-endian like every number here   ┐
    headers length 4 bytes                                                            ├ prelude
    prelude CRC    4 bytes, CRC-32 of the eight bytes before it                       ┘
    headers        name length (1 byte), name, value type (1 byte), value; repeated
    payload        what remains
    message CRC    4 bytes, CRC-32 of all before it

Rules:

- Both checksums are checked. The prelude is judged as soon as its twelve bytes are there, so a wrong length is an error
  before anything is awaited: less than 16, headers longer than the message, more than the limit.
- All ten types of header values are read and their bounds checked; texts are UTF-8; a name comes once. An unknown type
  is an error, since its length is unknown too.
- ``:message-type`` is ``event`` (also when it is missing), ``exception`` or ``error``. It is the ``kind`` of the frame
  and says which header is its ``name``: ``:event-type``, ``:exception-type``, ``:error-code``; ``""`` when it is
  missing. An error carries its text in the header ``:error-message``, which becomes the ``data``. These headers are
  texts.
- An exception is a whole, undamaged frame: this layer gives it, and the wire raises it.
- A stream that ends inside a message is damaged.

Stability: experimental.
"""

from __future__ import annotations

from binascii import crc32
from struct import Struct
from typing import Final, NamedTuple

from palaver.core.errors import DecodeError, EncodeError, excerpt
from palaver.stream.frames import LIMIT, Frame

_PRELUDE: Final = Struct(">III")
_NUMBER: Final = Struct(">I")
_LEAST: Final = 16  # a prelude and a message CRC

_TEXT: Final = 7
_SIZES: Final = {
    0: 0,  # true
    1: 0,  # false
    2: 1,  # byte
    3: 2,  # short
    4: 4,  # int
    5: 8,  # long
    8: 8,  # timestamp, milliseconds
    9: 16,  # uuid
}
"""Bytes of a value by its type."""
_SIZED: Final = (6, _TEXT)
"""Types whose value begins with its length in two bytes: bytes and text."""

_NAMED_BY: Final = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}
"""The header that names a frame, by its kind."""

_SMALL: Final = 512  # bytes of headers that are worth remembering
_MANY: Final = 64  # how many of them

MAX_PAYLOAD: Final = 24 * 1024 * 1024
"""The bytes of a payload that Amazon's own Python client still reads; more is not written."""
_MAX_TEXT: Final = 0x7FFF  # of a header; the clients that read the length as a signed number allow no more


class _Head(NamedTuple):
    """The headers of a message. ``message`` is the text of an error."""

    kind: str
    name: str
    message: bytes | None


class EventStreamReader:
    """Reads an AWS event stream; see ``Reader``. ``limit`` bounds the bytes of one message, headers and all."""

    __slots__ = ("_count", "_heads", "_limit", "_need", "_pending", "error")

    def __init__(self, limit: int = LIMIT) -> None:
        self.error: DecodeError | None = None
        self._limit = limit
        self._count = 0  # frames given
        self._pending = bytearray()  # of a message that is not complete
        self._need = _PRELUDE.size  # bytes to hold before there is something to do: a prelude, then the message
        self._heads: dict[bytes, _Head] = {}  # events of one type have the same headers

    def feed(self, data: bytes, /) -> list[Frame]:
        """The messages that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if len(self._pending) + len(data) < self._need:
            self._pending += data
            return []
        text = bytes(self._pending) + data
        self._pending.clear()
        frames: list[Frame] = []
        try:
            start = self._messages(text, frames)
        except DecodeError as error:
            self._fail(error, len(frames))
        else:
            self._pending += text[start:]
        self._count += len(frames)
        return frames

    def finish(self) -> list[Frame]:
        """Nothing, since a message says its own length. Raises ``DecodeError`` when one is not complete."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._pending:
            pending, need = len(self._pending), self._need
            part = "prelude" if need == _PRELUDE.size else "message"
            raise self._fail(DecodeError(f"the stream ends after {pending} of the {need} bytes of a {part}"), 0)
        return []

    def _messages(self, text: bytes, frames: list[Frame]) -> int:
        """Read the messages that are complete in ``text``; gives where the next one begins."""
        start = 0
        while len(text) - start >= self._need:
            if self._need == _PRELUDE.size:
                self._need = _total(text, start, self._limit)
                continue
            end = start + self._need
            frames.append(self._message(text, start, end))
            start = end
            self._need = _PRELUDE.size
        return start

    def _message(self, text: bytes, start: int, end: int) -> Frame:
        """Read the message between ``start`` and ``end``, whose prelude was found good."""
        if crc32(memoryview(text)[start : end - 4]) != _NUMBER.unpack_from(text, end - 4)[0]:
            raise DecodeError("the message CRC is wrong")
        begin = start + _PRELUDE.size
        middle = begin + _NUMBER.unpack_from(text, start + 4)[0]
        headers = text[begin:middle]
        head = self._heads.get(headers)
        if head is None:
            head = _head(headers)
            if len(headers) <= _SMALL and len(self._heads) < _MANY:
                self._heads[headers] = head
        data = text[middle : end - 4] if head.message is None else head.message
        return Frame(head.name, data, None, head.kind)

    def _fail(self, error: DecodeError, given: int) -> DecodeError:
        """Name the place and keep the error, without the traceback, which holds the bytes; let go what is held."""
        error.source = "event stream"
        self.error = error.within(f"frame {self._count + given + 1}").with_traceback(None)
        self._pending.clear()
        return error


def _total(text: bytes, start: int, limit: int) -> int:
    """Judge a prelude; gives the length of its message."""
    total, headers, crc = _PRELUDE.unpack_from(text, start)
    if crc32(text[start : start + 8]) != crc:
        raise DecodeError("the prelude CRC is wrong")
    if total < _LEAST:
        raise DecodeError(f"a message cannot have {total} bytes")
    if headers > total - _LEAST:
        raise DecodeError(f"a message of {total} bytes cannot have {headers} bytes of headers")
    if total > limit:
        raise DecodeError(f"longer than {limit} bytes")
    return int(total)


def _head(headers: bytes) -> _Head:
    """Read the headers that a frame needs. Raises ``DecodeError``."""
    found = _headers(headers)

    def text(name: str) -> str | None:
        value = found.get(name, "")
        if value is None:
            raise DecodeError("expected a text", path=f"header {name}")
        return value if name in found else None

    kind = text(":message-type")
    if kind is None:
        kind = "event"
    if kind not in _NAMED_BY:
        raise DecodeError(f"unknown kind {excerpt(kind)!r}", path="header :message-type")
    message = text(":error-message") if kind == "error" else None
    return _Head(kind, text(_NAMED_BY[kind]) or "", None if message is None else message.encode())


def _headers(block: bytes) -> dict[str, str | None]:
    """Every header by its name; ``None`` is a value that is no text. Raises ``DecodeError``."""
    found: dict[str, str | None] = {}
    at = 0
    while at < len(block):
        name, at = _text(block, at + 1, block[at])
        kind, at = _byte(block, at)
        if kind in _SIZED:
            high, at = _byte(block, at)
            low, at = _byte(block, at)
            size = high << 8 | low
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise DecodeError(f"unknown type {kind}", path=f"header {excerpt(name)}")
        if name in found:
            raise DecodeError("comes twice", path=f"header {excerpt(name)}")
        if kind == _TEXT:
            found[name], at = _text(block, at, size)
        else:
            found[name], at = None, _end(block, at, size)
    return found


def _end(block: bytes, at: int, size: int) -> int:
    end = at + size
    if end > len(block):
        raise DecodeError("a header is longer than the headers")
    return end


def _byte(block: bytes, at: int) -> tuple[int, int]:
    end = _end(block, at, 1)
    return block[at], end


def _text(block: bytes, at: int, size: int) -> tuple[str, int]:
    end = _end(block, at, size)
    try:
        return block[at:end].decode(), end
    except UnicodeDecodeError:
        raise DecodeError("a header is not UTF-8") from None


def write(payload: bytes, event_type: str, *, kind: str = "event", content_type: str = "application/json") -> bytes:
    """One message, with its headers in the order in which Bedrock sends them.

    ``kind`` is ``event``, ``exception`` (``event_type`` is then the type of the exception) or ``error``
    (``event_type`` is its code, and ``payload`` its text, which goes into a header).

    Raises ``EncodeError`` for another kind, a name of more than 32,767 bytes or with a lone surrogate, the text of an
    error that is not UTF-8 or too long for a header, a payload longer than ``MAX_PAYLOAD``.
    """
    if kind not in _NAMED_BY:
        raise EncodeError(f"event stream: unknown kind {excerpt(kind)!r}; there are {', '.join(_NAMED_BY)}")
    if len(payload) > MAX_PAYLOAD:
        raise EncodeError(f"event stream: a payload of {len(payload)} bytes is more than {MAX_PAYLOAD}")
    texts = [(_NAMED_BY[kind], _encoded(event_type))]
    if kind == "error":
        texts.append((":error-message", payload))
        payload = b""
    else:
        texts.append((":content-type", _encoded(content_type)))
    texts.append((":message-type", kind.encode()))
    headers = b"".join([_header(name, value) for name, value in texts])
    lengths = _PRELUDE.pack(_LEAST + len(headers) + len(payload), len(headers), 0)[:8]
    message = b"".join((lengths, _NUMBER.pack(crc32(lengths)), headers, payload))
    return message + _NUMBER.pack(crc32(message))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError("event stream: a header cannot hold a lone surrogate") from None


def _header(name: str, value: bytes) -> bytes:
    if len(value) > _MAX_TEXT:
        raise EncodeError(f"event stream: header {name} of {len(value)} bytes is more than {_MAX_TEXT}")
    try:
        value.decode()
    except UnicodeDecodeError:
        raise EncodeError(f"event stream: header {name} is not UTF-8") from None
    return b"%c%b%c%b%b" % (len(name), name.encode(), _TEXT, len(value).to_bytes(2, "big"), value)
