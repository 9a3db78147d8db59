"""Write an answer as a provider's stream, which its own client library reads.

- ``feed(event)`` returns the bytes of an event, ``finish()`` those that end the stream. A wire's ``stream_write``
  writes the start, the deltas and the end of a part and of the answer. ``fit`` decides what a foreign part becomes.
- The stream has the content that ``encode_response`` writes for the same answer, and ``losses`` is the receipt. Faults
  that only the whole text shows pass: the client judges arguments that turn out to be no JSON.
- Text, refusals, reasoning and calls are sent as they come; every other part is sent whole, when it ends. Blank text
  waits for its first letter where the wire refuses blank text.
- ``finish()`` writes the end, since usage may follow the last part. A stream that failed, was not finished, or has
  something that this wire cannot express, ends with the provider's form of an error.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from msgspec import UNSET, structs

from palaver.core import trusted
from palaver.core.errors import MessageError, PalaverError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
)
from palaver.core.jsontext import paired, sayable
from palaver.core.parts import AssistantPart, Citation, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.core.request import Response
from palaver.stream.assembler import FIELDS, Assembler
from palaver.stream.serialize_parts import SerialParts
from palaver.wires._engine import json_fields, metadata
from palaver.wires._engine.encode_state import Context, Options
from palaver.wires._engine.fit import HALVES
from palaver.wires._engine.wire import fit_answer, list_lost_usage, with_own_usage

if TYPE_CHECKING:
    from palaver.core.events import Delta
    from palaver.core.request import Loss
    from palaver.wires._engine.capabilities import WireCapabilities

_TO_COME: Final[dict[type, tuple[str, str]]] = {
    Text: ("text", "…"),
    Refusal: ("text", "…"),
    Reasoning: ("text", "…"),
    ToolCall: ("arguments_json", "{}"),
}
"""The parts that stream: the field that grows, and what stands in for it while the hand-over is asked."""


_GROWS: Final[dict[type, type[ArgumentsDelta | ReasoningDelta]]] = {
    Reasoning: ReasoningDelta,
    ToolCall: ArgumentsDelta,
}
"""The event by which a part grows, where that is no ``TextDelta``."""


class Shown:
    """A part on its way out: ``number`` counts those shown, ``part`` is what it began as, fitted to the wire."""

    __slots__ = ("choice", "closing", "grown", "half", "judged", "number", "part")

    def __init__(self, number: int, part: AssistantPart, choice: int) -> None:
        """Create it."""
        self.number = number
        self.part = part
        self.choice = choice
        self.grown = False
        """Whether a delta was shown."""
        self.half = ""
        """The first half of a character whose second has not come yet."""
        self.judged = False
        """Whether it is known that the arguments are an object, or were wrapped in one."""
        self.closing = ""
        """What ends the arguments of a custom call that is wrapped."""


_EVENTS: Final = frozenset(get_args(Event))


class StreamEncoder:
    """One stream that is being written. ``origin`` is the wire, with its variant where one was chosen."""

    SERIAL_PARTS: ClassVar[bool] = False
    """Parts may not interleave."""
    CHOICES: ClassVar[bool] = False
    """The wire has several choices."""
    WHOLE_CALLS: ClassVar[bool] = False
    """Calls are written whole, although other wires stream them."""
    DEFERRED: ClassVar[bool] = False
    """``begin`` is called with the first part, so that an ``Update`` before it counts."""

    def __init__(self, wire: str, capabilities: WireCapabilities, *, variant: str | None = None) -> None:
        """Start empty."""
        self.wire = wire
        self.origin = wire if variant is None else f"{wire}:{variant}"
        self._capabilities = capabilities
        self._variant = variant
        self.context = self._context(own=False)
        self.assembler = Assembler(self.origin)
        self._turns = SerialParts() if self.SERIAL_PARTS else None
        self._out: list[bytes] = []
        self._shown: dict[int, Shown | None] = {}
        self._closed: dict[int, Shown] = {}
        self._pending: dict[int, tuple[PartStart, list[str]]] = {}
        self._count = 0
        self._taken_ids: set[str] = set()
        self._before_start: list[ProviderEvent] = []
        self._started = False
        self._ended = False

    # -- for callers --

    def feed(self, event: Event, /) -> bytes:
        """Return the bytes of one event, often none. Raises ``MessageError`` for a value that is not an event."""
        if type(event) not in _EVENTS:
            raise MessageError(f"{self.wire}: expected an event, got {type(event).__name__}")
        if self._ended:
            return b""
        try:
            if self._turns is None:
                self._take(event)
            else:
                for each in self._turns.feed(event):
                    self._take(each)
        except (PalaverError, UnicodeEncodeError) as error:  # made by hand: no stream of this wire can have held it
            self._fail(Failed("corrupt", str(error)))
        return self._taken()

    def finish(self) -> bytes:
        """Return the bytes that end the stream. Raises nothing."""
        if not self._ended:
            try:
                self._end_all()
            except (PalaverError, UnicodeEncodeError) as error:  # as in ``feed``
                self._fail(Failed("corrupt", str(error)))
            self._ended = True
        return self._taken()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipt so far."""
        return self.context.losses

    # -- for a wire's own writing --

    def begin(self, head: Response) -> None:
        """The answer begins; ``head`` holds no parts."""
        raise NotImplementedError

    def open(self, shown: Shown) -> None:
        """A text, refusal, reasoning or call begins."""
        raise NotImplementedError

    def grow(self, shown: Shown, event: Delta) -> None:
        """More of it."""
        raise NotImplementedError

    def cite(self, shown: Shown, citation: Citation) -> None:
        """A citation of a text, which may be over."""
        raise NotImplementedError

    def close(self, shown: Shown, part: AssistantPart | None, /) -> None:
        """It is over; ``part`` is the provider's last word on it, for a stream that goes back to its own wire."""
        raise NotImplementedError

    def write_whole(self, shown: Shown) -> None:
        """Write a whole part at once."""
        raise NotImplementedError

    def finish_answer(self, answer: Response) -> None:
        """Write the finish reason and the usage, and end the stream. ``answer`` is the whole answer, not fitted."""
        raise NotImplementedError

    def fail(self, failed: Failed) -> None:
        """Write a failure in the provider's form."""
        raise NotImplementedError

    def native(self, event: ProviderEvent) -> None:
        """Write an event of this wire; others never come here."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Hand out bytes."""
        self._out.append(data)

    # -- inside --

    def _context(self, *, own: bool) -> Context:
        context = Context(self.wire, self._capabilities, own=own, variant=self._variant, options=Options())
        context.whole = "response"
        return context

    def _taken(self) -> bytes:
        if not self._out:
            return b""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def _end_all(self) -> None:
        for each in self._turns.finish() if self._turns is not None else ():
            self._take(each)
        for index in [*self._pending, *self._shown]:
            self._take(PartEnd(index))
        if self.assembler.finished:
            self._announce()
            self.finish_answer(self._answer())
        else:
            self._take(Failed("torn", "it ended before the answer was finished"))

    def _take(self, event: Event) -> None:
        if self._ended:
            return
        self.assembler.feed(event)
        if self.assembler.failure is not None:
            self._fail(self.assembler.failure)
            return
        action = self._ACTIONS.get(type(event))
        if action is not None:
            action(self, event)

    def _fail(self, failed: Failed) -> None:
        self._ended = True
        self._announce()
        self.fail(failed)

    def _start(self, event: Start) -> None:
        if self._started:
            return
        response = event.response
        self.context = self._context(own=response.origin == self.origin)
        self._list_foreign_fields(response)
        if not self.DEFERRED:
            self._announce()

    def _update(self, event: Update) -> None:
        self._list_foreign_fields(event.response)

    def _list_foreign_fields(self, response: Response) -> None:
        if not self.context.own:
            timed = metadata.with_time(response) if self._capabilities.has_time else response
            metadata.lose_fields(timed, self.context)
            for choice, message in enumerate((response.message, *response.alternatives)):
                for wire, key, _ in json_fields.foreign(message, self.wire):
                    self.context.lose("dropped", key, f"a field of {wire}", choice)

    def _known(self) -> Response:
        """The answer so far, with the time when it was made where the wire has one."""
        answer = self.assembler.response()
        return metadata.with_time(answer) if self._capabilities.has_time and not self.context.own else answer

    def _announce(self) -> None:
        if not self._started:
            self._started = True
            self.begin(self._known())
            early, self._before_start = self._before_start, []
            for event in early:
                self.native(event)

    # -- parts --

    def _part(self, event: PartStart) -> None:
        self._announce()
        if event.choice and not self.CHOICES:
            self.context.lose("dropped", "alternatives", "the wire has one answer")
            self._shown[event.index] = None
            return
        if event.index in self._shown or event.index in self._pending:
            self._end(PartEnd(event.index))
        part = event.part
        if type(part) not in _TO_COME or (self.WHOLE_CALLS and isinstance(part, ToolCall)):
            self._pending[event.index] = (event, [])
        elif isinstance(part, Text) and self._defer_blank(part.text):
            self._pending[event.index] = (event, [part.text])
        else:
            self._open(event)

    def _defer_blank(self, text: str) -> bool:
        return not self.context.own and not self._capabilities.blank_text and not text.strip()

    def _open(self, event: PartStart) -> Shown | None:
        """Open a part that streams, fitted; ``None`` when this wire cannot express it."""
        part = event.part
        fitted = self._fitted_start(event)
        shown = None if fitted is None else self._next(fitted, event.choice)
        self._shown[event.index] = shown
        if shown is None:
            return None
        wrapped = isinstance(part, ToolCall) and part.custom and isinstance(fitted, ToolCall) and not fitted.custom
        self.open(shown)
        if wrapped:
            shown.closing = "}"
            self._grow(shown, ArgumentsDelta(event.index, '{"input":'))
        begun: str = "" if self.context.own else getattr(part, _TO_COME[type(part)][0])
        if begun:  # its stand-in was fitted
            self._grow(shown, _GROWS.get(type(shown.part), TextDelta)(event.index, begun))
        return shown

    def _next(self, part: AssistantPart, choice: int) -> Shown:
        shown = Shown(self._count, part, choice)
        self._count += 1
        return shown

    def _fitted(self, part: AssistantPart, start: PartStart) -> AssistantPart | None:
        """Fit a part to this wire; ``None`` when the wire cannot express it."""
        message = trusted.AssistantMessage(content=(part,))
        self.context.offset = start.index
        fitted = fit_answer(message, start.choice, self.context, position=self._count, taken=self._taken_ids)
        return fitted.content[0] if fitted.content else None

    def _fitted_start(self, start: PartStart) -> AssistantPart | None:
        """The same for a part whose text is still to come, and is stood in for."""
        part = start.part
        if self.context.own:
            return part
        field, stand_in = _TO_COME[type(part)]
        if isinstance(part, ToolCall) and part.custom:
            stand_in = '""'
        fitted = self._fitted(structs.replace(part, **{field: stand_in}), start)
        return None if fitted is None else structs.replace(fitted, **{_TO_COME[type(fitted)][0]: ""})

    def _delta(self, event: Delta) -> None:
        index = event.index
        shown = self._shown.get(index)
        if shown is not None and type(event) in FIELDS[type(shown.part)]:
            self._grow(shown, event)
        elif index in self._pending:
            self._defer(event)
        elif shown is not None or index not in self._shown:
            part = self.assembler.bare(index)
            if part is not None:
                self._part(PartStart(index, part))
                self._delta(event)

    def _grow(self, shown: Shown, event: Delta) -> None:
        if not event.text and shown.grown and not isinstance(event, SignatureDelta):  # an empty proof is not none
            return
        if isinstance(event, ArgumentsDelta) and not shown.judged and event.text.strip():
            event = self._as_object(shown, event)
        if not event.text.isascii() or shown.half:
            event = self._sayable(shown, event)
        self.grow(shown, event)
        shown.grown = True

    def _sayable(self, shown: Shown, event: Delta) -> Delta:
        """Join the halves of a character that came in two pieces; one that stays alone becomes U+FFFD."""
        text = paired(shown.half + event.text)
        shown.half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text[: len(text) - len(shown.half)]
        if not self.context.own:
            clean = sayable(text)
            if clean != text:
                self.context.offset = 0
                self.context.lose("converted", "text", HALVES, shown.choice, event.index)
            text = clean
        return structs.replace(event, text=text)

    def _as_object(self, shown: Shown, event: ArgumentsDelta) -> ArgumentsDelta:
        """Wrap arguments that begin as no object, where the wire takes objects only (see ``fit``)."""
        shown.judged = True
        if self.context.own or not self._capabilities.object_arguments or event.text.lstrip()[0] == "{":
            return event
        self.context.offset = 0
        self.context.lose("converted", "arguments", "not an object; wrapped in one", shown.choice, event.index)
        shown.closing = "}" + shown.closing
        return structs.replace(event, text=f'{{"value":{event.text}')

    def _defer(self, event: Delta) -> None:
        start, pieces = self._pending[event.index]
        if isinstance(start.part, Text) and isinstance(event, TextDelta):
            pieces.append(event.text)
            if event.text.strip():
                del self._pending[event.index]
                self._open_pending(start, pieces)

    def _open_pending(self, start: PartStart, pieces: list[str]) -> None:
        shown = self._open(structs.replace(start, part=structs.replace(start.part, text="")))
        if shown is not None:
            self._grow(shown, TextDelta(start.index, "".join(pieces)))

    def _citation(self, event: CitationDelta) -> None:
        if event.citation.wire != self.wire or event.citation.raw_json is UNSET:
            self.context.offset = 0
            why = "mean something on their own wire only; the text stays"
            self.context.lose("dropped", "citations", why, self.assembler.choice(event.index), event.index)
            return
        if event.index in self._pending and isinstance(self._pending[event.index][0].part, Text):
            start, pieces = self._pending.pop(event.index)
            self._open_pending(start, pieces)
        shown = self._shown.get(event.index) or self._closed.get(event.index)
        if shown is not None and isinstance(shown.part, Text):
            self.cite(shown, event.citation)
        elif shown is not None or event.index in self._pending:
            self.context.offset = 0
            self.context.lose("dropped", "citations", "belong to no text", 0, event.index)

    def _end(self, event: PartEnd) -> None:
        if event.index in self._pending:
            self._end_pending(event)
            return
        shown = self._shown.pop(event.index, None)
        if shown is not None:
            if shown.half:
                self._emit_half(shown, event.index)
            if shown.closing:
                self._grow(shown, ArgumentsDelta(event.index, shown.closing))
            self._closed[event.index] = shown
            self.close(shown, event.part if self.context.own else None)

    def _emit_half(self, shown: Shown, index: int) -> None:
        half, shown.half = shown.half, ""
        grows = next(iter(FIELDS[type(shown.part)]))
        self.grow(shown, grows(index, half if self.context.own else "\ufffd"))
        if not self.context.own:
            self.context.offset = 0
            self.context.lose("converted", "text", HALVES, shown.choice, index)

    def _end_pending(self, event: PartEnd) -> None:
        start, _ = self._pending.pop(event.index)
        part = self.assembler.part(event.index) or start.part  # a last word too is judged there
        fitted = self._fitted(part, start) if self._must_fit(part) else part
        if fitted is None:
            return
        if isinstance(fitted, MalformedToolCall) and not self.WHOLE_CALLS:  # goes back as it came
            fitted = trusted.ToolCall(
                fitted.id or "", fitted.name or "", fitted.raw, provider_json=fitted.provider_json
            )
        shown = self._next(fitted, start.choice)
        if isinstance(fitted, ToolCall) and not self.WHOLE_CALLS:
            shown.part = structs.replace(fitted, arguments_json="")
            self.open(shown)
            self._grow(shown, ArgumentsDelta(event.index, fitted.arguments_json))
            self.close(shown, None)
        else:
            self.write_whole(shown)

    def _must_fit(self, part: AssistantPart) -> bool:
        return not self.context.own or (isinstance(part, MalformedToolCall) and self.WHOLE_CALLS)

    def _answer(self) -> Response:
        answer = self._known()
        if self.context.own:
            return answer
        list_lost_usage(answer.message, self.context, 0)
        return structs.replace(answer, message=with_own_usage(answer.message, answer.origin, self.wire))

    def _native(self, event: ProviderEvent) -> None:
        if event.wire != self.wire:
            return
        if self.assembler.state == "idle":
            self._before_start.append(event)  # whose answer it is, and so how it begins, is not known yet
            return
        self._announce()
        self.native(event)

    _ACTIONS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Start: _start,
        Update: _update,
        PartStart: _part,
        TextDelta: _delta,
        ReasoningDelta: _delta,
        ArgumentsDelta: _delta,
        SignatureDelta: _delta,
        DataDelta: _delta,
        CitationDelta: _citation,
        PartEnd: _end,
        ProviderEvent: _native,
    }
    """The action for each event. Other events are only assembled, and written at the end."""
