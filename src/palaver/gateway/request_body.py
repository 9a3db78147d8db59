"""What the gateway reads and changes in the body of a request that goes on as it came: pure.

Rules:

- A body goes on byte for byte; only the name of the model is replaced, or put in where the path named it, and fields
  are left out that only another host of the wire takes.
- A body in which a server may find another value than the gateway does is written anew, each field once: one with two
  fields of a name, with ``Model`` or ``Stream`` beside the names in lower case, or with escapes in a name.
- The cost grows with the size of the body: its fields are found once, and what is inside them is passed over.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from palaver.core.errors import DecodeError
from palaver.gateway.http_io import body_fault
from palaver.gateway.patterns import LONGEST_NAME

if TYPE_CHECKING:
    from palaver.gateway.client_api import ClientApi

_MODEL: Final = "model"
_READ: Final = frozenset({_MODEL, "stream"})
"""The fields that the gateway itself reads."""
_BEFORE_VALUE: Final = re.compile(rb'\s*[{,]\s*"([^"\\]*)"\s*:\s*')


class _Head(Struct):
    """What is read of every body."""

    model: str | None = None
    stream: bool | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_head(body: bytes, api: ClientApi, *, model: str | None, stream: bool | None) -> tuple[str, bool]:
    """Return the model and whether a stream is asked for: what the path says, or else the body.

    Raises ``DecodeError``.
    """
    try:
        head = _HEAD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(body_fault(body, error), source=api.wire) from None
    name = head.model if model is None else model
    if not name:
        raise DecodeError("no model is named", path=_MODEL, source=api.wire)
    if len(name) > LONGEST_NAME:
        raise DecodeError(f"a name has up to {LONGEST_NAME} characters", path=_MODEL, source=api.wire)
    wanted = stream if stream is not None else head.stream
    return name, api.streams_by_default if wanted is None else wanted


def with_model(body: bytes, name: str, left_out: Collection[str] = ()) -> bytes:
    """Return a body that names another model, without the fields ``left_out``; all else stays as it is.

    The body is one that ``read_head`` has read.
    """
    values = _FIELDS.decode(body)
    new = msgspec.json.encode(name)
    known = None if any(each in values for each in left_out) else _model_value(body, values)
    if known is None:
        plain = {each: value for each, value in values.items() if _is_plain(each) and each not in left_out}
        return msgspec.json.encode({**plain, _MODEL: msgspec.Raw(new)})
    start, end = known
    return body if body[start:end] == new else b"".join((body[:start], new, body[end:]))


def _is_plain(name: str) -> bool:
    """Whether no server takes a name for that of a field which it is not."""
    return name in _READ or name.casefold() not in _READ


def _model_value(body: bytes, values: Mapping[str, msgspec.Raw]) -> tuple[int, int] | None:
    """Return where the value of the model begins and ends; ``None`` without one, and where it can be read in two ways.

    Of fields with one name ``values`` has one: then what follows it in ``values`` is not what follows it in the body.
    """
    found: tuple[int, int] | None = None
    at = 0
    for name, value in values.items():
        before = _BEFORE_VALUE.match(body, at)
        if before is None or before[1] != name.encode() or not _is_plain(name):
            return None
        at = before.end() + len(memoryview(value))
        if name == _MODEL:
            found = before.end(), at
    return found if body[at:].strip() == b"}" else None
