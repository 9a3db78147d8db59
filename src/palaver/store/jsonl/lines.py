r"""JSON Lines with checksums, so that damage can be distinguished from data.

A line of version 1::

    <TAB>{"log":1,"type":"message","writer":"9f2c41d07ab3","line":17, …,"crc":"5d41402a"}<LF>

Rules:

- A line is one JSON object, which any reader of JSON Lines reads. A tab precedes it, and occurs nowhere else: inside a
  JSON string it is an escape, and between tokens it is replaced by a space. So when a line break is lost, the
  beginning of a line can still be found.
- ``crc`` is the CRC-32 (as of zlib, 8 hex digits) of all that stands before ``,"crc"``, the tab included.
- ``writer`` identifies one opening of the file, and is new each time; ``line`` counts its lines from 1. So missing and
  repeated lines are found by their numbers. A line that could not be written also uses up a number, so its reader
  sees that it is missing.
- ``type`` is the kind of the line. A reader skips kinds that it does not know, including those of a newer version
  (``log``).

The scanner takes the bytes of a file in pieces of any size, and yields every sound line once and in order, and the
damage that it found; it guesses nothing. It cannot detect whole lines that are missing at the end of a file. It holds
the bytes that may still become one line and, of the numbers, the last one of each writer and the gaps.

Stability: experimental.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias
from zlib import crc32

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.store.store import Damage, DamageKind

VERSION: Final = 1
FRAME: Final = ("log", "type", "writer", "line", "crc")
"""The keys of a line that belong to its form; all others belong to its kind."""

_END: Final = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_END_LENGTH: Final = len(b',"crc":"00000000"}')
_HARD: Final = re.compile(rb"\t|\x00+")
_GLUED: Final = "a line break is missing"
_EMPTY: Final = "an empty line"
_ZEROS: Final = "it contains zeros"
_COPY: Final = "a copy of earlier lines"
_CHANGED: Final = "its checksum does not match"
_UNENDED: Final = "the last line has no line break"


class Line(NamedTuple):
    """A sound line. ``fields`` are those of its kind; it extends from byte ``offset`` to byte ``end``."""

    kind: str
    fields: jsontext.Fields
    writer: str
    number: int
    file: str
    offset: int
    end: int


Scanned: TypeAlias = Line | Damage


def write(kind: str, writer: str, number: int, fields: Iterable[tuple[str, bytes]]) -> bytes:
    """Make a line. ``fields`` are JSON texts by their names; ``kind`` and ``writer`` are words."""
    body = b"".join([b",%b:%b" % (jsontext.encode(name), text) for name, text in fields])
    if b"\t" in body or b"\n" in body:
        body = body.replace(b"\t", b" ").replace(b"\n", b" ")  # between tokens: strings escape them
    head = b'\t{"log":%d,"type":"%b","writer":"%b","line":%d' % (VERSION, kind.encode(), writer.encode(), number)
    check = crc32(body, crc32(head))
    return b'%b%b,"crc":"%08x"}\n' % (head, body, check)


class Ledger:
    """The numbers seen so far, by writer. One ledger may serve many files."""

    def __init__(self) -> None:
        """Start empty."""
        self._last: dict[str, int] = {}
        self._gaps: dict[str, list[range]] = {}

    def see(self, writer: str, number: int) -> range | Literal["next", "late", "copy"]:
        """Note a number, and say what it is; a range has the numbers that were skipped before it."""
        last = self._last.get(writer, 0)
        if number > last:
            self._last[writer] = number
            if number == last + 1:
                return "next"
            gap = range(last + 1, number)
            self._gaps.setdefault(writer, []).append(gap)
            return gap
        gaps = self._gaps.get(writer, [])
        index = bisect_right(gaps, number, key=lambda gap: gap.start) - 1
        if index < 0 or number not in gaps[index]:
            return "copy"
        gap = gaps[index]
        rest = (range(gap.start, number), range(number + 1, gap.stop))
        gaps[index : index + 1] = [each for each in rest if each]
        return "late"


class Scanner:
    """Finds the lines of one file.

    ``ended`` is the byte behind the last line break, ``sound`` the one behind the last sound line, without its break.
    ``lost`` are the altered stretches, from byte to byte.
    """

    def __init__(self, file: str, ledger: Ledger | None = None, *, start: int = 0) -> None:
        """Start at a byte of a file where a line begins; ``file`` is its name in reports."""
        self.ended = self.sound = start
        self.lost: list[tuple[int, int]] = []
        self._file = file
        self._ledger = Ledger() if ledger is None else ledger
        self._at = start  # the byte of the file at which `_held` begins
        self._states = bytearray()  # of an incomplete line
        self._bad: list[str] = []  # why the stretch since the last sound line is not a line
        self._bad_from = self._bad_to = start

    def feed(self, data: bytes) -> Iterator[Scanned]:
        """Yield what these bytes complete. The iterator must be exhausted before the next call."""
        first, *rest = data.split(b"\n")
        if not rest:
            yield from self._buffer_line(data)
            return
        pieces = [bytes(self._states) + first, *rest]
        self._states.clear()
        last = pieces.pop()
        for piece in pieces:
            at = self._at
            self._at = at + len(piece) + 1
            line = _sound(piece, self._file, at) if at == self.ended else None
            if line is not None:
                yield from self._count(line)
            elif piece:
                yield from self._recover(piece, at)
            elif at == self.ended:
                self._mark(at, at + 1, _EMPTY)
            self.ended = self._at
        yield from self._buffer_line(last)

    def finish(self) -> Iterator[Scanned]:
        """Yield what the end of the file completes."""
        if self._states:
            yield from self._recover(bytes(self._states), self._at)
            self._at += len(self._states)
            self._states.clear()
        if self._at != self.ended:
            self._mark(self._at, self._at, _UNENDED)
            yield self._damage("torn")
        elif self._bad:
            yield self._damage("altered")

    def _buffer_line(self, data: bytes) -> Iterator[Scanned]:
        """Keep the beginning of a line; drop bytes that cannot be one."""
        held = self._states
        before = len(held)
        held += data
        hard = max(held.rfind(b"\t", max(before, 1)), held.rfind(b"\0", before))
        if hard < 0 and held and not held.startswith(b"\t"):
            hard = len(held)
        if hard > 0 or held.startswith(b"\0"):
            cut = hard + held.startswith(b"\0", hard)
            piece = bytes(held[:cut])
            del held[:cut]
            at = self._at
            self._at += cut
            yield from self._recover(piece, at)

    def _recover(self, piece: bytes, at: int) -> Iterator[Scanned]:
        """Find sound lines in a piece that is not a line as a whole."""
        edges = [0, *(match.start() for match in _HARD.finditer(piece, 1)), len(piece)]
        for start, stop in pairwise(edges):
            line = _sound_beginning(piece[start:stop], self._file, at + start)
            done = start
            if line is not None:
                if line.offset != self.ended:
                    self._mark(line.offset, line.offset, _GLUED)
                yield from self._count(line)
                done = line.end - at
            if done < stop:
                self._mark(at + done, at + stop, _ZEROS if b"\0" in piece[done:stop] else _CHANGED)

    def _mark(self, start: int, stop: int, reason: str) -> None:
        """Note a stretch that is not a line, or that does not count."""
        if not self._bad:
            self._bad_from = start
        if reason not in self._bad:
            self._bad.append(reason)
        self._bad_to = stop

    def _count(self, line: Line) -> Iterator[Scanned]:
        """Yield a line, unless it is repeated, and before it the damage."""
        self.sound = line.end
        seen = self._ledger.see(line.writer, line.number)
        if seen == "copy":
            self._mark(line.offset, line.end, _COPY)
            return
        gap = _missing(seen, line.writer) if isinstance(seen, range) else ""
        if self._bad:
            yield self._damage("altered", gap)
        elif gap:
            yield Damage("missing", _place(self._file, line.offset), gap)
        if seen == "late":
            yield Damage("altered", _place(self._file, line.offset), f"line {line.number} is out of order")
        yield line

    def _damage(self, kind: DamageKind, gap: str = "") -> Damage:
        reason = "; ".join([*self._bad, *([gap] if gap else [])])
        self._bad = []
        if kind == "altered":
            self.lost.append((self._bad_from, self._bad_to))
        return Damage(kind, _place(self._file, self._bad_from, self._bad_to), reason)


def _missing(numbers: range, writer: str) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]} of writer {writer} is missing"
    return f"lines {numbers[0]} to {numbers[-1]} of writer {writer} are missing"


def _place(file: str, start: int, stop: int = 0) -> str:
    return f"{file}, byte {start}" if stop <= start + 1 else f"{file}, bytes {start} to {stop}"


def _sound(piece: bytes, file: str, at: int) -> Line | None:
    """Read a piece that is one line, from its tab to its check."""
    cut = len(piece) - _END_LENGTH
    if piece[:1] != b"\t" or cut < 0:
        return None
    end = _END.fullmatch(piece, cut)
    if end is None or int(end[1], 16) != crc32(memoryview(piece)[:cut]):
        return None
    return _read(piece, file, at)


def _sound_beginning(piece: bytes, file: str, at: int) -> Line | None:
    """Read the line at the beginning of a piece: the piece up to an end with a matching checksum."""
    if piece[:1] != b"\t":
        return None
    view, done, check = memoryview(piece), 0, 0
    for end in _END.finditer(piece):
        check = crc32(view[done : end.start()], check)
        done = end.start()
        if int(end[1], 16) == check:
            # in a hostile line each end may match: to try them all would take quadratic time
            return _read(piece[: end.end()], file, at)
    return None


def _read(piece: bytes, file: str, at: int) -> Line | None:
    """Split a line into its fields; ``None`` when it is not of this form."""
    try:
        fields = jsontext.fields(piece)
        frame = [jsontext.value(fields.pop(name)) for name in FRAME]
    except (DecodeError, KeyError):
        return None
    match frame:
        case [int(version), str(kind), str(writer), int(number), str()] if number > 0:
            kind = kind if version == VERSION else f"{kind} of version {version}"
            return Line(kind, fields, writer, number, file, at, at + len(piece))
        case _:
            return None
