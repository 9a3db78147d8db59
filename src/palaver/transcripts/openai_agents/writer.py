"""Write messages as items that the OpenAI Agents SDK accepts as its input (docs/spec/dialects.md#9).

Rules:

- A new file is a list of items, as ``to_input_list()`` returns it. Items are those of the wire, without ``status:
  null``, with their ids. A text of an answer without an id gets ``__fake_id__``, as from the SDK itself, which removes
  it before it sends the item.
- Data that an item lacks are carried in its ``provider_data``, which the SDK removes too. Reasoning with
  ``provider_data`` would not be sent at all, so it never carries anything.
- A run has its conversation in one record, to which new messages are added as generated items; its other data (its
  steps, its responses) stay as they are.

Stability: experimental.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, FlushMarker, Message, RescueMarker, ToolMessage
from palaver.core.parts import MalformedToolCall, ServerToolResult, ToolCall
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import session_of
from palaver.transcripts.fields import inner, listed, split, string
from palaver.transcripts.format import Origin
from palaver.transcripts.openai_agents.reader import RecordReader, Response, owner_of, responses_of
from palaver.transcripts.openai_agents.shapes import (
    AT,
    FAKE_ID,
    GENERATED,
    HELD,
    ITEMS,
    ORIGINAL,
    RUN_ITEMS,
    TYPES,
    WIRE,
    is_run,
    item_ids,
    write_usage,
)
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState, is_record, singly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.request import LossKind
    from palaver.core.usage import Usage
    from palaver.threads.thread import Entry

_NO_LOSS: Final = frozenset(("model", "tool call ids"))
_MALFORMED: Final = "malformed tool call"
_FIRST: Final = trusted.UserMessage(content=(trusted.Text("-"),))


class RecordWriter:
    """Writes one conversation."""

    groups = staticmethod(singly)

    def __init__(self, writing: WriteState) -> None:
        """Start a list."""
        self._writing = writing
        writing.never_writes("sent_at")
        self._wire = wires.get(WIRE)
        self._reader = RecordReader(Origin(), Watch())
        written = [each for each in writing.entries if not isinstance(each.message, RescueMarker | FlushMarker)]
        pairs = [pair for pair in pairwise(written) if all(isinstance(each.message, AssistantMessage) for each in pair)]
        self._answers = {each.id for pair in pairs for each in pair}
        self._named: dict[str, Fields] = {}
        self._is_run = session_of(writing.metadata).more.get("form") == "run_state" and writing.native

    def head(self) -> Iterator[bytes]:
        """Yield the bracket that opens the list."""
        yield b"["

    def tail(self, old: bytes | None) -> bytes:
        """Return the bracket that closes it."""
        return b"]\n" if old is None else old

    def continues(self, before: Sequence[Entry], group: Sequence[Entry]) -> bool:
        """Return whether new entries belong to the record: they do in a run."""
        return self._is_run and bool(before) and not any(is_record(entry) for entry in group)

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the items of messages."""
        found = jsontext.fields(old[0]) if old else {}
        if found and is_run(found):
            yield self._run(group, found)
            return
        items = [item for entry in group for item in self._items(entry, strict=not old)]
        befores = [jsontext.fields(each) for each in old] if len(old) == len(items) else [None] * len(items)
        for item, before in zip(items, befores, strict=True):
            easy = before is not None and "type" not in before and item.keys() == {"type", "role", "content"}
            yield jsontext.encode({key: each for key, each in item.items() if not easy or key != "type"})

    # -- items ---------------------------------------------------------------------------------------------------------

    def _items(self, entry: Entry, *, strict: bool = True) -> list[Fields]:
        """Return the items of a message, with carried data; ``strict``, only those of known types."""
        message = entry.message
        if isinstance(message, RescueMarker | FlushMarker):
            self._writing.lose("dropped", message.role, "a list of items has no markers", entry)
            return []
        items = [_clean(each) for each in self._encoded(entry)]
        for item in items if strict else ():
            if (kind := string(item, "type")) not in TYPES:
                self._writing.lose("dropped", f"item {kind}", "the SDK has no such item", entry)
        items = [item for item in items if not strict or string(item, "type") in TYPES]
        if not items:
            if message.content:  # the wire refuses a message without any
                self._writing.lose("dropped", "message", "it says nothing that an item can hold", entry)
            return []
        self._carry(message, items, entry)
        return items

    def _encoded(self, entry: Entry) -> list[Raw]:
        """Return the wire's items of one message, without the call before a result and the results after calls."""
        message = entry.message
        before: list[Message] = [_FIRST]
        first = len(before)
        after: list[Message] = []
        calls: tuple[ToolCall, ...] = ()
        if isinstance(message, ToolMessage) and message.tool_call_id is not None:
            calls = (self._called(message),)
            before.append(trusted.AssistantMessage(content=calls))
        if isinstance(message, AssistantMessage):
            pending = [call for call in message.tool_calls if not call.provider_executed]
            after = [trusted.ToolMessage(tool_call_id=call.id, tool_name=call.name) for call in pending]
        try:
            encoded = self._wire.encode_request(
                trusted.Request(messages=(*before, message, *after)), join_neighbors=False
            )
        except PalaverError as error:
            self._writing.lose("dropped", message.role, str(error), entry)
            return []
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS and loss.message in {None, len(before)}:
                why = "written as text of the answer" if loss.what == _MALFORMED else loss.why
                self._writing.lose(loss.kind, loss.what, why, entry, loss.part)
        items = jsontext.items(jsontext.fields(encoded.body).get("input", jsontext.raw([])))[first + len(calls) :]
        return [each for item in items for each in _answered(message, item)] if after or _told(message) else items

    def _called(self, result: ToolMessage) -> ToolCall:
        """Return the call that a result answers, of its original type."""
        for entry in reversed(self._writing.entries):
            for call in entry.message.tool_calls:
                if call.id == result.tool_call_id:
                    return call
        return trusted.ToolCall(result.tool_call_id or "", result.tool_name or "tool")

    def _carry(self, message: Message, items: list[Fields], entry: Entry) -> None:
        """Let an item carry the data that all of them lack: any but reasoning, which would not be sent any more."""
        whole = [jsontext.raw(each) for each in items]
        try:
            plain = self._reader.placed(self._reader.messages(whole), whole)
        except PalaverError:
            plain = []
        known = any(each in self._named for item in items for each in _ids(item))
        plain = [self._known(message, each, known=known) for each in plain]
        slot = extension_slot.carried([message], plain)
        told = isinstance(message, AssistantMessage) and (message.usage is not None or message.model is not None)
        if told and slot is not None:
            kind: LossKind = "converted" if self._writing.options.carry else "dropped"
            self._writing.lose(kind, "usage and model", "items have no place for them", entry)
        beside = self._beside(entry)
        if not self._writing.options.carry:
            if beside:
                self._writing.lose("approximated", "answers in a row", "items do not say where one ends", entry)
            return
        if slot is None and not beside:
            return
        place = next((at for at, each in enumerate(items) if string(each, "type") != "reasoning"), None)
        if place is None:
            self._writing.lose("dropped", "usage and model", "reasoning alone can carry nothing", entry)
            return
        extent: dict[str, Any] = {AT: place, ITEMS: len(items)} if isinstance(message, AssistantMessage) else {}
        carry: dict[str, Any] = {**(slot or {}), **extent}
        stored: dict[str, Any] = {**inner(items[place], HELD), extension_slot.SLOT: carry}
        items[place] = jsontext.fields(jsontext.encode({**items[place], HELD: stored}))

    def _beside(self, entry: Entry) -> bool:
        """Return whether an answer is next to another, with which it would be read as one."""
        return entry.id in self._answers and not self._writing.is_native(entry.id)

    def _known(self, message: Message, plain: Message, *, known: bool) -> Message:
        """Return the messages of an item as it is read, with data from its run."""
        if not self._is_run:
            return plain
        made = structs.replace(plain, agent=message.agent)
        if not known or not isinstance(made, AssistantMessage) or not isinstance(message, AssistantMessage):
            return made
        return structs.replace(made, usage=message.usage, response_id=message.response_id)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _run(self, group: Sequence[Entry], old: Fields) -> bytes:
        """Return the record of a run."""
        try:
            count = len(self._reader.asked(old))
        except PalaverError:
            count = 0
        wrapped = [split(each) for each in listed(old, GENERATED)]
        named = self._named = {each: item for item in wrapped for each in _names(item)}
        asked = [item for entry in group[:count] for item in self._items(entry)]
        made: list[dict[str, Any]] = []
        responses = responses_of(old)
        spent: dict[int, Usage | None] = {}
        for entry in group[count:]:
            items = self._items(entry)
            owner = next((found for item in items if (found := owner_of(jsontext.raw(item), responses))), None)
            if owner is not None and isinstance(entry.message, AssistantMessage):
                spent.setdefault(owner.number, entry.message.usage)
            for item in items:
                before = next((named[each] for each in _ids(item) if each in named), None)
                made.append({**(before or self._wrapping(entry, item, old)), "raw_item": item})
        given: dict[str, Any] = (
            {ORIGINAL: asked} if jsontext.kind(old.get(ORIGINAL, jsontext.NULL)) != "a string" else {}
        )
        if not given and [entry.message.text for entry in group[:count]] != [jsontext.text(old[ORIGINAL])]:
            given = {ORIGINAL: asked}
        return jsontext.encode({**given, **_respent(old, responses, spent), GENERATED: made})

    def _wrapping(self, entry: Entry, item: Fields, old: Fields) -> dict[str, Any]:
        """Return the part of a run around an item."""
        kind = string(item, "type") or "message"
        if not isinstance(entry.message, AssistantMessage | ToolMessage):
            self._writing.lose("approximated", entry.message.role, "a run generates answers and results only", entry)
        ended = "tool_call_output_item" if kind.endswith("_output") else "tool_call_item"
        name = entry.message.agent or string(inner(old, "current_agent"), "name") or "agent"
        wrapped: dict[str, Any] = {"type": RUN_ITEMS.get(kind, ended), "agent": {"name": name}}
        return wrapped | ({"output": item["output"]} if "output" in item else {})


