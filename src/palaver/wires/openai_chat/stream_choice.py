"""Read one choice of a streamed answer.

- Text, reasoning, refusals, audio and calls are emitted in pieces. Other fields of a delta are collected.
- At the end, ``decode`` reads the collected fields as a choice of a whole answer. Where an emitted part differs from it
  (a field came late, reasoning stood in two fields), its ``PartEnd`` has the final part.
- The field of a part gives its place: reasoning, content, refusal, audio, calls.
- ``""`` begins no part. A content that was always ``""`` is a part, emitted at the end.

Source: docs/spec/wires.md#2.6, #2.9.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    PartEnd,
    ReasoningDelta,
    SignatureDelta,
    TextDelta,
)
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import AssistantMessage, holds
from palaver.core.parts import Reasoning, Refusal, Text
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider, word
from palaver.wires.openai_chat import decode
from palaver.wires.openai_chat.decode_parts import part as read_part, thinking_text
from palaver.wires.openai_chat.shapes import DETAILS, WIRE
from palaver.wires.openai_chat.stream_calls import OLD, Calls, Gathered, Table, put

if TYPE_CHECKING:
    from palaver.core.events import Event
    from palaver.core.parts import AssistantPart

_Delta = Callable[[int, str], "Event"]
_DETAIL: Final[dict[str, _Delta]] = {
    "text": ReasoningDelta,
    "summary": ReasoningDelta,
    "signature": SignatureDelta,
    "data": DataDelta,
}
_GROWING: Final = {"text": "text", "refusal": "refusal"}
"""Items of a list of content that come in pieces, and their field. ``thinking`` does too, in a list of its own."""


class ChoiceEvents(Protocol):
    """Where events go."""

    def emit(self, event: Event, /) -> None:
        """Hand out an event."""
        ...

    def begin(self, part: AssistantPart, place: tuple[int, ...]) -> int:
        """Hand out the beginning of a part; give its number."""
        ...

    def emitted(self, number: int) -> AssistantPart | None:
        """The part as emitted so far."""
        ...


class _Item:
    """One item of a list that is being gathered: of ``reasoning_details``, or of a ``content`` list."""

    __slots__ = ("blocks", "kind", "number", "rest", "texts", "whole")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rest: Table = {}
        self.texts: dict[str, list[str]] = {}
        self.blocks: list[Raw | list[str]] = []
        self.whole: Raw | None = None
        self.number: int | None = None

    def fields(self) -> Any:
        """The item as it stands in an answer that is not streamed."""
        if self.whole is not None:
            return self.whole
        blocks = [each if isinstance(each, Raw) else {"type": "text", "text": "".join(each)} for each in self.blocks]
        thinking = {"thinking": blocks} if self.kind == "thinking" else {}
        return {**self.rest, **thinking, **{key: "".join(pieces) for key, pieces in self.texts.items()}}


class Choice:
    """One choice. ``word`` is its finish reason so far, as it was written."""

    def __init__(self, number: int, sink: ChoiceEvents, thoughts: decode.Thoughts) -> None:
        """Start empty; ``thoughts`` are the fields that are read as reasoning."""
        self.number = number
        self._thoughts = thoughts
        self.word: str | UnsetType | None = UNSET
        self.heard = False
        """Whether a delta came."""
        self._ended: set[int] = set()
        self.calls = Calls(sink, self._ended)
        self._sink = sink
        self._beside: Table = {}
        self._logprobs: dict[str, Any] | None = None
        self._rest = Gathered()
        self._reasoning: tuple[str, int, list[str]] | None = None
        self._details: list[_Item] = []
        self._by_key: dict[tuple[bytes, bytes], _Item] = {}
        self._content: str | UnsetType | None = UNSET
        self._text: tuple[int, list[str]] | None = None
        self._items: list[_Item] | None = None
        self._refusal: tuple[int, list[str]] | None = None
        self._audio: tuple[int, list[str]] | None = None
        self._recording: Gathered | None = None

    # -- what comes --

    def beside(self, rest: Fields) -> None:
        """Take what stands beside a delta. Raises ``DecodeError``."""
        if "finish_reason" in rest:
            word = json_fields.take_text(rest, "finish_reason")
            rest.pop("finish_reason", None)
            if word or not self.word:
                self.word = word if word is not None or self.word is UNSET else self.word
        for key, raw in rest.items():
            if key == "logprobs" and jsontext.kind(raw) == "an object":
                self._add_logprobs(jsontext.fields(raw))
            else:
                put(self._beside, key, raw)

    def _add_logprobs(self, rest: Fields) -> None:
        if self._logprobs is None:
            self._logprobs = {}
        for key, raw in rest.items():
            stored = self._logprobs.get(key)
            if jsontext.kind(raw) != "an array":
                self._logprobs.setdefault(key, jsontext.own(raw))
            elif isinstance(stored, list):
                stored.extend(map(jsontext.own, jsontext.items(raw)))  # pyright: ignore[reportUnknownMemberType] (of Raw)
            else:
                self._logprobs[key] = [jsontext.own(each) for each in jsontext.items(raw)]

    def delta(self, rest: Fields) -> None:
        """Take a delta. Raises ``DecodeError``."""
        self.heard = True
        for key in self._thoughts:
            if key in rest:
                self._take(key, rest.pop(key))
        for key, raw in rest.items():
            self._take(key, raw)

    def _take(self, key: str, raw: Raw) -> None:
        kind = jsontext.kind(raw)
        thought = key in self._thoughts
        read = self._THOUGHTS.get((kind, key == DETAILS)) if thought else self._READERS.get(kind, {}).get(key)
        try:
            if read is not None:
                read(self, key, raw)
            elif raw != NULL and key in self._STRICT:
                raise DecodeError(f"expected {self._STRICT[key]}, got {kind}")  # noqa: TRY301 (named below)
            else:
                self._rest.add(key, raw)
        except DecodeError as error:
            raise error.within(key) from None

    def _read_role(self, key: str, raw: Raw) -> None:
        if jsontext.text(raw):
            self._rest.add(key, raw)

    def _skip(self, key: str, raw: Raw) -> None:
        """A role that is not repeated."""

    def _read_reasoning(self, key: str, raw: Raw) -> None:
        piece = jsontext.text(raw)
        if piece and self._reasoning is None and not self._details:
            part = trusted.Reasoning(wire=WIRE, provider_json=provider(WIRE, {}, {"field": word(key)}))
            self._reasoning = key, self._sink.begin(part, (0, 0)), []
        if self._reasoning is None or self._reasoning[0] != key:
            self._rest.emit(key, piece)
        elif piece:
            self._reasoning[2].append(piece)
            self._sink.emit(ReasoningDelta(self._reasoning[1], piece))

    def _read_details(self, key: str, raw: Raw) -> None:
        found = jsontext.items(raw)
        if not found:
            self._rest.add(key, raw)
        for position, item in enumerate(found):
            try:
                self._detail(jsontext.fields(item), first=position == 0)
            except DecodeError as error:
                raise error.within(f"[{position}]") from None

    def _detail(self, rest: Fields, *, first: bool) -> None:
        """Merge by type and index; without an index the first of a delta goes on with the last.

        Source: docs/spec/wires.md#2.9.
        """
        kind, index, own_id = (rest.get(name, NULL) for name in ("type", "index", "id"))
        key = bytes(kind), bytes(index)
        item = self._by_key.get(key)
        if index == NULL and not (first and self._details and item is self._details[-1]):
            item = None
        if item is None or (NULL not in (own_id, item.rest.get("id", NULL)) and item.rest["id"] != own_id):
            item = self._by_key[key] = _Item("")
            self._details.append(item)
        pieces = {name: jsontext.text(rest.pop(name)) for name in _DETAIL if rest.get(name, NULL) != NULL}
        for name, raw in rest.items():
            put(item.rest, name, raw)
        for name, piece in pieces.items():
            item.texts.setdefault(name, []).append(piece)
            if piece and self._reasoning is None:
                if item.number is None:
                    empty: Table = {each: "" for each in ("text", "summary") if each in pieces}
                    part = decode.detail(jsontext.raw({**item.rest, **empty}))
                    item.number = self._sink.begin(part, (0, len(self._details)))
                self._sink.emit(_DETAIL[name](item.number, piece))

    def _read_content(self, _key: str, raw: Raw) -> None:
        piece = jsontext.text(raw)
        if self._items is not None:
            if piece:
                self._item({"type": Raw(b'"text"'), "text": raw}, first=True)
            return
        self._content = ""
        if piece:
            if self._text is None:
                self._text = self._sink.begin(trusted.Text(""), (1, 0)), []
            self._text[1].append(piece)
            self._sink.emit(TextDelta(self._text[0], piece))

    def _read_null(self, _key: str, _raw: Raw) -> None:
        if self._content is UNSET:
            self._content = None

    def _read_items(self, _key: str, raw: Raw) -> None:
        if self._items is None:
            self._items = []
            if self._text is not None:
                item = _Item("text")
                item.number, item.texts["text"] = self._text
                item.rest["type"] = Raw(b'"text"')
                self._items.append(item)
        for position, fields in enumerate(jsontext.rows(raw)):
            try:
                self._item(fields, first=position == 0)
            except DecodeError as error:
                raise error.within(f"[{position}]") from None

    def _item(self, rest: Fields, *, first: bool) -> None:
        """Take an item of a content list; the first of a delta goes on with the last, if it is of its type."""
        whole = jsontext.raw(rest)
        kind = json_fields.need_text(dict(rest), "type")
        items = self._items = [] if self._items is None else self._items
        item = items[-1] if first and items and items[-1].kind == kind and items[-1].whole is None else None
        if item is None:
            if items:
                self._end_item(items[-1])
            item = _Item(kind)
            items.append(item)
        field = _GROWING.get(kind)
        if field is not None:
            piece = json_fields.need_text(rest, field)
            item.texts.setdefault(field, []).append(piece)
            self._grow(item, rest, {field: ""}, TextDelta, piece)
        elif kind == "thinking":
            self._grow(item, rest, {"thinking": []}, ReasoningDelta, self._thinking(item, rest))
        else:
            item.whole = whole
            item.number = self._sink.begin(self._content_part(whole), (1, len(items)))

    def _end_item(self, item: _Item) -> None:
        """End an item, since another begins; a text may still get citations."""
        if item.number is not None and item.kind != "text":
            part: Any = self._content_part(jsontext.raw(item.fields()))
            self._end(part, item.number, ())

    @staticmethod
    def _content_part(raw: Raw) -> Any:
        part = read_part(raw)
        return part if holds(AssistantMessage, part) else trusted.Opaque(WIRE, raw)

    def _grow(self, item: _Item, rest: Fields, empty: Table, delta: _Delta, piece: str) -> None:
        for key, raw in rest.items():
            put(item.rest, key, raw)
        if piece:
            if item.number is None:
                part: Any = read_part(jsontext.raw({**item.rest, **empty}))
                item.number = self._sink.begin(part, (1, len(self._items or ())))
            self._sink.emit(delta(item.number, piece))

    @staticmethod
    def _thinking(item: _Item, rest: Fields) -> str:
        """Join the blocks of a thinking item: texts with texts, others as they are."""
        raw = rest.pop("thinking", None)
        if raw is None:
            raise DecodeError("missing", path="thinking")
        piece = thinking_text(raw)
        blocks = [jsontext.raw([{"type": "text", "text": piece}])] if jsontext.kind(raw) == "a string" else [raw]
        for block in jsontext.items(blocks[0]):
            match jsontext.value(block):
                case {"type": "text", "text": str(text), **others} if not others:
                    last = item.blocks[-1] if item.blocks else None
                    if isinstance(last, list):
                        last.append(text)
                    else:
                        item.blocks.append([text])
                case _:
                    item.blocks.append(jsontext.own(block))
        return piece

    def _read_refusal(self, key: str, raw: Raw) -> None:
        piece = jsontext.text(raw)
        if self._refusal is None and not piece:
            self._rest.emit(key, "")
            return
        if self._refusal is None:
            self._refusal = self._sink.begin(trusted.Refusal(""), (2,)), []
        if piece:
            self._refusal[1].append(piece)
            self._sink.emit(TextDelta(self._refusal[0], piece))

    def _read_audio(self, _key: str, raw: Raw) -> None:
        if self._recording is None:
            self._recording = Gathered()
        rest = jsontext.fields(raw)
        data = rest.get("data")
        if data is not None and jsontext.kind(data) == "a string" and (piece := jsontext.text(data)):
            del rest["data"]
            if self._audio is None:
                self._audio = self._sink.begin(trusted.Audio(trusted.Inline("")), (3,)), []
            self._audio[1].append(piece)
            self._sink.emit(DataDelta(self._audio[0], piece))
        for name, item in rest.items():
            self._recording.add(name, item)

    def _read_calls(self, key: str, raw: Raw) -> None:
        self.calls.delta(raw)
        if not self.calls:
            self._rest.add(key, raw)

    def _read_old_call(self, _key: str, raw: Raw) -> None:
        self.calls.old_delta(raw)

    _Reader = Callable[["Choice", str, Raw], None]
    _READERS: ClassVar[dict[str, dict[str, _Reader]]] = {
        "a string": {
            "role": _read_role,
            "content": _read_content,
            "refusal": _read_refusal,
        },
        "an array": {
            "content": _read_items,
            "tool_calls": _read_calls,
        },
        "an object": {"audio": _read_audio, OLD: _read_old_call},
        "null": {"content": _read_null, "role": _skip},
    }
    """Who reads which field, by the kind of value; what is not named is gathered."""
    _THOUGHTS: ClassVar[dict[tuple[str, bool], _Reader]] = {
        ("a string", False): _read_reasoning,
        ("an array", True): _read_details,
    }
    """Who reads a field of reasoning, by the kind of value, and by whether it is the field of details."""
    _STRICT: ClassVar[dict[str, str]] = {
        "role": "a string",
        "content": "a string or an array",
        "refusal": "a string",
        "tool_calls": "an array",
    }
    """Fields that are never of another kind."""

    # -- where the next piece goes --

    def target(self, kind: str | int) -> tuple[_Delta, int, list[str]] | None:
        """What a delta with nothing but a piece of ``content``, of reasoning or of a call adds to."""
        if isinstance(kind, int):
            call = self.calls.at(kind)
            plain = call is not None and call.number is not None and not call.custom and call.arguments == "text"
            return (ArgumentsDelta, call.number, call.pieces) if call and call.number is not None and plain else None
        if kind == "content":
            return None if self._text is None or self._items is not None else (TextDelta, *self._text)
        found = self._reasoning
        return None if found is None or found[0] != kind else (ReasoningDelta, *found[1:])

    # -- the end --

    def read(self) -> tuple[AssistantMessage, tuple[tuple[AssistantPart, ...], ...]]:
        """What was gathered, as ``decode`` reads a choice. Raises ``DecodeError``."""
        message: Table = {"role": "assistant", **self._rest.fields()}
        if self._reasoning is not None:
            message[self._reasoning[0]] = "".join(self._reasoning[2])
        if self._details:
            message[DETAILS] = [item.fields() for item in self._details]
        if self._items is not None:
            message["content"] = [item.fields() for item in self._items]
        elif self._content is not UNSET:
            message["content"] = self._content if self._text is None else "".join(self._text[1])
        if self._refusal is not None:
            message["refusal"] = "".join(self._refusal[1])
        if self._recording is not None:
            data = {} if self._audio is None else {"data": "".join(self._audio[1])}
            message["audio"] = {**self._recording.fields(), **data}
        if self.calls:
            message["tool_calls"] = self.calls.fields()
        if self.calls.old is not None:
            message[OLD] = self.calls.old.fields()
        word = {} if self.word is UNSET else {"finish_reason": self.word}
        logprobs = {} if self._logprobs is None else {"logprobs": self._logprobs}
        beside = {key: raw for key, raw in self._beside.items() if key != "message"}
        return decode.choice(
            jsontext.raw({**beside, **logprobs, **word, "message": message}), self.number, self._thoughts
        )

    def finish(self, groups: tuple[tuple[AssistantPart, ...], ...]) -> None:
        """Emit what ``read`` found beyond the emitted parts, and end every part."""
        reasoning = [item.number for item in self._details]
        if self._reasoning is not None:
            reasoning[:1] = [self._reasoning[1]]
        text = None if self._text is None else self._text[0]
        content = [text] if self._items is None else [item.number for item in self._items]
        numbers: tuple[list[int | None], ...] = (
            reasoning,
            content,
            [None if self._refusal is None else self._refusal[0]],
            [None if self._audio is None else self._audio[0]],
            self.calls.finish(groups[4]),
        )
        for group, (found, emitted) in enumerate(zip(groups, numbers, strict=True)):
            for position, part in enumerate(found):
                self._end(part, emitted[position] if position < len(emitted) else None, (group, position))

    def _end(self, part: AssistantPart, number: int | None, place: tuple[int, ...]) -> None:
        sink = self._sink
        if number is None:
            number = self._emit_whole(part, place)
        emitted = sink.emitted(number)
        if isinstance(part, Text) and isinstance(emitted, Text) and structs.replace(part, citations=()) == emitted:
            for citation in part.citations:
                sink.emit(CitationDelta(number, citation))
            emitted = part
        if emitted != part:
            sink.emit(PartEnd(number, part))
        elif number not in self._ended:
            sink.emit(PartEnd(number))
        self._ended.add(number)

    def _emit_whole(self, part: AssistantPart, place: tuple[int, ...]) -> int:
        """Emit a new part; its text is emitted in deltas."""
        bare = part
        deltas: list[tuple[_Delta, str | None]] = []
        if isinstance(part, (Text, Refusal)):
            bare = structs.replace(part, text="")
            deltas = [(TextDelta, part.text or None)]
        elif isinstance(part, Reasoning):
            bare = structs.replace(part, text="", signature=None, encrypted=None)
            deltas = [
                (ReasoningDelta, part.text or None),
                (DataDelta, part.encrypted),
                (SignatureDelta, part.signature),
            ]
        number = self._sink.begin(structs.replace(bare, citations=()) if isinstance(bare, Text) else bare, place)
        for delta, text in deltas:
            if text is not None:
                self._sink.emit(delta(number, text))
        return number
