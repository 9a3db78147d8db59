"""Find what a file lacks of an edit when it is read again: for the receipt.

Rules (docs/spec/dialects.md#17.2):

- Only edited messages are compared, by content, without ids. A file without edits is not read again.
- A message is found by its id, else by its place if the file has as many as were written, else by its content.
- A format with a free slot is written a second time when something is lost: the first draft shows what its reader finds
  beside the slot (``extension_slot.beside``), with whatever lines around a record add to it.
- Losses that the receipt names already are not named twice.
- An old text of ``LEAST_TEXT`` characters or more that no message has any more, and that is still in the file (a
  preview, an attachment, a repeated history), makes the edit ``approximated``. Old texts are read from the old records.
  Of a text that was removed from its record, a hash is known: whole strings of the file are compared with it.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.parts import Json, Reasoning, Refusal, Text, ToolCall
from palaver.transcripts import original_bytes
from palaver.transcripts.extension_slot import Known, differing_fields, without_records
from palaver.transcripts.original_bytes import sum_of
from palaver.transcripts.writer import is_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.core.request import LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Transcript
    from palaver.transcripts.writer import WriteState

LEAST_TEXT: Final = 12
"""The fewest characters of an old text that is searched in the file."""

_STRINGS: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"')
_NESTED: Final = 3
"""The most levels of strings with JSON that holds strings."""
_WHY: Final = "the file says otherwise, or nothing, where it is read again"
_REPEATED: Final = "other records of the file still have the old text"


class Lost(NamedTuple):
    """One part of an edited message that its file lacks; ``group`` are the messages that share its records."""

    writing: WriteState
    entry: Entry
    what: str
    kind: LossKind
    why: str = _WHY
    group: tuple[Entry, ...] = ()
    in_content: bool = False


class Readback(NamedTuple):
    """The messages of a file that were edited, by id, and what is lost."""

    said: dict[str, Message]
    lost: tuple[Lost, ...]

    def report(self) -> None:
        """Add the losses to the receipts."""
        named = {id(each.writing): each.writing.named() for each in self.lost}
        for each in self.lost:
            names = named[id(each.writing)]
            known = names(each.entry)
            whole = any("edit" in names(other) for other in each.group)
            covered = "content" in known and each.in_content
            if not (whole or covered or each.what in known or each.entry.message.role in known):
                each.writing.lose(each.kind, each.what, each.why, each.entry)


def readback(writings: Sequence[WriteState], again: Sequence[Transcript]) -> Readback:
    """Compare the edited messages of each writing with ``again``, the file as it is read again."""
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
    """Pair a message with the one that was read again in its place."""
    by_id = {entry.id: entry.message for entry in again}
    if len(written) == len(again):
        others = {entry.id: other.message for entry, other in zip(written, again, strict=True)}

        def find(entry: Entry) -> Message | None:
            """Return the message with the same content: an id may pass to a record that repeats the edited one."""
            named, placed = by_id.get(entry.id), others.get(entry.id)
            return placed if named is None or (placed is not None and _sum(placed) == _sum(entry.message)) else named

        return find
    by_sum = {_sum(entry.message): entry.message for entry in again}
    return lambda entry: by_id.get(entry.id) or by_sum.get(_sum(entry.message))


def _sum(message: Message) -> str:
    return sum_of([without_records(message)], times=True)


def _fields(message: Message, read: Message) -> Iterator[tuple[str, LossKind]]:
    """Yield the fields that differ, except the content."""
    if type(message) is not type(read):
        yield message.role, "converted"
        return
    defaults = {field.name: field.default for field in original_bytes.fields_of(type(message))}
    for name in differing_fields(message, read, leave={"id", "content"}):
        gone = getattr(read, name) == defaults[name]
        yield name.removesuffix("_json").replace("_", " "), "dropped" if gone else "approximated"


def _parts(message: Message, read: Message) -> Sequence[str]:
    """Return the kinds of parts that are read back differently; ``content`` when only their order differs."""
    if message.content == read.content:
        return ()
    known = Known(read.content)
    lost = {str(type(part).__struct_config__.tag).replace("_", " ") for part in message.content if part not in known}
    return sorted(lost) or ["content"]


# -- what other records still say --------------------------------------------------------------------------------------


def report_leftovers(writings: Sequence[WriteState], before: Sequence[Transcript], body: bytes) -> None:
    """Report the edits whose old text is still in the file, in records without a message.

    ``before`` are the contents of the old records of the edited messages.
    """

    @cache
    def now() -> str:
        """Return all texts of the messages; read only when the file contains an old text, which is rare."""
        messages = (entry.message for each in writings for entry in each.entries if not is_record(entry))
        return "\0".join(text for message in messages for text in _texts(message))

    hashes = {text_hash for each in writings for group in each.edited for text_hash in _gone(each, group)}
    standing = _standing(body, hashes)
    threads = {each.thread.id: each for each in before}
    for place, writing in enumerate(writings):
        found = threads.get(writing.thread.id) or (before[place] if place < len(before) else None)
        if found is None:
            continue
        old = _old_messages(writing.entries, found.thread.entries)
        for group in writing.edited:
            texts = {text for entry in group if entry.id in old for text in _texts(old[entry.id])}
            stands = any(len(text) >= LEAST_TEXT and _stands(text, body) and text not in now() for text in texts)
            stands = stands or any(each in standing and standing[each] not in now() for each in _gone(writing, group))
            if group and stands and "edit" not in writing.named()(group[0]):
                writing.lose("approximated", "edit", _REPEATED, group[0])


def _old_messages(entries: Sequence[Entry], before: Sequence[Entry]) -> dict[str, Message]:
    """Return the old messages by the ids of the entries: by id, or by place when ids derive from the file's name."""
    found = {entry.id: entry.message for entry in before}
    if len(entries) == len(before):
        found = {each.id: other.message for each, other in zip(entries, before, strict=True)} | found
    return found


