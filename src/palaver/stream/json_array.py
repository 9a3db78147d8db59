"""A JSON array that is streamed: one frame an element.

Gemini streams in this form unless server-sent events are requested: ``[{…}``, then ``,{…}`` as they come, ``]`` at the
end.

Rules:

- An element that is an object, an array or a string is given with its last byte, any other with the byte behind it.
- Elements are cut by strings, brackets and commas alone. Whether one is JSON, and which bracket closes which, is
  judged by whoever parses it.
- Space, tab, CR and LF around elements are skipped, and so is a byte order mark at the very beginning.
- Input other than an array, a missing or extra comma, and anything behind the end are damage.
- An array that breaks off is not damage: ``feed`` returned its complete elements, and ``finish`` returns the rest of
  the last one.
- The limit holds for each element, without the space around it.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core.errors import DecodeError
from palaver.stream.frames import LIMIT, Frame

_BOM: Final = b"\xef\xbb\xbf"
_NO_SPACE: Final = re.compile(rb"[^ \t\r\n]")
_NO_WORD: Final = re.compile(rb'[ \t\r\n"\[\]{},]')
_PLAIN: Final = re.compile(rb'(?>(?:[^"\[\]{}]++|"(?>(?:[^"\\]++|\\.)*)")*)', re.DOTALL)  # all up to the next bracket
_DEPTH: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_IN_STRING: Final = re.compile(rb'["\\]')


class JSONArrayReader:
    """Reads the elements of an array; see ``Reader``. ``limit`` bounds the bytes of one element."""

    __slots__ = ("_count", "_depth", "_element", "_escaped", "_first", "_limit", "_place", "_quoted", "_word", "error")

    def __init__(self, limit: int = LIMIT) -> None:
        self.error: DecodeError | None = None
        self._limit = limit
        self._count = 0  # frames given
        self._first: bytes = b""  # the first bytes, while they may be a byte order mark
        self._place = "begin"  # what may come next, where no element is open
        self._element = bytearray()
        self._depth = 0  # brackets that are open in the element
        self._word = False  # the element is a number or a word
        self._quoted = False  # within a string
        self._escaped = False  # behind a backslash

    def feed(self, data: bytes, /) -> list[Frame]:
        """The elements that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        frames: list[Frame] = []
        try:
            self._read(self._start(data), frames)
        except DecodeError as error:
            self.error = error.with_traceback(None)
            self._element.clear()
        self._count += len(frames)
        return frames

    def finish(self) -> list[Frame]:
        """What there is of an element that broke off, as it is. Raises the ``DecodeError`` that was met."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        frames: list[Frame] = []
        if self._element:
            self._give(b"", frames)
        self._count += len(frames)
        return frames

    def _start(self, data: bytes) -> bytes:
        """Take off a byte order mark, which may come in pieces."""
        if self._place != "begin":
            return data
        data = self._first + data
        whole = len(data) >= len(_BOM) or not _BOM.startswith(data)
        self._first = b"" if whole else data
        if not whole:
            return b""
        if data.startswith(_BOM):
            self._place = "array"
            return data[len(_BOM) :]
        return data

    def _read(self, data: bytes, frames: list[Frame]) -> None:
        at = 0
        while at < len(data):
            if self._element:
                at = self._grow(data, at, frames)
                continue
            found = _NO_SPACE.search(data, at)
            if found is None:
                if self._place == "begin":
                    self._place = "array"
                return
            at = self._step(data, found.start(), frames)

    def _step(self, data: bytes, at: int, frames: list[Frame]) -> int:
        """Take the byte at which no element is open."""
        byte = data[at : at + 1]
        after = _NEXT.get((self._place, byte))
        if after is not None:
            self._place = after
            return at + 1
        if self._place not in ("first", "element") or byte in b",]}":
            raise self._damage(_EXPECTED[self._place], frames)
        return self._open(data, at, frames)

    def _open(self, data: bytes, at: int, frames: list[Frame]) -> int:
        """An element begins; its first byte is taken here, so that one is open."""
        byte = data[at : at + 1]
        self._depth = 1 if byte in b"{[" else 0
        self._quoted = byte == b'"'
        self._word = byte not in b'{["'
        self._element += byte
        return self._grow(data, at + 1, frames)

    def _grow(self, data: bytes, start: int, frames: list[Frame]) -> int:
        """Read on in the open element; give where it ends, or the end of the data."""
        if self._word:
            found = _NO_WORD.search(data, start)
            if found is not None:
                self._give(data[start : found.start()], frames)
                return found.start()
        elif (end := self._closed(data, start)) is not None:
            self._give(data[start:end], frames)
            return end
        self._defer(data[start:], frames)
        return len(data)

    def _closed(self, data: bytes, at: int) -> int | None:
        """Look for the end of the open object, array or string."""
        while at < len(data):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            if self._quoted:
                found = _IN_STRING.search(data, at)
                if found is None:
                    return None
                at = found.end()
                self._escaped = found[0] == b"\\"
                self._quoted = self._escaped
            else:
                found = _PLAIN.match(data, at)
                at = (at if found is None else found.end()) + 1
                mark = data[at - 1 : at]
                self._quoted = mark == b'"'  # a string that goes on behind the data
                self._depth += _DEPTH.get(mark, 0)
            if not self._depth and not self._quoted:
                return at
        return None

    def _give(self, rest: bytes, frames: list[Frame]) -> None:
        self._defer(rest, frames)
        frames.append(Frame("", bytes(self._element)))
        self._element.clear()
        self._place = "behind"

    def _defer(self, more: bytes, frames: list[Frame]) -> None:
        self._element += more
        if len(self._element) > self._limit:
            raise self._damage(f"longer than {self._limit} bytes", frames)

    def _damage(self, what: str, frames: list[Frame]) -> DecodeError:
        path = f"frame {self._count + len(frames) + 1}"
        return DecodeError(what, path=path, source="jsonarray")


_NEXT: Final[dict[tuple[str, bytes], str]] = {
    ("begin", b"["): "first",
    ("array", b"["): "first",
    ("first", b"]"): "over",
    ("behind", b","): "element",
    ("behind", b"]"): "over",
}
"""The next state for a byte between elements."""

_EXPECTED: Final = {
    "begin": "expected an array",
    "array": "expected an array",
    "first": "expected an element or the end",
    "element": "expected an element",
    "behind": "expected a comma or the end",
    "over": "bytes behind the end of the array",
}
