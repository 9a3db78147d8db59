"""The modes of a parser: which tags count, what text is, what a tag does, what the end of the answer does.

=============  =====================  ===============================  ==================================
mode           text                   a tag                            the end
=============  =====================  ===============================  ==================================
Outside        is text                opens a block or reasoning       nothing
Thinking       is reasoning           ends it; opens a block           nothing
Inside         is collected           ends the block, or its head      the block is read as it is
Message        is text or reasoning   ends the block                   nothing
Arguments      is arguments           ends the block                   the call is judged
MaybeCall      may begin a call       makes it text                    nothing
Probing        is probed for a call   is never found                   the probe decides
=============  =====================  ===============================  ==================================

The leftmost tag counts. A tag must not contain another one of its set. The longest end of the text that may become a
tag waits; it is always shorter than a tag. Tags are case-sensitive.

Stability: experimental.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext, trusted
from palaver.core.errors import MessageError, excerpt
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.stream.local.pythonic import after, quoted
from palaver.stream.partial_json import PartialJSON

if TYPE_CHECKING:
    from palaver.stream.local.format import Bare, Block, Head, Probe
    from palaver.stream.local.parser import Parser


class Mode:
    """The meaning of text until a tag changes it."""

    def __init__(self, parser: Parser, tags: Tags) -> None:
        self.parser = parser
        self.writer = parser.writer
        self.tags = tags

    def take(self, text: str) -> int:
        """Take text without tags. Gives how much of it belongs to this mode; less than all only after changing it."""
        raise NotImplementedError

    def meet(self, tag: str) -> None:
        """Meet a tag."""
        raise NotImplementedError

    def end(self) -> None:
        """The answer is over. The mode may change once more, to one that only writes text."""


class Outside(Mode):
    """Text, outside of any block."""

    kind: type[Text | Reasoning] = Text

    def take(self, text: str) -> int:
        """Write it."""
        self.writer.write(self.kind, text)
        return len(text)

    def meet(self, tag: str) -> None:
        """Change to the mode that the tag opens."""
        self.writer.drop()
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
        """Write it."""
        self._first = self._first and text.isspace()
        return super().take(text)

    def meet(self, tag: str) -> None:
        """End the reasoning, or enter a block and return afterwards."""
        if tag == self._closes:
            self.writer.drop()
            self.parser.mode = self.parser.outside
        elif tag == self._opens:
            if self._first:
                self._first = False
                self.writer.drop()
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
        self.writer.whole(parts[:-1])
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
            self.writer.whole(self._block.read("".join(self._pieces), self.parser.schemas))

    def _as_text(self) -> None:
        self.writer.write(Text, self._block.opens + "".join(self._pieces))
        self.parser.mode = self._back


class AfterHead(Mode):
    """What stands behind a head, up to the end of its block."""

    def __init__(self, parser: Parser, block: Block, back: Mode) -> None:
        opens = (*block.yields_to, *(block.head.yields_to if block.head else ()))
        super().__init__(parser, parser.tags(*block.ends, *opens))
        self._opens = opens
        self._back = back

    def meet(self, tag: str) -> None:
        """The block ends, and perhaps another begins."""
        self.end()
        self.writer.drop()
        self.parser.mode = self._back
        if tag in self._opens:
            self.parser.go(tag)


class Message(AfterHead):
    """Text or reasoning behind a head."""

    def __init__(self, parser: Parser, block: Block, back: Mode, kind: type[Text | Reasoning]) -> None:
        super().__init__(parser, block, back)
        self._kind = kind

    def take(self, text: str) -> int:
        """Write it."""
        self.writer.write(self._kind, text)
        return len(text)


class Arguments(AfterHead):
    """The arguments of a call behind a head."""

    def __init__(self, parser: Parser, block: Block, back: Mode, call: ToolCall) -> None:
        super().__init__(parser, block, back)
        self._call = self.writer.named(call)
        self.writer.drop()
        self.writer.begin(self._call)
        self._json = PartialJSON()
        self._emitted: list[str] = []
        self._space: list[str] = []
        self._rest: list[str] = []
        self._whole = False  # whether the arguments were whole before the rest began
        if call.custom:
            self._emit('"')

    def take(self, text: str) -> int:
        """Emit what belongs to the arguments."""
        if self._call.custom:
            self._emit(quoted(text)[1:-1])
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
        mine = text[:size] if self._emitted else text[:size].lstrip()
        remaining = mine.rstrip()
        if remaining:
            self._emit("".join([*self._space, remaining]))
            self._space.clear()
        if self._emitted and len(remaining) < len(mine):
            self._space.append(mine[len(remaining) :])
        if self._json.error is not None:
            damaged = self._json.offset < before  # a number that began in what was given
            self._whole = not damaged and bool(self._emitted) and jsontext.is_json("".join(self._emitted))

    def _emit(self, text: str) -> None:
        self._emitted.append(text)
        self.writer.arguments(text)

    def end(self) -> None:
        """Judge the call."""
        if self._call.custom:
            self._emit('"')
            self.writer.end()
            return
        emitted, rest = "".join(self._emitted), "".join(self._rest)
        if self._whole or (not rest and (not emitted or jsontext.is_json(emitted))):
            self.writer.end()
            if rest := rest.strip():
                self.writer.whole([trusted.MalformedToolCall(rest, "text behind the arguments")])
            return
        raw = (emitted + "".join(self._space) + rest).strip()
        reason = f"the arguments are not JSON: {self._json.error or 'they end too early'}"
        self.writer.end(trusted.MalformedToolCall(raw, reason, self._call.name, self._call.id))


# -- tags -------------------------------------------------------------------------------------------


_LIMIT: Final = 200
_NEVER: Final = re.compile(r"(?!)")


class Tags:
    """A set of tags. Raises ``MessageError`` when one is empty, very long, or part of another."""

    __slots__ = ("_beginning", "_longest", "_pattern")

    def __init__(self, *names: str) -> None:
        names = tuple(dict.fromkeys(names))
        if not all(0 < len(name) <= _LIMIT for name in names):
            raise MessageError(f"a tag has 1 to {_LIMIT} characters")
        for one, other in permutations(names, 2):
            if one in other:
                raise MessageError(f"the tag {excerpt(one)!r} is part of the tag {excerpt(other)!r}")
        self._longest = max(map(len, names), default=1)
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else _NEVER
        beginnings = {name[:size] for name in names for size in range(1, len(name))}
        self._beginning = re.compile(f"(?:{'|'.join(map(re.escape, sorted(beginnings)))})\\Z") if beginnings else _NEVER

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Where the first tag stands, at ``at`` or behind it, and which it is."""
        match = self._pattern.search(text, at)
        return None if match is None else (match.start(), match[0])

    def pending(self, text: str, at: int) -> int:
        """Where the text begins that may become a tag, at ``at`` or behind it; the length of ``text`` when none may."""
        match = self._beginning.search(text, max(at, len(text) - self._longest + 1))
        return len(text) if match is None else match.start()


