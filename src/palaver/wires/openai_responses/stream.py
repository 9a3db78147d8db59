"""Read streams of Responses: server-sent events whose name is the ``type`` of their data (docs/spec/wires.md#3.5).

- ``output_index`` identifies an item, and ``content_index`` a part of a message. Ids of items are no key: some
  gateways change them from event to event.
- ``output_item.done`` has the final item, and the terminal event the final answer, which ``decode`` reads
  (``stream_items``).
- ``encrypted_content`` differs from event to event. That of ``output_item.added`` is ignored.
- The texts of a reasoning item are joined as in ``decode``: a blank line between them. When both summary and content
  come, the first kind is emitted, and the other is a provider event until the item is done.
- A stream that ends without a terminal event broke off, except that of a background response.
- ``null`` for a text is an empty text. ``sequence_number``, ``obfuscation`` and padding have no meaning here.
- Nearly all events are more of a text that has begun. ``read`` recognises them by their shape and the table ``_sinks``,
  which takes a quarter of the time of reading their fields; every other event, and any such event with another field,
  is read by ``_slow_path``, which means the same by it.
- Progress and unknown events are provider events. Known events with unknown fields are emitted, and are provider
  events as well.

Source: docs/spec/wires.md#3.4 to #3.8; https://platform.openai.com/docs/api-reference/responses-streaming.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    Failed,
    PartEnd,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
)
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import AnyPart, Refusal, Text, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires._engine.stream_decoder import opened
from palaver.wires.openai_responses import parts
from palaver.wires.openai_responses.calls import NATIVE
from palaver.wires.openai_responses.decode import Items, provider_error
from palaver.wires.openai_responses.shapes import WIRE, peek
from palaver.wires.openai_responses.stream_items import Item, PartTracker, whole
from palaver.wires.openai_responses.stream_shapes import (
    ARGUMENTS,
    BLANK,
    BY_EVENT,
    CONTENT,
    CUSTOM,
    DELTA,
    EMPTY,
    ENDS,
    KNOWN,
    NONE,
    ODD,
    QUOTED,
    REFUSAL,
    SUMMARY,
    TEXT,
    TEXT_FIELDS,
    both,
    escaped,
    plain,
)
from palaver.wires.openai_responses.stream_write import Encoder

__all__ = ["Decoder", "Encoder"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.parts import AssistantPart
    from palaver.stream.frames import Frame


class Decoder(PartTracker):
    """Reads one stream of Responses."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin)
        self._created = False
        self._snapshot: Fields = {}
        self._logprobs: dict[int, list[Raw]] = {}

    def read(self, frame: Frame, /) -> None:
        """Emit what one event means."""
        try:
            found = plain(frame.data)
            event, number = self._sinks[found.type, found.output_index, found.content_index or found.summary_index]
        except ODD:
            self._slow_path(frame)
            return
        if found.delta:
            self.emit(event(number, found.delta))

    def end(self) -> None:
        """A background response goes on elsewhere; of any other stream the rest is missing."""
        if self._concluded:
            return
        status = peek(self._snapshot, "status")
        if self._snapshot.get("background") == jsontext.TRUE and status in ("queued", "in_progress"):
            self._conclude(self._snapshot)
            return
        for number, found in self._logprobs.items():
            part = self.assembler.part(number)
            if isinstance(part, Text):
                stored = {**json_fields.native(part, WIRE), "logprobs": jsontext.raw(found)}
                self.emit(PartEnd(number, part.replace(provider_json=json_fields.provider(WIRE, stored))))

    # -- one event at a time -----------------------------------------------------------------------

    def _slow_path(self, frame: Frame) -> None:
        data = frame.data
        if (frame.name in QUOTED and self._piece(data)) or data.strip() in (b"", b"[DONE]"):
            return
        rest = opened(data)
        kind = json_fields.take_text(rest, "type") or frame.name
        action = self._EVENTS.get(kind)
        if action is None and rest.get("error", NULL) != NULL and kind[:9] != "response.":
            action = Decoder._error
        event = ProviderEvent(WIRE, kind, Raw(data))
        if action is None:
            self.emit(event)
            return
        odd = bool(rest.keys() - KNOWN)
        if odd and kind in ENDS and kind != "error":
            self.emit(event)
        try:
            handled = action(self, kind, rest, data)
        except DecodeError as error:
            raise error.within(kind) from None
        if handled is False or (odd and not self.done):
            self.emit(event)

    def _piece(self, data: bytes) -> bool:
        """More of a text that is a JSON string; ``False`` for another shape."""
        try:
            found = escaped(data)
            event, number = self._sinks[found.type, found.output_index, -1]
        except ODD:
            return False
        text = bytes(found.delta)
        if text[:1] != b'"':
            return False
        try:
            piece = text[1:-1].decode()
        except UnicodeDecodeError:
            return False
        if piece:
            self.emit(event(number, piece))
        return True

    # -- the answer as a whole ---------------------------------------------------------------------

    def _lifecycle(self, kind: str, rest: Fields, _data: bytes) -> bool | None:
        """The answer begins; a repetition is progress."""
        fields = json_fields.need_fields(rest, "response")
        if self._created:
            if kind == "response.created" and self._head is not None and peek(fields, "id") != self._head.id:
                self.fail(Failed("corrupt", "a second answer begins within the first"))
                return None
            self._snapshot = fields
            return False
        self._created = True
        self._snapshot = dict(fields)
        items = fields.get("output", NULL)
        begun = jsontext.kind(items) == "an array"
        self._heading(whole({**fields, "output": NONE} if begun else fields))
        for index, raw in enumerate(jsontext.items(items) if begun else ()):
            self._begin_item(index, raw)
        return None

    def _end_event(self, kind: str, rest: Fields, data: bytes) -> None:
        response = json_fields.need_fields(rest, "response")
        handled = kind == "response.failed" and response.get("error", NULL) != NULL  # else it has no error
        self._conclude(response, data if handled else None)
        self.done = True

    def _error(self, _kind: str, rest: Fields, data: bytes) -> None:
        """The two forms of an error: its fields in the event, or in its ``error``."""
        found = provider_error(jsontext.encode({key: raw for key, raw in rest.items() if raw != NULL}))
        self.fail(Failed("provider", found.message, found.code, Raw(data)))

    # -- items -------------------------------------------------------------------------------------

    def _item_added(self, _kind: str, rest: Fields, _data: bytes) -> bool | None:
        index = json_fields.need_int(rest, "output_index")
        raw = rest.get("item", NULL)
        if raw == NULL:
            return False
        try:
            self._begin_item(index, raw)
        except DecodeError as error:
            raise error.within("item") from None
        return None

    def _begin_item(self, index: int, raw: Raw) -> None:
        fields = jsontext.fields(raw)
        known = self._items.get(index)
        if known is not None and not known.done and known.id == peek(fields, "id"):
            return
        item = self._new_item(index, peek(fields, "id"))
        reader = _reader(item)
        kind = peek(fields, "type") or ""
        self._bare = False
        if kind == "message" and peek(fields, "role") == "assistant" and fields.get("content", NULL) in (NULL, NONE):
            item.beside = reader.beside(
                {key: each for key, each in fields.items() if key not in ("type", "role", "content")}
            )
            self._bare = reader.bare
            return
        fields.pop("encrypted_content", None)
        name, blank = BLANK.get(kind, ("", NULL))
        if name and fields.get(name, NULL) == NULL:
            fields[name] = blank
        try:
            found = reader.one(jsontext.raw(fields), index)
        except DecodeError:
            if kind in NATIVE and kind not in ARGUMENTS:
                return  # complete when it is done
            raise
        self._reasoning = reader.reasoning
        self._begin_parts(item, kind, found, fields)

    def _begin_parts(self, item: Item, kind: str, found: list[AnyPart], fields: Fields) -> None:
        name, field, head, _ = ARGUMENTS.get(kind, ("", "", "", ""))
        for n, part in enumerate(found):
            begun: Any = part
            if name and isinstance(part, ToolCall) and fields.get(field, EMPTY) == EMPTY:
                begun = structs.replace(part, arguments_json="")
            self._begin(item, n, begun)
        if name and not head:
            self._add_sink(item, name + DELTA, 0, ArgumentsDelta, item.parts[0])

    def _item_done(self, _kind: str, rest: Fields, _data: bytes) -> bool | None:
        index = json_fields.need_int(rest, "output_index")
        raw = rest.get("item", NULL)
        if raw == NULL:
            return False
        try:
            fields = jsontext.fields(raw)
            item = self._items.get(index)
            if item is None or (item.done and item.id != peek(fields, "id")):
                item = self._new_item(index, None)
            reader = _reader(item)
            found: list[Any] = reader.one(raw, index)
        except DecodeError as error:
            raise error.within("item") from None
        if not item.parts and peek(fields, "type") == "reasoning":
            self._reasoning = reader.reasoning
        item.id, item.done = peek(fields, "id"), True
        for n, part in enumerate(found):
            if n in item.parts:
                self._settle(item.parts[n], part)
            else:
                self._end_part(self._begin(item, n, part))
        for number in item.parts.values():
            self._logprobs.pop(number, None)
            self._end_part(number)
        return None

    def _part(self, index: int, n: int, bare: AssistantPart, name: str = "") -> int:
        """The number of a part that deltas add to; one that was never announced begins."""
        item = self._item(index)
        number = item.parts.get(n)
        if number is None or type(self.assembler.bare(number)) is not type(bare):
            number = self._begin(item, n, bare)
            if name:
                self._add_sink(item, name + DELTA, n, TextDelta, number)
        return number

    # -- the content of messages -------------------------------------------------------------------

    def _content_added(self, _kind: str, rest: Fields, _data: bytes) -> None:
        index, n = json_fields.need_int(rest, "output_index"), _inner(rest)
        fields = json_fields.need_fields(rest, "part")
        item = self._item(index)
        if peek(fields, "type") == "reasoning_text" or n in item.parts:
            return
        if item.latest is not None:
            self._end_part(item.latest)
        for name in TEXT_FIELDS.values():
            if fields.get(name) == NULL:
                fields[name] = EMPTY
        notes = parts.behind(item.beside) if n else item.beside
        try:
            part: Any = parts.read_one(jsontext.raw(fields), notes, first=not n)
        except DecodeError as error:
            raise error.within("part") from None
        number = self._begin(item, n, part)
        if isinstance(part, (Text, Refusal)):
            self._add_sink(item, (TEXT if isinstance(part, Text) else REFUSAL) + DELTA, n, TextDelta, number)

    def _content_done(self, _kind: str, rest: Fields, _data: bytes) -> None:
        index, n = json_fields.need_int(rest, "output_index"), _inner(rest)
        fields = json_fields.need_fields(rest, "part")
        number = self._item(index).parts.get(n)
        text = peek(fields, TEXT_FIELDS.get(peek(fields, "type") or "", ""))
        if number is not None and text is not None:
            self._whole(number, text)

    def _text(self, kind: str, rest: Fields, _data: bytes) -> None:
        """A delta of a text or a refusal, or all of it."""
        name, _, word = kind.rpartition(".")
        bare, field = (trusted.Text(""), "text") if name == TEXT else (trusted.Refusal(""), "refusal")
        index, n = json_fields.need_int(rest, "output_index"), _inner(rest)
        text = _words(rest, word if word == "delta" else field)
        number = self._part(index, n, bare, name)
        if word == "done":
            self._whole(number, text)
            return
        if text:
            self.emit(TextDelta(number, text))
        found = json_fields.take_items(rest, "logprobs")
        if found:
            self._logprobs.setdefault(number, []).extend(map(jsontext.own, found))

    def _annotation(self, _kind: str, rest: Fields, _data: bytes) -> None:
        index, n = json_fields.need_int(rest, "output_index"), _inner(rest)
        raw = rest.get("annotation", NULL)
        if raw != NULL:
            self.emit(CitationDelta(self._part(index, n, trusted.Text(""), TEXT), parts.citation(raw)))

    # -- reasoning and calls -----------------------------------------------------------------------

    def _reason(self, kind: str, rest: Fields, _data: bytes) -> bool | None:
        """A delta of a summary or of reasoning, or all of it."""
        name, _, word = kind.rpartition(".")
        index = json_fields.need_int(rest, "output_index")
        segment = _inner(rest, "summary_index" if name == SUMMARY else "content_index")
        text = _words(rest, "delta" if word == "delta" else "text")
        number = self._part(index, 0, trusted.Reasoning(wire=WIRE))
        item = self._items[index]
        item.words = item.words or name
        if item.words != name:
            return False
        if word == "done" and (name + DELTA, index, segment) in self._sinks:
            return None
        if item.segment != segment:
            if item.segment is not None:
                self.emit(ReasoningDelta(number, "\n\n"))
            item.segment = segment
            self._add_sink(item, name + DELTA, segment, ReasoningDelta, number)
        if text:
            self.emit(ReasoningDelta(number, text))
        return None

    def _segment(self, _kind: str, rest: Fields, _data: bytes) -> None:
        """A part of a summary begins or ends; its texts imply that as well."""
        json_fields.need_int(rest, "output_index")

    def _arguments(self, kind: str, rest: Fields, _data: bytes) -> None:
        """A delta of arguments, or all of them."""
        name, _, word = kind.rpartition(".")
        field, head, tail = BY_EVENT[name]
        index = json_fields.need_int(rest, "output_index")
        raw = rest.get(word if word == "delta" else field, NULL)
        text = _words(rest, word if word == "delta" else field)
        number = self._part(index, 0, trusted.ToolCall("", "", custom=name == CUSTOM))
        item = self._items[index]
        if head and text:
            text = bytes(raw).strip()[1:-1].decode()
        if word == "done":
            self._whole(number, head + text + tail if raw != NULL else "")
        elif text:
            begun, item.segment = item.segment is not None, 0
            self.emit(ArgumentsDelta(number, text if begun else head + text))
            if not begun:
                self._add_sink(item, name + DELTA, -1 if head else 0, ArgumentsDelta, number)

    _EVENTS: ClassVar[dict[str, Callable[[Any, str, Fields, bytes], bool | None]]] = {
        "response.created": _lifecycle,
        "response.queued": _lifecycle,
        "response.in_progress": _lifecycle,
        "response.completed": _end_event,
        "response.incomplete": _end_event,
        "response.cancelled": _end_event,
        "response.failed": _end_event,
        "error": _error,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _content_added,
        "response.content_part.done": _content_done,
        "response.output_text.annotation.added": _annotation,
        "response.reasoning_summary_part.added": _segment,
        "response.reasoning_summary_part.done": _segment,
        **dict.fromkeys(both(TEXT, REFUSAL), _text),
        **dict.fromkeys(both(SUMMARY, CONTENT), _reason),
        **dict.fromkeys(both(*BY_EVENT), _arguments),
    }


def _reader(item: Item) -> Items:
    reader = Items(NONE, answer=True)
    reader.reasoning, reader.bare = item.before, item.bare
    return reader


def _inner(rest: Fields, key: str = "content_index") -> int:
    return json_fields.take_int(rest, key) or 0


def _words(rest: Fields, key: str) -> str:
    """Take a text that must be there; ``null`` is an empty one."""
    if key not in rest:
        raise DecodeError("missing", path=key)
    return json_fields.take_text(rest, key) or ""
