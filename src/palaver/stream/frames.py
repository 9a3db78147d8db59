"""Frames: the pieces that a provider's stream is cut into, whatever the framing.

Server-sent events (``sse``), AWS event streams (``eventstream``) and newline-delimited JSON (``ndjson``) each have a
reader of one shape, ``Reader``, which gives ``Frame`` values. What the payload means is the business of a wire.

Rules:

- Any chunking of the same bytes gives the same frames, and the same error (law 3).
- A reader holds what is unfinished of one frame, and no more. ``limit`` bounds the bytes of one frame; a longer one is
  damage. All work is linear in the bytes fed, also when they come one by one.
- Damage is one ``DecodeError``: ``source`` is the framing, ``path`` the frame, counted from 1 (``frame 3``).
- Frames completed before the damage are never lost. ``feed`` returns them, keeps the error in ``error`` and does not
  raise it; the next ``feed`` or ``finish`` does, and so does every one after. ``finish`` raises at once, since what
  the end of input breaks is one frame that follows all others.

::

    for chunk in chunks:
        for frame in reader.feed(chunk):
            ...
        if reader.error is not None:  # to know at once; the next call raises it anyway
            break
    for frame in reader.finish():
        ...

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, Protocol

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
    """What every reader of frames does. One reader reads one stream."""

    @property
    def error(self) -> DecodeError | None:
        """The damage that was found; nothing after it is read."""
        ...

    def feed(self, data: bytes, /) -> list[Frame]:
        """The frames that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        ...

    def finish(self) -> list[Frame]:
        """The frames that the end of input completes. Raises ``DecodeError``, one met earlier or its own."""
        ...
