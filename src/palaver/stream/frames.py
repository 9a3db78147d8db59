"""Frames: the pieces of a provider's stream, whatever the framing.

Server-sent events (``sse``), AWS event streams (``event_stream``), newline-delimited JSON (``ndjson``) and JSON arrays
(``json_array``) each have a ``Reader``, which gives ``Frame`` values. A wire interprets the payload.

- Any chunking of the same bytes gives the same frames and the same error.
- A reader stores at most one unfinished frame. ``limit`` bounds its bytes; a longer frame is damage. The work is linear
  in the bytes.
- Damage is one ``DecodeError``: ``source`` is the framing, ``path`` the frame, counted from 1 (``frame 3``).
- ``feed`` returns the frames before the damage and stores the error in ``error``. The next ``feed`` or ``finish``
  raises it, and so does every later one. ``finish`` raises at once.

::

    for chunk in chunks:
        for frame in reader.feed(chunk):
            ...
        if reader.error is not None:  # optional: the next call raises it
            break
    for frame in reader.finish():
        ...

``LimitedBytes`` and ``LimitedLines`` bound the size of a body and of a line that another side sends.

Stability: experimental.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

from msgspec import Struct

from palaver.core.errors import DecodeError

LIMIT: Final = 64 * 1024 * 1024
"""The bytes that one frame may have, unless a reader is given another ``limit``: 64 MiB."""


class Frame(Struct, frozen=True, gc=False):
    r"""One frame of a stream.

    ``name`` is the ``event`` of a server-sent event (``""`` when none was given), the ``:event-type``,
    ``:exception-type`` or ``:error-code`` of an event stream, ``""`` for a line of JSON.

    ``data`` is the payload, whole: the data lines of a server-sent event joined by ``\n``, the payload of an event
    stream message (the ``:error-message`` of an error), a line without its line end. It stays bytes: whoever parses
    it judges its UTF-8.

    ``id`` is the last event id in force at a server-sent event; ``None`` when there was none.

    ``kind`` is the ``:message-type`` of an event stream: ``event``, ``exception`` or ``error``; else ``event``.
    """

    name: str
    data: bytes
    id: str | None = None
    kind: str = "event"


class Reader(Protocol):
    """The interface of readers of frames. One reader reads one stream."""

    @property
    def error(self) -> DecodeError | None:
        """The damage that was found; nothing after it is read."""
        ...

    def feed(self, data: bytes, /) -> list[Frame]:
        """Return the frames that ``data`` completes. Raises the ``DecodeError`` that an earlier call met."""
        ...

    def finish(self) -> list[Frame]:
        """The frames that the end of input completes. Raises ``DecodeError``, one met earlier or its own."""
        ...


# -- bounds ----------------------------------------------------------------------------------------


class Closing(AsyncIterable[bytes], Protocol):
    """Chunks of bytes that can be left before their end."""

    @property
    def aclose(self) -> Callable[[], Awaitable[None]]:
        """Take no more."""
        ...


class LimitedBytes:
    """Chunks of bytes, at most ``limit`` bytes in sum; ``error`` makes the exception from the reason."""

    def __init__(self, inner: Closing, limit: int, error: Callable[[str], Exception]) -> None:
        """Take nothing yet."""
        self._inner, self._limit, self._error = inner, limit, error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the chunks."""
        taken = 0
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > self._limit:
                raise self._error(too_long("an answer", self._limit))
            yield chunk

    async def aclose(self) -> None:
        """Take no more."""
        await self._inner.aclose()


class LimitedLines(codecs.BufferedIncrementalDecoder):
    """Decodes UTF-8; after a line of more than ``limit`` bytes it calls ``exceeded`` once, and returns nothing more."""

    def __init__(self, errors: str, limit: int, exceeded: Callable[[str], None]) -> None:
        """Begin before the first byte."""
        super().__init__(errors)
        self._limit, self._exceeded = limit, exceeded
        self._line = 0
        self._pending: list[bytes] = []
        self._over = False

    def decode(self, input: bytes, final: bool = False) -> str:  # type: ignore[override]  # noqa: FBT001, FBT002 (its base's signature)
        """Decode what came."""
        if self._over:
            return ""
        first, newline, _ = input.partition(b"\n")
        longest = max(self._line + len(first), *map(len, input.split(b"\n")[1:-1]), 0) if newline else 0
        self._line = len(input) - input.rfind(b"\n") - 1 if newline else self._line + len(input)
        if max(longest, self._line) > self._limit:
            self._over = True
            self._exceeded(too_long("a line", self._limit))
            self._pending.clear()
            return ""
        whole, newline, rest = input.rpartition(b"\n")
        if not newline and not final:
            self._pending.append(rest)
            return ""
        lines = b"".join([*self._pending, whole, newline, *([rest] if final else [])])
        self._pending = [] if final else [rest]
        return super().decode(lines, final)

    def _buffer_decode(self, input: Any, errors: str, final: bool) -> tuple[str, int]:  # noqa: FBT001 (its base's signature)
        return codecs.utf_8_decode(input, errors, final)


def too_long(what: str, limit: int) -> str:
    """The text of an error for input beyond a limit."""
    return f"{what} of more than {limit} bytes"