# -- calls without tags ----------------------------------------------------------------------------


_SPACE: Final = re.compile(r"\s*+")


class MaybeCall(Outside):
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
        self._write_text()
        super().meet(tag)

    def end(self) -> None:
        """No call came."""
        self._write_text()

    def called(self) -> None:
        """A call ended; another may follow."""
        self._may_separate = True
        self.parser.mode = self

    def text(self) -> None:
        """There is no call: the rest is text."""
        self._write_text()
        self.parser.outside = self.parser.mode = Outside(self.parser, self.tags)

    def _write_text(self) -> None:
        if between := "".join(self._between):
            self.writer.write(Text, between)
        self._between.clear()


class Probing(Mode):
    """Text that may be a call without a tag."""

    def __init__(self, parser: Parser, probe: Probe, caller: MaybeCall) -> None:
        super().__init__(parser, Tags())
        self._probe = probe
        self._caller = caller
        self._pending: list[str] = []

    def take(self, text: str) -> int:
        """Pass it to the probe."""
        size = self._probe.feed(text)
        self._pending.append(text if size is None else text[:size])
        if size is None:
            return len(text)
        self._decide()
        return size

    def end(self) -> None:
        """Let the probe decide."""
        self._decide()

    def _decide(self) -> None:
        pending = "".join(self._pending)
        found = self._probe.finish() if pending else None  # without text taken, nothing would move on
        if found:
            self.writer.whole(found)
            self._caller.called()
        else:
            self._caller.text()
            if pending:
                self.writer.write(Text, pending)
