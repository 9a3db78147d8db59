"""Read a provider's stream: bytes as they arrive, typed events, and at the end the answer.

Rules:

- One shape for every wire: ``feed(bytes)`` gives the events that those bytes complete, ``close()`` those that the end
  of the input completes, ``finish()`` the answer. A wire's ``stream`` module says what one frame means (``read``) and
  what the end means (``end``); framing, assembling and failing are written here, once.
- ``feed`` raises nothing, whatever the bytes: damage is a ``Failed`` event, and ``finish`` raises the one named error,
  which holds the answer so far. What a chunk held before the damage is not lost.
- A stream of more than ``limit`` bytes is damage there, as an answer that is not streamed is. What came before is
  kept.
- A frame that the end of the input cuts is a stream that broke off, not a corrupt one.
- ``done`` says that nothing that follows belongs to the answer: the provider's end mark came, or the stream failed.
- Any split of the bytes gives the same events (law 3), and the answer is the one that the same turn gives when it is
  not streamed (law 4): parts, words and fields go through the same functions of the wire's ``decode``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.events import Failed
from palaver.stream.assembler import Assembler
from palaver.stream.frames import LIMIT, Frame
from palaver.wires._engine.client_objects import chunk_of, source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.errors import FailureKind
    from palaver.core.events import Event
    from palaver.core.jsontext import Fields
    from palaver.core.request import Response
    from palaver.stream.assembler import CallSoFar
    from palaver.stream.frames import Reader
    from palaver.wires._engine.client_objects import ClientObject


_SLICE: Final = 1024 * 1024
"""Bytes that a reader of frames is given at a time."""


class StreamDecoder:
    """One stream that is being read. ``origin`` is the wire, with its variant where one was chosen."""

    def __init__(self, origin: str, reader: Reader) -> None:
        """Start empty."""
        self.origin = origin
        self.done = False
        self.limit = LIMIT
        """The most bytes of a stream, with all space and names."""
        self._size = 0
        self._reader = reader
        self._assembler = Assembler(origin)
        self._out: list[Event] = []
        self._known = 0
        self._closed = False
        self._damage_reported = False

    # -- for callers --

    def feed(self, data: bytes | Mapping[str, Any] | ClientObject, /) -> list[Event]:
        """Take bytes as they arrive, or a chunk that a client parsed; give the events that they complete.

        Nothing is raised.
        """
        if self.done or self._closed:
            return []
        self._out = []
        if not isinstance(data, (bytes, bytearray, memoryview)):
            self._take_chunk(data)
            return self._gathered()
        room = self.limit - self._size
        self._size += len(data)
        if len(data) <= min(room, _SLICE):
            self._take(self._reader.feed(data))
        else:
            self._take_long(memoryview(data), room)
        return self._gathered()

    def close(self) -> list[Event]:
        """End the input and return the last events. A second call returns none."""
        if self._closed:
            return []
        self._closed = True
        self._out = []
        if not self.done:
            try:
                frames = self._reader.finish()
            except DecodeError as error:
                self._damaged(error, "torn")
            else:
                self._take(frames, "torn")
        if self.assembler.state != "failed":
            try:
                self.end()
            except DecodeError as error:
                self._damaged(error)
        if not self.assembler.finished and self.assembler.state != "failed":
            self.fail(Failed("torn", "it ended before the answer was finished"))
        self.done = True
        return self._gathered()

    def finish(self) -> Response:
        """Return the answer. Raises ``StreamError``, which holds the answer so far, when it failed or broke off."""
        self.close()
        return self._assembler.finish()

    @property
    def response(self) -> Response:
        """The answer so far; until it is finished its finish reason is ``error``."""
        return self._assembler.response()

    @property
    def calls(self) -> tuple[CallSoFar, ...]:
        """The tool calls so far, each with ``arguments_so_far``."""
        return self._assembler.calls

    # -- for a wire's own reading --

    def read(self, frame: Frame, /) -> None:
        """Emit what one frame means. Raises ``DecodeError`` when it does not follow its format."""
        raise NotImplementedError

    def framed(self, data: bytes) -> Frame:
        """Make the frame of a chunk that a client parsed: the type of an event is its name. Raises ``DecodeError``."""
        fields = jsontext.fields(data)
        name = fields.get("type", jsontext.NULL)
        return Frame(jsontext.text(name) if jsontext.kind(name) == "a string" else "", data)

    def end(self) -> None:
        """Emit what the end of the input completes: parts that end, and fields that are complete only now."""

    def emit(self, event: Event, /) -> None:
        """Hand out one event."""
        self._out.append(event)

    def fail(self, failed: Failed, /) -> None:
        """Hand out the last event of a stream that ended badly. What follows is not read.

        Damage after a finished answer is ignored: the events that end its parts may still come.
        """
        self.done = True
        if failed.kind == "provider" or not self.assembler.finished:
            self._out.append(failed)

    @property
    def assembler(self) -> Assembler:
        """The assembled events so far; a wire's finish reason may depend on them."""
        if self._known < len(self._out):
            new = self._out[self._known :] if self._known else self._out
            self._known = len(self._out)
            self._assembler.extend(new)
        return self._assembler

    # -- inside --

    def _take_long(self, data: memoryview, room: int) -> None:
        """Take bytes piece by piece, so that no more frames than those of a piece are held at a time."""
        for at in range(0, min(len(data), room), _SLICE):
            self._take(self._reader.feed(bytes(data[at : min(at + _SLICE, room)])))
            if self.done:
                return
        if room < len(data):
            self._damaged(self._too_long())

    def _too_long(self) -> DecodeError:
        return DecodeError(f"an answer of more than {self.limit} bytes")

    def _take_chunk(self, chunk: Mapping[str, Any] | ClientObject) -> None:
        found = chunk_of(chunk)
        if found is None:
            return
        try:
            data = source(found)
            self._size += len(data)
            if self._size > self.limit:
                raise self._too_long()
            self._take([self.framed(data)])
        except DecodeError as error:
            self._damaged(error)

    def _take(self, frames: list[Frame], kind: FailureKind = "corrupt") -> None:
        read = self.read
        for frame in frames:
            try:
                read(frame)
            except DecodeError as error:
                self._damaged(error, kind)
            if self.done:
                return
        if self._reader.error is not None:
            self._damaged(self._reader.error)

    def _gathered(self) -> list[Event]:
        failure = self.assembler.failure
        out, self._out, self._known = self._out, [], 0
        if failure is not None:
            self.done = True
            if failure not in out and not self._damage_reported:
                out.append(failure)
            self._damage_reported = True
        return out

    def _damaged(self, error: DecodeError, kind: FailureKind = "corrupt") -> None:
        self.fail(Failed(kind, str(error) if kind == "corrupt" else f"it ended within an event ({error})"))


def opened(data: bytes) -> Fields:
    """Split a frame into its fields. Raises ``DecodeError`` for anything but an object."""
    return jsontext.fields(jsontext.source(data))


def snapshot(stored: Fields, new: Fields) -> None:
    """Let a later snapshot of usage replace an earlier one field by field; ``null`` replaces nothing.

    Source: docs/spec/wires.md#1.2.
    """
    for key, raw in new.items():
        if raw != jsontext.NULL or key not in stored:
            stored[key] = raw
