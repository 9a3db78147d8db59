"""Tells the parts of an answer as events.

- Parts are numbered in the order in which they begin, calls in theirs.
- A part begins with its first character that is no space; space before it waits. Space that no text follows before the
  next tag is dropped.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver.core import trusted
from palaver.core.events import ArgumentsDelta, Event, PartEnd, PartStart, ReasoningDelta, TextDelta
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BEGUN: Final[dict[type, AssistantPart]] = {Text: trusted.Text(""), Reasoning: trusted.Reasoning()}


class Voice:
    """Numbers parts, drops blank ones, gives calls their ids. ``events`` gathers what was told."""

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self.events: list[Event] = []
        self.parts = 0
        self._id_of = id_of
        self._calls = 0
        self._open: type[Text | Reasoning] | None = None
        self._space: list[str] = []

    def say(self, kind: type[Text | Reasoning], text: str) -> None:
        """More text or reasoning."""
        if self._open is not kind:
            self.close()
            if text.isspace():
                self._space.append(text)
                return
            text = self._before() + text
            self._open = kind
            self.begin(_BEGUN[kind])
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
