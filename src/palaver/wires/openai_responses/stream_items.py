"""Track the items and parts of a Responses stream, and compare them with their final form.

- An item begins, and its parts begin and grow. Then the finished item, or the finished answer, repeats them. ``settle``
  compares the two: text that is missing becomes a delta, and any other difference a ``PartEnd``, also after the part
  has ended.
- The finished answer has no places, so its parts are compared in order. When it has fewer parts, the emitted ones stay:
  some gateways send an answer without its output.

Source: docs/spec/wires.md#3.5, #3.8.

Stability: experimental.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import AssistantPart, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.core.request import Response
from palaver.stream import sse
from palaver.stream.replay_events import replay_events
from palaver.wires._engine.stream_decoder import StreamDecoder
from palaver.wires.openai_responses.decode import answered, finish, provider_error
from palaver.wires.openai_responses.shapes import peek

if TYPE_CHECKING:
    from palaver.core.events import Delta

Sink = tuple[str, int, int]
"""An event, the number of an item, and of a part in it."""

_GROWS: Final[dict[type, tuple[str, Callable[[int, str], Any]]]] = {
    Text: ("text", TextDelta),
    Refusal: ("text", TextDelta),
    Reasoning: ("text", ReasoningDelta),
    ToolCall: ("arguments_json", ArgumentsDelta),
    MalformedToolCall: ("raw", ArgumentsDelta),
}
"""The field of a part that grows, and by which event."""
_OF_PART: Final = (TextDelta, ReasoningDelta, ArgumentsDelta, DataDelta, CitationDelta)


class Item:
    """An open item.

    ``turn`` counts the items under one number, ``before`` is the id of the reasoning before it, and ``bare`` whether
    the item before it is a message without fields of its own.
    """

    __slots__ = (
        "bare",
        "before",
        "beside",
        "done",
        "id",
        "index",
        "latest",
        "parts",
        "segment",
        "sinks",
        "turn",
        "words",
    )

    def __init__(self, index: int, turn: int, item_id: str | None, before: Raw | None, *, bare: bool) -> None:
        """Start empty."""
        self.index = index
        self.turn = turn
        self.id = item_id
        self.before = before
        self.bare = bare
        self.beside: Fields = {}
        """What the first part of a message keeps of it."""
        self.parts: dict[int, int] = {}
        """The numbers of its parts, and the one that began last."""
        self.latest: int | None = None
        self.done = False
        self.sinks: list[Sink] = []
        self.words = ""
        """Which texts of a reasoning item are emitted, and which was the last."""
        self.segment: int | None = None


class PartTracker(StreamDecoder):
    """Emits the events of items and parts."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, sse.SSEReader())
        self._head: Response | None = None
        self._items: dict[int, Item] = {}
        self._reasoning: Raw | None = None
        """The id of the reasoning that began last."""
        self._bare = False
        """The item that began last is a message without fields of its own."""
        self._sinks: dict[Sink, tuple[Callable[[int, str], Delta], int]] = {}
        """The part that an event adds to, and the delta for it."""
        self._emitted: list[tuple[tuple[int, ...], int]] = []
        self._open: dict[int, None] = {}
        self._completed: set[int] = set()
        self._concluded = False

    # -- items -------------------------------------------------------------------------------------

    def _new_item(self, index: int, item_id: str | None) -> Item:
        """Begin an item under a number; an earlier one with this number ends."""
        known = self._items.get(index)
        turn = 0
        if known is not None:
            turn = known.turn + 1
            for key in known.sinks:
                self._sinks.pop(key, None)
            for number in known.parts.values():
                self._end_part(number)
        self._items[index] = item = Item(index, turn, item_id, self._reasoning, bare=self._bare)
        return item

    def _item(self, index: int) -> Item:
        """The item of that number; one that was never announced begins."""
        return self._items.get(index) or self._new_item(index, None)

    def _add_sink(self, item: Item, name: str, inner: int, event: Callable[[int, str], Delta], number: int) -> None:
        """Take events of that name and place as more of a part."""
        key = (name, item.index, inner)
        self._sinks[key] = (event, number)
        item.sinks.append(key)

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self, item: Item, n: int, part: AssistantPart) -> int:
        number = item.parts[n] = item.latest = self._emit((item.index, item.turn, n), part)
        return number

    def _emit(self, place: tuple[int, ...], part: AssistantPart) -> int:
        """Begin a part, and emit its content."""
        self._announce()
        number = len(self._emitted)
        self._emitted.append((place, number))
        self._open[number] = None
        for event in replay_events(trusted.Response(trusted.AssistantMessage(content=(part,))), size=sys.maxsize):
            if isinstance(event, PartStart):
                self.emit(PartStart(number, event.part, 0, place))
            elif isinstance(event, _OF_PART):
                self.emit(structs.replace(event, index=number))
        return number

    def _settle(self, number: int, final: AssistantPart) -> None:
        """End a part, with its final form where that differs from the emitted one."""
        emitted = self.assembler.part(number)
        if emitted != final:
            self._complete(number, emitted, final)
            emitted = self.assembler.part(number)
        if number in self._open or emitted != final:
            self._open.pop(number, None)
            self.emit(PartEnd(number, None if emitted == final else final))

    def _complete(self, number: int, emitted: AssistantPart | None, final: AssistantPart) -> None:
        """Emit the end of a text and the citations that no delta had."""
        if type(final) in _GROWS and type(final) is type(self.assembler.bare(number)):
            self._remainder(number, getattr(final, _GROWS[type(final)][0]))
        if isinstance(emitted, Text) and isinstance(final, Text):
            known = len(emitted.citations)
            if final.citations[:known] == emitted.citations:
                for citation in final.citations[known:]:
                    self.emit(CitationDelta(number, citation))

    def _whole(self, number: int, text: str) -> None:
        """An event repeats a whole text: emit what no delta had."""
        if number not in self._completed:
            self._completed.add(number)
            self._remainder(number, text)

    def _remainder(self, number: int, text: str) -> None:
        emitted = self.assembler.part(number)
        field, event = _GROWS.get(type(emitted), ("", TextDelta))
        so_far: str | None = getattr(emitted, field, None)
        if so_far is not None and len(text) > len(so_far) and text.startswith(so_far):
            self.emit(event(number, text[len(so_far) :]))

    def _end_part(self, number: int) -> None:
        if number in self._open:
            del self._open[number]
            self.emit(PartEnd(number))

    # -- the answer as a whole ---------------------------------------------------------------------

    def _announce(self) -> None:
        """Begin an answer that was not announced."""
        if self._head is None:
            self._head = trusted.Response(trusted.AssistantMessage(), origin=self.origin)
            self.emit(Start(self._head))

    def _heading(self, answer: Response) -> None:
        """Emit new fields of the answer beside its parts."""
        message = structs.replace(answer.message, content=(), usage=None, finish_reason=None, finish_reason_raw=UNSET)
        head = structs.replace(answer, message=message, origin=self.origin)
        if self._head is None:
            self.emit(Start(head))
        elif head != self._head:
            self.emit(Update(head))
        self._head = head

    def _conclude(self, fields: Fields, failed: bytes | None = None) -> None:
        """Emit the whole answer and its finish. ``failed`` is the event of a failure."""
        status, details, error = peek(fields, "status"), fields.get("incomplete_details"), fields.get("error", NULL)
        answer = whole(fields)
        reason = answer.finish_reason or "other"
        if self._head is None:
            self._heading(answer)
        if not self._compare(answer.message.content):
            reason = finish(status, details, self.assembler.content())
        for number in list(self._open):
            self._end_part(number)
        self._heading(answer)
        if answer.usage is not None:
            self.emit(UsageUpdate(answer.usage))
        self._concluded = True
        if failed is None:
            self.emit(Finish(reason, answer.message.finish_reason_raw))
            return
        message, code = "the response failed", None
        if error != NULL:
            found = provider_error(jsontext.encode({"error": error}))
            message, code = found.message, found.code
        self.fail(Failed("provider", message, code, Raw(failed)))

    def _compare(self, final: tuple[AssistantPart, ...]) -> bool:
        """Settle the emitted parts, and emit new ones. ``False`` when the final answer has fewer."""
        emitted = sorted(self._emitted)
        if len(final) < len(emitted):
            return False
        last = emitted[-1][0][0] if emitted else 0
        for (_, number), part in zip(emitted, final, strict=False):
            self._settle(number, part)
        for n, part in enumerate(final[len(emitted) :]):
            self._end_part(self._emit((last + 1, 0, n), part))
        return True


def whole(fields: Fields) -> Response:
    """Read the ``response`` of an event."""
    try:
        return answered(fields)
    except DecodeError as error:
        raise error.within("response") from None
