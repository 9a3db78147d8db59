"""Runs a format over text as it arrives.

Rules:

- Between tags, text is text, verbatim. Only what is blank as a whole and stands beside a tag is dropped. A tag that
  means nothing where it stands is text.
- A part begins with its first character that is no space: space before it waits, everything else is given at once,
  but for what may be the beginning of a tag.
- The text of a block is read when the block ends. At the end of the answer an open block is read as it stands: calls
  that are whole are calls, for servers do not always send the last tag.
- Arguments behind a head are given as they arrive, without the space around them. Text behind whole arguments is
  malformed, alone; arguments that are no JSON are malformed as a whole. Free text is given as one JSON string.
- Parts are numbered in the order in which they begin, calls in theirs.

Which tags count, and what text is, depends on the mode alone, and modes change at fixed characters: so the pieces in
which text arrives change nothing but where deltas are cut.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.stream.local.bare import PendingApprovals
from palaver.stream.local.event_writer import Voice
from palaver.stream.local.modes import Inside, Mode, Outside, Thinking
from palaver.stream.local.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.events import Event
    from palaver.stream.local.format import Format, Schemas

# A change of mode looks at the text behind it anew; this bounds how much of it.
_STRETCH: Final = 4096


class Parser:
    """Reads the text of one answer. Made by ``palaver.stream.local.get``."""

    def __init__(self, format: Format, id_of: Callable[[int], str], schemas: Schemas) -> None:
        self.voice = Voice(id_of)
        self.schemas = schemas
        self._format = format
        self._known: dict[tuple[str, ...], Tags] = {}
        self._held = ""
        self._tagged = False
        self._blocks = {block.opens: block for block in format.blocks}
        pair = format.reasoning
        tags = self.tags(*self._blocks, *format.marks, *([pair.opens] if pair else []))
        self.outside: Mode = PendingApprovals(self, tags, format.bare) if format.bare else Outside(self, tags)
        self.mode = self._thinking(prefilled=True) if format.prefilled else self.outside
        self._thinking(prefilled=False)  # refuses tags that cannot be told apart

    def feed(self, text: str, /) -> list[Event]:
        """The events that this text completes. Nothing is raised, whatever the text."""
        for start in range(0, len(text), _STRETCH):
            self._feed(text[start : start + _STRETCH])
        return self._said()

    def _feed(self, text: str) -> None:
        text = self._held + text
        at = 0
        while at < len(text):
            mode = self.mode
            found = mode.tags.find(text, at)
            end = found[0] if found else mode.tags.held(text, at)
            if at < end:
                at += mode.take(text[at:end])
            if at < end or mode is not self.mode:
                continue
            if found is None:
                break
            self._tagged = True
            at += len(found[1])
            mode.meet(found[1])
        self._held = text[at:]

    def finish(self) -> list[Event]:
        """The events that the end of the answer completes. Call it once, last."""
        text, self._held = self._held, ""
        while text:
            text = text[self.mode.take(text) :]
        mode = None
        while mode is not self.mode:
            mode = self.mode
            mode.end()
        self.voice.close()
        if not self._tagged and not self.voice.parts:
            self.voice.last()
        return self._said()

    def _said(self) -> list[Event]:
        events, self.voice.events = self.voice.events, []
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
