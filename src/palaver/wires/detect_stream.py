"""Detect by its first frames which wire a recorded stream is of.

Rules:

- The first bytes give the framing: a prelude whose checksum is right is an AWS event stream, a field of a
  server-sent event at the beginning is SSE, an object on the first line with more behind it is newline-delimited
  JSON, and an array of objects is what Gemini streams without ``alt=sse``.
- Each framing has a table of rows, a wire and its marks. The first frame that has all marks of a row decides. A frame
  that has none (``[DONE]``, a vendor's metric) is ignored.
- A mark is a field that is there, or ``field=text``: its text begins so. Of a message of an event stream only the name
  is looked at, as its ``type``.
- A single line that is a whole answer, and an array of whole messages, are no streams.

Only the beginning is read, up to the first frame that decides.

Source: docs/spec/wires.md#1.3, and the sections of each wire.

Stability: experimental.
"""

from __future__ import annotations

from binascii import crc32
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.stream.event_stream import EventStreamReader
from palaver.stream.ndjson import NDJSONReader
from palaver.stream.partial_json import PartialJSON
from palaver.stream.sse import SSEReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stream.frames import Frame, Reader

Framing: TypeAlias = Literal["sse", "eventstream", "ndjson", "array"]


class Streamed(Struct, frozen=True):
    """The framing of a stream, and its wire; ``None`` when no frame decides."""

    framing: Framing
    wire: str | None = None


_CHAT: Final = "openai_chat"
_RESPONSES: Final = "openai_responses"
_ANTHROPIC: Final = "anthropic_messages"
_GOOGLE: Final = "google_generate"
_BEDROCK: Final = "bedrock_converse"
_COHERE: Final = "cohere_chat"
_OLLAMA: Final = "ollama_chat"


def _rows(*rows: tuple[str, str]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Spread rows: a wire, and its marks parted by spaces, with ``+`` between those that belong together."""
    return tuple(
        [
            (wire, tuple([(key, text) for key, _, text in (mark.partition("=") for mark in marks.split("+"))]))
            for wire, together in rows
            for marks in together.split()
        ]
    )


_GOOGLE_MARKS: Final = "candidates promptFeedback usageMetadata modelVersion error.status"
_ROWS: Final[dict[Framing, tuple[tuple[str, tuple[tuple[str, str], ...]], ...]]] = {
    "sse": _rows(
        (_CHAT, "object=chat.completion.chunk"),
        (_RESPONSES, "type=response. type=error+sequence_number"),
        (_ANTHROPIC, "type=message_ type=content_block_ type=ping type=error+error"),
        (_COHERE, "type=message- type=content- type=tool-plan- type=tool-call- type=citation-"),
        (_GOOGLE, _GOOGLE_MARKS),
        (_CHAT, "choices error"),
        (_RESPONSES, "type=error+message"),
    ),
    "eventstream": _rows(
        (_BEDROCK, "type=messageStart type=contentBlock type=messageStop type=metadata"),
        (_BEDROCK, "type=internalServer type=modelStream type=validation type=throttling type=serviceUnavailable"),
    ),
    "ndjson": _rows((_OLLAMA, "message+done message+created_at error")),
    "array": _rows((_GOOGLE, _GOOGLE_MARKS)),
}

_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_OF_JSON: Final[dict[bytes, Framing]] = {b"{": "ndjson", b"[": "array"}
_PRELUDE: Final = 12
_PIECE: Final = 64 * 1024
_LOOKED_AT: Final = 64
"""Frames that are asked."""


def detect(data: bytes) -> Streamed | None:
    """Detect the framing and the wire of a recorded stream; ``None`` when this is no stream. Raises nothing."""
    framing = _framing(data)
    if framing is None:
        return None
    for fields in islice(_FRAMES[framing](data), _LOOKED_AT):
        for wire, marks in _ROWS[framing]:
            if all(_has(fields, key, text) for key, text in marks):
                return Streamed(framing, wire)
    return Streamed(framing) if framing in {"sse", "eventstream"} else None


def _framing(data: bytes) -> Framing | None:
    if len(data) >= _PRELUDE and crc32(data[:8]) == int.from_bytes(data[8:_PRELUDE], "big"):
        return "eventstream"
    head = data[:_PIECE].removeprefix(_BOM).lstrip()
    return "sse" if head.startswith(_FIELDS) else _OF_JSON.get(head[:1])


def _has(fields: dict[str, Any], key: str, text: str) -> bool:
    found: Any = fields
    for step in key.split("."):
        if not isinstance(found, dict) or step not in found:
            return False
        found = cast("dict[str, Any]", found)[step]
    return not text or (isinstance(found, str) and found.startswith(text))


# -- the first frames of each framing, as far as they are objects ----------------------------------------------------


def _frames(data: bytes, reader: Reader) -> Iterator[Frame]:
    try:
        for start in range(0, len(data), _PIECE):
            yield from reader.feed(data[start : start + _PIECE])
        yield from reader.finish()
    except DecodeError:
        return


def _objects(data: bytes, reader: Reader) -> Iterator[dict[str, Any]]:
    for frame in _frames(data, reader):
        try:
            found = jsontext.value(frame.data)
        except DecodeError:
            found = None
        if isinstance(found, dict):
            yield cast("dict[str, Any]", found)


def _events(data: bytes) -> Iterator[dict[str, Any]]:
    return _objects(data, SSEReader())


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    return ({"type": frame.name} for frame in _frames(data, EventStreamReader()))


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The first line, unless it is all there is, and an answer."""
    text = data.removeprefix(_BOM).lstrip()
    end = text.find(b"\n")
    more = end >= 0 and bool(text[end : end + _PIECE].strip())
    if not more and b'"done"' not in text:
        return
    for found in islice(_objects(text if end < 0 else text[: end + 1], NDJSONReader()), 1):
        if more or found.get("done") is False:
            yield found


def _items(data: bytes) -> Iterator[dict[str, Any]]:
    """The first object of an array, as far as its beginning shows it: the array may have broken off."""
    reading = PartialJSON()
    reading.feed(data[:_PIECE].removeprefix(_BOM).decode(errors="replace"))
    match reading.value:
        case [{**found}, *_]:
            yield cast("dict[str, Any]", found)
        case _:
            pass


_FRAMES: Final = {"sse": _events, "eventstream": _messages, "ndjson": _lines, "array": _items}
