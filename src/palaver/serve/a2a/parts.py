"""Parts of A2A as a turn can say them: a text, what else came, and a receipt for what the text does not carry.

Rules:

- Text parts are said as they are, each on lines of its own. Data is said as its JSON, and a file that has an address as
  that address (``approximated``); a file's bytes cannot be said (``dropped``), only its name and size.
- Nothing is lost all the same: every part that is not plain text is kept whole, in A2A's own JSON.
- What was kept of a message goes out again with it: ``payload={"a2a": {"parts": [...]}}``.

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
"""Where in a payload the parts are."""


class UserInput(Struct, frozen=True):
    """Parts, as far as a text can say them; ``kept`` are those that it cannot say whole."""

    text: str
    kept: tuple[Mapping[str, Any], ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def payload(self) -> Mapping[str, Any] | None:
        """What belongs beside the text of a message."""
        return {KEY: {"parts": list(self.kept)}} if self.kept else None

    @property
    def receipt(self) -> list[str]:
        """What became of the parts that the text does not carry."""
        return [str(loss) for loss in self.losses]


def said(parts: Iterable[Part]) -> UserInput:
    """Say parts as a text."""
    texts: list[str] = []
    kept: list[Mapping[str, Any]] = []
    losses: list[Loss] = []
    for number, part in enumerate(parts):
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
            continue
        whole = MessageToDict(part)
        kept.append(whole)
        text, loss = _other(part, kind, whole, number)
        losses.append(loss)
        if text:
            texts.append(text)
    return UserInput("\n".join(texts), tuple(kept), tuple(losses))


def _other(part: Part, kind: str | None, whole: Mapping[str, Any], number: int) -> tuple[str, Loss]:
    match kind:
        case "data":
            text = jsontext.encode(whole.get("data")).decode()
            return text, Loss("approximated", "data part", "said as its JSON", message=0, part=number)
        case "url":
            return part.url, Loss("approximated", "file part", "said as its address", message=0, part=number)
        case "raw":
            name = part.filename or "a file"
            text = f"[{name}, {part.media_type or 'of no known type'}, {len(part.raw)} bytes]"
            return text, Loss("dropped", "file part", "a text cannot carry bytes", message=0, part=number)
        case _:
            return "", Loss("dropped", "empty part", "it holds nothing that is known", message=0, part=number)


def parts_of(text: str, payload: Any) -> list[Part]:
    """The parts that say a message, with those that a payload holds. Raises ``DecodeError`` for parts that are none."""
    parts = [Part(text=text)] if text else []
    for number, each in enumerate(_given(payload)):
        try:
            parts.append(ParseDict(each, Part()))
        except (ParseError, TypeError, AttributeError) as error:
            raise DecodeError(str(error), path=f"payload.{KEY}.parts[{number}]", source="a2a") from error
    return parts


def _given(payload: Any) -> Sequence[Any]:
    match payload:
        case {"a2a": {"parts": [*parts]}}:
            return parts
        case _:
            return ()
