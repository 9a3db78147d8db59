"""The modes for calls without tags: the answer waits until it is known whether it begins with one.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.core.parts import Text
from palaver.stream.local.modes import Mode, Outside
from palaver.stream.local.pythonic import after
from palaver.stream.local.tags import Tags

if TYPE_CHECKING:
    from palaver.stream.local.format import Bare, Probe
    from palaver.stream.local.parser import Parser

_SPACE: Final = re.compile(r"\s*+")


class PendingApprovals(Outside):
    """The beginning of an answer that may be a call without a tag."""

    def __init__(self, parser: Parser, tags: Tags, bare: Bare) -> None:
        super().__init__(parser, tags)
        self._bare = bare
        self._between: list[str] = []
        self._may_separate = False  # whether a ";" here stands between two calls

    def take(self, text: str) -> int:
        """Pass over space, and one ``;`` behind a call; then decide."""
        at = after(_SPACE, text, 0)
        if self._may_separate and text.startswith(";", at):
            self._may_separate = False
            at = after(_SPACE, text, at + 1)
        self._between.append(text[:at])
        if text.startswith(self._bare.opens, at):
            self._between.clear()
            self.parser.mode = Probing(self.parser, self._bare.probe(), self)
        elif at < len(text):
            self.text()
        return at

    def meet(self, tag: str) -> None:
        """A tag decides too."""
        self._say()
        super().meet(tag)

    def end(self) -> None:
        """Nothing came."""
        self._say()

    def called(self) -> None:
        """There was a call; another may follow."""
        self._may_separate = True
        self.parser.mode = self

    def text(self) -> None:
        """There is none: the rest is text."""
        self._say()
        self.parser.outside = self.parser.mode = Outside(self.parser, self.tags)

    def _say(self) -> None:
        if between := "".join(self._between):
            self.voice.say(Text, between)
        self._between.clear()


class Probing(Mode):
    """Text that may be a call without a tag."""

    def __init__(self, parser: Parser, probe: Probe, waiting: PendingApprovals) -> None:
        super().__init__(parser, Tags())
        self._probe = probe
        self._waiting = waiting
        self._held: list[str] = []

    def take(self, text: str) -> int:
        """Let the probe see it."""
        size = self._probe.feed(text)
        self._held.append(text if size is None else text[:size])
        if size is None:
            return len(text)
        self._decide()
        return size

    def end(self) -> None:
        """The probe has seen everything."""
        self._decide()

    def _decide(self) -> None:
        held = "".join(self._held)
        found = self._probe.finish() if held else None  # without text taken, nothing would move on
        if found:
            self.voice.whole(found)
            self._waiting.called()
        else:
            self._waiting.text()
            if held:
                self.voice.say(Text, held)
