"""The modes of a parser: which tags count, what text is, what a tag does, what the end of the answer does.

=========  =====================  ===============================  ==================================
mode       text                   a tag                            the end
=========  =====================  ===============================  ==================================
Outside    is text                opens a block or reasoning       nothing
Thinking   is reasoning           ends it; opens a block           nothing
Inside     is gathered            ends the block, or its head      the block is read as it stands
Message    is text or reasoning   ends the block                   nothing
Arguments  is arguments           ends the block                   the call is judged
=========  =====================  ===============================  ==================================

``bare`` adds two more, for calls without tags.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext, trusted
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.stream.local.pythonic import quoted
from palaver.stream.partial_json import PartialJSON

if TYPE_CHECKING:
    from palaver.stream.local.format import Block, Head
    from palaver.stream.local.parser import Parser
    from palaver.stream.local.tags import Tags


class Mode:
    """What text means until a tag changes it."""

    def __init__(self, parser: Parser, tags: Tags) -> None:
        self.parser = parser
        self.voice = parser.voice
        self.tags = tags

    def take(self, text: str) -> int:
        """Take text without tags. Gives how much of it belongs to this mode; less than all only after changing it."""
        raise NotImplementedError

    def meet(self, tag: str) -> None:
        """Meet a tag."""
        raise NotImplementedError

    def end(self) -> None:
        """The answer is over. The mode may change once more, to one that only says text."""


class Outside(Mode):
    """Text, outside of any block."""

    kind: type[Text | Reasoning] = Text

    def take(self, text: str) -> int:
        """Say it."""
        self.voice.say(self.kind, text)
        return len(text)

    def meet(self, tag: str) -> None:
        """Go where the tag leads."""
        self.voice.drop()
        self.parser.go(tag)


class Thinking(Outside):
    """Reasoning."""

    kind = Reasoning

    def __init__(self, parser: Parser, tags: Tags, opens: str, closes: str, *, prefilled: bool) -> None:
        super().__init__(parser, tags)
        self._opens = opens
        self._closes = closes
        self._first = prefilled  # some models write the opening tag all the same

    def take(self, text: str) -> int:
        """Say it."""
        self._first = self._first and text.isspace()
        return super().take(text)

    def meet(self, tag: str) -> None:
        """Leave, or go into a block and come back."""
        if tag == self._closes:
            self.voice.drop()
            self.parser.mode = self.parser.outside
        elif tag == self._opens:
            if self._first:
                self._first = False
                self.voice.drop()
            else:
                self.take(tag)
        else:
            super().meet(tag)


class JSONString:
    """Tells whether JSON that arrives in pieces is inside a string just now. A line break ends a string too."""

    _MARK: Final = re.compile(r'["\\\n]')

    def __init__(self) -> None:
        self.open = False
        self._escaped = False

    def feed(self, text: str) -> None:
        """Take the next piece."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                self.open = self.open and text[at] != "\n"
                at += 1
                continue
            found = self._MARK.search(text, at)
            if found is None:
                return
            mark, at = found[0], found.end()
            if mark == '"':
                self.open = not self.open
            elif mark == "\n":
                self.open = False
            else:
                self._escaped = self.open


