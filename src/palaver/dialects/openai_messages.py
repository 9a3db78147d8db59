"""Conversations as JSON Lines: messages of the chat wire, and the shapes of training data (dialects.md 4).

Read: each line, or each object of a JSON array, is a conversation of its own; a file whose lines or items are messages
is one. Known shapes: ``messages``; ``prompt`` with ``completion``, or with ``chosen`` and ``rejected``, and those two
alone (the rejected one is a branch); preferences with ``input``; lines of a batch, requests and responses; ShareGPT's
``conversations`` of ``from`` and ``value``. Messages are those of ``openai_chat``. A call of ShareGPT has no id: it
gets one by its place, which is never written back. ``<think>`` stays in the text. Columns beside stay in their record.

What it cannot say: usage, model, times and ids of messages, branches, markers, reasoning of other providers. Nothing is
carried along: a column more would be training data.

Stability: experimental.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import Raw

from palaver import wires
from palaver.core import jsontext
from palaver.core.errors import DecodeError, EncodeError, PalaverError
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import MalformedToolCall, Text, ToolCall
from palaver.core.request import Request
from palaver.dialects import documents
from palaver.dialects.conversation import Conversation, Session, Step, derived_id
from palaver.dialects.dialect import Dialect, Origin
from palaver.dialects.fields import inner, listed, split, string
from palaver.dialects.sight import Head, Sighting
from palaver.dialects.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.dialects.drift import Watch
    from palaver.dialects.record import Record
    from palaver.threads.thread import Entry

NAME: Final = "openai_messages"
WIRE: Final = "openai_chat"

_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_SPEAKERS: Final = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
    "function_call": "call",
}
_Said: TypeAlias = "tuple[list[Message], list[Message], int]"

_NO_LOSS: Final = frozenset(("model", "max_tokens"))


def sees(head: Head) -> Sighting | None:
    """The keys of the shapes, on the first line or in the first object of a list."""
    lines = head.lines
    if isinstance(head.document, list):
        first: Mapping[str, Any] = head.items[0] if head.items else {}
        shape = _shape(first)
        return Sighting(min(shape[1], 0.9 if shape[0] != "message" else 0.5)) if shape else None
    if not lines:
        return None
    shape = _shape(head.fields or lines[0])
    if shape is None:
        return None
    name, confidence = shape
    if len(lines) > 1 and name in {"message", "messages"} and _shape(lines[1]) == shape:
        confidence = 0.7
    return Sighting(confidence)


def _shape(record: Mapping[str, Any]) -> tuple[str, float] | None:
    """The shape of a record, by its keys, and how sure that is."""
    if _has(record, "conversations", "from", "value"):
        return "sharegpt", 0.9
    if "custom_id" in record and ("body" in record or "response" in record):
        return "batch", 0.9
    if "preferred_output" in record and "input" in record:
        return "preference", 0.9
    if "chosen" in record and "rejected" in record:
        return "chosen", 0.8
    if "prompt" in record and "completion" in record:
        return "completion", 0.8
    if _has(record, "messages", "role"):
        return "messages", 0.5
    if record.get("role") in _ROLES and ("content" in record or "tool_calls" in record) and "type" not in record:
        return "message", 0.5
    return None


def _has(record: Mapping[str, Any], key: str, *keys: str) -> bool:
    """Whether a record has a list of objects with these keys, and none that another dialect's messages have."""
    items = record.get(key)
    first = cast("list[object]", items)[0] if isinstance(items, list) and items else None
    if not isinstance(first, dict):
        return False
    return all(each in first for each in keys) and "parts" not in first and "info" not in first


# -- reading -----------------------------------------------------------------------------------------------------------


