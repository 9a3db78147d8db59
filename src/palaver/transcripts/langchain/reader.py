"""Reading of LangChain messages.

Rules (docs/spec/dialects.md#15):

- A document is a list, or an object with the list in it (``ROOTS``); else each line is a message, or an object with a
  list, which is a conversation of its own.
- A call that is in a block and in ``tool_calls`` is one call, in the place of its block. Its arguments are the
  model's own text if that is kept (``additional_kwargs``, ``function_call`` blocks, chunks).
- Neighbouring chunks of one id are one message, as LangChain joins them: texts are joined, items that share an
  ``index`` are one, counters are added, and of single values the last counts.
- ``remove`` messages that remove the end of the conversation make the next messages continue before it; others hide
  the messages before them, and the remaining ones follow again, with ``source="compaction"``.

Stability: experimental.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import AnyPart, MalformedToolCall, Reasoning, Refusal, ToolCall
from palaver.core.usage import Usage
from palaver.transcripts import documents, extension_slot
from palaver.transcripts.conversation import (
    COMPACTION,
    Conversation,
    Session,
    derived_id,
    hidden_before,
    record_message,
)
from palaver.transcripts.fields import either, inner, integer, listed, split, string, usage_of_totals
from palaver.transcripts.langchain.blocks import Blocks, called, malformed
from palaver.transcripts.langchain.shapes import (
    DEVELOPER,
    FINISH,
    KEYS,
    NAME,
    REMOVE_ALL,
    ROOTS,
    THOUGHTS,
    WIRES,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_ROLES: Final = {"user": "human", "human": "human", "assistant": "ai", "ai": "ai", "system": "system"}
_NOTHING: Final[Fields] = {}


class _Held(NamedTuple):
    """A message of the list: its id there, its entry, and itself."""

    id: str | None
    entry: str | None
    message: Message


class RecordReader:
    """Reads one file."""

    def __init__(self, origin: Origin, watch: Watch) -> None:
        """Start before the first record."""
        self._origin = origin
        self._watch = watch
        self._conversation: Conversation | None = None
        self._session = Session(file_format=NAME)
        self._said = 0
        self._list: list[_Held] = []
        self._chunks: list[Record] = []
        self._removed: list[Record] = []
        self._parent: str | UnsetType | None = UNSET
        self._lines = True

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document, or the next line."""
        if record.fields is None:
            found = None if record.flaw is not None else documents.cut(record.raw)
            yield from self._odd(record) if found is None else self._document(found)
            return
        if shape(record.fields) is not None:
            yield from self._line(record)
            return
        if (path := list_in(record.fields)) is None:
            self._watch.note("record", string(record.fields, "type") or "without a type", record.line)
            yield from self._odd(record)
        elif b"\n" in record.raw.strip():
            yield from self._document(documents.cut(record.raw, *path))
        else:
            yield from self._state(record, path)

    def end(self) -> Iterator[Step]:
        """Yield the last steps."""
        if self._conversation is not None:
            yield from self._flush(self._conversation)
            yield self._conversation.ended(metadata=self._session.metadata())
            self._conversation = None

    def _started(self) -> Iterator[Step]:
        if self._conversation is None:
            number = () if not self._said else (self._said,)
            self._conversation = Conversation(NAME, derived_id(NAME, self._origin.name, *number))
            self._session = Session(file_format=NAME)
            self._list = []
            self._parent = UNSET
            yield self._conversation.began()

    def _odd(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a record that is not a message."""
        yield from self._started()
        conversation = cast("Conversation", self._conversation)
        yield from self._flush(conversation)
        yield from conversation.record(record)

    def _document(self, found: documents.Cut) -> Iterator[Step]:
        if found.tail is None:
            self._watch.note("value", "a document that cannot be cut")
        self._lines = False
        yield from self._odd(found.head)
        for item in found.items:
            if item.fields is None or shape(item.fields) is None:
                self._watch.note("unread", "an item that is not a message")
                yield from self._odd(item)
            else:
                yield from self._line(item)
        if found.tail is not None:
            yield from self._odd(found.tail)

    def _state(self, record: Record, path: Sequence[str]) -> Iterator[Step]:
        """Yield the steps of a line with a list in it: a conversation of its own."""
        yield from self.end()
        self._said += 1
        yield from self._started()
        conversation = cast("Conversation", self._conversation)
        fields = record.fields or {}
        for key in path[:-1]:
            fields = inner(fields, key)
        group: list[Message] = []
        ids: list[str | None] = []
        for raw in listed(fields, path[-1]):
            item = split(raw)
            found = shape(item)
            message = None if found is None or found.kind == "remove" else self._message(item, record.line)
            if message is None:
                self._watch.note("unread", "an item that is not a message", record.line)
                continue
            group.append(message)
            ids.append(None if found is None else string(found.data, "id"))
        if group:
            yield from self._joined(conversation, group, [record], ids)
        else:
            yield from conversation.record(record)

    def _line(self, record: Record) -> Iterator[Step]:
        """Yield the steps of a record that is a message."""
        yield from self._started()
        conversation = cast("Conversation", self._conversation)
        found = shape(record.fields or {})
        if found is None:
            return
        if found.kind == "remove":
            yield from self._flush(conversation, removed=False)
            self._removed.append(record)
            return
        if found.chunk and found.kind == "ai":
            if self._removed or not self._goes_on(string(found.data, "id")):
                yield from self._flush(conversation)
            self._chunks.append(record)
            return
        yield from self._flush(conversation)
        message = self._message(record.fields or {}, record.line)
        if message is None:
            yield from conversation.record(record)
        else:
            yield from self._joined(conversation, [message], [record], [string(found.data, "id")])

    # -- groups --------------------------------------------------------------------------------------------------------

    def _goes_on(self, id: str | None) -> bool:
        if not self._chunks:
            return True
        before = shape(self._chunks[-1].fields or {})
        return before is not None and string(before.data, "id") in {id, None}

    def _flush(self, conversation: Conversation, *, removed: bool = True) -> Iterator[Step]:
        """Add the waiting chunks and removals."""
        if self._chunks:
            records, self._chunks = self._chunks, []
            message = self._message(_whole(records), records[0].line)
            found = shape(records[0].fields or {})
            if message is None:
                for record in records:
                    yield from conversation.record(record)
            else:
                ids = [None if found is None else string(found.data, "id")]
                yield from self._joined(conversation, [message], records, ids)
        if self._removed and removed:
            records, self._removed = self._removed, []
            yield from self._remove(conversation, records)

    def _joined(
        self, conversation: Conversation, group: list[Message], records: list[Record], ids: Sequence[str | None]
    ) -> Iterator[Step]:
        again = {each.id for each in self._cleared if each.id}
        group = [
            structs.replace(each, source=COMPACTION) if named in again and each.source is None else each
            for each, named in zip(group, ids, strict=True)
        ]
        parent, self._parent = self._parent, UNSET
        for step, each in zip(conversation.join(group, records, ids=ids, parent=parent), ids, strict=True):
            self._list.append(_Held(each, step.entry.id, step.entry.message))
            yield step

    _cleared: Sequence[_Held] = ()
    """The messages that a removal of everything removed: returning ones are repeated for the model only."""

    def _remove(self, conversation: Conversation, records: list[Record]) -> Iterator[Step]:
        gone = [string(found.data, "id") for each in records if (found := shape(each.fields or {})) is not None]
        everything = REMOVE_ALL in gone
        known = {each.id for each in self._list} | {REMOVE_ALL}
        for named in gone:
            if named not in known:
                self._watch.note("link", "remove", records[0].line if self._lines else None)
        left = [each for each in self._list if each.id not in gone and not everything]
        kept = len(list(takewhile(lambda each: each.id not in gone, self._list)))
        if not everything and len(left) == kept:
            parent = left[-1].entry if left else None
            rewound = len(left) < len(self._list)
            self._list = left
            for record in records:
                yield from conversation.record(record)
            self._parent = parent if rewound else UNSET
            return
        if everything:
            self._cleared = (*self._cleared, *self._list)
        copies = [
            structs.replace(extension_slot.without_records(each.message), source=COMPACTION, id=None) for each in left
        ]
        group: list[Message] = [record_message(), hidden_before(), *copies]
        steps = list(conversation.join(group, records, parent=self._parent))
        self._parent = UNSET
        self._list = [
            _Held(each.id, step.entry.id, step.entry.message) for each, step in zip(left, steps[2:], strict=True)
        ]
        yield from steps

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self, fields: Fields, line: int) -> Message | None:
        """Return the message of a record, with carried data; ``None`` for an unreadable one."""
        found = shape(fields)
        at = line if self._lines else None
        if found is None:
            return None
        try:
            plain = plain_message(fields, self._watch, at)
        except PalaverError as error:
            self._watch.note("unread", str(error), at)
            return None
        if isinstance(plain, AssistantMessage) and plain.model is not None:
            self._session = structs.replace(self._session, model=plain.model)
        slot = inner(found.data, "additional_kwargs").get(extension_slot.SLOT)
        restored = None if slot is None else extension_slot.restored([plain], jsontext.value(slot))
        return plain if not restored else restored[0]


def list_in(fields: Fields) -> tuple[str, ...] | None:
    """Return the keys that lead to a list of messages; ``None`` when there is none."""
    for path in ROOTS:
        stored = fields
        for key in path[:-1]:
            stored = inner(stored, key)
        items = listed(stored, path[-1])
        if path[-1] in stored and (not items or any(shape(split(each)) is not None for each in items)):
            return path if jsontext.kind(stored[path[-1]]) == "an array" else None
    return None


def _whole(records: Sequence[Record]) -> Fields:
    """Return the chunks of a message as one."""
    if len(records) == 1:
        return records[0].fields or {}
    data: dict[str, Any] = {}
    for record in records:
        found = shape(record.fields or {})
        if found is not None:
            _check_piece(found.data)
            data = merged(data, {key: jsontext.value(raw) for key, raw in found.data.items()})
    data.pop("tool_calls", None)  # each chunk has a guess at the whole there
    data.pop("invalid_tool_calls", None)
    data["type"] = "AIMessageChunk"
    return jsontext.fields(jsontext.encode(data))


def _check_piece(data: Fields) -> None:
    """Check the texts of a piece: joined, another value would replace them."""
    either(data.get("content"), "content", "a string", "an array")
    for raw in listed(data, "tool_call_chunks"):
        piece = split(raw)
        string(piece, "args")
        string(piece, "name")
        integer(piece, "index")


def plain_message(fields: Fields, watch: Watch, line: int | None) -> Message:
    """Return the message of a record, without carried data. The record has a shape."""
    found = shape(fields)
    kind, data = ("human", fields) if found is None else (found.kind, found.data)
    watch.keys(data, KEYS[kind], kind, line)
    if kind == "chat":
        kind = _ROLES.get((string(data, "role") or "").lower(), "human")
    kwargs = inner(data, "additional_kwargs")
    name = string(data, "name")
    match kind:
        case "ai":
            return _assistant(data, kwargs, watch, line)
        case "system":
            cls = DeveloperMessage if string(kwargs, DEVELOPER) == "developer" else SystemMessage
            content: Any = tuple(Blocks(cls, None, watch, line).parts(data))
            return _named(cls(content=content), name)
        case "tool" | "function":
            content = tuple(Blocks(ToolMessage, None, watch, line).parts(data))
            call = string(data, "tool_call_id") if kind == "tool" else _function_id(name)
            failed = string(data, "status") == "error"
            message = trusted.ToolMessage(content=content, tool_call_id=call, tool_name=name, is_error=failed)
            artifact = data.get("artifact")
            if artifact is None or jsontext.is_null(artifact):
                return message
            return structs.replace(message, payload_json=jsontext.own(artifact))
        case _:
            content = tuple(Blocks(UserMessage, None, watch, line).parts(data))
            source = COMPACTION if string(kwargs, "lc_source") == "summarization" else None
            return _named(trusted.UserMessage(content=content, source=source), name)


def _named(message: Message, name: str | None) -> Message:
    return message if name is None else message.replace(provider={NAME: {"name": name}})


def _function_id(name: str | None) -> str:
    """Return an id for a call without one, by which its result is found."""
    return f"function_call:{name or ''}"


def _assistant(data: Fields, kwargs: Fields, watch: Watch, line: int | None) -> AssistantMessage:
    told = inner(data, "response_metadata")
    wire = WIRES.get(string(told, "model_provider") or "")
    parts = Blocks(AssistantMessage, wire, watch, line).parts(data)
    content = _with_calls(parts, data, kwargs)
    if len(content) > 1 and parts and parts[0] == trusted.Text("") and jsontext.kind(data["content"]) == "a string":
        content.remove(parts[0])  # with only a call, the content is empty
    reasoning = string(kwargs, "reasoning_content") or string(data, "reasoning_content")
    if reasoning is not None and not any(isinstance(part, Reasoning) for part in content):
        content.insert(0, trusted.Reasoning(reasoning, wire=wire or "openai_chat"))
    refusal = string(kwargs, "refusal")
    if refusal is not None and not any(isinstance(part, Refusal) for part in content):
        content.append(trusted.Refusal(refusal))
    raw = next((found for key in ("finish_reason", "stop_reason", "stopReason") if (found := string(told, key))), None)
    return trusted.AssistantMessage(
        content=cast("Any", tuple(content)),
        agent=string(data, "name"),
        model=string(told, "model_name") or string(told, "model"),
        usage=usage_of(data),
        finish_reason=None if raw is None else FINISH.get(raw.lower(), "other"),
        finish_reason_raw=UNSET if raw is None else raw,
        response_id=string(told, "id"),
    )


def usage_of(data: Fields) -> Usage | None:
    """Return the counters of ``usage_metadata``, which include their details."""
    raw = data.get("usage_metadata")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    counts = jsontext.fields(raw)
    given, made = inner(counts, "input_token_details"), inner(counts, "output_token_details")
    read, reasoned = integer(given, "cache_read"), integer(made, "reasoning")
    written = [integer(given, key) for key in given if key == "cache_creation" or key.startswith("ephemeral_")]
    wrote = sum(filter(None, written)) if any(each is not None for each in written) else None
    total, output = integer(counts, "input_tokens"), integer(counts, "output_tokens")
    return usage_of_totals(total, output, cached=read, written=wrote, reasoning=reasoned, raw=raw)


# -- calls -------------------------------------------------------------------------------------------------------------


def _with_calls(parts: Sequence[AnyPart], data: Fields, kwargs: Fields) -> list[AnyPart]:
    """Return the parts, with each call once."""
    calls = _calls(data, kwargs)
    content: list[AnyPart] = []
    for part in parts:
        place = _matching(part, calls)
        if place is None:
            content.append(part)
            continue
        call = calls.pop(place)
        plain = isinstance(part, ToolCall) and (part.custom or part.provider_executed)
        content.append(
            part if plain else structs.replace(call, provider_json=part.provider_json) if _bound(part) else call
        )
    return [*content, *calls]


def _bound(part: AnyPart) -> bool:
    return part.provider_json is not UNSET


def _matching(part: AnyPart, calls: Sequence[ToolCall | MalformedToolCall]) -> int | None:
    if not isinstance(part, (ToolCall, MalformedToolCall)):
        return None
    for place, call in enumerate(calls):
        if (call.id == part.id) if part.id else (call.name == part.name):
            return place
    return None


def _calls(data: Fields, kwargs: Fields) -> list[ToolCall | MalformedToolCall]:
    """Return the calls of the lists beside the content."""
    texts = _own_texts(kwargs)
    signatures = inner(kwargs, THOUGHTS)
    calls: list[ToolCall | MalformedToolCall] = []
    pieces = listed(data, "tool_call_chunks")
    for raw in pieces or listed(data, "tool_calls"):
        fields = split(raw)
        named = string(fields, "id") or ""
        arguments = fields.get("args", jsontext.EMPTY_OBJECT)
        if named in texts and _same(texts[named]["arguments"], arguments):
            arguments = texts[named]["arguments"]
        calls.append(called(named, string(fields, "name") or "", arguments, string(signatures, named)))
    calls += [malformed(split(raw)) for raw in listed(data, "invalid_tool_calls")]
    if not calls:
        calls = [
            called(named, string(stored, "name") or "", stored["arguments"], string(signatures, named))
            for named, stored in texts.items()
        ]
    function = inner(kwargs, "function_call")
    if not calls and "arguments" in function:
        name = string(function, "name") or ""
        calls.append(called(_function_id(name), name, function["arguments"]))
    return calls


def _own_texts(kwargs: Fields) -> Mapping[str, Fields]:
    """Return the data of OpenAI's own calls, which LangChain keeps beside its own, by their ids."""
    found: dict[str, Fields] = {}
    for raw in listed(kwargs, "tool_calls"):
        fields = split(raw)
        function = inner(fields, "function")
        if "arguments" in function:
            found[string(fields, "id") or ""] = function
    return found


def _same(text: Raw, arguments: Raw) -> bool:
    """Return whether the model's own text equals LangChain's value."""
    if either(text, "arguments", "a string") == "null":
        return False
    try:
        return jsontext.equal(jsontext.raw(jsontext.value(jsontext.text(text))), arguments)
    except PalaverError:
        return False


_ONCE: Final = frozenset(("type", "id", "index", "name", "model_name", "model_provider", "output_version", "status"))


def merged(one: dict[str, Any], other: dict[str, Any], *, add: bool = False) -> dict[str, Any]:
    """Return two pieces as one; neither is changed. ``add`` adds numbers instead of taking the later one."""
    result = dict(one)
    for key, value in other.items():
        stored = result.get(key)
        if stored is None or value is None:
            result[key] = stored if value is None else value
        elif key in _ONCE:
            result[key] = stored if value == "" else value
        else:
            result[key] = _joined(stored, value, add=add or key == "usage_metadata")
    return result


def _joined(stored: Any, value: Any, *, add: bool) -> Any:
    match stored, value:
        case str(), str():
            return stored + value
        case dict(), dict():
            return merged(cast("dict[str, Any]", stored), cast("dict[str, Any]", value), add=add)
        case list(), list():
            return _lists(cast("list[object]", stored), cast("list[object]", value))
        case str(), list():
            return [*([stored] if stored else ()), *cast("list[object]", value)]
        case list(), str():
            return [*cast("list[object]", stored), value] if value else cast("list[object]", stored)
        case int(), int() if add and not isinstance(stored, bool):
            return stored + value
        case _:
            return value


def _lists(stored: list[object], new: list[object]) -> list[Any]:
    result: list[Any] = list(stored)
    for item in new:
        place = _place(result, item)
        if place is None:
            result.append(item)
        else:
            result[place] = merged(result[place], cast("dict[str, Any]", item))
    return result


def _place(items: list[Any], new: object) -> int | None:
    """Return the place of the piece that a new piece continues."""
    index = cast("dict[str, Any]", new).get("index") if isinstance(new, dict) else None
    if index is None:
        return None
    for place, item in enumerate(items):
        if isinstance(item, dict) and cast("dict[str, Any]", item).get("index") == index:
            return place
    return None
