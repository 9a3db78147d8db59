"""A format's file on the disk, read piece by piece: the one place here that does I/O.

Rules:

- What is held in memory is a piece of the file and what its reader holds. A file compressed with Zstandard is unpacked
  on the way; its first bytes tell, not its name.
- Files beside the one that is read (a sub-agent's description) are read when its reader asks for them.

Stability: experimental.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from palaver.transcripts.decompress import Unpacker
from palaver.transcripts.detection import SIZE
from palaver.transcripts.format import Origin, TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.transcripts.conversation import Step

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
