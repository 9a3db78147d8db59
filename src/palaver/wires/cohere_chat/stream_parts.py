"""Track the parts of a Cohere stream, and read its common events in one step.

- Each kind of part has its own numbers. A part with a number in use ends the earlier one. An event without a number
  belongs to the newest part of its kind.
- Fields that came late, and a call with ``null`` arguments, are read from the whole part and emitted with its end.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import ArgumentsDelta, CitationDelta, PartEnd, PartStart, ReasoningDelta, TextDelta
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import AssistantPart, MalformedToolCall, Reasoning, Text, ToolCall
from palaver.stream import sse
from palaver.wires._engine.json_fields import native, notes, provider, word
from palaver.wires._engine.stream_decoder import StreamDecoder
from palaver.wires.cohere_chat import decode
from palaver.wires.cohere_chat.decode import Cited
from palaver.wires.cohere_chat.shapes import WIRE

# -- common events ---------------------------------------------------------------------------------
# An event that adds text to a part that is open is recognised in one step: nearly all events of a stream are such, and
# reading them field by field takes several times as long. Any other event is read by its fields.


class _Piece(Struct, gc=False, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET


class _Content(Struct, gc=False, forbid_unknown_fields=True):
    content: _Piece


class _ContentDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Content


class ContentEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="content-delta"):
    """More text, or more thinking."""

    index: int
    delta: _ContentDelta


class _Arguments(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    function: _Arguments


class _Calls(Struct, gc=False, forbid_unknown_fields=True):
    tool_calls: _Function


class _CallDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Calls


class CallEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool-call-delta"):
    """More arguments of a call."""

    index: int
    delta: _CallDelta


class _Plan(Struct, gc=False, forbid_unknown_fields=True):
    tool_plan: str


class _PlanDelta(Struct, gc=False, forbid_unknown_fields=True):
    message: _Plan


class PlanEvent(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool-plan-delta"):
    """More of the plan."""

    delta: _PlanDelta


plain = msgspec.json.Decoder(ContentEvent | CallEvent | PlanEvent).decode
cited = msgspec.json.Decoder(Cited).decode


Kind: TypeAlias = Literal["text", "thinking", "other", "plan", "call"]
CONTENT: Final[tuple[Kind, ...]] = ("text", "thinking", "other")
"""The kinds of parts that stand in ``content``."""
_PLACE: Final[dict[Kind, tuple[int, ...]]] = {
    "text": (0,),
    "thinking": (0,),
    "other": (0,),
    "plan": (1,),
    "call": (2,),
}


_NULL_TEXT: Final = "null"


class Slot(Struct):
    """An open part: its number, and what remains to emit at its end."""

    number: int
    late: Fields = {}
    """Fields of the part that came with deltas."""
    call: Fields = {}
    """The call in its start."""
    started: Fields = {}
    """Its function, split."""
    made_id: str = ""
    emitted: int = 0
    """The number of characters of the arguments in the start."""
    null: bool = False
    """The start had the text ``null`` for arguments, which is part of them if more come."""
    ended: bool = False


class PartsDecoder(StreamDecoder):
    """The half of a decoder that keeps its parts."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, sse.SSEReader())
        self._count = 0
        self._called = 0
        self._slots: dict[Kind, dict[int, Slot]] = {kind: {} for kind in _PLACE}
        self._texts = self._slots["text"]
        self._thoughts = self._slots["thinking"]
        self._calls = self._slots["call"]
        self._content: list[tuple[int, bool]] = []
        """The content in order: numbers of parts, and whether each is a text."""
        self._plan: Slot | None = None
        self._citations: list[Raw] = []
        self._cited_up_to: int | None = 0
        self._looked_up_to = 0
        self._text_places: list[int] = []
        """The place of the text that was cited last; ``None`` when a citation could not be placed."""

    def _begin(self) -> None:
        """Begin the answer, once."""
        raise NotImplementedError

    def _start(self, kind: Kind, part: AssistantPart, index: int | None) -> Slot:
        self._begin()
        slot = Slot(self._count)
        self._count += 1
        slots = self._slots[kind]
        index = -self._count if index is None else index
        before = slots.pop(index, None)  # the one begun last stands last
        if before is not None:
            self._end(kind, before)
        slots[index] = slot
        if kind in CONTENT:
            self._content.append((slot.number, kind == "text"))
        self.emit(PartStart(slot.number, part, place=_PLACE[kind]))
        return slot

    def _find(self, kind: Kind, index: int | None) -> Slot | None:
        """Find a part by its number; the one begun last, where it or the event has none."""
        slots = self._slots[kind]
        if index is not None and index in slots:
            return slots[index]
        last = next(reversed(slots), None)
        return slots[last] if last is not None and (index is None or last < 0) else None

    def _begin_text(self, part: Text, index: int | None) -> Slot:
        slot = self._start("text", structs.replace(part, text=""), index)
        if part.text:
            self.emit(TextDelta(slot.number, part.text))
        return slot

    def _begin_thinking(self, part: Reasoning, index: int | None) -> Slot:
        slot = self._start("thinking", structs.replace(part, text=""), index)
        if part.text:
            self.emit(ReasoningDelta(slot.number, part.text))
        return slot

    def _begin_call(self, found: Fields, index: int | None) -> None:
        made_id = f"call_{self._called}"
        self._called += 1
        try:
            made = decode.call(jsontext.raw(found), made_id)
        except DecodeError as error:
            raise error.within("delta.message.tool_calls") from None
        text = made.raw if isinstance(made, MalformedToolCall) else made.arguments_json
        bare = trusted.ToolCall(made.id or "", made.name or "", provider_json=made.provider_json)
        slot = self._start("call", bare, index)
        slot.call, slot.made_id, slot.emitted = found, made_id, len(text)
        slot.null = jsontext.fields(found["function"]).get("arguments") == word(_NULL_TEXT)
        if text:
            self.emit(ArgumentsDelta(slot.number, text))

    def _grow_call(self, slot: Slot, arguments: str) -> None:
        """Emit more arguments, behind a ``null`` of the start that was taken for none."""
        if slot.null:
            slot.null = False
            slot.emitted = len(_NULL_TEXT)
            self.emit(ArgumentsDelta(slot.number, _NULL_TEXT))
        self.emit(ArgumentsDelta(slot.number, arguments))

    def _end(self, kind: Kind, slot: Slot) -> None:
        if not slot.ended:
            slot.ended = True
            (self._end_call if kind == "call" else self._end_text)(slot)

    def _end_text(self, slot: Slot) -> None:
        part = self.assembler.part(slot.number) if slot.late else None
        if part is not None:
            stored = provider(WIRE, {**native(part, WIRE), **slot.late}, notes(part, WIRE))
            part = structs.replace(part, provider_json=stored)
        self.emit(PartEnd(slot.number, part))

    def _end_call(self, slot: Slot) -> None:
        """End a call; what it is whole is read as in an answer that is not streamed, where that makes a difference."""
        part = self.assembler.part(slot.number)
        text = part.arguments_json if isinstance(part, ToolCall) else getattr(part, "raw", "")
        grown = text[slot.emitted :]
        if not slot.late and text != _NULL_TEXT:
            self.emit(PartEnd(slot.number))
            return
        call = {**slot.call, **slot.late}
        inner = jsontext.fields(call["function"])
        if grown:
            before = jsontext.fields(slot.call["function"]).get("arguments", NULL)
            started = jsontext.text(before) if jsontext.kind(before) == "a string" else text[: slot.emitted]
            inner["arguments"] = jsontext.raw(started + grown)
        call["function"] = jsontext.raw(inner)
        self.emit(PartEnd(slot.number, decode.call(jsontext.raw(call), slot.made_id)))

    # -- citations --

    def _cite(self, raw: Raw) -> None:
        """Emit a citation on its text, unless an earlier one had no place."""
        if self._cited_up_to is None:
            return
        try:
            found = cited(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._cited_up_to = None
            return
        for place in range(self._looked_up_to, len(self._content)):
            if self._content[place][1]:
                self._text_places.append(place)
        self._looked_up_to = len(self._content)
        texts = self._text_places
        plan = None if self._plan is None else len(self._content)
        at = decode.cited_at(found, texts, plan)
        if at is None or at < self._cited_up_to:
            self._cited_up_to = None
            return
        self._cited_up_to = at
        number = self._plan.number if self._plan is not None and at == plan else self._content[at][0]
        self.emit(CitationDelta(number, decode.citation(found, raw)))

    def _settle_citations(self) -> Fields:
        """Put citations where they stand in an answer that is not streamed; mostly they stand there already.

        Gives the field of the message that holds them, where they point at no texts in order.
        """
        numbers = [number for number, _ in self._content]
        if self._plan is not None:
            numbers.append(self._plan.number)
        emitted = [self.assembler.part(number) for number in numbers]
        bare = [structs.replace(part, citations=()) if isinstance(part, Text) else part for part in emitted]
        fields: Fields = {"citations": jsontext.raw(self._citations)}
        for number, before, part in zip(numbers, emitted, decode.with_citations(tuple(bare), fields), strict=True):
            if before != part:
                self.emit(PartEnd(number, part))
        return fields
