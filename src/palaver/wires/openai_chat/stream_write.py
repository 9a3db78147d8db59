"""Write streams of Chat Completions.

Rules:

- A chunk is the head (id, model, time, …) and one choice. The first delta of a choice has its role; pieces follow as they
  come; what is said whole (fields of the message, annotations, recordings) comes before the finish reason. Usage has
  a chunk without choices, and ``[DONE]`` ends the stream. Text may follow a call: its place is its field.
- What was read from this wire goes back where it stood: reasoning in its field, items of a content list in a list, a
  call without id or type without. A foreign answer gets the fields that the official client requires.
- The official client cannot add to a list whose items have no index: annotations, and reasoning details without index,
  are gathered and said once.
- A failure is an ``error`` object, the provider's own where it was read from this wire, and no end mark.

Source: wires.md 1.3, 2.6, 2.9; ``openai/lib/streaming/chat/_completions.py``.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.events import DataDelta, ReasoningDelta, SignatureDelta
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import Audio, Opaque, Reasoning, Refusal, Text, ToolCall
from palaver.stream import sse
from palaver.wires.openai_chat import encode
from palaver.wires.openai_chat.accents import row
from palaver.wires.openai_chat.forms import WIRE
from palaver.wires.openai_chat.usage import write_usage
from palaver.wires.reading import hint, is_hint, native, visible
from palaver.wires.stream_encoder import Shown, StreamEncoder

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, ProviderEvent
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response

_OPEN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
"""An escape that the next piece completes."""


class _Way:
    """How a part goes out: ``wrap`` makes a delta of a piece, ``whole`` waits for all of them."""

    __slots__ = ("first", "held", "key", "pieces", "shown", "text")

    def __init__(self, key: str, held: Fields) -> None:
        self.key = key
        self.held = held
        self.first = True
        self.pieces: dict[str, list[str]] = {}
        self.text = ""


class _Said:
    """What was said of one choice."""

    __slots__ = ("annotations", "calls", "details", "fields", "items", "lists", "texts")

    def __init__(self) -> None:
        self.fields: set[str] = set()
        self.calls = 0
        self.texts = 0
        self.items = False
        self.annotations: list[Raw] = []
        self.details: list[Any] = []


class Encoder(StreamEncoder):
    """One stream of Chat Completions."""

    CHOICES: ClassVar[bool] = True
    DEFERRED: ClassVar[bool] = True
