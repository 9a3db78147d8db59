"""How many tokens a message is, roughly: from the length of its text, without a tokeniser.

Rules (kairo.md 1.6, KAI-03; golden ``token_estimate``):

- Text and reasoning: ``max(1, n * 2 // 7)``; a tool result ``max(1, n * 2 // 9)``; a tool call ``max(1, n // 5)``
  of its arguments. ``n`` counts UTF-8 bytes, which are characters where a text is ASCII: a token of any other script
  covers fewer characters.
- A message is the sum of its parts; one without parts is 0.
- Media count too, and so do system messages and the definitions of tools (D29).
- Pure. An estimate belongs to the message: it is made once and kept beside it (``context.Ledger``); what a model makes
  of it is a matter of calibration.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from palaver.core import canonical
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import Json, MalformedToolCall, Media, Opaque, Reasoning, Refusal, Text, ToolCall
from palaver.core.tools import AnyTool

_MEDIA: Final = 1000


def estimate_text(text: str) -> int:
    """Tokens of a text that somebody said."""
    return max(1, _bytes(text) * 2 // 7)


def estimate(message: Message) -> int:
    """Tokens of a message: the sum of its parts."""
    result = isinstance(message, ToolMessage)
    return sum([_part(part, result=result) for part in message.content])


def estimate_tools(tools: Iterable[AnyTool]) -> int:
    """Tokens of the definitions of tools."""
    return sum([max(1, len(canonical.encode(tool)) // 5) for tool in tools])


def _part(part: Any, *, result: bool) -> int:
    match part:
        case Text() | Reasoning() | Refusal():
            size = _bytes(part.text)
            return max(1, size * 2 // 9 if result else size * 2 // 7)
        case ToolCall():
            return max(1, _bytes(part.arguments_json) // 5)
        case MalformedToolCall():
            return max(1, _bytes(part.raw) // 5)
        case Json():
            return max(1, len(bytes(part.value_json)) * 2 // 9)
        case Media():
            return _MEDIA
        case Opaque():
            return max(1, len(bytes(part.raw_json)) * 2 // 9)
        case _:
            return max(1, len(canonical.encode(part)) * 2 // 9)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
