"""Reading a file that its program still writes: whole lines, and no answer that may grow.

- The end of the file after its last line break is left for the next reading. In a file that is ``settled``, as nobody
  has written to it for a while, it is read when it is a whole JSON object.
- What a reader yields before the end of its file is final. What it yields at the end may grow with the next line, such
  as an answer with a record for each block. There, entries are held back from the first that is not an answer with a
  finish reason, unless the file is settled.
- A conversation without a message yields nothing. A compressed file is read as it is.

Stability: experimental.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage
from palaver.threads.view import RECORD
from palaver.transcripts.conversation import Ended, Joined, Step
from palaver.transcripts.file_reader import ZSTD, beside, steps_of
from palaver.transcripts.format import Origin, TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PIECE: Final = 1 << 20


class LiveFile:
    """A file that is being written. ``is_whole`` says after reading whether all of it was read."""

    def __init__(
        self, file: BinaryIO, *, settled: bool = False, on_piece: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """Read from an open file. ``on_piece`` is called with its bytes."""
        self._file = file
        self._settled = settled
        self._on_piece = on_piece
        self.is_whole = True

    def steps(self, file_format: TranscriptFormat, name: str = "") -> Iterator[Step]:
        """Read the part that is final. Raises what ``steps_of`` raises."""
        waiting: list[Step] = []
        found = False
        for step in self._final_steps(file_format, name):
            waiting.append(step)
            found = found or (isinstance(step, Joined) and RECORD not in step.entry.message.tags)
            if found:
                yield from waiting
                waiting.clear()

    def _final_steps(self, file_format: TranscriptFormat, name: str) -> Iterator[Step]:
        first = self._file.read(_PIECE)
        if first.startswith(ZSTD):
            self._file.seek(0)
            yield from steps_of(file_format, self._file, name, on_piece=self._on_piece)
            return
        reader = file_format.reader(Origin(name=name, beside=beside(name)))
        for lines in self._lines(first):
            yield from reader.feed(lines)
        yield from reader.finish() if self._settled else self._without_open_end(reader.finish())

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        """Yield the whole lines, some at a time."""
        begun: list[bytes] = []
        for each in chain((piece,), iter(lambda: self._file.read(_PIECE), b"")):
            self._on_piece(each)
            lines, line_break, rest = each.rpartition(b"\n")
            if line_break:
                yield b"".join([*begun, lines, line_break])
                begun.clear()
            begun.append(rest)
        last = b"".join(begun)
        if self._settled and _is_object(last):
            yield last
        elif last.strip(b"\0 \t\r"):
            self.is_whole = False

    def _without_open_end(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the last steps of a reader, without messages that may grow and what follows them."""
        held: dict[str, str | None] = {}  # the parents of the entries that are held back
        for step in steps:
            if isinstance(step, Joined) and (step.entry.parent in held or _may_grow(step)):
                held[step.entry.id] = step.entry.parent
                self.is_whole = False
            elif isinstance(step, Ended):
                heads = {name: _above(head, held) for name, head in step.branches.items()}
                yield structs.replace(step, branches=heads)
            else:
                yield step


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(jsontext.value(data), dict)
    except (PalaverError, ValueError):
        return False


def _may_grow(step: Joined) -> bool:
    message = step.entry.message
    return not isinstance(message, AssistantMessage) or message.finish_reason in {None, "other"}


def _above(entry: str | None, held: dict[str, str | None]) -> str | None:
    """Return the first entry at or above one that is not held back."""
    while entry in held:
        entry = held[entry]
    return entry
