"""A format's file on the disk, read piece by piece: the one place here that does I/O.

Rules:

- What is held in memory is a piece of the file and what its reader holds. A file compressed with Zstandard is unpacked
  on the way; its first bytes tell, not its name.
- Files beside the one that is read (a sub-agent's description) are read when its reader asks for them.

Unpacking Zstandard within limits: a file of some kilobytes may say that it holds terabytes:

- What comes out may be ``LEAST`` bytes, or ``TIMES`` what went in, whichever is more. Real sessions pack to a tenth,
  and hardly ever to a hundredth.
- Who has a file that packs better can unpack it first; the error says so.

Stability: experimental.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

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
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def beginning(path: str) -> bytes:
    """The first bytes of a file, as many as ``detect`` looks at. Raises ``OSError``."""
    with Path(path).open("rb") as file:
        return file.read(SIZE)


def steps_of(
    file_format: TranscriptFormat, file: BinaryIO, name: str = "", *, on_piece: Callable[[bytes], None] = lambda _: None
) -> Iterator[Step]:
    """Read a file. ``on_piece`` is given its bytes, as they are on the disk, piece by piece.

    Raises ``DecodeError`` for a transcript format that is only written and for what is too large (``decompress``,
    ``record``), and ``OSError``, also for what cannot be unpacked: what came before that was read by then.
    """
    reader = file_format.reader(Origin(name=name, beside=_beside(name)))
    unpacker: Unpacker | None = None
    first = True
    while piece := file.read(_PIECE):
        on_piece(piece)
        if first and piece.startswith(_ZSTD):
            unpacker = Unpacker()
        first = False
        for plain in (piece,) if unpacker is None else unpacker.feed(piece):
            yield from reader.feed(plain)
    yield from reader.finish()


def _beside(name: str) -> Callable[[str], bytes | None]:
    folder = Path(name).parent if name else None

    def beside(relative: str) -> bytes | None:
        if folder is None or Path(relative).is_absolute():
            return None
        try:
            return (folder / relative).read_bytes()
        except OSError:
            return None

    return cast("Callable[[str], bytes | None]", beside)
