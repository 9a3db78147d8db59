"""Run a format over text as it arrives.

- Text between tags is verbatim. Blank text beside a tag is dropped. A tag without a meaning at its place is text.
- Parts are numbered in the order in which they begin, and calls in theirs. A part begins with its first character that
  is no space. Later text is emitted at once, except what may be the beginning of a tag.
- A block is read when it ends. At the end of the answer an open block is read as it is: complete calls are calls, since
  servers do not always send the last tag.
- Arguments after a head are emitted as they arrive, without the space around them. Text after complete arguments is
  malformed, alone; arguments other than JSON are malformed as a whole. Free text becomes one JSON string.
- The mode alone decides which tags count and what text is, and modes change at fixed characters. So the chunks of the
  text only change where deltas are cut.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver.core import trusted
from palaver.core.events import ArgumentsDelta, Event, PartEnd, PartStart, ReasoningDelta, TextDelta
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.stream.local.modes import Inside, MaybeCall, Mode, Outside, Tags, Thinking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.stream.local.format import Format, Schemas


# -- events ----------------------------------------------------------------------------------------


_EMPTY_PARTS: Final[dict[type, AssistantPart]] = {Text: trusted.Text(""), Reasoning: trusted.Reasoning()}


class EventWriter:
    """Numbers parts, drops blank ones, gives calls their ids. ``events`` has the events so far."""

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self.events: list[Event] = []
        self.parts = 0
        self._id_of = id_of
        self._calls = 0
        self._open: type[Text | Reasoning] | None = None
        self._space: list[str] = []

    def write(self, kind: type[Text | Reasoning], text: str) -> None:
        """More text or reasoning."""
        if self._open is not kind:
            self.close()
            if text.isspace():
                self._space.append(text)
                return
            text = self._before() + text
            self._open = kind
            self.begin(_EMPTY_PARTS[kind])
        index = self.parts - 1
        self.events.append(TextDelta(index, text) if kind is Text else ReasoningDelta(index, text))

    def close(self) -> None:
        """End what is open. Space that led to nothing stays until ``drop`` is called."""
        if self._open is not None:
            self._open = None
            self.end()

    def drop(self) -> None:
        """End what is open, at a tag: space that led to nothing is dropped."""
        self.close()
        self._space.clear()

    def last(self) -> None:
        """The answer is over, and no tag stood in it: space is all there was."""
        if self._space:
            self.begin(trusted.Text(""))
            self.events.append(TextDelta(self.parts - 1, self._before()))
            self.end()

    def begin(self, part: AssistantPart) -> None:
        """A part begins."""
        self.events.append(PartStart(self.parts, part))
        self.parts += 1

    def named(self, call: ToolCall) -> ToolCall:
        """The next call, with an id."""
        self._calls += 1
        return call if call.id else structs.replace(call, id=self._id_of(self._calls - 1))

    def arguments(self, text: str) -> None:
        """More arguments of the call that began last."""
        self.events.append(ArgumentsDelta(self.parts - 1, text))

    def end(self, part: AssistantPart | None = None) -> None:
        """The part that began last ends."""
        self.events.append(PartEnd(self.parts - 1, part))

    def whole(self, parts: Iterable[AssistantPart]) -> None:
        """Parts that are known as a whole."""
        for part in parts:
            self.drop()
            self.begin(self.named(part) if isinstance(part, ToolCall) else part)
            self.end()

    def _before(self) -> str:
        space = "".join(self._space)
        self._space.clear()
        return space


# A change of mode looks at the text behind it anew; this bounds how much of it.
_STRETCH: Final = 4096


class Parser:
    """Reads the text of one answer. Made by ``palaver.stream.local.get``."""

    def __init__(self, format: Format, id_of: Callable[[int], str], schemas: Schemas) -> None:
        self.writer = EventWriter(id_of)
        self.schemas = schemas
        self._format = format
        self._known: dict[tuple[str, ...], Tags] = {}
        self._rest = ""
        self._tagged = False
        self._blocks = {block.opens: block for block in format.blocks}
        pair = format.reasoning
        tags = self.tags(*self._blocks, *format.marks, *([pair.opens] if pair else []))
        self.outside: Mode = MaybeCall(self, tags, format.bare) if format.bare else Outside(self, tags)
        self.mode = self._thinking(prefilled=True) if format.prefilled else self.outside
        self._thinking(prefilled=False)  # refuses tags that cannot be told apart

    def feed(self, text: str, /) -> list[Event]:
        """The events that this text completes. Nothing is raised, whatever the text."""
        for start in range(0, len(text), _STRETCH):
            self._feed(text[start : start + _STRETCH])
        return self._take_events()

    def _feed(self, text: str) -> None:
        text = self._rest + text
        at = 0
        while at < len(text):
            mode = self.mode
            found = mode.tags.find(text, at)
            end = found[0] if found else mode.tags.pending(text, at)
            if at < end:
                at += mode.take(text[at:end])
            if at < end or mode is not self.mode:
                continue
            if found is None:
                break
            self._tagged = True
            at += len(found[1])
            mode.meet(found[1])
        self._rest = text[at:]

    def finish(self) -> list[Event]:
        """The events that the end of the answer completes. Call it once, last."""
        text, self._rest = self._rest, ""
        while text:
            text = text[self.mode.take(text) :]
        mode = None
        while mode is not self.mode:
            mode = self.mode
            mode.end()
        self.writer.close()
        if not self._tagged and not self.writer.parts:
            self.writer.last()
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self.writer.events = self.writer.events, []
        return events

    # -- for modes ---------------------------------------------------------------------------------

    def tags(self, *names: str) -> Tags:
        """A set of tags, made once."""
        if names not in self._known:
            self._known[names] = Tags(*names)
        return self._known[names]

    def go(self, tag: str) -> None:
        """Go where a tag leads, and come back to the mode that is left."""
        block = self._blocks.get(tag)
        if block is not None:
            self.mode = Inside(self, block, self.mode)
        elif self._format.reasoning and tag == self._format.reasoning.opens:
            self.mode = self._thinking(prefilled=False)

    def _thinking(self, *, prefilled: bool) -> Mode:
        pair = self._format.reasoning
        if pair is None:
            return self.outside
        blocks = tuple(self._blocks) if self._format.calls_in_reasoning else ()
        return Thinking(self, self.tags(pair.opens, pair.closes, *blocks), *pair, prefilled=prefilled)
