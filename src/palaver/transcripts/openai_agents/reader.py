"""Read items of the OpenAI Agents SDK into messages.

Rules (docs/spec/dialects.md#9):

- A document is a list of items; else each line is an item. Items are those of ``openai_responses``.
- The items that a model made in a row are one message, as long as ``provider_data.response_id``, or their response in a
  run, is the same. It stays open over blank lines. Carried data have their place in the message, and its number of
  items.
- ``provider_data`` stays with its item. Its model and response id are those of the message.
- The state of a run is one record: the messages of its input, then those of its generated items. Usage and response
  ids are those of ``model_responses``.
- Keys that the SDK adds to an item with only a text (``__fake_id__``, a status) have no meaning.
- An encrypted row is a record that is not a message.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, Raw, UnsetType, structs

from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.conversation import Conversation, Session, derived_id
from palaver.transcripts.fields import as_object, check_summary, inner, integer, listed, split, string, value
from palaver.transcripts.openai_agents.shapes import (
    AT,
    FAKE_ID,
    GENERATED,
    HELD,
    ITEMS,
    LOCKED,
    NAME,
    ORIGINAL,
    RUN,
    TYPES,
    VERSION,
    WIRE,
    is_locked,
    is_run,
    item_ids,
    read_usage,
)
from palaver.transcripts.record import Record
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.usage import Usage
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch

_WAITING: Final = 4096
_TYPED: Final = {"type", "role", "content"}
_EMPTY: Final = (b"[]", b"null")
_READ: Final = frozenset(("1.0", *(f"1.{minor}" for minor in range(1, 22))))


class Response(NamedTuple):
    """A response of a run: its number, its usage, and its id."""

    number: int
    usage: Usage | None
    id: str | None


class RecordReader:
    """Reads one file, or the rows of one session."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._watch = watch
        self._wire = wires.get(WIRE)
        self.session = Session(file_format=NAME)
        self._open: list[tuple[Record, Raw]] = []
        self._growing = _Growing()
        self._waiting: list[Record] = []
        self._began = False
        self._names: dict[str, str] = {}
        self.conversation = Conversation(NAME, derived_id(NAME, origin.name))
        self.usages: dict[int, Usage] = {}
        """The usage of the message that ends in the record of this number, if its file lacks it."""
        self.times: dict[int, int] = {}
        """The time of the record of this number, if its file lacks it."""

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document, or the next line."""
        yield from self.begin()
        if record.fields is None and record.flaw is None:
            yield from self._document(documents.cut(record.raw))
        else:
            yield from self._line(record)

    def begin(self) -> Iterator[Step]:
        """Yield the first step of a conversation, once."""
        if not self._began:
            self._began = True
            yield self.conversation.began()

    def end(self, branches: Mapping[str, str | None] | None = None) -> Iterator[Step]:
        """Add open items; ``branches`` are the heads, unless they are the last entry."""
        yield from self.close()
        if self._began:
            yield self.conversation.ended(branches, metadata=self.session.metadata())

    def _document(self, cut: documents.Cut) -> Iterator[Step]:
        if cut.tail is None:
            self._watch.note("value", "a document that cannot be cut")
        yield from self.conversation.record(cut.head)
        for item in cut.items:
            yield from self._line(item)
        yield from self.close()
        if cut.tail is not None:
            yield from self.conversation.record(cut.tail)

    def _line(self, record: Record) -> Iterator[Step]:
        fields = record.fields
        if fields is None:
            if record.flaw is None:
                self._watch.note("unread", "an item that is not an object", record.line)
            if self._open and record.flaw == "blank" and len(self._waiting) < _WAITING:
                self._waiting.append(record)
                return
            yield from self.close()
            yield from self.conversation.record(record)
            return
        if is_run(fields):
            yield from self.close()
            yield from self._run(record, fields)
            return
        item = jsontext.raw(fields)
        try:
            group = [] if is_locked(fields) else self._known(fields, item, record.line)
        except PalaverError as error:
            self._watch.note("unread", str(error), record.line)
            group = []
        if _is_made(group):
            kept = self._growing.going_on(item)
            if kept < len(self._open):
                split_at = len(self._open) - kept
                self._open, rest = self._open[:split_at], self._open[split_at:]
                growing = self._growing
                yield from self.close()
                self._open, self._growing = rest, growing
            self._growing.grow(kept, item)
            self._open.append((record, item))
            return
        yield from self.close()
        if group:
            yield from self._join(group, [record], [item])
        else:
            yield from self.conversation.record(record)

    def _known(self, fields: Fields, item: Raw, line: int | None) -> list[Message]:
        """Return the messages of one item; empty for any other value. Raises ``DecodeError``."""
        kind = string(fields, "type")
        if (kind is None and ("role" not in fields or "content" not in fields)) or LOCKED in fields:
            self._watch.note("record", "without a type", line)
            return []
        if kind is not None and kind not in TYPES:
            self._watch.note("record", kind, line)
        return self.messages([item])

    def close(self) -> Iterator[Step]:
        """Add the open items of a model."""
        opened, self._open = self._open, []
        self._growing = _Growing()
        waiting, self._waiting = self._waiting, []
        if opened:
            items = [item for _, item in opened]
            records = [record for record, _ in opened]
            try:
                group = self.messages(items)
            except PalaverError as error:
                self._watch.note("unread", str(error), records[0].line)
                for record in records:
                    yield from self.conversation.record(record)
            else:
                yield from self._join(group, records, items)
        for record in waiting:
            yield from self.conversation.record(record)

    def _join(self, group: Sequence[Message], records: Sequence[Record], items: Sequence[Raw]) -> Iterator[Step]:
        usage = self.usages.get(records[-1].at)
        sent_at = self.times.get(records[-1].at)
        told = list(self.restored(self.placed(group, items), items))
        if usage is not None:
            told = [
                structs.replace(each, usage=usage)
                if isinstance(each, AssistantMessage) and each.usage is None
                else each
                for each in told
            ]
        if sent_at is not None:
            told = [structs.replace(each, sent_at=sent_at) for each in told]
        ids = next((item_ids(split(item)) for item in items), ())
        yield from self.conversation.join(told, records, ids=ids[:1])

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _run(self, record: Record, fields: Fields) -> Iterator[Step]:
        version = string(fields, VERSION)
        if version not in _READ:
            self._watch.note("version", version or "none", record.line)
        agent = string(inner(fields, "current_agent"), "name")
        self.session = Session(file_format=NAME, format=version, agent=agent, more={"form": RUN})
        try:
            group = [*self.asked(fields), *self._generated(fields)]
        except PalaverError as error:
            self._watch.note("unread", str(error), record.line)
            group = []
        if group:
            yield from self.conversation.join(group, [record])
        else:
            yield from self.conversation.record(record)

    def asked(self, fields: Fields) -> list[Message]:
        """Return the messages of the input of a run. Raises ``DecodeError``."""
        raw = fields.get(ORIGINAL)
        if raw is None or bytes(raw).strip() in _EMPTY:
            return []
        if jsontext.kind(raw) == "a string":
            return self.messages([jsontext.raw({"role": "user", "content": raw})])
        return [each for run in _runs(listed(fields, ORIGINAL), {}) for each in self._told(run)]

    def _generated(self, fields: Fields) -> Iterator[Message]:
        responses = responses_of(fields)
        wrapped = [split(each) for each in listed(fields, GENERATED)]
        items = [each["raw_item"] for each in wrapped if "raw_item" in each]
        agents = [string(inner(each, "agent"), "name") for each in wrapped if "raw_item" in each]
        if len(items) < len(wrapped):
            self._watch.note("unread", f"{GENERATED} without raw_item")
        place = 0
        for run in _runs(items, responses):
            agent = agents[place]
            place += len(run)
            found = owner_of(run[0], responses)
            for each in self._told(run):
                message = each if each.agent is not None else structs.replace(each, agent=agent)
                if isinstance(message, AssistantMessage) and found is not None:
                    usage, named = message.usage or found.usage, message.response_id or found.id
                    message = structs.replace(message, usage=usage, response_id=named)
                    responses = {
                        key: Response(stored.number, None, stored.id) if stored.number == found.number else stored
                        for key, stored in responses.items()
                    }
                yield message

    def _told(self, items: Sequence[Raw]) -> Sequence[Message]:
        return self.restored(self.placed(self.messages(items), items), items)

    # -- messages ------------------------------------------------------------------------------------------------------

    def messages(self, items: Sequence[Raw]) -> list[Message]:
        """Return the messages of items in a row. Raises ``DecodeError``."""
        for each in items:
            check_summary(as_object(each))
        told = b",".join(bytes(_bare(each)) for each in items)
        read: list[Message] = salvaged(
            lambda body: self._wire.decode_request(body).messages, b'{"input":[%b]}' % told, NAME, self._watch.note
        )
        return read

    def placed(self, group: Sequence[Message], items: Sequence[Raw]) -> list[Message]:
        """Set the tool of a result, and the model and response of an answer."""
        data = [inner(split(each), HELD) for each in items]
        model = next((found for each in data if (found := string(each, "model"))), None)
        response = next((found for each in data if (found := string(each, "response_id"))), None)
        placed: list[Message] = []
        for message in group:
            self._names.update((call.id, call.name) for call in message.tool_calls)
            match message:
                case AssistantMessage():
                    named = structs.replace(message, model=message.model or model)
                    placed.append(structs.replace(named, response_id=named.response_id or response))
                case ToolMessage() if message.tool_name is None:
                    placed.append(structs.replace(message, tool_name=self._names.get(message.tool_call_id or "")))
                case _:
                    placed.append(message)
        return placed

    def restored(self, group: Sequence[Message], items: Sequence[Raw]) -> Sequence[Message]:
        """Return the carried message, if it still matches the items."""
        slots = (inner(split(each), HELD).get(extension_slot.SLOT) for each in items)
        slot = next((each for each in slots if each is not None), None)
        found = None if slot is None else extension_slot.restored(group, jsontext.value(slot))
        return group if found is None else found


def _bare(item: Raw) -> Raw:
    """Return an item without carried data, and without the SDK's own keys for items that no server made."""
    fields = split(item)
    stored = inner(fields, HELD)
    if extension_slot.SLOT in stored:
        del stored[extension_slot.SLOT]
        fields[HELD] = jsontext.raw(stored)
        if not stored:
            del fields[HELD]
    answers = string(fields, "role") == "assistant"
    if string(fields, "id") == FAKE_ID:
        del fields["id"]
        if answers:
            fields.pop("status", None)
            if (text := _plain(fields)) is not UNSET and fields.keys() == _TYPED:
                return jsontext.raw({"role": "assistant", "content": text})
    elif fields.keys() == _TYPED and not answers and string(fields, "type") == "message":
        del fields["type"]
    return jsontext.raw(fields)


