"""The pages of an SQLite file, read without SQLite: for files that SQLite refuses.

Rules:

- The format is that of https://www.sqlite.org/fileformat2.html. Every page is tried as a leaf and as an inner page of
  an index (which holds the rows of tables without rowid); pages with rows are found by their own content, whatever
  the pages above them or their own type byte say.
- Nothing here is trusted: a row is a guess, until its hash, seal or mark matches.
- All commits of the write-ahead log count, even those behind a damaged frame, which SQLite would drop (``log``). When
  the newest image of a page is damaged, the rows of the last sound one are read too.

Stability: experimental.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from palaver.store.sqlite.schema import PAGE
from palaver.store.sqlite.wal import PAGE_SIZES, newest_pages, read_log

Value: TypeAlias = int | float | bytes | str | None

_HEADER: Final = 100
_TABLE_LEAF: Final = 13
_INDEX_LEAF: Final = 10
_INDEX_INNER: Final = 2
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_FLOAT: Final = 7
_ZERO: Final = 8
_ONE: Final = 9
_BLOB: Final = 12
_MAX_COLUMNS: Final = 16
_MAX_CLAIMS: Final = 8


class PageRow(NamedTuple):
    """A row: its place, its rowid (``None`` in tables without rowid), its values."""

    page: int
    rowid: int | None
    values: tuple[Value, ...]


class Pages:
    """The pages of a file and its log."""

    def __init__(self, path: str) -> None:
        """Open both; a missing file has no pages."""
        file = Path(path)
        self._map: mmap.mmap | bytes = b""
        if file.exists() and file.stat().st_size:
            with file.open("rb") as opened:
                self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.log = read_log(path + "-wal")
        self._logged = newest_pages(path + "-wal", self.log)
        self.size = _page_size(self._map[:_HEADER])
        self.numbers = sorted({*range(1, -(-len(self._map) // self.size) + 1), *self._logged})
        self.count = len(self.numbers)
        self._claims: dict[int, set[tuple[int, int]]] = {}

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._map, mmap.mmap):
            self._map.close()

    def page(self, number: int) -> bytes:
        """Return a page in its newest version; missing bytes are zeros."""
        return self._images(number)[-1]

    def _images(self, number: int) -> list[bytes]:
        """Return the known versions of a page, the newest last. Only a damaged page has more than one."""
        found = self._logged.get(number) or [self._map[(number - 1) * self.size : number * self.size]]
        return [image[: self.size].ljust(self.size, b"\0") for image in found]

    def rows(self, number: int) -> Iterator[PageRow]:
        """Yield everything on a page that can be read as a row."""
        start = _HEADER if number == 1 else 0
        for page in self._images(number):
            for kind in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER):
                yield from self._cells(number, page, start, kind)

    def _cells(self, number: int, page: bytes, start: int, kind: int) -> Iterator[PageRow]:
        (count,) = struct.unpack_from(">H", page, start + 3)
        first = start + (12 if kind == _INDEX_INNER else 8)
        if not 0 < count <= (self.size - first) // 4:
            return
        for place in dict.fromkeys(struct.unpack_from(f">{count}H", page, first)):
            if first + 2 * count <= place < self.size - 3:
                try:
                    row = self._cell(number, page, place, kind)
                except (IndexError, ValueError, struct.error):
                    continue
                if row is not None:
                    yield row

    def _cell(self, number: int, page: bytes, place: int, kind: int) -> PageRow | None:
        if kind == _INDEX_INNER:
            place += 4
        length, place = _varint(page, place)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, place = _varint(page, place)
        if not 0 < length <= self.count * self.size:
            return None
        local = self._local(length, most=self.size - 35 if kind == _TABLE_LEAF else (self.size - 12) * 64 // 255 - 23)
        payload = page[place : place + local]
        if local < length:
            payload = self._overflow(payload, page[place + local : place + local + 4], length, (number, place))
        values = _record(payload) if len(payload) == length else None
        return None if values is None else PageRow(number, rowid, values)

    def _local(self, length: int, most: int) -> int:
        if length <= most:
            return length
        least = (self.size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.size - 4)
        return local if local <= most else least

    def _overflow(self, start: bytes, following: bytes, length: int, cell: tuple[int, int]) -> bytes:
        """Return a cell with its overflow pages. A page is part of one cell; the number of claims is limited."""
        pieces, have = [start], len(start)
        (next_,) = struct.unpack(">I", following)
        while have < length and next_ > 0:
            claims = self._claims.setdefault(next_, set())
            if len(claims) >= _MAX_CLAIMS and cell not in claims:
                break
            claims.add(cell)
            page = self.page(next_)
            pieces.append(page[4 : 4 + length - have])
            have += len(pieces[-1])
            (next_,) = struct.unpack_from(">I", page)
        return b"".join(pieces)


def _page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    return size if size in PAGE_SIZES else PAGE


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[place + count]
        if count == 8:  # noqa: PLR2004 (the ninth byte counts whole)
            return value << 8 | byte, place + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 (the last byte)
            return value, place + count + 1
    raise ValueError


def _record(payload: bytes) -> tuple[Value, ...] | None:
    """Return the values of a record that fills its bytes exactly."""
    end, place = _varint(payload, 0)
    at = end
    values: list[Value] = []
    while place < end:
        kind, place = _varint(payload, place)
        size = _INTEGERS.get(kind, 8 if kind == _FLOAT else max(kind - _BLOB, 0) // 2)
        data = payload[at : at + size]
        if len(data) != size or len(values) > _MAX_COLUMNS:
            return None
        values.append(_value(kind, data))
        at += size
    return tuple(values) if at == len(payload) and place == end else None


def _value(kind: int, data: bytes) -> Value:
    if kind >= _BLOB:
        return data.decode("utf-8", "replace") if kind % 2 else data
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=True)
    if kind == _FLOAT:
        return float(struct.unpack(">d", data)[0])
    return {_ZERO: 0, _ONE: 1}.get(kind)