class _Reading:
    def __init__(self, origin: Origin, watch: Watch) -> None:
        self._origin = origin
        self._watch = watch
        self._wire = wires.get(WIRE)
        self._conversation: Conversation | None = None
        self._early: list[Record] = []
        self._seen: dict[bytes, int] = {}
        self._one: bool | None = None  # whether the file is one conversation
        self._shapes: Mapping[str, Callable[[Fields], _Said]] = {
            "messages": self._of_messages,
            "message": self._of_message,
            "completion": self._of_completion,
            "chosen": self._of_chosen,
            "preference": self._of_preference,
            "batch": self._of_batch,
            "sharegpt": self._of_sharegpt,
        }

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next conversation, message or document."""
        if record.fields is None and record.raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"[", b"{"} and record.at == 0:
            yield from self._document(record)
            return
        yield from self._line(record)

    def end(self) -> Iterator[Step]:
        """End the last conversation."""
        if self._conversation is None and self._early:
            yield from self._begin(b"".join(record.raw for record in self._early))
        yield from self._ended()

    def _document(self, record: Record) -> Iterator[Step]:
        """A list of conversations or of messages, or one conversation."""
        body = record.raw.lstrip(b"\xef\xbb\xbf \t\r\n")
        cut = documents.cut(record.raw) if body.startswith(b"[") else documents.Cut(record)
        if cut.tail is None:
            fields = documents.fields_of(record.raw)
            yield from self._line(record if not fields else type(record)(0, 1, record.raw, fields))
            return
        self._early.append(cut.head)
        for item in cut.items:
            yield from self._line(item)
        if self._conversation is None:
            yield from self._begin(record.raw)
        if self._conversation is not None:
            yield from self._conversation.record(cut.tail)

    def _line(self, record: Record) -> Iterator[Step]:
        fields = record.fields
        shape = None if fields is None else _shape({key: _peek(raw) for key, raw in fields.items()})
        if fields is None or shape is None:
            if record.flaw is None:
                self._watch.note("record", ", ".join(fields or ()) or "no object", record.line)
            if self._conversation is None:
                self._early.append(record)
            else:
                yield from self._conversation.record(record)
            return
        self._one = shape[0] == "message" if self._one is None else self._one
        if self._conversation is None or not (self._one and shape[0] == "message"):
            yield from self._ended()
            yield from self._begin(record.raw)
        yield from self._said(record, fields, shape[0])

    def _begin(self, raw: bytes) -> Iterator[Step]:
        digest = sha256(raw.strip(b" ,\t\r\n")).digest()
        count = self._seen[digest] = self._seen.get(digest, 0) + 1
        self._conversation = Conversation(NAME, derived_id(NAME, digest.hex(), count))
        yield self._conversation.began()
        early, self._early = self._early, []
        for record in early:
            yield from self._conversation.record(record)

    def _ended(self) -> Iterator[Step]:
        if self._conversation is not None:
            yield self._conversation.ended(metadata=Session(dialect=NAME).metadata())
            self._conversation = None

    def _said(self, record: Record, fields: Fields, shape: str) -> Iterator[Step]:
        conversation = self._conversation
        if conversation is None:
            return
        try:
            group, rejected, shared = self._shapes[shape](fields)
        except PalaverError as error:
            self._watch.note("value", str(error), record.line)
            group, rejected, shared = [], [], 0
        if not group:
            yield from conversation.record(record)
            return
        before = conversation.head
        place = before
        for number, step in enumerate(conversation.join(group, [record])):
            yield step
            if number == shared - 1:
                place = step.entry.id
        main = conversation.head
        if rejected:
            yield from conversation.join(rejected, parent=place)
            conversation.head = main

    # -- shapes: the messages, those of the other branch, and how many both share ----------------------------------

    def messages(self, raw: bytes | Raw) -> list[Message]:
        """A list of messages of the wire. Raises ``DecodeError``."""
        return list(self._wire.decode_request(b'{"messages":%b}' % bytes(raw)).messages)

    def _told(self, fields: Fields, key: str, role: str) -> list[Message]:
        """A column: a list of messages, or a text."""
        raw = fields.get(key)
        if raw is None or jsontext.is_null(raw):
            return []
        if jsontext.kind(raw) == "a string":
            return self.messages(jsontext.encode([{"role": role, "content": jsontext.text(raw)}]))
        return self.messages(raw)

    def _of_messages(self, fields: Fields) -> _Said:
        return self.messages(fields["messages"]), [], 0

    def _of_message(self, fields: Fields) -> _Said:
        return self.messages(b"[%b]" % jsontext.encode(fields)), [], 0

    def _of_completion(self, fields: Fields) -> _Said:
        return [*self._told(fields, "prompt", "user"), *self._told(fields, "completion", "assistant")], [], 0

    def _of_chosen(self, fields: Fields) -> _Said:
        asked = self._told(fields, "prompt", "user")
        chosen, rejected = self._told(fields, "chosen", "assistant"), self._told(fields, "rejected", "assistant")
        return _parted([*asked, *chosen], [*asked, *rejected])

    def _of_preference(self, fields: Fields) -> _Said:
        asked = self._told(inner(fields, "input"), "messages", "user")
        chosen = self._told(fields, "preferred_output", "assistant")
        rejected = self._told(fields, "non_preferred_output", "assistant")
        return _parted([*asked, *chosen], [*asked, *rejected])

    def _of_batch(self, fields: Fields) -> _Said:
        body = inner(fields, "body")
        if "messages" in body:
            return self.messages(body["messages"]), [], 0
        answered = inner(fields, "response").get("body")
        if answered is None:
            return [], [], 0
        return [self._wire.decode_response(bytes(answered)).message], [], 0

    def _of_sharegpt(self, fields: Fields) -> _Said:
        group: list[Message] = []
        system = string(fields, "system")
        if system:
            group.append(SystemMessage(content=(Text(system),)))
        pending: list[tuple[str, str]] = []
        for place, raw in enumerate(listed(fields, "conversations")):
            turn = split(raw)
            speaker, text = string(turn, "from") or "", string(turn, "value") or ""
            match _SPEAKERS.get(speaker):
                case "system":
                    group.append(SystemMessage(content=(Text(text),)))
                case "user":
                    group.append(UserMessage(content=(Text(text),)))
                case "assistant":
                    group.append(AssistantMessage(content=(Text(text),)))
                case "call":
                    call = _call(text, f"call_{place}")
                    pending.append((call.id or "", call.name or ""))
                    group.append(AssistantMessage(content=(call,)))
                case "tool":
                    named = pending.pop(0) if pending else (None, None)
                    group.append(ToolMessage(content=(Text(text),), tool_call_id=named[0], tool_name=named[1]))
                case _:
                    raise DecodeError(f"conversations[{place}].from: nobody is called {speaker!r}")
        return group, [], 0


def _peek(raw: Raw) -> Any:
    """A value, as far as a shape is told by it: the first of a list alone."""
    match jsontext.kind(raw):
        case "an array":
            items = jsontext.items(raw)
            return [dict.fromkeys(split(items[0])) if jsontext.kind(items[0]) == "an object" else None] if items else []
        case "a string":
            return jsontext.text(raw)
        case _:
            return None


def _parted(one: list[Message], other: list[Message]) -> _Said:
    """Two conversations that begin alike: the first, what is different in the second, and how long they are alike."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return one, other[shared:], shared