def _gone(writing: WriteState, group: Sequence[Entry]) -> frozenset[str]:
    return original_bytes.texts_gone(writing.file_format, [entry.message for entry in group]) if group else frozenset()


def _texts(message: Message) -> Iterator[str]:
    for part in message.content:
        yield from _texts_of(part)


def _texts_of(part: AnyPart) -> Iterator[str]:
    """Yield the texts of a part: its text, or the strings of its value."""
    match part:
        case Text() | Reasoning() | Refusal():
            yield part.text
        case ToolCall():
            yield part.arguments_json
            yield from _strings(part.arguments_json)
        case Json():
            yield from _strings(bytes(part.value_json))
        case _:
            return


def _strings(raw: bytes | str) -> Iterator[str]:
    try:
        values: list[Any] = [jsontext.value(raw)]
    except PalaverError:
        return
    while values:
        found = values.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, list | dict):
            values += found.values() if isinstance(found, dict) else found


def _stands(text: str, body: bytes) -> bool:
    """Return whether a text is in a file: in a string, or in JSON inside a string."""
    for ascii_ in (False, True):
        token = json.dumps(text, ensure_ascii=ascii_)[1:-1]
        for form in (token, json.dumps(token, ensure_ascii=ascii_)[1:-1]):
            if form.encode("utf-8", "surrogatepass") in body:
                return True
    return False


def _standing(body: bytes, hashes: set[str]) -> dict[str, str]:
    """Return the strings of a file that have one of the hashes, by their hash."""
    found: dict[str, str] = {}
    level = [body] if hashes else []
    for _ in range(_NESTED):
        inside: list[bytes] = []
        for raw in level:
            for match in _STRINGS.finditer(raw):
                if len(match[1]) < original_bytes.LEAST:
                    continue
                try:
                    text = str(json.loads(match[0]))
                    token = jsontext.encode(text)[1:-1].decode()
                except (ValueError, PalaverError):
                    continue
                each = original_bytes.text_sum(token)
                if each in hashes:
                    found[each] = text
                if '"' in text:
                    inside.append(text.encode("utf-8", "surrogatepass"))
        level = inside
    return found
