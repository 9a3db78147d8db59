"""Blocks of a ConverseStream that are open: what waits until they are whole, and what they are then.

Rules:

- A block that is begun or over is read by ``blocks``, as the block of a whole answer that its pieces make.
- Pieces of base64 text may each be padded; joined they are the text of all the bytes. What is no base64 stays as it
  came.

Source: docs/spec/wires.md#6.3.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.jsontext import EMPTY_OBJECT
from palaver.core.parts import Text, ToolCall
from palaver.wires.bedrock_converse.blocks import assistant_part
from palaver.wires.bedrock_converse.shapes import WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart

_NOTHING: Final = Raw(b"[]")
_TO_COME: Final[dict[str, Fields]] = {
    "toolUse": {"input": EMPTY_OBJECT},
    "toolResult": {"content": _NOTHING},
    "image": {"source": Raw(b'{"bytes":""}')},
}
"""What stands in for the rest of a block when it begins."""


class OpenBlock:
    """A block that is open: its kind, the number of its part, and what waits until it is whole.

    The kinds are those of ``_TO_COME``, ``text``, ``reasoningText``, ``redactedContent``, and ``citation`` for a text
    of which only citations have come.
    """

    __slots__ = ("beside", "fields", "kind", "number", "raws", "source", "texts")

    def __init__(self, kind: str, number: int, fields: Fields | None = None, beside: Fields | None = None) -> None:
        """Open a block. ``fields`` is what its start said, ``beside`` what stood beside that."""
        self.kind = kind
        self.number = number
        self.fields = {} if fields is None else fields
        self.beside = {} if beside is None else beside
        self.raws: list[Raw] = []
        """Citations of a text, content of a result."""
        self.texts: list[str] = []
        """Pieces of base64 text."""
        self.source: Fields = {}
        """Where an image comes from, if not from those."""

    @property
    def waits(self) -> bool:
        """Whether something came that is told only when the block is over."""
        return bool(self.raws or self.texts)

    def begun(self) -> AssistantPart:
        """What a block is that has a start. Raises ``DecodeError``."""
        return self._read(self.kind, {**_TO_COME[self.kind], **self.fields})

    def default(self) -> str:
        """The arguments of a call that gets none."""
        return bytes(self.fields.get("input", EMPTY_OBJECT)).decode()

    def ended(self, gathered: AssistantPart | None) -> AssistantPart | None:
        """What a block is that is over, where that is more than was gathered. Raises ``DecodeError``."""
        match self.kind:
            case "text" | "citation" if self.raws and isinstance(gathered, Text):
                inner = {"citations": jsontext.raw(self.raws)}
                if self.kind == "text":
                    inner["content"] = jsontext.raw([{"text": gathered.text}])
                return self._read("citationsContent", inner)
            case "redactedContent" if len(self.texts) > 1:
                return trusted.Reasoning(encrypted=rejoined(self.texts), wire=WIRE)
            case "toolResult":
                content = [*jsontext.items(self.fields.get("content", _NOTHING)), *self.raws]
                return self._read(self.kind, {**self.fields, "content": jsontext.raw(content)})
            case "image":
                data: dict[str, Any] = {"bytes": rejoined(self.texts)} if self.texts else {}
                source: Fields = {"source": jsontext.raw({**data, **self.source})} if data or self.source else {}
                return self._read(self.kind, {**self.fields, **source})
            case _:
                return None

    def _read(self, kind: str, inner: Fields) -> AssistantPart:
        part: AssistantPart = assistant_part(jsontext.raw({kind: inner, **self.beside}))
        return part


def has_no_arguments(part: AssistantPart | None) -> bool:
    """Whether a part is a call that got no arguments."""
    return isinstance(part, ToolCall) and not part.arguments_json.strip()


def rejoined(pieces: Sequence[str]) -> str:
    """Join base64 texts, each of which may be padded, into that of all the bytes."""
    joined = "".join(pieces)
    if "=" not in joined.rstrip("="):
        return joined
    try:
        found = b"".join([binascii.a2b_base64(piece, strict_mode=True) for piece in pieces])
    except ValueError:
        return joined
    return binascii.b2a_base64(found, newline=False).decode()
