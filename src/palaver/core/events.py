"""What happens while an answer arrives: a small union of events, the same for every wire.

Rules:

- A stream is one ``Start``, then parts and what is known of the answer as a whole, then one ``Finish`` a choice.
  ``Failed`` ends it with an error. ``palaver.stream.assembler`` defines what every event means in every state, also in
  an order that no provider should send.
- ``index`` names a part within one stream; deltas and the end of a part name the part that they belong to, and parts
  may interleave. Numbers are given in the order in which parts begin; where a part stands in the message is its
  ``place``.
- A delta is what is new. Nothing is sent twice: joining the deltas of a part gives its text.
- ``Start`` and ``Update`` carry a ``Response`` whose messages hold no parts: id, model, and fields that only the wire
  understands. A later one replaces an earlier one. ``UsageUpdate`` carries all counters known so far.
- An event of the provider without a neutral meaning is a ``ProviderEvent``: kept, and sent to no other wire.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final, get_args

from msgspec import UNSET, Raw, UnsetType, field

from palaver.core import jsontext
from palaver.core.messages import FinishReason
from palaver.core.parts import AssistantPart, Citation
from palaver.core.request import Response
from palaver.core.usage import Usage
from palaver.core.value import Record


class _Event(Record, frozen=True, tag_field="event"):
    """Base of all events."""


@final
class Start(_Event, frozen=True, tag="start"):
    """The answer begins. ``response`` is what is known of it; its messages hold no parts yet."""

    response: Response


@final
class Update(_Event, frozen=True, tag="update"):
    """New fields of the whole answer. Replaces ``Start`` or an earlier ``Update``."""

    response: Response


@final
class PartStart(_Event, frozen=True, tag="part_start"):
    """A part begins. ``part`` is what is known of it: an empty text, a call without arguments, or a whole block.

    ``choice`` is 0 for the message, n for the n-th of its alternatives. Parts are put in the order of their ``place``
    when the answer is over, and in the order in which they began where places are equal.
    """

    index: int
    part: AssistantPart
    choice: int = 0
    place: tuple[int, ...] = ()


@final
class TextDelta(_Event, frozen=True, tag="text_delta"):
    """More text, or more text of a refusal."""

    index: int
    text: str
    agent: str = ""
    """The agent whose answer it is, in the events of a run; likewise ``run``."""
    run: str = ""


@final
class ReasoningDelta(_Event, frozen=True, tag="reasoning_delta"):
    """More reasoning."""

    index: int
    text: str
    agent: str = ""
    """The agent whose answer it is, in the events of a run; likewise ``run``."""
    run: str = ""


@final
class ArgumentsDelta(_Event, frozen=True, tag="arguments_delta"):
    """More of a tool call's arguments, as the model writes them.

    The free text of a custom call is one JSON string, as in ``ToolCall``: a quotation mark, escaped text, a mark.
    """

    index: int
    text: str


@final
class SignatureDelta(_Event, frozen=True, tag="signature_delta"):
    """More of the proof of reasoning."""

    index: int
    text: str


@final
class DataDelta(_Event, frozen=True, tag="data_delta"):
    """More base64 text of a medium, or more encrypted reasoning."""

    index: int
    text: str


@final
class CitationDelta(_Event, frozen=True, tag="citation_delta"):
    """One more citation of a text."""

    index: int
    citation: Citation


@final
class PartEnd(_Event, frozen=True, tag="part_end"):
    """A part ended. ``part`` replaces the deltas when the provider repeats the part at its end."""

    index: int
    part: AssistantPart | None = None


@final
class UsageUpdate(_Event, frozen=True, tag="usage"):
    """What the answer has cost so far: every counter that is known, not what was added."""

    usage: Usage


@final
class Finish(_Event, frozen=True, tag="finish"):
    """A choice is over. ``raw`` is the wire's own reason. Usage and updates may still follow.

    ``reason`` is ``None`` for an answer that was made by hand; a decoder always sets it.
    """

    reason: FinishReason | None
    raw: str | UnsetType | None = UNSET
    choice: int = 0


@final
class Failed(_Event, frozen=True, tag="failed"):
    """The stream ended with an error, and nothing follows. ``raw_json`` is the provider's own error, if any."""

    kind: Literal["torn", "corrupt", "provider"]
    reason: str
    code: str | None = None
    raw_json: Raw | UnsetType = field(default=UNSET, name="raw")

    @property
    def raw(self) -> Any:
        """The provider's error, parsed and frozen; ``None`` when there is none."""
        return None if self.raw_json is UNSET else jsontext.view(self.raw_json)


@final
class ProviderEvent(_Event, frozen=True, tag="provider_event"):
    """An event that means something on ``wire`` only. ``name`` is the provider's word for it, ``""`` if it has none."""

    wire: str
    name: str
    data_json: Raw = field(name="data")

    @property
    def data(self) -> Any:
        """The event, parsed and frozen."""
        return jsontext.view(self.data_json)


Delta: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta | SignatureDelta | DataDelta
"""More text of one kind."""

Event: TypeAlias = (
    Start
    | Update
    | PartStart
    | TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | SignatureDelta
    | DataDelta
    | CitationDelta
    | PartEnd
    | UsageUpdate
    | Finish
    | Failed
    | ProviderEvent
)
EVENT_CLASSES: tuple[type[_Event], ...] = get_args(Event)