def _plain(fields: Fields) -> Raw | UnsetType:
    """Return the text of a message with one text, and nothing else."""
    content = listed(fields, "content")
    if len(content) != 1:
        return UNSET
    block = split(content[0])
    bare = all(key in {"type", "text"} or bytes(raw).strip() in _EMPTY for key, raw in block.items())
    return block["text"] if bare and string(block, "type") == "output_text" and "text" in block else UNSET


def _is_made(group: Sequence[Message]) -> bool:
    return len(group) == 1 and isinstance(group[0], AssistantMessage)


def _response_of(item: Raw) -> str | None:
    return string(inner(split(item), HELD), "response_id")


def _extent(item: Raw) -> tuple[int, int] | None:
    """Return the place in its message of an item that carries something, and how many items the message has."""
    slot = inner(inner(split(item), HELD), extension_slot.SLOT)
    at, count = integer(slot, AT), integer(slot, ITEMS)
    return None if at is None or count is None or not 0 <= at < count else (at, count)


class _Growing:
    """The length of an open message, item by item, in constant time for each."""

    def __init__(self) -> None:
        self.size = 0
        self._last: Raw | None = None
        self._extent: tuple[int, int] | None = None  # of the last item with one: its place, and its end

    def going_on(self, item: Raw) -> int:
        """Return how many of the last items belong to the message of the next item."""
        if self._last is None:
            return 0
        if (extent := _extent(item)) is not None:
            return min(extent[0], self.size)
        ended = self._extent is not None and self.size >= self._extent[1]
        return 0 if ended or _differ(self._last, item) else self.size

    def grow(self, kept: int, item: Raw) -> None:
        """Keep the last ``kept`` items, and add one."""
        left, self.size = self.size - kept, kept
        if self._extent is not None:
            place, end = self._extent
            self._extent = (place - left, end - left) if place >= left else None
        if (extent := _extent(item)) is not None:
            self._extent = (self.size, self.size - extent[0] + extent[1])
        self._last = item
        self.size += 1


