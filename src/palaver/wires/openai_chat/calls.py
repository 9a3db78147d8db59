"""Tell the tool calls of a streamed answer apart, and say them as they come.

Rules (docs/spec/wires.md#2.6, #2.9, #2.10):

- A delta belongs to the call of its ``index``; without one to the call of its ``id``; without either to the last call.
- An ``id`` that differs from the one this call has opens a new call: some servers give every call the index 0. So
  does a name behind arguments that are complete, where no id says whose it is. An id ``"null"`` without a name is none:
  Mistral goes on so with a call (langchain-ai/langchainjs#11505).
- An id may come late. A name may come in pieces until the arguments begin; ``""`` and the same name again add nothing.
- A call is said once its id and name are known and its arguments begin. What is never known is made up at the end, as
  for an answer that was not streamed.
- ``index`` is how the stream keeps its calls apart, and no field of the call.
- A call whose arguments are complete when the next one begins is over. Each is looked at once.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import ArgumentsDelta, PartEnd
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.stream.partial_json import PartialJSON
from palaver.wires._engine import json_fields
from palaver.wires.openai_chat import decode
from palaver.wires.openai_chat.merge import Table, put

if TYPE_CHECKING:
    from palaver.core.parts import AssistantPart
    from palaver.wires.openai_chat.choice import Telling

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
        """Begin with nothing known."""
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
        """Of the part, once it is said."""
        self.judged = False
        """Whether another call began behind it, and it was looked at whether it is whole."""
        self._partial = PartialJSON()
        self._fed = 0

    @property
    def custom(self) -> bool:
        """Whether this is a call with free text."""
        return self.key == "custom"

    @property
    def waits(self) -> bool:
        """Whether it could be said, and is not."""
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
            parts = decode.function_call({OLD: raw}, "call")
        else:
            parts = (decode.call(raw, f"call_{position}", position),)
        for part in parts:
            if isinstance(part, ToolCall):
                return structs.replace(part, arguments_json="")
        raise DecodeError("missing", path=f"{self.key}.name")


class Calls:
    """The calls of one choice."""

    def __init__(self, telling: Telling, over: set[int]) -> None:
        """Begin with none; ``over`` are the numbers of parts whose end was said."""
        self._telling = telling
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
                self._telling.say(PartEnd(before.number))
        return call

    # -- what it says --

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
                self._telling.say(ArgumentsDelta(call.number, piece))
        elif call.pieces and call.name and (call.id or key == OLD):
            self._begin_those_before(call)
            self.begin(call, 0)

    def _begin_those_before(self, call: Call) -> None:
        """Say calls in their order: those right before this one that are known, but say nothing yet."""
        first = call.position
        while first > 0 and self._calls[first - 1].waits:
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
        """Say a call, and what came of its arguments. Raises ``DecodeError``."""
        place = (4, 1 if call.key == OLD else 0, call.index)
        call.number = self._telling.begin(call.begun(position), place)
        text = ('"' if call.custom else "") + call.text()
        if text:
            self._telling.say(ArgumentsDelta(call.number, text))

    @property
    def _all(self) -> list[Call]:
        return self.ordered if self.old is None else [*self.ordered, self.old]

    def fields(self) -> list[Table]:
        """The ``tool_calls`` of the answer."""
        return [call.fields() for call in self.ordered]

    def finish(self, found: tuple[AssistantPart, ...]) -> list[int | None]:
        """Say the calls that are not said yet; give the numbers of all, in the order of ``found``."""
        calls = self._all
        for position, (call, part) in enumerate(zip(calls, found, strict=False)):
            if call.number is None and isinstance(part, (ToolCall, MalformedToolCall)):
                self.begin(call, position)
            if call.custom and call.number is not None:
                self._telling.say(ArgumentsDelta(call.number, '"'))
        return [call.number for call in calls]

    def flush(self) -> None:
        """Say what came of calls that were torn."""
        for position, call in enumerate(self._all):
            if call.number is None and (call.name or call.pieces):
                try:
                    self.begin(call, position)
                except DecodeError:
                    made = trusted.ToolCall(call.id or f"call_{position}", call.name or "", custom=call.custom)
                    call.number = self._telling.begin(made, (4, 0, call.index))
                    if call.pieces:
                        self._telling.say(ArgumentsDelta(call.number, call.text()))
                    if not call.name:
                        nameless = trusted.MalformedToolCall(call.text(), "a call without a name", None, made.id)
                        self._telling.say(PartEnd(call.number, nameless))
