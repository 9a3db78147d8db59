"""Write streams of Responses.

- Events are the provider's, numbered. The terminal event holds the response that ``encode.response`` writes; a foreign
  one holds the items of the events before it, in their order.
- The message in which an answer is cut is incomplete, as the answer is.
- Parts become items as in ``encode.answer``: adjacent texts are one message. A message, and a provider's call with its
  result, is done when another item begins or grows.
- Text, refusals, reasoning and arguments grow. The free text of a custom call, and code, are sent without the JSON
  quotes around them; an escape cut in two waits for its other half. Other calls of the provider are sent when done.
- Reasoning is one summary. A piece that is only a blank line begins the next part of it.
- A failed stream ends with ``error``. Its fields stand in the event, where the specification has them, and in
  ``error``, where the provider sends them and its client reads them.
- Provider events are sent again, unless other events say the same.

Source: docs/spec/wires.md#3.4 to #3.8; https://platform.openai.com/docs/api-reference/responses-streaming.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext
from palaver.core.events import DataDelta, ReasoningDelta, SignatureDelta
from palaver.core.jsontext import paired
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Image,
    MalformedToolCall,
    Media,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.stream import sse
from palaver.wires._engine.json_fields import native, notes as notes_of
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires._engine.wire import fit_answer
from palaver.wires.openai_responses import parts
from palaver.wires.openai_responses.calls import NATIVE
from palaver.wires.openai_responses.encode import (
    UNKNOWN_ID,
    answer,
    completed,
    cut_off,
    is_cut,
    is_message_part,
    piece,
    response,
    spelled_out,
)
from palaver.wires.openai_responses.shapes import WIRE
from palaver.wires.openai_responses.stream_shapes import (
    ARGUMENTS,
    BY_EVENT,
    CONTENT,
    DELTA,
    DONE,
    EMPTY,
    KNOWN,
    REDUNDANT,
    REFUSAL,
    SUMMARY,
    TEXT,
)

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, ProviderEvent
    from palaver.core.parts import Citation
    from palaver.core.request import Response
    from palaver.wires._engine.capabilities import WireCapabilities


# -- text without its JSON quotes ------------------------------------------------------------------


_RUN: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{4})))*"
)
"""Text and escapes that are whole."""
_INCOMPLETE: Final = 12
"""The most characters that an unfinished pair of surrogates has."""


class Unquoted:
    """One string. ``head`` is what stands before its text."""

    __slots__ = ("_ended", "_head", "_pending_text", "_plain")

    def __init__(self, head: str) -> None:
        """Start before the first mark."""
        self._head: str = head
        self._pending_text: str = ""
        self._plain = False
        self._ended = False

    def feed(self, piece: str) -> Raw:
        """Take a piece; return its text as a JSON string, often an empty one."""
        if self._ended:
            return Raw(b'""')
        text = self._pending_text + piece
        self._pending_text = ""
        if self._head and not self._plain:
            if len(text) < len(self._head) and self._head.startswith(text):
                self._pending_text = text
                return Raw(b'""')
            self._plain = not text.startswith(self._head)
            text = text if self._plain else text[len(self._head) :]
            self._head = ""
        if self._plain:
            return jsontext.raw(text)
        match = _RUN.match(text)
        end = match.end() if match else 0
        rest = text[end:]
        if rest.startswith('"'):
            self._ended = True
        elif len(rest) > _INCOMPLETE or (rest and rest[0] != "\\"):
            self._plain = True
            return jsontext.raw(text)
        else:
            self._pending_text = rest
        return Raw(b'"%b"' % text[:end].encode("utf-8", "backslashreplace"))


# -- items and parts -------------------------------------------------------------------------------


_PREFIX: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class Item:
    """An item on its way out. ``index`` is its number, ``parts`` those that are over."""

    __slots__ = ("bare", "done", "id", "index", "kind", "open", "parts", "written")

    def __init__(self, index: int, written: Any, *, bare: bool) -> None:
        fields: dict[str, Any] = jsontext.fields(written) if isinstance(written, Raw) else written
        self.index = index
        self.kind = word(fields, "type") or ""
        self.id = word(fields, "id") or f"{_PREFIX.get(self.kind, 'item')}_{index}"
        self.bare = bare
        """It is a message of texts that came from elsewhere, which takes the next such text in."""
        self.parts: dict[int, AnyPart] = {}
        self.open = 0
        self.done = False
        self.written: Any = None
        """What was written of it when it was done."""


def word(fields: dict[str, Any], key: str) -> str | None:
    """Look at a field that may be a text still, and that should be a string."""
    found = fields.get(key)
    found = jsontext.value(found) if isinstance(found, Raw) else found
    return found if isinstance(found, str) else None


class Growing:
    """A part on its way out: ``n`` is its place in the item, ``name`` the events by which it grows."""

    __slots__ = ("citations", "encrypted", "item", "n", "name", "pieces", "segment", "unquoted", "words")

    def __init__(self, item: Item, n: int, name: str) -> None:
        self.item = item
        self.n = n
        self.name = name
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.encrypted: list[str] = []
        self.segment = -1
        """Which text of a reasoning item grows, and the pieces of it."""
        self.words: list[str] = []
        head = BY_EVENT.get(name, ("", "", ""))[1]
        self.unquoted = Unquoted(head) if head else None


def joined(part: AssistantPart, growing: Growing) -> AssistantPart:
    """Return the part with its deltas."""
    text = paired("".join(growing.pieces))
    match part:
        case Text():
            return structs.replace(part, text=part.text + text, citations=(*part.citations, *growing.citations))
        case Refusal():
            return structs.replace(part, text=part.text + text)
        case Reasoning():
            encrypted = (part.encrypted or "") + "".join(growing.encrypted)
            return structs.replace(part, text=part.text + text, encrypted=encrypted or part.encrypted)
        case ToolCall():
            return structs.replace(part, arguments_json=part.arguments_json + text)
        case _:
            return part


_BEGUN: Final[dict[str, tuple[str, ...]]] = {"message": ("content",), "reasoning": ("summary", "content")}
"""Lists that are empty in an item that begins."""
_ENDS: Final = frozenset({"completed", "incomplete", "failed", "cancelled", "queued", "in_progress"})
"""Statuses that an event is named after."""


class Encoder(StreamEncoder):
    """Writes one stream of Responses. Items may interleave."""

    def __init__(self, wire: str, capabilities: WireCapabilities, *, variant: str | None = None) -> None:
        """Start empty."""
        super().__init__(wire, capabilities, variant=variant)
        self._sequence = 0
        self._cut = False
        """Whether what is done now is where the answer was cut."""
        self._id: Any = None
        self._items: list[Item] = []
        self._message: Item | None = None
        self._pending_item: Item | None = None
        """The item whose parts are over, and which may go on."""
        self._growing: dict[int, Growing] = {}
        self._early: dict[int, list[ProviderEvent]] = {}
        """Events that wait for an item: whole items are written when they are over."""

    # -- the answer as a whole ---------------------------------------------------------------------

    def begin(self, head: Response) -> None:
        """``response.created`` and ``response.in_progress``."""
        message = structs.replace(head.message, content=(), usage=None, finish_reason=None, finish_reason_raw=UNSET)
        body = response(structs.replace(head, message=message, alternatives=()), self.context)
        body |= {"status": "in_progress", "output": [], "usage": None}
        if body.get("incomplete_details") is not None:
            body["incomplete_details"] = None
        self._id = body.get("id")
        for kind in ("response.created", "response.in_progress"):
            self._event(kind, response=body)

    def finish_answer(self, answer: Response) -> None:
        """The terminal event, which holds the whole answer."""
        self._cut = not self.context.own and is_cut(answer.message)
        self._continue_item(None)
        for index in sorted(self._early):
            self._end_part(index)
        body = response(answer, self.context) if self.context.own else self._fitted_body(answer)
        status = body.get("status")
        self._event(f"response.{status if status in _ENDS else 'completed'}", response=body)

    def _fitted_body(self, answer: Response) -> dict[str, Any]:
        """Write a foreign answer as ``encode_response`` does, with the earlier losses."""
        context = self._context(own=False)
        message = fit_answer(answer.message, 0, context)
        known = {(loss.kind, loss.what, loss.why) for loss in self.context.losses}
        for loss in context.losses:
            if (loss.kind, loss.what, loss.why) not in known and loss.what != "tool call ids":
                self.context.add(loss)
        body = response(structs.replace(answer, message=message, alternatives=()), self.context)
        if self._id is not None:
            body["id"] = self._id
        return body | {"output": [item.written for item in self._items]}

    def fail(self, failed: Failed) -> None:
        """``error``."""
        raw = failed.raw_json
        if raw is not UNSET and self.context.own and jsontext.kind(raw) == "an object":
            self._resend(raw, word(jsontext.fields(raw), "type") or "error")
            return
        found = {"code": failed.code, "message": failed.reason, "param": None}
        self._event("error", **found, error={"type": failed.code or "server_error", **found})

    def native(self, event: ProviderEvent) -> None:
        """An event without a neutral meaning."""
        fields = jsontext.fields(event.data_json)
        if event.name not in REDUNDANT:
            index = jsontext.value(fields.get("output_index", jsontext.NULL))
            if isinstance(index, int) and index >= len(self._items):
                self._early.setdefault(index, []).append(event)
            else:
                self._resend(event.data_json, event.name)
            return
        for key in sorted(fields.keys() - KNOWN):
            self.context.lose("dropped", key, f"a field of {event.name}")

    def _resend(self, data: Raw, name: str) -> None:
        """Write a provider event, numbered anew."""
        fields = jsontext.fields(data)
        if "sequence_number" in fields:
            fields["sequence_number"] = jsontext.raw(self._sequence)
        self._sequence += 1
        self.write(sse.write(jsontext.encode(fields), sse.nameable(name)))

    def _event(self, kind: str, **fields: Any) -> None:
        data = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        self.write(sse.write(jsontext.encode(data), kind))

    def _emit(self, growing: Growing, kind: str, **fields: Any) -> None:
        """An event of a part."""
        item = growing.item
        place: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        if growing.name in (TEXT, REFUSAL, CONTENT, ""):
            place["content_index"] = growing.n if growing.name != CONTENT else growing.segment
        elif growing.name == SUMMARY:
            place["summary_index"] = growing.segment
        self._event(kind, **place, **fields)

    # -- items -------------------------------------------------------------------------------------

    def _continue_item(self, item: Item | None) -> None:
        """Something of ``item`` follows; the item that waited for more of its own is done if that is another."""
        pending = self._pending_item
        if pending is not None and pending is not item:
            self._pending_item = None
            self._done(pending)

    def _done(self, item: Item) -> None:
        item.done = True
        written = self._written(item, item.parts)
        if isinstance(written, dict) and word(cast("dict[str, Any]", written), "status") == "in_progress":
            written["status"] = "completed"
        if self._cut:
            cut_off(written)
        item.written = written
        self._event("response.output_item.done", output_index=item.index, item=written)

    def _written(self, item: Item, content: dict[int, AnyPart]) -> Any:
        """Write an item that holds these parts."""
        return self._item_of([content[n] for n in sorted(content)], item.index)

    def _item_of(self, content: list[AnyPart], index: int) -> Any:
        pieces = [piece(0, part, first=not n) for n, part in enumerate(content)]
        written = spelled_out(answer(pieces, self.context)[0])
        return written if self.context.own else completed(written, index, None if self._id == UNKNOWN_ID else self._id)

    def _begin(self, part: AnyPart, *, bare: bool = False) -> Item:
        """``output_item.added``."""
        self._continue_item(None)
        written = self._item_of([part], len(self._items))
        item = Item(len(self._items), written, bare=bare)
        self._items.append(item)
        if isinstance(written, dict):
            fields = cast("dict[str, Any]", written)
            fields |= {key: [] for key in _BEGUN.get(item.kind, ()) if key in fields}
            if item.kind in ARGUMENTS:
                fields[ARGUMENTS[item.kind][1]] = ""
            if "status" in fields:
                fields["status"] = "in_progress"
        self._event("response.output_item.added", output_index=item.index, item=written)
        self._end_part(item.index)
        return item

    def _end_part(self, index: int) -> None:
        """Write the events that waited for an item."""
        for each in self._early.pop(index, ()):
            self._resend(each.data_json, each.name)

    def _message_of(self, part: AnyPart) -> tuple[Item, int]:
        """The message that a part stands in, and its place there."""
        notes = notes_of(part, WIRE)
        joined = "joined" in notes
        bare = not joined and "item" not in notes
        item = self._message
        last = bool(self._items) and item is self._items[-1]
        if item is None or item.done or not (joined or (bare and item.bare and last)):
            item = self._message = self._begin(part, bare=bare)
        self._continue_item(item)
        self._pending_item = None
        return item, len(item.parts) + item.open

    # -- parts that grow ---------------------------------------------------------------------------

    def open(self, shown: Shown) -> None:
        """``output_item.added`` or ``content_part.added``."""
        part = shown.part
        if isinstance(part, (Text, Refusal)):
            item, n = self._message_of(part)
            growing = Growing(item, n, TEXT if isinstance(part, Text) else REFUSAL)
            self._emit(growing, "response.content_part.added", part=self._content(part))
        else:
            item = self._begin(part)
            name = SUMMARY if isinstance(part, Reasoning) else ARGUMENTS.get(item.kind, ("-",))[0]
            if isinstance(part, Reasoning) and "content" in notes_of(part, WIRE):
                name = CONTENT
            growing = Growing(item, 0, name)
        item.open += 1
        self._growing[shown.number] = growing

    def _content(self, part: AnyPart) -> Any:
        return parts.write(part, native(part, WIRE), notes_of(part, WIRE), "output_text", self.context)

    def grow(self, shown: Shown, event: Delta) -> None:
        """A delta."""
        growing = self._growing[shown.number]
        text = event.text
        if isinstance(event, DataDelta):
            growing.encrypted.append(text)
        if not text or isinstance(event, (DataDelta, SignatureDelta)):
            return
        self._continue_item(growing.item)
        growing.pieces.append(text)
        if isinstance(event, ReasoningDelta):
            self._reason(growing, text)
        elif growing.name == TEXT:
            self._emit(growing, TEXT + DELTA, delta=text, logprobs=[])
        elif growing.unquoted is not None:
            found = growing.unquoted.feed(text)
            if found != EMPTY:
                self._emit(growing, growing.name + DELTA, delta=found)
        elif growing.name != "-":
            self._emit(growing, growing.name + DELTA, delta=text)

    def _reason(self, growing: Growing, text: str) -> None:
        begun = growing.segment >= 0
        if not begun or text == "\n\n":
            self._end_segment(growing)
            growing.segment += 1
            self._segment(growing, ".added", "")
        if not begun or text != "\n\n":
            growing.words.append(text)
            self._emit(growing, growing.name + DELTA, delta=text)

    def _end_segment(self, growing: Growing) -> None:
        if growing.segment >= 0:
            text = paired("".join(growing.words))
            growing.words.clear()
            self._emit(growing, growing.name + DONE, text=text)
            self._segment(growing, ".done", text)

    def _segment(self, growing: Growing, end: str, text: str) -> None:
        """A text of a reasoning item begins or ends."""
        summary = growing.name == SUMMARY
        name, kind = ("reasoning_summary", "summary_text") if summary else ("content", "reasoning_text")
        self._emit(growing, f"response.{name}_part{end}", part={"type": kind, "text": text})

    def cite(self, shown: Shown, citation: Citation) -> None:
        """``output_text.annotation.added``; for a text that is over, only the whole answer has it."""
        growing = self._growing.get(shown.number)
        if growing is None:
            return
        if citation.raw_json is not UNSET:
            at = len(growing.citations)
            self._emit(
                growing,
                "response.output_text.annotation.added",
                annotation_index=at,
                annotation=citation.raw_json,
            )
        growing.citations.append(citation)

    def close(self, shown: Shown, part: AssistantPart | None) -> None:
        """What all of it was, and that it is over."""
        growing = self._growing.pop(shown.number)
        item = growing.item
        self._continue_item(item)
        final = joined(shown.part, growing) if part is None else part
        item.parts[growing.n] = final
        item.open -= 1
        if isinstance(final, (Text, Refusal)):
            content = self._content(final)
            whole: dict[str, Any] = {"text": final.text, "logprobs": []}
            if growing.name == REFUSAL:
                whole = {"refusal": final.text}
            self._emit(growing, growing.name + DONE, **whole)
            self._emit(growing, "response.content_part.done", part=content)
        elif isinstance(final, Reasoning):
            self._end_segment(growing)
        elif growing.name in BY_EVENT:
            written = self._written(item, item.parts)
            field = BY_EVENT[growing.name][0]
            fields = cast("dict[str, Any]", written) if isinstance(written, dict) else {}
            if fields.get(field, jsontext.NULL) != jsontext.NULL:
                names = ("name", field) if item.kind == "function_call" else (field,)
                self._emit(growing, growing.name + DONE, **{name: fields[name] for name in names})
        self._rest(item)

    def _rest(self, item: Item) -> None:
        """A part of an item is over; unless more of it may follow, the item is done."""
        if item.open:
            return
        if item.kind == "message" or (item.kind in NATIVE and NATIVE[item.kind].results):
            self._pending_item = item
        else:
            self._done(item)

    # -- parts that come whole ---------------------------------------------------------------------

    def write_whole(self, shown: Shown) -> None:
        """A result beside its call, a part of a message, or an item."""
        part = shown.part
        notes = notes_of(part, WIRE)
        if "field" in notes and isinstance(part, (ServerToolResult, Image)):
            if self._pending_item is not None and self._pending_item.kind in NATIVE:
                self._pending_item.parts[len(self._pending_item.parts)] = part
        elif isinstance(part, MalformedToolCall):
            self._call(part)
        elif not is_message_part(part, notes):
            item = self._begin(part)
            item.parts[0] = part
            self._done(item)
        elif self.context.own or not isinstance(part, Media):
            item, n = self._message_of(part)
            item.parts[n] = part
            growing = Growing(item, n, "")
            for end in (".added", ".done"):
                self._emit(growing, f"response.content_part{end}", part=self._content(part))
            self._rest(item)

    def _call(self, part: MalformedToolCall) -> None:
        item = self._begin(part)
        item.parts[0] = part
        growing = Growing(item, 0, ARGUMENTS[item.kind][0])
        if part.raw:
            self._emit(growing, growing.name + DELTA, delta=part.raw)
        self._emit(growing, growing.name + DONE, name=part.name or "", arguments=part.raw)
        self._done(item)