def _differ(one: Raw, other: Raw) -> bool:
    before, after = _response_of(one), _response_of(other)
    return before is not None and after is not None and before != after


def responses_of(fields: Fields) -> dict[str, Response]:
    """Return the responses of a run, by the ids of their items."""
    found: dict[str, Response] = {}
    for number, raw in enumerate(listed(fields, "model_responses")):
        stored = split(raw)
        usage = read_usage(stored["usage"]) if "usage" in stored and value(stored, "usage") is not None else None
        response = Response(number, usage, string(stored, "response_id"))
        for item in listed(stored, "output"):
            found.update((each, response) for each in item_ids(split(item)))
    return found


def owner_of(item: Raw, responses: dict[str, Response]) -> Response | None:
    """Return the response of an item."""
    return next((responses[each] for each in item_ids(split(item)) if each in responses), None)


def _runs(items: Sequence[Raw], responses: dict[str, Response]) -> Iterator[list[Raw]]:
    """Split items into those that are one message."""
    run: list[Raw] = []
    growing = _Growing()
    for item in items:
        made = is_made(item)
        before, after = (owner_of(run[-1], responses), owner_of(item, responses)) if run else (None, None)
        parted = before is not None and after is not None and before.number != after.number
        kept = 0 if not made or parted or (run and not is_made(run[-1])) else growing.going_on(item)
        if run and kept < len(run):
            yield run[: len(run) - kept]
            run = run[len(run) - kept :]
        growing.grow(kept, item)
        run.append(item)
    if run:
        yield run


def is_made(item: Raw) -> bool:
    """Return whether a model made an item, by its type."""
    fields = split(item)
    kind = cast("Any", string(fields, "type")) or "message"
    if kind == "message":
        return string(fields, "role") == "assistant"
    return not kind.endswith(("_output", "_response")) and kind != "item_reference"