class Inside(Mode):
    """A block, read when it ends."""

    def __init__(self, parser: Parser, block: Block, back: Mode) -> None:
        head = (block.head.closes,) if block.head else ()
        super().__init__(parser, parser.tags(*block.ends, *block.yields_to, *head))
        self._block = block
        self._back = back
        self._head: Head | None = block.head
        self._pieces: list[str] = [block.opens] if block.keeps else []
        self._room = block.limit
        self._string = JSONString() if block.strings else None

    def take(self, text: str) -> int:
        """Gather it; without a grammar, only as far as a head may reach."""
        if self._block.read is not None:
            self._pieces.append(text)
            if self._string is not None:
                self._string.feed(text)
            return len(text)
        size = min(len(text), self._room)
        self._room -= size
        self._pieces.append(text[:size])
        if not self._room:
            self._as_text()
        return size

    def meet(self, tag: str) -> None:
        """End, or begin what the head announces."""
        if self._string is not None and self._string.open:
            self.take(tag)
        elif self._head is not None and tag == self._head.closes:
            self._announce(self._head)
        elif tag not in {*self._block.ends, *self._block.yields_to}:
            self._pieces.append(tag)
        else:
            self.end()
            self.parser.mode = self._back
            if tag in self._block.yields_to:
                self.parser.go(tag)

    def _announce(self, head: Head) -> None:
        """Read the head, once: a second tag like this one belongs to the block."""
        self._head = None
        parts = head.read("".join(self._pieces))
        if not parts:
            self._pieces.append(head.closes)
            return
        self.voice.whole(parts[:-1])
        part = parts[-1]
        if isinstance(part, ToolCall):
            self.parser.mode = Arguments(self.parser, self._block, self._back, part)
        else:
            self.parser.mode = Message(self.parser, self._block, self._back, type(part))

    def end(self) -> None:
        """Read the block."""
        if self._block.read is None:
            self._as_text()
        else:
            self.voice.whole(self._block.read("".join(self._pieces), self.parser.schemas))

    def _as_text(self) -> None:
        self.voice.say(Text, self._block.opens + "".join(self._pieces))
        self.parser.mode = self._back


class Behind(Mode):
    """What stands behind a head, up to the end of its block."""

    def __init__(self, parser: Parser, block: Block, back: Mode) -> None:
        opens = (*block.yields_to, *(block.head.yields_to if block.head else ()))
        super().__init__(parser, parser.tags(*block.ends, *opens))
        self._opens = opens
        self._back = back

    def meet(self, tag: str) -> None:
        """The block ends, and perhaps another begins."""
        self.end()
        self.voice.drop()
        self.parser.mode = self._back
        if tag in self._opens:
            self.parser.go(tag)


class Message(Behind):
    """Text or reasoning behind a head."""

    def __init__(self, parser: Parser, block: Block, back: Mode, kind: type[Text | Reasoning]) -> None:
        super().__init__(parser, block, back)
        self._kind = kind

    def take(self, text: str) -> int:
        """Say it."""
        self.voice.say(self._kind, text)
        return len(text)


class Arguments(Behind):
    """The arguments of a call behind a head."""

    def __init__(self, parser: Parser, block: Block, back: Mode, call: ToolCall) -> None:
        super().__init__(parser, block, back)
        self._call = self.voice.named(call)
        self.voice.drop()
        self.voice.begin(self._call)
        self._json = PartialJSON()
        self._given: list[str] = []
        self._space: list[str] = []
        self._rest: list[str] = []
        self._whole = False  # whether the arguments were whole before the rest began
        if call.custom:
            self._give('"')

    def take(self, text: str) -> int:
        """Give what belongs to the arguments."""
        if self._call.custom:
            self._give(quoted(text)[1:-1])
        elif self._json.error is not None:
            self._rest.append(text)
        else:
            self._more(text)
        return len(text)

    def _more(self, text: str) -> None:
        before = self._json.offset
        self._json.feed(text)
        size = len(text)
        if self._json.error is not None:
            size = min(size, max(0, self._json.offset - before))
            self._rest.append(text[size:])
        mine = text[:size] if self._given else text[:size].lstrip()
        kept = mine.rstrip()
        if kept:
            self._give("".join([*self._space, kept]))
            self._space.clear()
        if self._given and len(kept) < len(mine):
            self._space.append(mine[len(kept) :])
        if self._json.error is not None:
            damaged = self._json.offset < before  # a number that began in what was given
            self._whole = not damaged and bool(self._given) and jsontext.is_json("".join(self._given))

    def _give(self, text: str) -> None:
        self._given.append(text)
        self.voice.arguments(text)

    def end(self) -> None:
        """Judge the call."""
        if self._call.custom:
            self._give('"')
            self.voice.end()
            return
        given, rest = "".join(self._given), "".join(self._rest)
        if self._whole or (not rest and (not given or jsontext.is_json(given))):
            self.voice.end()
            if rest := rest.strip():
                self.voice.whole([trusted.MalformedToolCall(rest, "text behind the arguments")])
            return
        raw = (given + "".join(self._space) + rest).strip()
        reason = f"the arguments are not JSON: {self._json.error or 'they end too early'}"
        self.voice.end(trusted.MalformedToolCall(raw, reason, self._call.name, self._call.id))
