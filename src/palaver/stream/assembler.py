"""Assemble the events of a stream to one answer: a state machine, defined for every event in every state (law 7).

Rules:

- Four states. ``idle``: nothing has come. ``open``: the answer arrives. ``finished``: its finish has come, and late
  parts, usage and updates are still taken. ``failed``: nothing is taken any more. ``Assembler.TABLE`` defines what each
  event does in each state.
- Nothing that arrived is lost. A delta for a part that never began begins one, a part that begins under a number in use
  is a part of its own, a delta behind the end of its part still counts.
- Pieces are kept in lists and joined once, so the whole costs what arrived, however many pieces it came in.
- Two halves of a surrogate pair that arrived in two pieces become one character, as in the answer sent whole.
- A call is checked when it is complete: arguments other than JSON make it a ``MalformedToolCall`` with its raw text.
- Once the answer is finished, a stream that breaks off or becomes invalid changes nothing; an error of the provider
  still fails it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, UnsetType, structs

from palaver.core import trusted
from palaver.core.errors import StreamError
from palaver.core.events import (
    EVENT_CLASSES,
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import paired
from palaver.core.messages import AssistantMessage, FinishReason
from palaver.core.parts import (
    AssistantPart,
    Audio,
    Citation,
    File,
    Image,
    Inline,
    Media,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Video,
    settled,
)
from palaver.core.request import Response
from palaver.stream.partial_json import PartialJSON

if TYPE_CHECKING:
    from palaver.core.events import Delta
    from palaver.core.usage import Usage

State: TypeAlias = Literal["idle", "open", "finished", "failed"]
STATES: Final[tuple[State, ...]] = ("idle", "open", "finished", "failed")

FIELDS: Final[dict[type, dict[type, str]]] = {
    Text: {TextDelta: "text"},
    Refusal: {TextDelta: "text"},
    Reasoning: {ReasoningDelta: "text", SignatureDelta: "signature", DataDelta: "encrypted"},
    ToolCall: {ArgumentsDelta: "arguments_json"},
    Image: {DataDelta: "source"},
    Audio: {DataDelta: "source"},
    Video: {DataDelta: "source"},
    File: {DataDelta: "source"},
}
"""Which field of a part a delta adds to. A delta that its part has no field for begins a part of its own."""

_UNANNOUNCED: Final[dict[type, AssistantPart]] = {
    TextDelta: trusted.Text(""),
    CitationDelta: trusted.Text(""),
    ReasoningDelta: trusted.Reasoning(),
    SignatureDelta: trusted.Reasoning(),
    ArgumentsDelta: trusted.ToolCall("", ""),
    DataDelta: trusted.File(trusted.Inline("")),
}
"""The part that a delta begins when none was announced."""


class _Slot:
    """One part that is being gathered."""

    __slots__ = ("_built", "_looked", "_partial", "choice", "citations", "part", "pieces", "place")

    def __init__(self, part: AssistantPart, choice: int, place: tuple[int, ...]) -> None:
        self.choice = choice
        self.place = place
        self.begin(part)

    def begin(self, part: AssistantPart) -> None:
        """Start a part, and forget what was gathered for another."""
        self.part = part
        grows = not isinstance(part, Media) or isinstance(part.source, Inline)
        self.pieces: dict[type, list[str]] = {kind: [] for kind in FIELDS.get(type(part), ())} if grows else {}
        self.citations: list[Citation] = []
        self._built: AssistantPart | None = None
        self._partial: PartialJSON | None = None
        self._looked = 0

    def build(self) -> AssistantPart:
        """Join the pieces since the last call; takes no time without new ones."""
        if self._built is not None and not self.citations and not any(self.pieces.values()):
            return self._built
        self._look()
        changes: dict[str, Any] = {}
        fields = FIELDS.get(type(self.part), {})
        for kind, pieces in self.pieces.items():
            if pieces:
                changes[fields[kind]] = _added(getattr(self.part, fields[kind]), pieces, kind)
                pieces.clear()
        self._looked = 0
        if self.citations and isinstance(self.part, Text):
            changes["citations"] = (*self.part.citations, *self.citations)
            self.citations.clear()
        if changes:
            self.part = structs.replace(self.part, **changes)
        self._built = self._judged(self.part) if isinstance(self.part, ToolCall) else self.part
        return self._built

    def _judged(self, call: ToolCall) -> AssistantPart:
        """Judge a call, then pair its halves: judging leaves the UTF-8 with the text, so that pairing costs little."""
        built = settled(call)
        whole = paired(call.arguments_json)
        if whole is call.arguments_json:
            return built
        self.part = structs.replace(call, arguments_json=whole)
        return settled(self.part)

    def arguments(self) -> Any:
        """The arguments so far; ``UNSET`` before their first value."""
        if self._partial is None and isinstance(self.part, ToolCall):
            self._partial = PartialJSON()
            self._partial.feed(self.part.arguments_json)
        self._look()
        return UNSET if self._partial is None else self._partial.value

    def _look(self) -> None:
        if self._partial is not None:
            pieces = self.pieces.get(ArgumentsDelta, [])
            for position in range(self._looked, len(pieces)):
                self._partial.feed(pieces[position])
            self._looked = len(pieces)


def _added(pending: str | Inline | None, pieces: Sequence[str], kind: type) -> Any:
    if isinstance(pending, Inline):
        return trusted.Inline(pending.data + "".join(pieces))
    text = (pending or "") + "".join(pieces)
    return text if kind is ArgumentsDelta else paired(text)  # arguments are paired when they are judged


def _place(slot: _Slot) -> tuple[int, ...]:
    return slot.place


class CallSoFar:
    """A tool call while it arrives. ``index`` is the number of its part."""

    __slots__ = ("_slot", "id", "index", "name")

    def __init__(self, index: int, call: ToolCall, slot: _Slot) -> None:
        """Wrap a part that is being gathered."""
        self.index = index
        self.id = call.id
        self.name = call.name
        self._slot = slot

    @property
    def arguments_so_far(self) -> Any:
        """The arguments so far, ``UNSET`` before their first value.

        A live view: it grows with the arguments, so copy what you keep. All reads together take time in the length of
        the arguments (``palaver.stream.partial_json``).
        """
        return self._slot.arguments()

    def __repr__(self) -> str:
        """Show which call it is."""
        return f"CallSoFar({self.index}, {self.id!r}, {self.name!r})"


Action: TypeAlias = Callable[[Any, Any], None]
_NOBODY: Final = trusted.Response(trusted.AssistantMessage())


class Assembler:
    """Gather the events of one stream. ``wire`` names it in errors."""

    def __init__(self, wire: str = "") -> None:
        """Start empty."""
        self.wire = wire
        self._go("idle")
        self._head = _NOBODY
        self._usage: Usage | None = None
        self._slots: list[_Slot] = []
        self._current: dict[int, _Slot] = {}
        self._sinks: dict[type, dict[int, Callable[[str], None]]] = {
            TextDelta: {},
            ReasoningDelta: {},
            ArgumentsDelta: {},
            SignatureDelta: {},
            DataDelta: {},
        }
        self._finishes: dict[int, Finish] = {}
        self._failure: Failed | None = None

    @property
    def state(self) -> State:
        """``idle``, ``open``, ``finished`` or ``failed``."""
        return self._state

    @property
    def finished(self) -> bool:
        """Whether every choice that began is over."""
        return self._state == "finished" and all(slot.choice in self._finishes for slot in self._slots)

    @property
    def failure(self) -> Failed | None:
        """The failure of the stream: a ``Failed`` event, or damage that the events show."""
        return self._failure

    def feed(self, event: Event, /) -> None:
        """Take one event. Nothing is raised."""
        self._actions[type(event)](self, event)

    def extend(self, events: Iterable[Event], /) -> None:
        """Take events, in order. Consecutive deltas of one part take a fast path."""
        event: Any  # only deltas have the fields that are asked for
        kind: Any = None
        index = 0
        append: Callable[[str], object] = str
        for event in events:
            if type(event) is kind and event.index == index:
                append(event.text)
                continue
            try:
                append = self._sinks[type(event)][event.index]
            except KeyError:  # no delta, or of a part that did not begin
                kind = None  # this may change where deltas go
                self._actions[type(event)](self, event)
            else:
                kind, index = event.__class__, event.index
                append(event.text)

    def content(self, choice: int = 0) -> tuple[AssistantPart, ...]:
        """The parts so far, each joined, in their places."""
        chosen = [slot for slot in self._slots if slot.choice == choice]
        return tuple([slot.build() for slot in sorted(chosen, key=_place)])

    def part(self, index: int) -> AssistantPart | None:
        """The part of that number so far, joined; ``None`` when there is none."""
        slot = self._current.get(index)
        return None if slot is None else slot.build()

    def bare(self, index: int) -> AssistantPart | None:
        """Return the part of that number as it began."""
        slot = self._current.get(index)
        return None if slot is None else slot.part

    def choice(self, index: int) -> int:
        """The choice that the part of that number belongs to."""
        slot = self._current.get(index)
        return 0 if slot is None else slot.choice

    @property
    def calls(self) -> tuple[CallSoFar, ...]:
        """The tool calls so far, in the order in which they began."""
        found = self._current.items()
        return tuple([CallSoFar(i, slot.part, slot) for i, slot in found if isinstance(slot.part, ToolCall)])

    def response(self) -> Response:
        """The answer so far. Until it is finished its finish reason is ``error``."""
        others = sorted({slot.choice for slot in self._slots} | self._finishes.keys() | {0})
        others.remove(0)
        alternatives = tuple([self._message(choice) for choice in others])
        message = self._message(0)
        if self._usage is not None:
            message = structs.replace(message, usage=self._usage)
        return structs.replace(self._head, message=message, alternatives=alternatives)

    def finish(self) -> Response:
        """Return the answer. Raises ``StreamError``, which holds the answer so far, when it failed or broke off."""
        if self.finished:
            return self.response()
        failure = self._failure or Failed("torn", "it ended before the answer was finished")
        body = b"" if failure.raw_json is UNSET else bytes(failure.raw_json)
        raise StreamError(
            self.wire, failure.reason, kind=failure.kind, response=self.response(), code=failure.code, body=body
        )

    def _message(self, choice: int) -> AssistantMessage:
        known_messages = (self._head.message, *self._head.alternatives)
        head = known_messages[choice] if choice < len(known_messages) else trusted.AssistantMessage()
        reason: FinishReason | None = "error"
        raw: str | UnsetType | None = UNSET
        found = self._finishes.get(choice)
        if found is not None and self._state != "failed":
            reason, raw = found.reason, found.raw
        return structs.replace(head, content=self.content(choice), finish_reason=reason, finish_reason_raw=raw)

    # -- what events do; which of these, TABLE says ------------------------------------------------

    def _go(self, state: State) -> None:
        self._state: State = state
        self._actions = self.TABLE[state]

    def _begin(self, event: Start) -> None:
        self._head = event.response
        self._go("open")

    def _begin_anyway(self, event: Event) -> None:
        """The first event is no start: the answer begins all the same."""
        self._go("open")
        self.feed(event)

    def _begin_again(self, event: Start) -> None:
        """A second start of the same answer changes nothing; one of another answer is an error."""
        if event.response.id != self._head.id:
            self._fail(Failed("corrupt", "a second answer begins within the first"))

    def _update(self, event: Update) -> None:
        self._head = event.response

    def _part(self, event: PartStart) -> None:
        self._put(event.index, _Slot(event.part, event.choice, event.place))

    def _put(self, index: int, slot: _Slot) -> None:
        self._slots.append(slot)
        self._connect(index, slot)

    def _connect(self, index: int, slot: _Slot) -> None:
        self._current[index] = slot
        for kind, sinks in self._sinks.items():
            if kind in slot.pieces:
                sinks[index] = slot.pieces[kind].append
            else:
                sinks.pop(index, None)

    def _delta(self, event: Delta) -> None:
        append = self._sinks[type(event)].get(event.index) or self._unannounced(event)
        append(event.text)

    def _unannounced(self, event: Delta | CitationDelta) -> Callable[[str], None]:
        """Begin the part that a delta needs, after the one with its number."""
        before = self._current.get(event.index)
        choice, place = (before.choice, before.place) if before else (0, ())
        slot = _Slot(_UNANNOUNCED[type(event)], choice, place)
        self._put(event.index, slot)
        return slot.pieces[TextDelta if isinstance(event, CitationDelta) else type(event)].append

    def _citation(self, event: CitationDelta) -> None:
        slot = self._current.get(event.index)
        if slot is None or not isinstance(slot.part, Text):
            self._unannounced(event)
            slot = self._current[event.index]
        slot.citations.append(event.citation)

    def _end(self, event: PartEnd) -> None:
        if event.part is None:
            return
        slot = self._current.get(event.index)
        if slot is None:
            self._put(event.index, _Slot(event.part, 0, ()))
        else:
            slot.begin(event.part)
            self._connect(event.index, slot)

    def _count(self, event: UsageUpdate) -> None:
        self._usage = event.usage

    def _over(self, event: Finish) -> None:
        self._finishes[event.choice] = event
        self._go("finished")

    def _fail(self, event: Failed) -> None:
        self._failure = event
        self._sinks = {}
        self._go("failed")

    def _fail_late(self, event: Failed) -> None:
        if event.kind == "provider" or not self.finished:
            self._fail(event)

    def _ignore(self, event: Event) -> None:
        """Nothing to gather."""

    # -- what each event does in each state --------------------------------------------------------

    _OPEN: ClassVar[dict[type, Action]] = {
        Start: _begin_again,
        Update: _update,
        PartStart: _part,
        TextDelta: _delta,
        ReasoningDelta: _delta,
        ArgumentsDelta: _delta,
        SignatureDelta: _delta,
        DataDelta: _delta,
        CitationDelta: _citation,
        PartEnd: _end,
        UsageUpdate: _count,
        Finish: _over,
        Failed: _fail,
        ProviderEvent: _ignore,
    }
    TABLE: ClassVar[dict[State, dict[type, Action]]] = {
        "idle": dict.fromkeys(EVENT_CLASSES, _begin_anyway) | {Start: _begin, Failed: _fail, ProviderEvent: _ignore},
        "open": _OPEN,
        "finished": _OPEN | {Failed: _fail_late},
        "failed": dict.fromkeys(EVENT_CLASSES, _ignore),
    }