def _call(text: str, name: str) -> ToolCall | MalformedToolCall:
    """A call that is written as JSON text without an id."""
    try:
        fields = jsontext.fields(text.encode())
        named, arguments = string(fields, "name"), fields.get("arguments", jsontext.EMPTY_OBJECT)
    except (DecodeError, UnicodeEncodeError) as error:
        return MalformedToolCall(text, str(error), None, name)
    if named is None:
        return MalformedToolCall(text, "it names no tool", None, name)
    said = jsontext.text(arguments) if jsontext.kind(arguments) == "a string" else bytes(arguments).decode()
    return ToolCall(name, named, said)


# -- writing -----------------------------------------------------------------------------------------------------------


class _Rendering:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._wire = wires.get(WIRE)

    def head(self) -> Iterator[bytes]:
        """Lines have none."""
        return iter(())

    def tail(self, old: bytes | None) -> bytes | None:
        """What ended a list ends it again."""
        return old

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """A conversation is one line."""
        yield entries

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """A conversation."""
        fields = jsontext.fields(old[0]) if old else {}
        spoken = [entry for entry in group if not entry.message.tags or "record" not in entry.message.tags]
        messages = self._messages(spoken)
        if not fields or "messages" in fields:
            yield jsontext.encode({"messages": messages})
        elif "role" in fields and len(messages) == 1:
            yield bytes(messages[0])
        else:
            raise EncodeError(f"{NAME}: a record of this shape was edited; only messages can be written")

    def _messages(self, entries: Sequence[Entry]) -> list[Raw]:
        encoded = self._wire.encode_request(Request(messages=tuple([entry.message for entry in entries])))
        for loss in encoded.losses:
            if loss.what not in _NO_LOSS:
                entry = None if loss.message is None or loss.message >= len(entries) else entries[loss.message]
                self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)
        if any(isinstance(entry.message, AssistantMessage) and entry.message.usage is not None for entry in entries):
            self._writing.lose("dropped", "usage, models, times and ids", "messages have no place for them")
        return jsontext.items(jsontext.fields(encoded.body)["messages"])


DIALECT: Final = Dialect(
    name=NAME,
    title="chat messages, ShareGPT, TRL and batch files",
    fidelity="bytes",
    framing="either",
    sees=sees,
    reading=_Reading,
    rendering=_Rendering,
    many=True,
    keeps=("messages of the chat wire", "arguments as they were written", "images", "rejected answers as branches"),
    loses=("usage, models, times, ids", "branches", "markers", "other providers' reasoning"),
)
