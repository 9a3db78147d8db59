"""Convert parts of A2A to the text of a turn, with a receipt.

- Text parts are kept, each on its own lines. Data becomes its JSON, and a file with a URL becomes the URL
  (``approximated``). The bytes of a file are dropped; its name and size remain.
- Every part that is not plain text is also preserved as A2A's own JSON, in the message's payload.
- Parts in a payload, ``{"a2a": {"parts": [...]}}``, are sent with the message.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.request import Loss
from palaver.serve.a2a.sdk import MessageToDict, ParseDict, ParseError, Part

KEY: Final = "a2a"
"""The payload key of the parts."""


class UserInput(Struct, frozen=True):
    """The text of parts. ``preserved`` are the parts that text cannot carry completely."""

    text: str
    preserved: tuple[Mapping[str, Any], ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def payload(self) -> Mapping[str, Any] | None:
        """The payload of the message."""
        return {KEY: {"parts": list(self.preserved)}} if self.preserved else None

    @property
    def receipt(self) -> list[str]:
        """The losses as text."""
        return [str(loss) for loss in self.losses]


def to_text(parts: Iterable[Part]) -> UserInput:
    """Convert parts to text."""
    texts: list[str] = []
    preserved: list[Mapping[str, Any]] = []
    losses: list[Loss] = []
    for number, part in enumerate(parts):
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
            continue
        whole = MessageToDict(part)
        preserved.append(whole)
        text, loss = _approximate(part, kind, whole, number)
        losses.append(loss)
        if text:
            texts.append(text)
    return UserInput("\n".join(texts), tuple(preserved), tuple(losses))


def _approximate(part: Part, kind: str | None, whole: Mapping[str, Any], number: int) -> tuple[str, Loss]:
    match kind:
        case "data":
            text = jsontext.encode(whole.get("data")).decode()
            return text, Loss("approximated", "data part", "became its JSON", message=0, part=number)
        case "url":
            return part.url, Loss("approximated", "file part", "became its URL", message=0, part=number)
        case "raw":
            name = part.filename or "a file"
            text = f"[{name}, {part.media_type or 'of no known type'}, {len(part.raw)} bytes]"
            return text, Loss("dropped", "file part", "a text cannot carry bytes", message=0, part=number)
        case _:
            return "", Loss("dropped", "empty part", "it has no known content", message=0, part=number)


def parts_of(text: str, payload: Any) -> list[Part]:
    """Return the parts of a message: its text, and those of its payload. Raises ``DecodeError`` for invalid parts."""
    parts = [Part(text=text)] if text else []
    for number, each in enumerate(_payload_parts(payload)):
        try:
            parts.append(ParseDict(each, Part()))
        except (ParseError, TypeError, AttributeError) as error:
            raise DecodeError(str(error), path=f"payload.{KEY}.parts[{number}]", source="a2a") from error
    return parts


def _payload_parts(payload: Any) -> Sequence[Any]:
    match payload:
        case {"a2a": {"parts": [*parts]}}:
            return parts
        case _:
            return ()
