"""Reading a format's file from the disk in pieces: the only I/O of this package.

Rules:

- One piece of the file is held in memory, and the state of its reader. A file compressed with Zstandard is decompressed
  while it is read; its first bytes decide, not its name.
- Files beside it (a sub-agent's description) are read when its reader asks for them.

Decompressing Zstandard within limits: a file of some kilobytes may claim terabytes:

- The output may have ``LEAST`` bytes, or ``TIMES`` the input, whichever is more. Real sessions are compressed to a
  tenth, and rarely to a hundredth.
- A file that is compressed more can be decompressed first; the error says so.

Stability: experimental.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from palaver.core.errors import DecodeError
from palaver.transcripts.detection import SIZE
from palaver.transcripts.format import Origin, TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.transcripts.conversation import Step


# -- decompress ------------------------------------------------------------------------------------


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST: Final = 16 << 20
TIMES: Final = 100
_UNPACKED_PIECE: Final = 1 << 20


def check_unpacked(unpacked: int, packed: int, least: int = LEAST) -> None:
    """Raise ``DecodeError`` when compressed bytes give more than a file of ours would hold."""
    if unpacked > max(least, TIMES * packed):
        raise DecodeError(
            f"its first {packed:,} bytes unpack to more than {max(least, TIMES * packed):,};"
            " if that is meant, unpack the file first (zstd -d)"
        )


class Unpacker:
    """Decompresses a file in pieces, one frame behind the other."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self._unpack = zstd.ZstdDecompressor()
        self._packed = self._unpacked = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the output in pieces. Raises ``DecodeError`` beyond the limit, ``OSError`` for damaged input."""
        self._packed += len(piece)
        try:
            while True:
                out = self._unpack.decompress(piece, max_length=_UNPACKED_PIECE)
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


# -- file reader -----------------------------------------------------------------------------------


_PIECE: Final = 1 << 20
ZSTD: Final = b"\x28\xb5\x2f\xfd"


def beginning(path: str) -> bytes:
    """Return the first bytes of a file, as many as ``detect`` examines. Raises ``OSError``."""
    with Path(path).open("rb") as file:
        return file.read(SIZE)


def plain(path: str) -> bytes:
    """Return the bytes of a whole file, decompressed. Raises ``OSError``, and ``DecodeError`` as ``Unpacker`` does."""
    data = Path(path).read_bytes()
    return b"".join(Unpacker().feed(data)) if data.startswith(ZSTD) else data


def steps_of(
    file_format: TranscriptFormat, file: BinaryIO, name: str = "", *, on_piece: Callable[[bytes], None] = lambda _: None
) -> Iterator[Step]:
    """Read a file. ``on_piece`` is called with its bytes, as they are on the disk, piece by piece.

    Raises ``DecodeError`` for a write-only transcript format and for input that is too large (``decompress``,
    ``record``), and ``OSError``, also for input that cannot be decompressed: the steps before it were yielded by then.
    """
    reader = file_format.reader(Origin(name=name, beside=beside(name)))
    unpacker: Unpacker | None = None
    first = True
    while piece := file.read(_PIECE):
        on_piece(piece)
        if first and piece.startswith(ZSTD):
            unpacker = Unpacker()
        first = False
        for plain in (piece,) if unpacker is None else unpacker.feed(piece):
            yield from reader.feed(plain)
    yield from reader.finish()


def beside(name: str) -> Callable[[str], bytes | None]:
    """Return a function that reads a file by its path relative to the folder of a file."""
    folder = Path(name).parent if name else None

    def read(relative: str) -> bytes | None:
        if folder is None or Path(relative).is_absolute():
            return None
        try:
            return (folder / relative).read_bytes()
        except OSError:
            return None

    return read
