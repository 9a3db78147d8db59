"""A recorded stream: the bytes of one answer as they arrived, and what becomes of them.

Rules:

- A file is a recorded stream, or it is an exchange that holds one as text (``stream``) or in base64
  (``stream_base64``).
- The wire is the one that was named, else the one that the first frames tell (``wires.detect_stream``). Where both are
  known and disagree, the file is refused.
- Events are made piece by piece, and only what is asked for is kept.

Stability: experimental.
"""

from __future__ import annotations

from binascii import Error as Base64Error, a2b_base64
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver import wires
from palaver.cli.failure import bad_input
from palaver.core import jsontext
from palaver.core.errors import DecodeError, StreamError
from palaver.wires import detect_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.events import Event
    from palaver.core.jsontext import Fields
    from palaver.core.request import Response
    from palaver.wires.stream_decoder import StreamDecoder
    from palaver.wires.wire import Wire

_PIECE: Final = 64 * 1024


class Recording(Struct, frozen=True):
    """The bytes of a stream, and the wire that reads them."""

    wire: Wire
    data: bytes

    def events(self) -> Iterator[Event]:
        """Give what happened, as it happened. A failure is the last event."""
        decoder = self.wire.stream_decoder()
        for start in self._starts(decoder):
            yield from decoder.feed(self.data[start : start + _PIECE])
        yield from decoder.close()

    def answer(self) -> tuple[Response, StreamError | None]:
        """Give the answer, or what came of it and why it failed."""
        decoder = self.wire.stream_decoder()
        for start in self._starts(decoder):
            decoder.feed(self.data[start : start + _PIECE])
        try:
            return decoder.finish(), None
        except StreamError as error:
            return error.response, error

    def _starts(self, decoder: StreamDecoder) -> Iterator[int]:
        for start in range(0, len(self.data), _PIECE):
            if decoder.done:
                return
            yield start


def find(data: bytes, place: str, named: Wire | None) -> Recording | None:
    """Give the recorded stream that a file is; ``None`` when it is something else."""
    found = detect_stream.detect(data)
    if found is None:
        return None
    if found.wire is not None and named is not None and found.wire != named.name:
        bad_input(place, f"a recorded stream of {found.wire}, not of {named.name}")
    wire = named if named is not None else None if found.wire is None else wires.get(found.wire)
    if wire is None:
        bad_input(place, "a recorded stream of no known wire; say which with --from")
    return Recording(wire, data)


def inside(exchange: Fields) -> bytes | None:
    """Give the bytes of the stream that an exchange holds; ``None`` when it has none. Raises ``DecodeError``."""
    for key, read in _KEYS.items():
        if key in exchange and jsontext.kind(exchange[key]) == "a string":
            try:
                return read(jsontext.text(exchange[key]))
            except DecodeError as error:
                raise error.within(key) from None
    return None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(text: str) -> bytes:
    try:
        return a2b_base64(text.encode("ascii", "replace"), strict_mode=True)
    except Base64Error as error:
        msg = f"not base64: {error}"
        raise DecodeError(msg) from None


_KEYS: Final = {"stream": _text, "stream_base64": _base64}
