"""Serialize the parts of a stream, for wires on which parts may not interleave.

- Events of the open part pass at once. Text, reasoning and refusals end when another part begins. More of them becomes
  a new part of the same kind, and the final form of a part that was split is not emitted.
- Any other part cannot be split. Events of other parts wait until it or the answer ends.
- A part that began ends, at the latest before its ``Finish``. Parts are numbered anew, in the order in which they are
  emitted.
- All other events pass at once. Nothing is lost, and the order within each part stays.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from palaver.core import trusted
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    SignatureDelta,
    TextDelta,
)
from palaver.core.parts import (
    AssistantPart,
    Audio,
    File,
    Image,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Video,
)
from palaver.stream.assembler import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_OfPart = PartStart | TextDelta | ReasoningDelta | ArgumentsDelta | SignatureDelta | DataDelta | CitationDelta | PartEnd


class SerialParts:
    """Serializes the parts of one stream."""

    def __init__(self) -> None:
        """Start empty."""
        self._starts: dict[int, PartStart] = {}
        self._resumed: set[int] = set()
        self._open: int | None = None
        self._holds = False
        self._number = -1
        self._queues: dict[int, list[_OfPart]] = {}

    def feed(self, event: Event, /) -> list[Event]:
        """Take one event; return the events that may be emitted now."""
        if isinstance(event, _OfPart):
            return list(self._part(event))
        if isinstance(event, (Finish, Failed)):
            return [*self._flush(), event]
        return [event]

    def finish(self) -> list[Event]:
        """End the open parts; return the events that waited."""
        return list(self._flush())

    # -- inside; nothing waits unless a part is open that holds the others up --

    def _part(self, event: _OfPart) -> Iterator[Event]:
        if self._holds and event.index != self._open:
            self._queues.setdefault(event.index, []).append(event)
            return
        yield from self._emit(event)
        while self._queues and not self._holds:
            for each in self._queues.pop(next(iter(self._queues))):
                yield from self._emit(each)

    def _emit(self, event: _OfPart) -> Iterator[Event]:
        if isinstance(event, PartStart):
            yield from self._close()
            yield self._begin(event)
        elif isinstance(event, PartEnd):
            if event.index != self._open and event.part is not None and event.index not in self._starts:
                yield from self._emit(PartStart(event.index, event.part))
            if event.index == self._open:
                self._open, self._holds = None, False
                yield PartEnd(self._number, None if event.index in self._resumed else event.part)
        else:
            if event.index != self._open:
                yield from self._close()
                yield from self._resume(event)
            yield structs.replace(event, index=self._number)

    def _resume(self, event: _OfPart) -> Iterator[Event]:
        """Emit more of a part that ended in a new one; a part that never began or cannot grow has no start."""
        before = self._starts.get(event.index)
        if before is not None and _takes(before.part, event):
            yield self._begin(structs.replace(before, part=_emptied(before.part)))
            self._resumed.add(event.index)
        else:
            self._open = event.index
            self._number += 1

    def _begin(self, event: PartStart) -> PartStart:
        self._starts[event.index] = event
        self._resumed.discard(event.index)
        self._open = event.index
        self._holds = not isinstance(event.part, (Text, Reasoning, Refusal))
        self._number += 1
        return structs.replace(event, index=self._number)

    def _close(self) -> Iterator[Event]:
        if self._open is not None:
            self._open, self._holds = None, False
            yield PartEnd(self._number)

    def _flush(self) -> Iterator[Event]:
        yield from self._close()
        while self._queues:
            for each in self._queues.pop(next(iter(self._queues))):
                yield from self._emit(each)
            yield from self._close()


def _takes(part: AssistantPart, event: _OfPart) -> bool:
    """Whether a part of that kind grows by such a delta."""
    return type(event) in FIELDS.get(type(part), {}) or (isinstance(part, Text) and isinstance(event, CitationDelta))


def _emptied(part: AssistantPart) -> AssistantPart:
    """An empty part of the same kind."""
    match part:
        case Text():
            return structs.replace(part, text="", citations=())
        case Refusal():
            return structs.replace(part, text="")
        case Reasoning():
            return structs.replace(part, text="", signature=None, encrypted=None)
        case ToolCall():
            return structs.replace(part, arguments_json="")
        case Image() | Audio() | Video() | File():
            return structs.replace(part, source=trusted.Inline(""))
        case _:
            return part
