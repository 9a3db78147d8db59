"""What a conversation holds, counted, on both sides of a conversion.

- A message is an entry that is no record of a runtime or a file. A call is one that could be read or not; a result is
  a message of a tool. A text is a part with visible characters, or a JSON value: many formats write one as text.
- The counts of a written file are those of what its transcript format reads in it. A format that is only written has
  none.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.core.errors import PalaverError
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import Image, Json, MalformedToolCall, Text, ToolCall
from palaver.threads.thread import MAIN
from palaver.transcripts.assembly import chosen_entries
from palaver.transcripts.format import Origin
from palaver.transcripts.writer import Options, is_record

if TYPE_CHECKING:
    from palaver.core.request import Loss
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Transcript
    from palaver.transcripts.format import TranscriptFormat
    from palaver.transcripts.writer import History, Written


class Counts(Struct, frozen=True):
    """How many messages, calls, results, images and texts there are."""

    messages: int = 0
    calls: int = 0
    results: int = 0
    images: int = 0
    texts: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(*(getattr(self, name) + getattr(other, name) for name in NAMES))


NAMES: Final = Counts.__struct_fields__

_NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": (
        "message",
        "user",
        "assistant",
        "system",
        "developer",
        "tool",
        "order",
        "marker",
        "rescue",
        "reasoning",
    ),
    "calls": ("call", "arguments", "assistant", "message"),
    "results": ("result", "tool", "message"),
    "images": ("image", "media", "file", "message", "user", "tool"),
    "texts": ("text", "message", "user", "assistant", "system", "developer", "tool", "refusal", "json", "order"),
}
"""Words of a loss that name something of a kind."""


class Tally(Struct, frozen=True):
    """The counts of what was given, and of what the written file reads as; ``None`` when nothing reads it."""

    given: Counts
    found: Counts | None

    @property
    def equal(self) -> bool:
        """Whether as much was written as was given, as far as that can be read."""
        return self.found is None or self.found == self.given

    @property
    def different(self) -> tuple[str, ...]:
        """The names of the counts that differ."""
        found = self.given if self.found is None else self.found
        return tuple([name for name in NAMES if getattr(self.given, name) != getattr(found, name)])

    def __str__(self) -> str:
        """``messages 4 → 4, calls 1 → 1, …``; without the second numbers when nothing reads the file."""
        return ", ".join(self.pair(name) for name in NAMES)

    def pair(self, name: str) -> str:
        """Return one count on both sides: ``messages 4 → 4``."""
        after = "" if self.found is None else f" → {getattr(self.found, name):,}"
        return f"{name} {getattr(self.given, name):,}{after}"


def counts_of(messages: Iterable[Message]) -> Counts:
    """Count what messages hold."""
    every = list(messages)
    parts = [part for message in every for part in message.content]
    return Counts(
        messages=len(every),
        calls=sum(isinstance(part, (ToolCall, MalformedToolCall)) for part in parts),
        results=sum(isinstance(message, ToolMessage) for message in every),
        images=sum(isinstance(part, Image) for part in parts),
        texts=sum(isinstance(part, Json) or (isinstance(part, Text) and bool(part.text.strip())) for part in parts),
    )


def counts_of_entries(entries: Iterable[Entry]) -> Counts:
    """Count what the messages of entries hold. Records are no messages."""
    return counts_of(entry.message for entry in entries if not is_record(entry))


def tally(
    file_format: TranscriptFormat,
    transcripts: Sequence[Transcript],
    written: Written,
    *,
    history: History | None = None,
    branch: str = MAIN,
) -> Tally:
    """Count what of ``transcripts`` a file was to hold, and what it reads as. The options are those of the writing."""
    options = Options(history=history, branch=branch)
    chosen = [
        chosen_entries(file_format.name, each, options, tree=file_format.tree, history=file_format.history)[0]
        for each in transcripts
    ]
    given = sum(map(counts_of_entries, chosen), Counts())
    if file_format.record_reader is None:
        return Tally(given, None)
    try:
        again = file_format.read(written.body, Origin(beside=written.beside.get))
    except PalaverError:
        return Tally(given, Counts())  # nothing of it can be read
    return Tally(given, sum((counts_of_entries(each.thread.entries) for each in again), Counts()))


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sums of several tallies. What nothing reads makes the second sum ``None``."""
    every = list(tallies)
    found = [each.found for each in every if each.found is not None]
    given = sum((each.given for each in every), Counts())
    return Tally(given, sum(found, Counts()) if len(found) == len(every) else None)


def unnamed(found: Tally, losses: Iterable[Loss]) -> tuple[str, ...]:
    """Return the counts that differ and that no loss names."""
    named = " ".join(loss.what.lower() for loss in losses)
    return tuple([name for name in found.different if not any(word in named for word in _NAMED[name])])
