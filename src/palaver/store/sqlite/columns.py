"""How values stand in columns: ids as bytes, and a check for rows that no hash vouches for.

Stability: experimental.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, TypeVar

from palaver.core.errors import DamageError

T = TypeVar("T", int, bytes)

_UUID: Final = 16
_is_uuid: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch  # one call: every append asks
_TEXT: Final = bytes(_UUID + 1)  # in front of an id that is no UUID: so its length is never that of one


def id_bytes(id: str) -> bytes:
    """A UUID as its 16 bytes, any other id as its text."""
    return bytes.fromhex(id.replace("-", "")) if _is_uuid(id) else _TEXT + id.encode("utf-8", "surrogatepass")


def id_text(data: bytes) -> str:
    """The id that ``id_bytes`` wrote."""
    if type(data) is not bytes:
        return repr(data)  # another program put it there: its seal will not agree
    if len(data) != _UUID:
        try:
            return data[len(_TEXT) :].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return repr(data)  # damaged: its seal will not agree
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_ranges(prefix: str) -> list[tuple[bytes, bytes]]:
    """Where the ids stand that begin with a text, from and up to."""
    text = id_bytes("\x01")[:-1] + prefix.encode("utf-8", "surrogatepass")
    ranges = [(text, text + b"\xff")]
    low, high = (prefix + pattern[len(prefix) :] for pattern in ("00000000-0000-0000-0000-000000000000",
                                                                 "ffffffff-ffff-ffff-ffff-ffffffffffff"))  # fmt: skip
    if _is_uuid(low):
        ranges.append((id_bytes(low), id_bytes(high)))
    return ranges


def typed(value: object, kind: type[T], place: str) -> T:
    """A value that no mark vouches for. Raises ``DamageError`` for what another program put in its place."""
    if not isinstance(value, kind):
        raise DamageError(f"{place}: altered: a column has a value of another type")
    return value


def check(*values: bytes | str | int | None) -> bytes:
    """Eight bytes that vouch for the values of a row."""
    return blake2b(repr(values).encode(), digest_size=8).digest()
