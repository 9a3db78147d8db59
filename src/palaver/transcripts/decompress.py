"""Unpacking Zstandard within limits: a file of some kilobytes may say that it holds terabytes.

Rules:

- What comes out may be ``LEAST`` bytes, or ``TIMES`` what went in, whichever is more. Real sessions pack to a tenth,
  and hardly ever to a hundredth.
- Who has a file that packs better can unpack it first; the error says so.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from palaver.core.errors import DecodeError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST: Final = 16 << 20
TIMES: Final = 100
_PIECE: Final = 1 << 20


def check_unpacked(unpacked: int, packed: int, least: int = LEAST) -> None:
    """Raise ``DecodeError`` where more came out of packed bytes than a file of ours would hold."""
    if unpacked > max(least, TIMES * packed):
        raise DecodeError(
            f"its first {packed:,} bytes unpack to more than {max(least, TIMES * packed):,};"
            " if that is meant, unpack the file first (zstd -d)"
        )


class Unpacker:
    """Unpacks a file in pieces, one frame behind the other."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._unpack = zstd.ZstdDecompressor()
        self._packed = self._unpacked = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What comes out, in pieces. Raises ``DecodeError`` beyond the limit, ``OSError`` for what is damaged."""
        self._packed += len(piece)
        try:
            while True:
                out = self._unpack.decompress(piece, max_length=_PIECE)
                piece = b""
                self._unpacked += len(out)
                check_unpacked(self._unpacked, self._packed)
                if out:
                    yield out
                if self._unpack.eof:
                    piece, self._unpack = self._unpack.unused_data, zstd.ZstdDecompressor()
                    if not piece:
                        return
                elif self._unpack.needs_input:
                    return
        except zstd.ZstdError as error:
            raise OSError(f"cannot be unpacked: {error}") from None
