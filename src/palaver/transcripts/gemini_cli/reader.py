"""Read Gemini CLI's chat files into messages (docs/spec/dialects.md#14).

Rules:

- The log is replayed: a line is a rewind, a message, a change of the metadata, or metadata, tested in that order. Any
  later line may replace a message, so nothing is known before the end: the whole file is held in memory.
- A message that is replaced keeps its place. It is one message with all its rows, of which the last one counts.
- Messages that a rewind removed stay as a branch. The next messages follow those that remain; a rewind to an unknown
  message leaves none.
- ``$set`` with ``messages`` is a new list: as far as its beginning equals the old list, nothing changed; the rest is a
  group of the record's own, and the old messages there stay as a branch.
- The one document of older versions is a list of messages; the same document on one line is too.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import Message, ToolMessage
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.conversation import Conversation, Session, Step, derived_id, record_message
from palaver.transcripts.fields import inner, listed, read_time, split, string, value
from palaver.transcripts.format import Origin
from palaver.transcripts.gemini_cli.shapes import METADATA, NAME, Form
from palaver.transcripts.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch

_MORE: Final = ("projectHash", "kind")
_FOLDER: Final = re.compile(r"(?:^|/)chats/([^/]+)/[^/]+\.jsonl?$")


class _Slot(Struct):
    """A message of the list: its last row, and its last entry, once it was added."""

    fields: Fields | None
    block: _Block
    entry: str | None = None


class _Block(Struct):
    """Records that are added together, after ``after``; without slots, one that is not a message."""

    records: list[Record]
    after: _Slot | None
    slots: list[_Slot] = []


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._form = Form(watch)
        self._records: list[Record] = []
        self._blocks: list[_Block] = []
        self._list: dict[str, _Slot] = {}
        self._answered: set[str | None] = set()  # calls with a result so far
        self._session = Session(file_format=NAME)
        self._title: str | None = None

    def record(self, record: Record) -> Iterator[Step]:
        """Store the next record."""
        self._records.append(record)
        return iter(())

    def end(self) -> Iterator[Step]:
        """Replay the log, and yield the steps of its final state."""
        if not self._records:
            return
        records = self._records
        cut = _document(records)
        if cut is None:
            for record in records:
                self._replay(record)
        else:
            self._describe(documents.fields_of(records[0].raw))
            self._cut(cut)
        named = self._session.id
        thread = named if named is not None and is_uuid(named) else derived_id(NAME, named or self._origin.name)
        self._session = structs.replace(self._session, parent=self._parent(thread))
        conversation = Conversation(NAME, thread)
        yield conversation.began()
        for block in self._blocks:
            yield from self._join(conversation, block)
        last = next(reversed(self._list.values()), None)
        main = conversation.tip(None if last is None else last.entry)
        yield conversation.ended({MAIN: main}, title=self._title, metadata=self._session.metadata())

    @property
    def places(self) -> list[tuple[str | None, str | None]]:
        """The list at the end: the id of each message in its row, and its last entry."""
        return [
            (None if slot.fields is None else string(slot.fields, "id"), slot.entry) for slot in self._list.values()
        ]

    # -- replaying -----------------------------------------------------------------------------------------------------

    def _replay(self, record: Record) -> None:
        fields = record.fields
        if fields is None:
            self._aside(record)
        elif "$rewindTo" in fields:
            self._rewind(string(fields, "$rewindTo"))
            self._aside(record)
        elif (named := string(fields, "id")) is not None:
            self._message(named, fields, record)
        elif "$set" in fields:
            given = inner(fields, "$set")
            self._watch.keys(given, METADATA, "$set", record.line)
            self._describe(given)
            if carried_alone(fields) is not None:
                self._message(f"$set {record.at}", fields, record)
            else:
                self._replace(listed(given, "messages"), record)
        else:
            self._watch.keys(fields, METADATA, "metadata", record.line)
            self._describe(fields)
            self._replace(listed(fields, "messages"), record)

    def _aside(self, record: Record) -> None:
        self._blocks.append(_Block([record], self._last))

    @property
    def _last(self) -> _Slot | None:
        return next(reversed(self._list.values()), None)

    def _rewind(self, named: str | None) -> None:
        found = named in self._list
        if not found:
            self._watch.note("link", "$rewindTo")
        for key in reversed(list(self._list)):
            del self._list[key]
            if found and key == named:
                break

    def _message(self, named: str, fields: Fields, record: Record) -> None:
        slot = self._list.get(named)
        if slot is not None:
            slot.fields = fields
            slot.block.records.append(record)
            return
        block = _Block([record], self._last)
        self._blocks.append(block)
        self._list[named] = slot = _Slot(fields, block)
        block.slots.append(slot)

    def _replace(self, given: list[Raw], record: Record) -> None:
        """Replace the list by another one; an empty one changes nothing."""
        same = 0
        for (key, slot), raw in zip(self._list.items(), given, strict=False):
            if slot.fields is None or string(split(raw), "id") != key or not _equal(slot.fields, raw):
                break
            same += 1
        if not given or (same == len(given) and same == len(self._list)):
            self._aside(record)
            return
        for key in list(self._list)[same:]:
            del self._list[key]
        block = _Block([record], self._last)
        self._blocks.append(block)
        for place, raw in enumerate(given[same:]):
            slot = _Slot(split(raw), block)
            block.slots.append(slot)
            self._list[string(split(raw), "id") or f"{record.at}/{place}"] = slot

    def _cut(self, cut: documents.Cut) -> None:
        """Read the messages of a document, in order."""
        self._aside(cut.head)
        for item in cut.items:
            if item.fields is None:
                self._watch.note("unread", "an item of messages is not an object")
            block = _Block([item], self._last)
            self._blocks.append(block)
            self._list[str(item.at)] = slot = _Slot(item.fields, block)
            block.slots.append(slot)
        if cut.tail is not None:
            self._aside(cut.tail)
        elif cut.head.raw.strip():
            self._watch.note("unread", "messages that cannot be cut")

    # -- what it comes to ----------------------------------------------------------------------------------------------

    def _join(self, conversation: Conversation, block: _Block) -> Iterator[Step]:
        after = None if block.after is None else block.after.entry
        group: list[Message] = []
        ids: list[str | None] = []
        ends: list[int] = []
        for slot in block.slots:
            made, named = self._said(slot, block.records[-1].line)
            group += made
            ids += [named, *[None] * (len(made) - 1)]
            ends.append(len(group) - 1)
        if not group:
            first = block.slots[0].fields if block.slots else None
            at = None if first is None else read_time(value(first, "timestamp"))
            yield from conversation.record(block.records[0], parent=after, sent_at=at)
            for record in block.records[1:]:
                yield from conversation.record(record)
            for slot in block.slots:
                slot.entry = conversation.head
            return
        joined: list[str] = []
        for step in conversation.join(group, block.records, ids=ids, parent=after):
            joined.append(step.entry.id)
            yield step
        for slot, end in zip(block.slots, ends, strict=True):
            slot.entry = joined[end] if end >= 0 else after

    def _said(self, slot: _Slot, line: int) -> tuple[list[Message], str | None]:
        """Return the messages of a slot, and its id; an empty list without any."""
        if slot.fields is None:
            return [], None
        fields = slot.fields
        try:
            made: list[Message] = carried_alone(fields) or self._form.messages(fields, line)
        except PalaverError as error:
            self._watch.note("unread", str(error), line)
            made = []
        results = [each.tool_call_id for each in made if isinstance(each, ToolMessage)]
        ours = extension_slot.SLOT in fields
        if results and not ours and string(fields, "type") == "user" and {*results} <= self._answered:
            made = [] if len(results) == len(made) else made  # the answer before it has these results already
        self._answered.update(each for each in results if each)
        if not self._session.model and made:
            model = getattr(made[0], "model", None)
            self._session = structs.replace(self._session, model=model)
        if not made and len(slot.block.slots) > 1:
            made = [record_message()]
        return made, string(fields, "id") if made else None

    def _describe(self, fields: Fields) -> None:
        """Read the session data of metadata; the last one wins."""
        known = self._session
        more: dict[str, Any] = {key: said for key in _MORE if (said := string(fields, key)) is not None}
        if folders := [jsontext.text(raw) for raw in listed(fields, "directories") if jsontext.kind(raw) == "a string"]:
            more["directories"] = folders
        self._session = structs.replace(
            known,
            id=string(fields, "sessionId") or known.id,
            started_at=read_time(value(fields, "startTime")) or known.started_at,
            more={**known.more, **more},
        )
        self._title = string(fields, "summary") or self._title

    def _parent(self, thread: str) -> str | None:
        """Return the thread of the session whose folder contains a sub-agent's file."""
        found = _FOLDER.search(self._origin.name.replace("\\", "/"))
        if self._session.more.get("kind") != "subagent" or found is None:
            return None
        parent = found[1] if is_uuid(found[1]) else derived_id(NAME, found[1])
        return None if parent == thread else parent


def _equal(fields: Fields, raw: Raw) -> bool:
    return jsontext.equal(jsontext.raw(fields), raw)


def carried_alone(fields: Fields) -> list[Message] | None:
    """Return the message that a change of the metadata carries; ``None`` when it carries none."""
    slot = inner(fields, "$set").get(extension_slot.SLOT)
    found = None if slot is None else extension_slot.restored([], jsontext.value(slot))
    return None if not found else list(found)


def _document(records: list[Record]) -> documents.Cut | None:
    """Return the pieces of a document; ``None`` for lines."""
    if len(records) != 1:
        return None
    fields = records[0].fields
    if fields is not None and "messages" not in fields:
        return None
    if fields is None and not records[0].raw.lstrip().startswith((b"[", b"{")):
        return None
    cut = documents.cut(records[0].raw, "messages")
    return cut if cut.tail is not None else None
