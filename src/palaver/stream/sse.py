r"""Server-sent events, as the WHATWG specification defines them.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream

Rules:

- CR, LF and CRLF each end a line, mixed as they like. No other character does: U+2028 and U+0085 are text. A CR at the
  end of a chunk ends its line at once, and an LF that opens the next chunk belongs to it.
- A byte order mark is dropped at the very beginning, and is text anywhere else.
- A line is ``field: value``; one space after the colon is dropped, one only; a line without a colon is a field with an
  empty value; a line that begins with a colon is a comment. Known fields are ``data`` (several are joined by ``\n``),
  ``event``, ``id`` (ignored when it holds NUL; stays in force for the events that follow) and ``retry`` (ASCII digits;
  a number of more than 18 digits is ignored). Other fields are ignored.
- A blank line ends an event. A block without a ``data`` field is not an event. ``event`` is reset after each event.
- Bytes that are not UTF-8 become U+FFFD in ``name`` and ``id``, and stay as they are in ``data``.

One deviation, because some providers end their streams like this: an event whose blank line, or last line end, is
missing at the end of input is given by ``finish`` when its data is not empty. The specification drops it.

The limit holds for each line and for the data of an event. Comments and ignored fields do not add up.

Speed: every line end becomes LF first, which loses nothing, since no field can hold one. Where an event begins with
the buffer, ``split(b"\n\n")`` cuts the events. Providers send two shapes, ``data`` and ``event`` then ``data``, and
nearly always the one of the event before: its bytes before the data are kept, and such an event is one comparison and
one slice. All else goes line by line.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core.errors import DecodeError, EncodeError
from palaver.stream.frames import LIMIT, Frame

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 10  # a byte as a number is found about five times as fast
_CR: Final = 13
_RETRY_DIGITS: Final = 18
_UNNAMEABLE: Final = re.compile("[\r\n\ud800-\udfff]")
_SHORT: Final = 128  # a longer ``event`` line is not kept for the events that follow


class SSEReader:
    """Reads server-sent events; see ``Reader``.

    ``limit`` bounds, in bytes, each line and the data of each event. ``last_event_id`` is what a client that connects
    again would send as ``Last-Event-ID``, ``retry`` how many milliseconds it would wait first; ``None`` until given.
    """

    __slots__ = (
        "_after_cr",
        "_count",
        "_data",
        "_first",
        "_head",
        "_id",
        "_limit",
        "_line",
        "_name",
        "_open",
        "error",
        "last_event_id",
        "retry",
    )

    def __init__(self, limit: int = LIMIT) -> None:
        self.error: DecodeError | None = None
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self._limit = limit
        self._count = 0  # events given
        self._line = bytearray()  # of a line whose end has not come
        self._first = True  # no line was complete yet, so a byte order mark may lead
        self._after_cr = False  # the last byte was a CR
        self._open = False  # lines came since the last blank one
        self._head = (b"data: ", "")  # what stood before the data of an event of one of the two shapes, and its name
        self._name = ""
        self._data = bytearray()  # the data lines, each with its LF; the last LF is not part of the data
        self._id: str | None = None

    def feed(self, data: bytes, /) -> list[Frame]:
        """The events that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._after_cr = data.endswith(b"\r")
            lines = data.splitlines()  # of bytes: at CR, LF and CRLF only; three times as fast as replacing
            if data.endswith((b"\r", b"\n")):
                lines.append(b"")
            data = b"\n".join(lines)
        frames: list[Frame] = []
        try:
            if _LF in data:
                self._events(self._unfinished() + data if self._line else data, frames)
            else:
                self._defer(data, frames)
        except DecodeError as error:
            self._fail(error)
        self._count += len(frames)
        return frames

    def finish(self) -> list[Frame]:
        """The last event, when its blank line is missing. Raises ``DecodeError`` when it is longer than the limit."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        frames: list[Frame] = []
        try:
            if self._line:
                self._events(self._unfinished() + b"\n", frames)
        except DecodeError as error:
            raise self._fail(error) from None
        if len(self._data) > 1:
            self._dispatch(frames)
        self._count += len(frames)
        return frames

    def _unfinished(self) -> bytes:
        """Take out what is held of a line. Called when a line is complete."""
        pending = bytes(self._line)
        self._line.clear()
        return pending

    def _defer(self, tail: bytes, frames: list[Frame]) -> None:
        self._line += tail
        # A byte order mark does not count, and whether this is one is judged with the whole line.
        if len(self._line) > self._limit + len(_BOM):
            raise self._too_long(frames)

    def _events(self, text: bytes, frames: list[Frame]) -> None:
        """Read text that begins with a line, holds an LF, and has no other line ends."""
        if self._first:
            self._first = False
            text = text.removeprefix(_BOM)
        start = 0
        while self._open and (end := text.find(b"\n", start)) >= 0:
            self._take(text[start:end], frames)
            start = end + 1
        if start:
            text = text[start:]
        if len(text) <= self._limit:  # so no event in it can be too long
            blocks = text.split(b"\n\n")
            text = blocks.pop()
            head, name = self._head
            size = len(head)
            for block in blocks:
                data = block[size:]
                if block.startswith(head) and _LF not in data:
                    frames.append(Frame(name, data, self._id))
                else:
                    self._block(block, frames)
                    head, name = self._head
                    size = len(head)
        if text:
            lines = text.split(b"\n")
            tail = lines.pop()
            for line in lines:
                self._take(line, frames)
            self._defer(tail, frames)

    def _block(self, block: bytes, frames: list[Frame]) -> None:
        """Read the lines of a whole event, and its blank line."""
        line, _, data = block.partition(b"\n") if block.startswith(b"event: ") else (b"", b"", block)
        if data.startswith(b"data: ") and _LF not in data:
            name = line[7:].decode("utf-8", "replace")
            frames.append(Frame(name, data[6:], self._id))
            if len(line) <= _SHORT:
                self._head = (block[: len(block) - len(data) + 6], name)
            return
        for line in block.split(b"\n"):
            self._take(line, frames)
        self._take(b"", frames)

    def _take(self, line: bytes, frames: list[Frame]) -> None:
        """Read one line."""
        if not line:
            self._dispatch(frames)
            return
        if len(line) > self._limit:
            raise self._too_long(frames)
        self._open = True
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data += value
            self._data += b"\n"
            if len(self._data) > self._limit + 1:
                raise self._too_long(frames)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
            self.retry = int(value)

    def _dispatch(self, frames: list[Frame]) -> None:
        self.last_event_id = self._id
        if self._data:
            self._data.pop()
            frames.append(Frame(self._name, bytes(self._data), self._id))
            self._data.clear()
        self._name = ""
        self._open = False

    def _too_long(self, frames: list[Frame]) -> DecodeError:
        path = f"frame {self._count + len(frames) + 1}"
        return DecodeError(f"longer than {self._limit} bytes", path=path, source="sse")

    def _fail(self, error: DecodeError) -> DecodeError:
        """Keep the error, without the traceback, which holds the bytes; let go what is held."""
        self.error = error.with_traceback(None)
        self._line.clear()
        self._data.clear()
        return error


def nameable(name: str) -> str:
    """The name as ``write`` takes it: ``""`` for one that no event line can hold."""
    return "" if _UNNAMEABLE.search(name) else name


def write(data: bytes, event: str = "") -> bytes:
    r"""One event: the ``event`` line unless it is empty, a ``data`` line for each line, the blank line.

    A CR, LF or CRLF in ``data`` is a line break: the reader gives it back as ``\n``. Raises ``EncodeError`` when
    ``event`` holds one, or a lone surrogate.
    """
    head = b""
    if event:
        if "\n" in event or "\r" in event:
            raise EncodeError("sse: the name of an event cannot hold a line break")
        try:
            head = b"event: %b\n" % event.encode()
        except UnicodeEncodeError:
            raise EncodeError("sse: the name of an event cannot hold a lone surrogate") from None
    if _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return b"%bdata: %b\n\n" % (head, data.replace(b"\n", b"\ndata: "))
