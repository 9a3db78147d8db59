"""Tell the tool calls of a streamed answer apart, and merge its fields.

- A delta belongs to the call of its ``index``, else of its ``id``, else to the last call.
- A new ``id`` opens a new call, since some servers give every call the index 0. So does a name after complete arguments
  without an id. The id ``"null"`` without a name is no id (langchain-ai/langchainjs#11505).
- An id may come late, and a name in pieces until the arguments begin; ``""`` and the same name again add nothing.
- A call begins once its id and name are known and its arguments begin. Missing ones are made up at the end.
- A call with complete arguments ends when the next one begins. ``index`` is no field of the call.
- A repeated field replaces the earlier one, except with ``null``. Objects are merged two levels deep. Strings of a
  delta are joined, unless the field is a repeated word (``_WORDS``). Lists are extended; an item with an ``index`` is
  merged with that item, and a list that begins with all earlier items replaces them.

Source: docs/spec/wires.md#2.6, #2.9, #2.10; ``openai/lib/streaming/_deltas.py``, which joins every string.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import ArgumentsDelta, PartEnd
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.stream.partial_json import PartialJSON
from palaver.wires._engine import json_fields
from palaver.wires.openai_chat import decode, decode_parts

if TYPE_CHECKING:
    from palaver.core.parts import AssistantPart
    from palaver.wires.openai_chat.stream_choice import ChoiceEvents


# -- merged fields ---------------------------------------------------------------------------------


Table: TypeAlias = "dict[str, Any]"
"""Fields that are put together: JSON text, or a ``Table`` of it."""

_WORDS: Final = frozenset({"role", "channel", "name", "type", "id", "format", "object"})
_DEPTH: Final = 2


def put(table: Table, key: str, raw: Raw, depth: int = _DEPTH) -> None:
    """Set a field to its value in a later chunk."""
    stored = table.get(key)
    if stored is None:
        table[key] = jsontext.own(raw)
    elif raw in (NULL, stored):
        return
    elif depth and jsontext.kind(raw) == "an object" and _is_object(stored):
        inner = _table(stored)
        for name, item in jsontext.fields(raw).items():
            put(inner, name, item, depth - 1)
        table[key] = inner
    else:
        table[key] = jsontext.own(raw)


def _table(stored: Any) -> Table:
    return cast("Table", stored) if isinstance(stored, dict) else dict(jsontext.fields(stored))


def _is_object(stored: object) -> bool:
    return isinstance(stored, dict) or (isinstance(stored, Raw) and jsontext.kind(stored) == "an object")


class Gathered:
    """Fields of deltas."""

    __slots__ = ("_lists", "_places", "_table", "_texts")

    def __init__(self) -> None:
        """Start empty."""
        self._table: Table = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, key: str, raw: Raw) -> None:
        """Add the value of a field in a delta."""
        match jsontext.kind(raw):
            case "a string" if key not in _WORDS:
                self.emit(key, jsontext.text(raw))
            case "an array":
                self.extend(key, jsontext.items(raw))
            case _:
                put(self._table, key, raw)

    def emit(self, key: str, piece: str) -> None:
        """Take a piece of text."""
        self._texts.setdefault(key, []).append(piece)

    def extend(self, key: str, items: list[Raw]) -> None:
        """Take items of a list."""
        stored = self._lists.setdefault(key, [])
        if stored and len(items) >= len(stored) and items[: len(stored)] == stored:
            stored[:] = map(jsontext.own, items)
            return
        for item in items:
            fields = jsontext.fields(item) if jsontext.kind(item) == "an object" else {}
            index = fields.get("index")
            if index is None:
                stored.append(jsontext.own(item))
                continue
            place = self._places.setdefault((key, bytes(index)), len(stored))
            if place == len(stored):
                stored.append(jsontext.own(item))
            else:
                _merge_item(stored, place, fields)

    def fields(self) -> Table:
        """Everything, put together."""
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        return {**self._table, **texts, **self._lists}


def _merge_item(stored: list[Any], place: int, fields: Fields) -> None:
    old = stored[place]
    table = _table(old)
    for key, raw in fields.items():
        put(table, key, raw)
    stored[place] = table


OLD: Final = "function_call"
"""The key of the deprecated single call."""


class Call:
    """One call that is being gathered. ``key`` is the field that holds its name and arguments."""

    __slots__ = (
        "_fed",
        "_partial",
        "arguments",
        "id",
        "index",
        "inner",
        "judged",
        "key",
        "name",
        "number",
        "pieces",
        "position",
        "rest",
    )

    def __init__(self, index: int, key: str = "") -> None:
        """Start empty."""
        self.index = index
        self.key = key
        self.id = ""
        self.name: str | None = None
        self.rest: Table = {}
        self.inner: Table = {}
        self.pieces: list[str] = []
        self.arguments = ""
        """How they came: not at all, as ``null``, as ``text`` or as an ``object``."""
        self.position = 0
        self.number: int | None = None
        """The number of the part, once it is emitted."""
        self.judged = False
        """Whether another call began behind it, and it was looked at whether it is whole."""
        self._partial = PartialJSON()
        self._fed = 0

    @property
    def custom(self) -> bool:
        """Whether this is a call with free text."""
        return self.key == "custom"

    @property
    def is_pending(self) -> bool:
        """Whether it could be emitted, and is not."""
        return self.number is None and bool(self.id and self.name)

    def text(self) -> str:
        """The arguments so far, as JSON text where the call is custom."""
        return "".join(self.pieces)

    def complete(self) -> bool:
        """Whether the arguments are one whole object or array. All looks together cost what the arguments are long."""
        for position in range(self._fed, len(self.pieces)):
            self._partial.feed(self.pieces[position])
        self._fed = len(self.pieces)
        return self._partial.complete and isinstance(self._partial.value, (dict, list))

    def whole(self) -> bool:
        """The same, looked at once and fast."""
        text = self.text()
        return text.rstrip()[-1:] in ("}", "]") and jsontext.is_json(text)

    def fields(self, *, text: str | None = None) -> Table:
        """The call as it stands in an answer that is not streamed; ``text`` in place of its arguments."""
        inner: Table = {} if self.name is None else {"name": self.name}
        found = self.text() if text is None else text
        if self.custom:
            inner["input"] = Raw(f'"{found}"'.encode("utf-8", "surrogatepass"))
        elif self.arguments == "object" and (text == "" or jsontext.is_json(found)):
            inner["arguments"] = Raw(found.encode() or b"{}")
        elif found or self.arguments in ("text", "object"):
            inner["arguments"] = found
        elif self.arguments == "null":
            inner["arguments"] = NULL
        inner |= self.inner
        if self.key == OLD:
            return inner
        named: Table = {"id": self.id} if self.id else {}
        return {**named, self.key or "function": inner, **self.rest}

    def begun(self, position: int) -> ToolCall:
        """The part it begins as. Raises ``DecodeError``."""
        raw = jsontext.raw(self.fields(text=""))
        if self.key == OLD:
            parts = decode.function_call(raw, {}, "call")
        else:
            parts = (decode_parts.one_call(raw, f"call_{position}", position),)
        for part in parts:
            if isinstance(part, ToolCall):
                return structs.replace(part, arguments_json="")
        raise DecodeError("missing", path=f"{self.key}.name")


class Calls:
    """The calls of one choice."""

    def __init__(self, sink: ChoiceEvents, over: set[int]) -> None:
        """Start empty; ``over`` has the numbers of parts that ended."""
        self._sink = sink
        self._calls: list[Call] = []
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[tuple[int | None, str], Call] = {}
        self._last: Call | None = None
        self._over = over
        self.old: Call | None = None

    def delta(self, raw: Raw) -> None:
        """Take the ``tool_calls`` of a delta. Raises ``DecodeError``."""
        for position, item in enumerate(jsontext.items(raw)):
            try:
                self._item(jsontext.fields(item))
            except DecodeError as error:
                raise error.within(f"[{position}]") from None

    def old_delta(self, raw: Raw) -> None:
        """Take the ``function_call`` of a delta. Raises ``DecodeError``."""
        if self.old is None:
            self.old = Call(0, OLD)
        self._inner(self.old, jsontext.fields(raw))

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._calls)

    @property
    def ordered(self) -> list[Call]:
        """The calls in the order of the answer: by index, then as they came."""
        return sorted(self._calls, key=lambda call: call.index)

    def at(self, index: int) -> Call | None:
        """The call that a delta with this index, and nothing else, adds to."""
        return self._by_index.get(index)

    # -- whose it is --

    def _item(self, rest: Fields) -> None:
        index = json_fields.take_int(rest, "index")
        rest.pop("index", None)
        call_id = json_fields.take_text(rest, "id") or ""
        rest.pop("id", None)
        key = "custom" if rest.get("type") == Raw(b'"custom"') or self._only_custom(rest) else "function"
        inner = json_fields.take_fields(rest, key) or {}
        rest.pop(key, None)
        try:
            name = json_fields.take_text(dict(inner), "name")
        except DecodeError as error:
            raise error.within(key) from None
        if call_id == "null" and not name:
            call_id = ""
        call = self._found(index, call_id, name, inner)
        if call is None:
            call = self._open(index)
        if call_id and not call.id:
            call.id = call_id
        if call.id:
            self._by_id[index, call.id] = self._by_id[None, call.id] = call
        call.key = call.key if call.key == "custom" else key
        self._last = call
        for each, raw in rest.items():
            put(call.rest, each, raw)
        self._inner(call, inner)

    @staticmethod
    def _only_custom(rest: Fields) -> bool:
        return "custom" in rest and "function" not in rest

    def _found(self, index: int | None, call_id: str, name: str | None, inner: Fields) -> Call | None:
        """The call that a delta goes on with; ``None`` when it opens one."""
        known = self._by_id.get((index, call_id)) if call_id else None
        call = self._last if index is None else self._by_index.get(index)
        if known is not None or call is None:
            return known
        if call_id:
            late = not call.id and (index is not None or not name or call.name is None)
            return call if late else None
        apart = index is None and call.name and name != call.name  # pieces of one name come under one index
        return None if name and (call.pieces or apart) and self._begins(call, name, inner) else call

    @staticmethod
    def _begins(call: Call, name: str, inner: Fields) -> bool:
        """Whether a name, without an id, is that of another call."""
        more = inner.get("arguments", NULL) not in (NULL, Raw(b'""'))
        return (name != call.name or more) and (not call.pieces or call.complete())

    def _open(self, index: int | None) -> Call:
        before = self._last
        if index is None:
            index = before.index if before is not None else 0
        call = Call(index)
        call.position = len(self._calls)
        self._calls.append(call)
        self._by_index[index] = call
        if before is not None and before.number is not None and not before.judged:
            before.judged = True
            if before.number not in self._over and before.whole():
                self._over.add(before.number)
                self._sink.emit(PartEnd(before.number))
        return call

    # -- events --

    def _inner(self, call: Call, inner: Fields) -> None:
        key = call.key
        try:
            name = json_fields.take_text(inner, "name")
            inner.pop("name", None)
            if name is not None:
                self._name(call, name)
            piece = self._piece(call, inner)
        except DecodeError as error:
            raise error.within(key) from None
        for each, raw in inner.items():
            put(call.inner, each, raw)
        if piece:
            call.pieces.append(piece)
        if call.number is not None:
            if piece:
                self._sink.emit(ArgumentsDelta(call.number, piece))
        elif call.pieces and call.name and (call.id or key == OLD):
            self._begin_those_before(call)
            self.begin(call, 0)

    def _begin_those_before(self, call: Call) -> None:
        """Emit calls in their order: the complete ones directly before this one."""
        first = call.position
        while first > 0 and self._calls[first - 1].is_pending:
            first -= 1
        for before in self._calls[first : call.position]:
            self.begin(before, 0)

    @staticmethod
    def _name(call: Call, name: str) -> None:
        if call.name is None:
            call.name = name
        elif name != call.name and not call.pieces:
            call.name += name

    @staticmethod
    def _piece(call: Call, inner: Fields) -> str:
        raw = inner.pop("input" if call.custom else "arguments", None)
        if raw is None:
            return ""
        if raw == NULL:
            call.arguments = call.arguments or "null"
            return ""
        if call.custom:
            jsontext.text(raw)
            call.arguments = "text"
            return bytes(raw).decode("utf-8", "surrogatepass")[1:-1]
        if jsontext.kind(raw) == "an object" and call.arguments != "text":
            call.arguments = "object"
            return bytes(raw).decode()
        call.arguments = "text"
        try:
            return jsontext.text(raw)
        except DecodeError as error:
            raise error.within("arguments") from None

    def begin(self, call: Call, position: int) -> None:
        """Emit a call and its arguments so far. Raises ``DecodeError``."""
        place = (4, 1 if call.key == OLD else 0, call.index)
        call.number = self._sink.begin(call.begun(position), place)
        text = ('"' if call.custom else "") + call.text()
        if text:
            self._sink.emit(ArgumentsDelta(call.number, text))

    @property
    def _all(self) -> list[Call]:
        return self.ordered if self.old is None else [*self.ordered, self.old]

    def fields(self) -> list[Table]:
        """The ``tool_calls`` of the answer."""
        return [call.fields() for call in self.ordered]

    def finish(self, found: tuple[AssistantPart, ...]) -> list[int | None]:
        """Emit the remaining calls; return the numbers of all, in the order of ``found``."""
        calls = self._all
        for position, (call, part) in enumerate(zip(calls, found, strict=False)):
            if call.number is None and isinstance(part, (ToolCall, MalformedToolCall)):
                self.begin(call, position)
            if call.custom and call.number is not None:
                self._sink.emit(ArgumentsDelta(call.number, '"'))
        return [call.number for call in calls]

    def flush(self) -> None:
        """Emit what came of calls that were cut off."""
        for position, call in enumerate(self._all):
            if call.number is None and (call.name or call.pieces):
                try:
                    self.begin(call, position)
                except DecodeError:
                    made = trusted.ToolCall(call.id or f"call_{position}", call.name or "", custom=call.custom)
                    call.number = self._sink.begin(made, (4, 0, call.index))
                    if call.pieces:
                        self._sink.emit(ArgumentsDelta(call.number, call.text()))
                    if not call.name:
                        nameless = trusted.MalformedToolCall(call.text(), "a call without a name", None, made.id)
                        self._sink.emit(PartEnd(call.number, nameless))
