"""Bytes as their difference from other bytes: pure.

Rules:

- What both have at their beginning and at their end is not kept. What is between is compressed with Zstandard, which
  refers to what the other bytes have there.
- ``apply(pack(data, base), base) == data`` for all bytes. The CRC-32 of the data is checked.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import Final
from zlib import crc32

from msgspec import Struct

from palaver.core.errors import DamageError
from palaver.gateway.recent_bodies import STEP, common_prefix

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MIN: Final = 64
"""Fewer bytes are not compressed."""
_LEVEL: Final = 3


class Delta(Struct, frozen=True, array_like=True, omit_defaults=True):
    """How many bytes at the beginning and at the end are those of the base, and what is between.

    ``coding``: ``r`` raw, ``z`` compressed, ``d`` compressed with what the base has between.
    """

    prefix: int
    suffix: int
    check: int
    coding: str
    data: bytes


def pack(data: bytes, base: bytes = b"") -> Delta:
    """Return the difference of ``data`` from ``base``."""
    prefix = common_prefix(data, base) if base else 0
    suffix = min(_common_suffix(data, base), len(data) - prefix, len(base) - prefix) if base else 0
    middle = data[prefix : len(data) - suffix]
    made, coding = middle, "r"
    if len(middle) >= _MIN:
        known = base[prefix : len(base) - suffix]
        smaller = _compress(middle, known)
        if len(smaller) < len(middle):
            made, coding = smaller, "d" if len(known) >= _MIN else "z"
    return Delta(prefix, suffix, crc32(data), coding, made)


def apply(delta: Delta, base: bytes = b"") -> bytes:
    """Return the bytes that ``delta`` was made of. Raises ``DamageError``."""
    end = len(base) - delta.suffix
    try:
        middle = delta.data
        if delta.coding != "r":
            middle = _decompress(middle, base[delta.prefix : end] if delta.coding == "d" else b"")
    except (zstd.ZstdError, EOFError, ValueError, MemoryError) as error:
        raise DamageError(f"a body cannot be read: {error}") from None
    data = base[: delta.prefix] + middle + base[end:] if delta.suffix else base[: delta.prefix] + middle
    if crc32(data) != delta.check:
        raise DamageError("a body was altered: its check does not match")
    return data


def _compress(data: bytes, known: bytes) -> bytes:
    if len(known) < _MIN:
        return zstd.compress(data, _LEVEL)
    return zstd.compress(data, _LEVEL, zstd_dict=zstd.ZstdDict(known, is_raw=True).as_prefix)


def _decompress(data: bytes, known: bytes) -> bytes:
    if not known:
        return zstd.decompress(data)
    return zstd.decompress(data, zstd_dict=zstd.ZstdDict(known, is_raw=True).as_prefix)


def _common_suffix(one: bytes, other: bytes) -> int:
    most = min(len(one), len(other))
    if one[len(one) - most :] == other[len(other) - most :]:
        return most
    low, high, step = 0, most, STEP
    while (
        low + step <= most
        and one[len(one) - low - step : len(one) - low] == other[len(other) - low - step : len(other) - low]
    ):
        low += step
    high = min(low + step, most)
    while low < high:
        half = (low + high + 1) // 2
        if one[len(one) - half : len(one) - low] == other[len(other) - half : len(other) - low]:
            low = half
        else:
            high = half - 1
    return low
