"""Find what an edit says, and its file does not say when it is read again: for the receipt.

Rules (docs/spec/dialects.md#17.2):

- Only edited messages are compared, by what they say: ids aside. A file without edits is not read again.
- A message is found by its id, else by its place where the file gives as many as were written, else by what it says.
- A format with a free slot is written a second time where something is lost: what the file says in the first is what
  its reader finds beside the slot (``extension_slot.beside``), whatever lines around a record add to it.
- What the receipt names already of a message is not named twice.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from palaver.transcripts.extension_slot import Known, differing_fields, without_records
from palaver.transcripts.original_bytes import sum_of
from palaver.transcripts.writer import is_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.core.request import LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Transcript
    from palaver.transcripts.writer import WriteState

_WHY: Final = "the file says otherwise, or nothing, where it is read again"
_REPEATED: Final = "other records of the file still say what was said before"


class Lost(NamedTuple):
    """One thing that an edited message says and its file does not; ``group`` are those it shares records with."""

    writing: WriteState
    entry: Entry
    what: str
    kind: LossKind
    why: str = _WHY
    group: tuple[Entry, ...] = ()
    in_content: bool = False


class Readback(NamedTuple):
    """What a file says of the messages that were edited: by the id of the message, and what is lost."""

    said: dict[str, Message]
    lost: tuple[Lost, ...]

    def report(self) -> None:
        """Put what is lost on the receipts."""
        named = {id(each.writing): each.writing.named() for each in self.lost}
        for each in self.lost:
            names = named[id(each.writing)]
            known = names(each.entry)
            whole = any("edit" in names(other) for other in each.group)
            covered = "content" in known and each.in_content
            if not (whole or covered or each.what in known or each.entry.message.role in known):
                each.writing.lose(each.kind, each.what, each.why, each.entry)


def readback(writings: Sequence[WriteState], again: Sequence[Transcript]) -> Readback:
    """Compare the edited messages of each writing with ``again``, what was written and read again."""
    threads = {each.thread.id: each for each in again}
    said: dict[str, Message] = {}
    lost: list[Lost] = []
    for place, writing in enumerate(writings):
        found = threads.get(writing.thread.id) or (again[place] if place < len(again) else None)
        entries = [] if found is None else [each for each in found.thread.entries if not is_record(each)]
        written = [entry for entry in writing.entries if not is_record(entry)]
        pairs = _pairs(written, entries)
        for group in writing.edited:
            if group and len(entries) > len(written):
                lost.append(Lost(writing, group[0], "edit", "approximated", _REPEATED, group))
            for entry in group:
                if is_record(entry):
                    continue
                stored = pairs(entry)
                if stored is None:
                    lost.append(Lost(writing, entry, entry.message.role, "dropped", group=group))
                    continue
                message, read = without_records(entry.message), without_records(stored)
                said[message.id or entry.id] = read
                lost += [Lost(writing, entry, name, kind, group=group) for name, kind in _fields(message, read)]
                lost += [
                    Lost(writing, entry, name, "approximated", group=group, in_content=True)
                    for name in _parts(message, read)
                ]
    return Readback(said, tuple(lost))


def _pairs(written: Sequence[Entry], again: Sequence[Entry]) -> Callable[[Entry], Message | None]:
    """Find the message that was read again in the place of one."""
    by_id = {entry.id: entry.message for entry in again}
    if len(written) == len(again):
        others = {entry.id: other.message for entry, other in zip(written, again, strict=True)}

        def find(entry: Entry) -> Message | None:
            """The one that says the same of two: an id may pass to a record that repeats what was edited."""
            named, placed = by_id.get(entry.id), others.get(entry.id)
            return placed if named is None or (placed is not None and _sum(placed) == _sum(entry.message)) else named

        return find
    by_sum = {_sum(entry.message): entry.message for entry in again}
    return lambda entry: by_id.get(entry.id) or by_sum.get(_sum(entry.message))


def _sum(message: Message) -> str:
    return sum_of([without_records(message)], times=True)


def _fields(message: Message, read: Message) -> Iterator[tuple[str, LossKind]]:
    """The fields that differ, but for the content."""
    if type(message) is not type(read):
        yield message.role, "converted"
        return
    defaults = {field.name: field.default for field in structs.fields(message)}
    for name in differing_fields(message, read, leave={"id", "content"}):
        gone = getattr(read, name) == defaults[name]
        yield name.removesuffix("_json").replace("_", " "), "dropped" if gone else "approximated"


def _parts(message: Message, read: Message) -> Sequence[str]:
    """The kinds of parts that are not read again as they are; ``content``, when only their order differs."""
    if message.content == read.content:
        return ()
    known = Known(read.content)
    lost = {str(type(part).__struct_config__.tag).replace("_", " ") for part in message.content if part not in known}
    return sorted(lost) or ["content"]
