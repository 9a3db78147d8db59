"""The write-ahead log of an SQLite file, read without SQLite.

Rules:

- Format: https://www.sqlite.org/fileformat2.html#walformat. SQLite silently drops everything from the first frame with
  a wrong checksum on, and overwrites it. So the log is read here first.
- Frames of one generation share its salts, and each checksum builds on the one before. A sound commit frame behind an
  unsound frame proves damage; without one, the end of the log is the incomplete write of a killed writer.
- A last commit whose own frame is unsound may be either, and is reported as torn.
- Other processes may restart the log while it is read. So damage counts only when the same frames show it again
  while no process can write.

Stability: experimental.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from palaver.store.sqlite.schema import PAGE, writers_blocked
from palaver.store.store import Damage

PAGE_SIZES: Final = frozenset({512, 1024, 2048, 4096, 8192, 16384, 32768, 65536})
_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_SUMS: Final = 8
_MAGIC: Final = 0x377F0682
_ATTEMPTS: Final = 4

_Sums: TypeAlias = tuple[int, int]


class Frame(NamedTuple):
    """A page in the log, and whether its checksum matches; ``commit`` when it ends one."""

    offset: int
    number: int
    commit: bool
    sound: bool
    page: bytes


class Log(NamedTuple):
    """The state of a log: the place of its first damaged frame, or of the commit that was not finished.

    ``end`` is the offset behind the last proven commit. ``proof`` are the offsets where the frames that show the damage
    begin and end.
    """

    header: bytes = b""
    damaged: int | None = None
    torn: int | None = None
    end: int = 0
    proof: tuple[int, int] = (_HEADER, _HEADER)

    @property
    def damage(self) -> Damage | None:
        """The damage to report, if any."""
        if self.damaged is not None:
            return Damage(
                "altered", f"log {self.damaged}", "SQLite ignores everything from here on and would overwrite it"
            )
        if self.torn is not None:
            return Damage("torn", f"log {self.torn}", "the last commit was not finished, or is damaged")
        return None


def inspect(path: str, *, timeout: float = 30.0) -> Log:
    """Check the log of the store ``path``, which other processes may write to.

    Damage is checked again while no process can write; if it is gone then, it was a write in progress. If others keep
    the file busy for longer than ``timeout``, no damage is reported: SQLite follows their index of the log, and drops
    nothing.
    """
    file = f"{path}-wal"
    found = read_log(file)
    for _ in range(_ATTEMPTS):
        if found.damage is None:
            return found
        with writers_blocked(path, timeout=timeout) as alone:
            if not alone:
                break
            again = read_log(file, found.proof)
        if (again.header, again.damage) == (found.header, found.damage):
            return found
        found = read_log(file)
    return found._replace(damaged=None, torn=None)


def newest_pages(path: str, log: Log) -> dict[int, list[bytes]]:
    """Return the committed pages of a log: the newest of each, and the last sound one if the newest is not sound."""
    pages: dict[int, list[bytes]] = {}
    if not log.end:
        return pages
    with Path(path).open("rb") as file:
        for frame in _frames(file, _HEADER, log.end):
            older = [] if frame.sound else pages.get(frame.number, [])[-1:]
            pages[frame.number] = [*older, frame.page]
    return pages


def read_log(path: str, within: tuple[int, int] | None = None) -> Log:
    """Read a log, or the frames between two offsets of it, up to its current end: it may grow meanwhile."""
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (it is closed below)
    except FileNotFoundError:
        return Log()
    with file:
        start, stop = within or (_HEADER, os.fstat(file.fileno()).st_size)
        header = file.read(_HEADER)
        damaged = None if not any(header) or _header_is_sound(header) else 0
        unsound: Frame | None = None
        torn = proof = None
        end = _HEADER
        for frame in _frames(file, start, stop):
            behind = frame.offset + _FRAME_HEADER + len(frame.page)
            if not frame.sound:
                unsound = unsound or frame
                if frame.commit and torn is None:
                    torn = frame.offset
            elif frame.commit:
                end = behind
                if unsound is not None and damaged is None:
                    damaged, proof = unsound.offset, behind
                proof = proof or behind
        if not any(header):
            damaged = 0 if end > _HEADER else None
    torn = None if torn is None or torn < end else torn
    if damaged is None and torn is not None:
        return Log(header, None, torn, end, (torn, torn + 1))
    return Log(header, damaged, torn, end, (damaged or _HEADER, proof or _HEADER))


def _header_is_sound(header: bytes) -> bool:
    if len(header) < _HEADER:
        return True  # a new log, without a frame yet
    magic, _, size, *_, one, two = struct.unpack(">8I", header)
    order = ">" if magic & 1 else "<"
    return magic & ~1 == _MAGIC and size in PAGE_SIZES and _sums(header[:24], order, (0, 0)) == (one, two)


def _frames(file: BinaryIO, start: int, stop: int) -> Iterator[Frame]:
    """Yield the frames of the newest generation between two offsets; the first offset must be that of a frame.

    A damaged header is replaced by the values that every store has.
    """
    file.seek(0)
    header = file.read(_HEADER)
    if len(header) < _HEADER:
        return
    magic, _, size, _, *rest = struct.unpack(">8I", header)
    salts, sums = (rest[0], rest[1]), (rest[2], rest[3])
    order = ">" if magic & 1 else "<"
    if not _header_is_sound(header):
        size, order = PAGE, ">" if sys.byteorder == "big" else "<"
        first = file.read(_FRAME_HEADER)
        if len(first) < _FRAME_HEADER:
            return
        salts = struct.unpack(">2I", first[8:16])
    if start > _HEADER:  # the sum builds on that of the frame before, which ends its header
        file.seek(start - size - _SUMS)
        before = file.read(_SUMS)
        if len(before) < _SUMS:
            return
        sums = struct.unpack(">2I", before)
    offset = start
    while offset < stop:
        file.seek(offset)
        head, page = file.read(_FRAME_HEADER), b""
        if len(head) < _FRAME_HEADER:
            return
        number, commit, *of_frame, one, two = struct.unpack(">6I", head)
        chained = _same_generation(of_frame, salts)
        if chained:
            page = file.read(size)
            if len(page) < size:
                return
            sound = tuple(of_frame) == salts and _sums(page, order, _sums(head[:8], order, sums)) == (one, two)
            yield Frame(offset, number, commit != 0, sound, page)
        sums = (one, two)
        offset += _FRAME_HEADER + size


def _same_generation(found: list[int], salts: tuple[int, ...]) -> bool:
    """Return whether a frame is of this generation; one of the two salts may be damaged."""
    return any(one == other for one, other in zip(found, salts, strict=True))


def _sums(data: bytes, order: str, sums: _Sums) -> _Sums:
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
