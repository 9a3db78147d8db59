"""Convert one struct to canonical JSON and back: with msgspec, or with the slow path when msgspec refuses.

Rules:

- Reading is strict and typed. Where that fails, ``slow_path`` reads the same bytes once more, keeps
  what it does not know, and names the place of what is wrong.
- Writing is one call into msgspec. It fails over to ``slow_path`` for unknown fields (``Extra`` is
  not a type that msgspec writes), for lone surrogates, and for blocks of wire ``palaver``.
- The text that a value keeps (``Raw``) is a slice of the bytes it was read from, and keeps those alive. So give
  ``decode`` one message at a time, which bounds the memory by the message.
- A line break in valid JSON can only be space between tokens, since strings escape it. So putting
  text on one line means replacing the breaks, and changes no value.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from threading import Lock
from typing import Any, NoReturn, TypeAlias

import msgspec
from msgspec import Raw, Struct

from palaver.core import jsontext, slow_path
from palaver.core.errors import DecodeError, EncodeError

Data: TypeAlias = bytes | bytearray | memoryview | str | Mapping[str, Any] | Raw


class _SlowPathError(Exception):
    """The fast path met something that only the slow path can write."""


def _refuse(_value: object) -> NoReturn:
    raise _SlowPathError


_encoder = msgspec.json.Encoder(enc_hook=_refuse)
_building = Lock()
"""Locks the building of decoders: msgspec shows half-built types to other threads, which crash on them."""


@cache
def reader(hint: Any) -> Callable[[Data], Any]:
    """Return the function that reads a struct type, or a union of them.

    It raises ``DecodeError``, source ``palaver``, with the path of what is wrong.
    """
    fast: Callable[[bytes], Any] | None = None

    def read(data: Data) -> Any:
        nonlocal fast
        if fast is None:  # building it costs more than importing all of this
            with _building:
                fast = msgspec.json.Decoder(hint).decode
        try:
            line = data if isinstance(data, bytes) else jsontext.source(data)
            try:
                if not line.isascii():
                    line.decode()  # the fast path does not look into text that it keeps as it is
                return fast(line)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                return slow_path.read(hint, jsontext.source(line))
        except DecodeError as error:
            error.source = slow_path.WIRE
            raise

    return read


def encode(value: Struct) -> bytes:
    """Write one value on one line. Raises ``EncodeError`` for what JSON cannot express."""
    try:
        line = _encoder.encode(value)
    except (_SlowPathError, UnicodeEncodeError):
        return _encode_slowly(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(str(error)) from None
    return one_line(line)


def encode_lines(values: list[Any]) -> bytes:
    """Write many values, each on a line of its own that ends in a line break."""
    try:
        lines = _encoder.encode_lines(values)
        if lines.count(b"\n") == len(values):
            return lines
    except (_SlowPathError, TypeError, ValueError, RecursionError):
        pass  # one of them: each raises its own error
    return b"".join([encode(each) + b"\n" for each in values])


def _encode_slowly(value: Struct) -> bytes:
    try:
        return one_line(slow_path.write(value))
    except RecursionError:
        raise EncodeError("nested too deeply") from None


def one_line(text: bytes) -> bytes:
    """Put JSON on one line."""
    return text.replace(b"\n", b" ") if b"\n" in text else text
