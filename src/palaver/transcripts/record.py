r"""The records of a file: its bytes, cut at line ends, with nothing left out.

Rules (docs/spec/dialects.md#0.12 to #0.16):

- Every byte of a file belongs to one record; joined, the records are the file. A record's ``raw`` has its line break,
  if there was one, and a byte order mark.
- Only ``\n`` ends a line. U+2028, U+2029, U+0085 and a lone ``\r`` do not.
- A line with several complete JSON objects in a row gives a record for each. A line that is not a JSON object gives a
  record without ``fields``, and ``flaw`` says why: ``blank``, ``torn`` (the last line, without a line break), or
  ``garbage``.
- A last line without a line break that is a complete object is a record like any other.
- One line is held in memory, of at most ``LONGEST`` bytes. Too many blank lines in a row are an error.

Stability: experimental.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.jsontext import Fields

Flaw: TypeAlias = Literal["blank", "torn", "garbage"]

LONGEST: Final = 256 << 20
BLANKS: Final = 100_000
_BOM: Final = b"\xef\xbb\xbf"
_scan = json.JSONDecoder(strict=False).raw_decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Record(Struct, frozen=True, gc=False):
    """One record: its number in the file from 0, its line from 1, its bytes, and the fields of its object, if any.

    ``glued`` says that it shares its line with the record before it.
    """

    at: int
    line: int
    raw: bytes
    fields: dict[str, msgspec.Raw] | None = None
    flaw: Flaw | None = None
    glued: bool = False


class Lines:
    """Cuts bytes, given in pieces, into records."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self._rest: list[bytes] = []
        self._waiting = self._blanks = 0
        self._at = 0
        self._line = 0

    def feed(self, data: bytes) -> Iterator[Record]:
        """Yield the records that end within ``data``.

        Raises ``DecodeError`` for a line longer than ``LONGEST``, and for more than ``BLANKS`` blank ones in a row.
        """
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            piece = data[start : end + 1]
            if self._rest:
                piece = b"".join((*self._rest, piece))
                self._rest.clear()
                self._waiting = 0
            start = end + 1
            yield from self._records(piece)
        if start < len(data):
            self._rest.append(data[start:] if start else bytes(data))
            self._waiting += len(self._rest[-1])
            if self._waiting > LONGEST:
                raise DecodeError(f"longer than {LONGEST:,} bytes", path=f"line {self._line + 1}")

    def finish(self) -> Iterator[Record]:
        """Yield the record behind the last line break."""
        if self._rest:
            piece = b"".join(self._rest)
            self._rest.clear()
            yield from self._records(piece)

    def _records(self, raw: bytes) -> Iterator[Record]:
        self._line += 1
        body = raw.removeprefix(_BOM) if self._line == 1 else raw
        try:
            fields = _fields(body)
            if not body.isascii():
                body.decode()
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            yield from self._odd(raw, body)
        else:
            self._blanks = 0
            yield self._record(raw, fields)

    def _odd(self, raw: bytes, body: bytes) -> Iterator[Record]:
        """Split a line that the fast parser refuses."""
        try:
            fields = None if not body.strip() else jsontext.fields(jsontext.source(body))
        except DecodeError:
            fields = None
        blank = not body.strip()
        self._blanks = self._blanks + 1 if blank else 0
        if self._blanks > BLANKS:
            raise DecodeError(f"more than {BLANKS:,} blank lines in a row", path=f"line {self._line}")
        if fields is not None:
            yield self._record(raw, fields)
        elif blank:
            yield self._record(raw, None, flaw="blank")
        elif pieces := _parted(raw):
            for place, (piece, stored) in enumerate(pieces):
                yield self._record(piece, stored, glued=place > 0)
        else:
            yield self._record(raw, None, flaw="garbage" if raw.endswith(b"\n") else "torn")

    def _record(self, raw: bytes, fields: Fields | None, *, flaw: Flaw | None = None, glued: bool = False) -> Record:
        record = Record(self._at, self._line, raw, fields, flaw, glued)
        self._at += 1
        return record


def _parted(raw: bytes) -> list[tuple[bytes, Fields]]:
    """Return the parts of a line with several objects in a row; empty for any other line."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return []
    pieces: list[tuple[bytes, Fields]] = []
    begun = place = 0
    try:
        while place < len(text):
            first = len(text) - len(text[place:].lstrip(" \t\r\n\ufeff"))
            if first == len(text):
                break
            _, place = _scan(text, first)
            piece = text[begun:place]
            pieces.append((piece.encode(), jsontext.fields(piece.strip(" \t\r\n\ufeff").encode())))
            begun = place
    except (ValueError, DecodeError, RecursionError):
        return []
    if len(pieces) < 2:  # noqa: PLR2004 (one alone is not glued to anything)
        return []
    last, fields = pieces[-1]
    pieces[-1] = (last + text[begun:].encode(), fields)
    return pieces
