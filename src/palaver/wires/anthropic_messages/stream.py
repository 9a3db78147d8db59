"""Read streams of Messages: server-sent events whose name is the ``type`` of their data.

- ``index`` identifies a block. Its start, deltas and stop are separate events. Results of server tools arrive whole in
  the start. ``message_stop`` is the end mark; a stream that ends after the stop reason is complete too.
- The input of a call is the joined text of its ``input_json_delta`` pieces. Without pieces it is the input in the
  start, ``{}``.
- ``message_delta`` has the last fields: stop reason, usage, container, ``context_management``.
- Each usage object replaces the earlier one field by field; ``null`` and absent replace nothing. When the two disagree
  on ``input_tokens``, the later one counts (docs/spec/wires.md#1.2).
- A second ``message_start`` with the same id adds nothing. One with another id is an error.
- ``ping``, objects without a type (invocation metrics of Bedrock) and unknown types become provider events.

Source: docs/spec/wires.md#4.5, #4.7; https://docs.anthropic.com/en/docs/build-with-claude/streaming.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import AssistantPart, Opaque, Reasoning, Text, ToolCall
from palaver.stream import sse
from palaver.wires._engine import json_fields
from palaver.wires._engine.shapes import REFUSED, Shape, fast, from_fields
from palaver.wires._engine.stream_decoder import StreamDecoder, opened, snapshot
from palaver.wires.anthropic_messages.decode import around, provider_error
from palaver.wires.anthropic_messages.decode_parts import answer_part, citation
from palaver.wires.anthropic_messages.shapes import FINISHED, WIRE, read_usage
from palaver.wires.anthropic_messages.stream_write import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.events import Delta
    from palaver.core.request import Response
    from palaver.stream.frames import Frame

__all__ = ["Decoder", "Encoder"]


# -- deltas -------------------------------------------------------------------


class _Text(Shape, tag_field="type", tag="text_delta"):
    text: str | UnsetType | None = UNSET


class _Thinking(Shape, tag_field="type", tag="thinking_delta"):
    text: str | UnsetType | None = field(name="thinking", default=UNSET)


class _Input(Shape, tag_field="type", tag="input_json_delta"):
    text: str | UnsetType | None = field(name="partial_json", default=UNSET)


class _Signature(Shape, tag_field="type", tag="signature_delta"):
    text: str | UnsetType | None = field(name="signature", default=UNSET)


_Piece: TypeAlias = _Text | _Thinking | _Input | _Signature


class _Cited(Shape, tag_field="type", tag="citations_delta"):
    citation: Raw


class _Compaction(Shape, tag_field="type", tag="compaction_delta"):
    pass


class _Delta(Shape, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _Text | _Thinking | _Input | _Signature | _Cited | _Compaction


_delta = fast(_Delta)
_DELTAS: Final[dict[type, tuple[Callable[[int, str], Delta], AssistantPart]]] = {
    _Text: (TextDelta, trusted.Text("")),
    _Thinking: (ReasoningDelta, trusted.Reasoning(wire=WIRE)),
    _Input: (ArgumentsDelta, trusted.ToolCall("", "")),
    _Signature: (SignatureDelta, trusted.Reasoning(wire=WIRE)),
}
"""The event of a delta, and the part that such a delta begins where none was announced."""


class _Block(Struct):
    """An open block: the number of its part, and what remains to emit at its end."""

    number: int
    part: AssistantPart
    left: str = ""
    """The input that the start of a call held, until a delta comes."""
    cited: bool = False
    compaction: Fields | None = None
    summary: list[str] = []
    """The text of a summary, in pieces."""


class Decoder(StreamDecoder):
    """Reads one stream of Messages."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, sse.SSEReader())
        self._around: Fields = {}
        self._usage: Fields = {}
        self._head: Response | None = None
        self._blocks: dict[int, _Block] = {}
        self._count = 0
        self._counted = False
        self._finished: Finish | None = None

    def read(self, frame: Frame, /) -> None:
        """Emit what one event means."""
        try:
            found = _delta(frame.data)
        except REFUSED:
            self._event(frame)
        else:
            self._block_delta(found, frame)

    def end(self) -> None:
        """A stream that ends behind the stop reason is whole."""
        if self._around.get(FINISHED, NULL) != NULL:
            self._finish()

    # -- one event at a time -----------------------------------------------------------------------

    def _event(self, frame: Frame) -> None:
        if not frame.data.strip():
            return
        rest = opened(frame.data)
        kind = json_fields.take_text(rest, "type") or ""
        action = self._EVENTS.get(kind)
        if action is None:
            self.emit(ProviderEvent(WIRE, kind or frame.name, Raw(frame.data)))
            return
        try:
            action(self, rest, frame)
        except DecodeError as error:
            raise error.within(kind) from None

    def _message_start(self, rest: Fields, _frame: Frame) -> None:
        found = json_fields.need_fields(rest, "message")
        if self._head is not None:
            self._start(around(found).replace(origin=self.origin))
            return
        content = found.pop("content", NULL)
        usage = found.pop("usage", NULL)
        self._around = {key: raw for key, raw in found.items() if key != FINISHED or raw != NULL}
        self._head = self._heading()
        self._start(self._head)
        if self.done:
            return
        self._count_usage(usage)
        self._emit_usage()
        if jsontext.kind(content) == "an array":
            for part in json_fields.each(jsontext.items(content), "content", answer_part):
                self._begin(-1, part)
                self._block_stop({"index": Raw(b"-1")}, _frame)

    def _start(self, head: Response) -> None:
        """Begin the answer. Nothing is read after the start of another one."""
        self.emit(Start(head))
        self.done = self.assembler.failure is not None

    def _block_start(self, rest: Fields, _frame: Frame) -> None:
        index = json_fields.need_int(rest, "index")
        fields = json_fields.need_fields(rest, "content_block")
        if "id" in fields and "name" in fields:
            fields.setdefault("input", jsontext.EMPTY_OBJECT)
        try:
            part = answer_part(Raw(jsontext.encode(fields)))
        except DecodeError as error:
            raise error.within("content_block") from None
        if index in self._blocks:
            self._stop(index)
        self._begin(index, part)

    def _begin(self, index: int, part: AssistantPart) -> None:
        known = self._blocks[index] = _Block(self._count, part)
        self._count += 1
        match part:
            case Text(text=text):
                self.emit(PartStart(known.number, structs.replace(part, text="", citations=())))
                if text:
                    self.emit(TextDelta(known.number, text))
                for each in part.citations:
                    self.emit(CitationDelta(known.number, each))
            case Reasoning(text=text):
                self.emit(PartStart(known.number, structs.replace(part, text="")))
                if text:
                    self.emit(ReasoningDelta(known.number, text))
            case ToolCall(arguments_json=text):
                known.left = text
                self.emit(PartStart(known.number, structs.replace(part, arguments_json="")))
            case _:
                self.emit(PartStart(known.number, part))

    def _any_delta(self, rest: Fields, frame: Frame) -> None:
        self._block_delta(from_fields(_Delta, rest), frame)

    def _block_delta(self, found: _Delta, frame: Frame) -> None:
        delta: object = found.delta  # text, where its type is new
        known = self._blocks.get(found.index)
        grows = _DELTAS.get(type(delta))
        if grows is not None:
            event, bare = grows
            if known is None or type(known.part) is not type(bare):
                known = self._fitting(found.index, bare)
            text = cast("_Piece", delta).text
            if text:
                known.left = ""
                self._out.append(event(known.number, text))
        elif isinstance(delta, _Cited):
            known = self._fitting(found.index, trusted.Text(""))
            known.cited = True
            self.emit(CitationDelta(known.number, citation(delta.citation)))
        elif isinstance(delta, _Compaction) and known is not None and isinstance(known.part, Opaque):
            self._compact(known, delta.rest)
        else:
            self.emit(ProviderEvent(WIRE, "content_block_delta", Raw(frame.data)))

    def _fitting(self, index: int, bare: AssistantPart) -> _Block:
        """The block of that number; a delta that fits no open block begins one."""
        known = self._blocks.get(index)
        if known is not None and type(known.part) is type(bare):
            return known
        if known is not None:
            self._stop(index)
        self._begin(index, bare)
        return self._blocks[index]

    def _compact(self, known: _Block, delta: Fields) -> None:
        """Collect a summary: its text in pieces, and the last value of every other field."""
        stored = known.compaction
        if stored is None:
            stored = known.compaction = jsontext.fields(known.part.raw_json) if isinstance(known.part, Opaque) else {}
            first = stored.get("content", NULL)
            known.summary = [jsontext.text(first)] if jsontext.kind(first) == "a string" else []
        for key, raw in delta.items():
            if key == "content" and jsontext.kind(raw) == "a string":
                known.summary.append(jsontext.text(raw))
            elif raw != NULL or key not in stored:
                stored[key] = jsontext.own(raw)

    def _block_stop(self, rest: Fields, _frame: Frame) -> None:
        index = json_fields.need_int(rest, "index")
        if index in self._blocks:
            self._stop(index)

    def _stop(self, index: int) -> None:
        known = self._blocks.pop(index)
        last: AssistantPart | None = None
        if known.left:
            self.emit(ArgumentsDelta(known.number, known.left))
        if known.cited and "citations" in json_fields.native(known.part, WIRE):
            stored = json_fields.native(known.part, WIRE)
            del stored["citations"]
            found = self.assembler.part(known.number)
            last = None if found is None else found.replace(provider_json=json_fields.provider(WIRE, stored))
        if known.compaction is not None:
            if known.summary:
                known.compaction["content"] = jsontext.raw("".join(known.summary))
            last = trusted.Opaque(WIRE, jsontext.raw(known.compaction))
        self.emit(PartEnd(known.number, last))

    # -- the answer as a whole ---------------------------------------------------------------------

    def _message_delta(self, rest: Fields, _frame: Frame) -> None:
        usage = rest.pop("usage", NULL)
        delta = json_fields.take_fields(rest, "delta") or {}
        self._around |= rest | delta
        self._count_usage(usage)
        if self._around.get(FINISHED, NULL) != NULL and self._finished is None:
            self._finish()

    def _message_stop(self, _rest: Fields, _frame: Frame) -> None:
        self._finish()
        self.done = True

    def _error(self, _rest: Fields, frame: Frame) -> None:
        error = provider_error(frame.data)
        self.fail(Failed("provider", error.message, error.code, Raw(frame.data)))

    def _finish(self) -> None:
        """Emit what remains: the ends of open blocks, usage, the fields around the content, and the finish."""
        for index in list(self._blocks):
            self._stop(index)
        self._emit_usage()
        head = self._heading()
        if head != self._head:
            self._head = head
            self.emit(Update(head))
        message = around(dict(self._around)).message
        finished = Finish(message.finish_reason or "other", message.finish_reason_raw)
        if finished != self._finished:
            self._finished = finished
            self.emit(finished)

    def _heading(self) -> Response:
        """What stands around the content, but for why it ended."""
        fields = {key: raw for key, raw in self._around.items() if key != FINISHED}
        head = around(fields)
        return structs.replace(head, message=head.message.replace(finish_reason=None), origin=self.origin)

    def _count_usage(self, raw: Raw) -> None:
        if jsontext.kind(raw) == "an object":
            snapshot(self._usage, jsontext.fields(raw))
            self._counted = True

    def _emit_usage(self) -> None:
        if self._counted:
            self._counted = False
            self.emit(UsageUpdate(read_usage(jsontext.raw(self._usage))))

    _EVENTS: ClassVar[dict[str, Callable[[Any, Fields, Frame], None]]] = {
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _any_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "error": _error,
    }
