"""Images in a column of their own, with only ``{"type": "image"}`` in the messages.

Source: docs/spec/dialects.md#4.

Rules:

- The first such part is the first of ``images``, and so on. A URL or a data URI becomes an image; any other value (a
  path, an object) stays as it is.
- Such an image keeps its original part, and is written as that part again if the record has the column, which follows
  an edit of its images. A record without the column has the images in its messages.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.core import jsontext, trusted
from palaver.core.errors import MessageError
from palaver.core.messages import BOOKKEEPING, UserMessage
from palaver.core.parts import Image, Opaque, Url
from palaver.transcripts.fields import listed, split, string
from palaver.transcripts.openai_messages.shapes import NAME, WIRE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart, MediaSource

_KEY: Final = BOOKKEEPING + NAME
_SCHEMES: Final = ("http://", "https://", "data:")


def placed(messages: Sequence[Message], fields: Fields, first: int = 0) -> tuple[list[Message], int]:
    """Return the messages with the images of the column, from number ``first`` on, and the number of image parts."""
    column = [jsontext.text(raw) if jsontext.kind(raw) == "a string" else "" for raw in listed(fields, "images")]
    found: list[Message] = []
    for message in messages:
        if not column or not isinstance(message, UserMessage) or not any(map(_stands_for_one, message.content)):
            found.append(message)
            continue
        parts: list[AnyPart] = []
        for part in message.content:
            if not _stands_for_one(part):
                parts.append(part)
                continue
            parts.append(_image(cast("Opaque", part), column[first] if first < len(column) else ""))
            first += 1
        found.append(message.replace(content=parts))
    return found, first


def stood(message: Message) -> bool:
    """Return whether a message has an image of the column."""
    return any(_KEY in part.provider for part in message.content if isinstance(part, Image))


def column(messages: Sequence[Message], fields: Fields) -> list[str] | None:
    """Return the column of an edited record, if its images changed; ``None`` when it stays as it is."""
    parts = [part for message in messages for part in message.content]
    found = [part for part in parts if isinstance(part, Image) and _KEY in part.provider]
    if "images" not in fields or any(map(_stands_for_one, parts)):
        return None  # with other values in the column, the images cannot be matched
    old = [jsontext.text(raw) if jsontext.kind(raw) == "a string" else "" for raw in listed(fields, "images")]
    known = {_source(text): text for text in reversed(old)}
    new = [known.get(part.source) or part.data_uri or getattr(part.source, "url", "") for part in found]
    return None if new == old else new


def _source(text: str) -> MediaSource | None:
    try:
        return Image.from_url(text).source if text.startswith(_SCHEMES) else None
    except MessageError:
        return None


def taken_back(message: Message) -> Message:
    """Return a message with the original parts of its images."""
    if not stood(message):
        return message
    return message.replace(content=[_part(part) for part in message.content])


def _stands_for_one(part: AnyPart) -> bool:
    if not isinstance(part, Opaque) or part.wire != WIRE:
        return False
    fields = split(part.raw_json)
    return string(fields, "type") == "image" and all(
        raw == jsontext.NULL for key, raw in fields.items() if key != "type"
    )


def _image(part: Opaque, source: str) -> Image | Opaque:
    if not source.startswith(_SCHEMES):
        return part
    try:
        image = Image.from_url(source)
        if isinstance(image.source, Url):  # the wire has no media type for a URL either
            image = Image(image.source)
        return image.replace(provider={_KEY: {"part": part.raw}})
    except MessageError:
        return part


def _part(part: AnyPart) -> AnyPart:
    stored: Mapping[str, Any] = part.provider.get(_KEY, {}) if isinstance(part, Image) else {}
    return trusted.Opaque(WIRE, jsontext.raw(stored["part"])) if "part" in stored else part