def _respent(old: Fields, responses: dict[str, Response], spent: Mapping[int, Usage | None]) -> dict[str, Any]:
    """Return the responses of a run, if an edit changed the usage of one."""
    before = {each.number: each.usage for each in responses.values()}
    edited = {number: usage for number, usage in spent.items() if usage != before[number]}
    if not edited:
        return {}
    found = listed(old, "model_responses")
    return {
        "model_responses": [
            {**split(raw), "usage": write_usage(edited[number])} if number in edited else raw
            for number, raw in enumerate(found)
        ]
    }


def _told(message: Message) -> bool:
    """Return whether the wire writes a malformed call as a user message."""
    return any(isinstance(part, MalformedToolCall) for part in message.content)


def _answered(message: Message, item: Raw) -> Iterator[Raw]:
    """Yield the items of an answer, without results after its calls and without user messages."""
    fields = split(item)
    own = [part.tool_call_id for part in message.content if isinstance(part, ServerToolResult)]
    if (string(fields, "type") or "").endswith("call_output") and string(fields, "call_id") not in own:
        return
    if string(fields, "role") != "user":
        yield item
        return
    said: Any = [
        {"type": "output_text", "text": split(each).get("text", ""), "annotations": []}
        for each in listed(fields, "content")
    ]
    yield jsontext.raw({**fields, "role": "assistant", "content": said or fields.get("content", "")})


def _ids(item: Fields) -> Iterator[str]:
    """Yield the ids of an item, which a call and its result do not share here."""
    kind = "output:" if (string(item, "type") or "").endswith("_output") else ""
    yield from (kind + each for each in item_ids(item))


def _names(wrapped: Fields) -> Iterator[str]:
    yield from _ids(inner(wrapped, "raw_item"))


def _clean(item: Raw) -> Fields:
    """Return an item as the SDK writes it: no empty status, messages with a type, and an answer in full.

    A message without a type and with another key is not a message for the SDK.
    """
    fields = split(item)
    if jsontext.is_null(fields.get("status", jsontext.EMPTY_OBJECT)):
        del fields["status"]
    if "role" not in fields or "type" in fields:
        typed = fields
    else:
        typed = jsontext.fields(jsontext.encode({"type": "message", **fields}))
    if string(fields, "role") != "assistant" or "id" in fields:
        return typed
    made: dict[str, Any] = {"type": "message", "id": FAKE_ID, "status": "completed", **fields}
    content = fields.get("content")
    if content is not None and jsontext.kind(content) == "a string":
        made["content"] = [{"type": "output_text", "text": content, "annotations": []}]
    return jsontext.fields(jsontext.encode(made))
