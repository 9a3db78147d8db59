"""Items and parts of a stream that is being written.

Source: docs/spec/wires.md#3.5.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.parts import AnyPart, AssistantPart, Reasoning, Refusal, Text, ToolCall
from palaver.core.surrogates import paired
from palaver.wires.openai_responses.stream_forms import BY_EVENT
from palaver.wires.openai_responses.unquoted import Unquoted

if TYPE_CHECKING:
    from palaver.core.parts import Citation

_PREFIX: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class Item:
    """An item on its way out. ``index`` is its number, ``parts`` those that are over."""

    __slots__ = ("call_id", "done", "id", "index", "kind", "loose", "open", "parts")

    def __init__(self, index: int, written: Any, *, loose: bool) -> None:
        fields: dict[str, Any] = jsontext.fields(written) if isinstance(written, Raw) else written
        self.index = index
        self.kind = word(fields, "type") or ""
        self.id = word(fields, "id") or f"{_PREFIX.get(self.kind, 'item')}_{index}"
        self.call_id = word(fields, "call_id")
        self.loose = loose
        """It is a message of texts that came from elsewhere, which takes the next such text in."""
        self.parts: dict[int, AnyPart] = {}
        self.open = 0
        self.done = False


def word(fields: dict[str, Any], key: str) -> str | None:
    """Look at a field that may be a text still, and that should be a string."""
    found = fields.get(key)
    found = jsontext.value(found) if isinstance(found, Raw) else found
    return found if isinstance(found, str) else None


class Growing:
    """A part on its way out: ``n`` is its place in the item, ``name`` the events by which it grows."""

    __slots__ = ("citations", "encrypted", "item", "n", "name", "pieces", "segment", "unquoted", "words")

    def __init__(self, item: Item, n: int, name: str) -> None:
        self.item = item
        self.n = n
        self.name = name
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.encrypted: list[str] = []
        self.segment = -1
        """Which text of a reasoning item grows, and the pieces of it."""
        self.words: list[str] = []
        head = BY_EVENT.get(name, ("", "", ""))[1]
        self.unquoted = Unquoted(head) if head else None


def joined(part: AssistantPart, growing: Growing) -> AssistantPart:
    """Give the part, with what it grew by."""
    text = paired("".join(growing.pieces))
    match part:
        case Text():
            return structs.replace(part, text=part.text + text, citations=(*part.citations, *growing.citations))
        case Refusal():
            return structs.replace(part, text=part.text + text)
        case Reasoning():
            encrypted = (part.encrypted or "") + "".join(growing.encrypted)
            return structs.replace(part, text=part.text + text, encrypted=encrypted or part.encrypted)
        case ToolCall():
            return structs.replace(part, arguments_json=part.arguments_json + text)
        case _:
            return part
