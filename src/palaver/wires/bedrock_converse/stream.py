"""Read ConverseStream: frames of an AWS event stream.

- Only calls, results and images have a ``contentBlockStart``. Any other block begins with its first delta, and a delta
  of another kind than the open block begins a new one.
- Citations, results of the service's own tools and images are complete when their block ends. ``decode_parts`` reads
  them as blocks of a whole answer.
- Pieces of base64 may each be padded; they are joined by their bytes. Invalid base64 stays as it came.
- A call without input has the arguments ``{}``.
- ``messageStop`` finishes the answer, and ``metadata`` ends the stream. Their other fields stand beside the output, as
  in a whole answer.
- Padding (``p``) is dropped. Unknown events, blocks and fields become a ``ProviderEvent``, and so does the end of a
  block that is not open.
- An exception is the provider's error; its name is the code.

Source: docs/spec/wires.md#6.3; ``ConverseStreamOutput`` in botocore's ``bedrock-runtime``.

Stability: experimental.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
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
from palaver.core.jsontext import EMPTY_OBJECT, NULL
from palaver.core.parts import Text, ToolCall
from palaver.core.request import Response
from palaver.stream.event_stream import EventStreamReader
from palaver.stream.frames import Frame
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider
from palaver.wires._engine.shapes import ABSENT, role_note
from palaver.wires._engine.stream_decoder import StreamDecoder, opened, snapshot
from palaver.wires.bedrock_converse.decode import object_or_kept
from palaver.wires.bedrock_converse.decode_parts import answer_part, citation
from palaver.wires.bedrock_converse.shapes import (
    DELTAS,
    EXCEPTIONS,
    STARTS,
    THOUGHTS,
    WIRE,
    choose,
    finish,
    members,
    read_usage,
)
from palaver.wires.bedrock_converse.stream_write import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart


# -- open blocks -----------------------------------------------------------------------------------


_NOTHING: Final = Raw(b"[]")
_TO_COME: Final[dict[str, Fields]] = {
    "toolUse": {"input": EMPTY_OBJECT},
    "toolResult": {"content": _NOTHING},
    "image": {"source": Raw(b'{"bytes":""}')},
}
"""What stands in for the rest of a block when it begins."""


class OpenBlock:
    """A block that is open: its kind, the number of its part, and what waits until it is whole.

    The kinds are those of ``_TO_COME``, ``text``, ``reasoningText``, ``redactedContent``, and ``citation`` for a text
    of which only citations have come.
    """

    __slots__ = ("beside", "fields", "kind", "number", "raws", "source", "texts")

    def __init__(self, kind: str, number: int, fields: Fields | None = None, beside: Fields | None = None) -> None:
        """Open a block. ``fields`` are those of its start, ``beside`` those beside it."""
        self.kind = kind
        self.number = number
        self.fields = {} if fields is None else fields
        self.beside = {} if beside is None else beside
        self.raws: list[Raw] = []
        """Citations of a text, content of a result."""
        self.texts: list[str] = []
        """Pieces of base64 text."""
        self.source: Fields = {}
        """Where an image comes from, if not from those."""

    @property
    def is_pending(self) -> bool:
        """Whether a field came that is emitted only when the block is over."""
        return bool(self.raws or self.texts)

    def initial(self) -> AssistantPart:
        """What a block is that has a start. Raises ``DecodeError``."""
        return self._read(self.kind, {**_TO_COME[self.kind], **self.fields})

    def default(self) -> str:
        """The arguments of a call that gets none."""
        return bytes(self.fields.get("input", EMPTY_OBJECT)).decode()

    def ended(self, gathered: AssistantPart | None) -> AssistantPart | None:
        """What a block is that is over, where that is more than was gathered. Raises ``DecodeError``."""
        match self.kind:
            case "text" | "citation" if self.raws and isinstance(gathered, Text):
                inner = {"citations": jsontext.raw(self.raws)}
                if self.kind == "text":
                    inner["content"] = jsontext.raw([{"text": gathered.text}])
                return self._read("citationsContent", inner)
            case "redactedContent" if len(self.texts) > 1:
                return trusted.Reasoning(encrypted=rejoined(self.texts), wire=WIRE)
            case "toolResult":
                content = [*jsontext.items(self.fields.get("content", _NOTHING)), *self.raws]
                return self._read(self.kind, {**self.fields, "content": jsontext.raw(content)})
            case "image":
                data: dict[str, Any] = {"bytes": rejoined(self.texts)} if self.texts else {}
                source: Fields = {"source": jsontext.raw({**data, **self.source})} if data or self.source else {}
                return self._read(self.kind, {**self.fields, **source})
            case _:
                return None

    def _read(self, kind: str, inner: Fields) -> AssistantPart:
        return answer_part(jsontext.raw({kind: inner, **self.beside}))


def has_no_arguments(part: AssistantPart | None) -> bool:
    """Whether a part is a call that got no arguments."""
    return isinstance(part, ToolCall) and not part.arguments_json.strip()


def rejoined(pieces: Sequence[str]) -> str:
    """Join base64 texts, each of which may be padded, into that of all the bytes."""
    joined = "".join(pieces)
    if "=" not in joined.rstrip("="):
        return joined
    try:
        found = b"".join([binascii.a2b_base64(piece, strict_mode=True) for piece in pieces])
    except ValueError:
        return joined
    return binascii.b2a_base64(found, newline=False).decode()


__all__ = ["Decoder", "Encoder"]


# -- deltas ------------------------------------------------------------------------------------------
# A delta that adds text to a block of its kind is recognised in one step: nearly all events of a stream are such, and
# reading them field by field takes several times as long. Any other event is read by its fields.


class _Use(Struct, gc=False, forbid_unknown_fields=True):
    input: str


class _Thought(Struct, gc=False, forbid_unknown_fields=True):
    text: str


class _Delta(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    text: str | UnsetType = UNSET
    tool_use: _Use | UnsetType = UNSET
    reasoning_content: _Thought | UnsetType = UNSET


class _Event(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    content_block_index: int
    delta: _Delta
    p: str = ""


_common = msgspec.json.Decoder(_Event).decode
_UNCOMMON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Decoder(StreamDecoder):
    """One ConverseStream that is being read."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, EventStreamReader())
        self._open: dict[int, OpenBlock] = {}
        self._count = 0
        self._started = False
        self._early: list[ProviderEvent] = []
        self._beside_role: Fields = {}
        self._role: Fields | None = None
        self._beside_output: Fields = {}
        self._emitted_head: Response | None = None
        self._usage: Fields = {}
        self._stopped = self._measured = False

    def framed(self, data: bytes) -> Frame:
        """Make the frame of an event that botocore parsed: an object whose only key is its name."""
        fields = jsontext.fields(data)
        if len(fields) != 1:
            return Frame("", data)
        ((name, payload),) = fields.items()
        return Frame(name, bytes(payload))

    def read(self, frame: Frame, /) -> None:
        """Emit what one frame means. Raises ``DecodeError`` when it does not follow its format."""
        if frame.name != "contentBlockDelta" or frame.kind != "event":
            self._read(frame)
            return
        try:
            found = _common(frame.data)
        except _UNCOMMON:
            self._read(frame)
            return
        block = self._open.get(found.content_block_index)
        if block is None:
            self._read(frame)
            return
        delta = found.delta
        text, use, thought = delta.text, delta.tool_use, delta.reasoning_content
        match block.kind:
            case "text" if text is not UNSET and use is UNSET and thought is UNSET:
                self._out.append(TextDelta(block.number, text))
            case "toolUse" if use is not UNSET and text is UNSET and thought is UNSET:
                self._out.append(ArgumentsDelta(block.number, use.input))
            case "reasoningText" if thought is not UNSET and text is UNSET and use is UNSET:
                self._out.append(ReasoningDelta(block.number, thought.text))
            case _:
                self._read(frame)

    def end(self) -> None:
        """End open blocks if the answer is finished, and emit what waited for ``metadata``."""
        if self.assembler.state == "finished":
            self._close_all()
            self._emit()
        self._emit_early()

    def fail(self, failed: Failed, /) -> None:
        """Emit what waited, then the failure. An incomplete call or reasoning stays open."""
        for index, block in list(self._open.items()):
            if block.is_pending:
                try:
                    self._close(index)
                except DecodeError:  # what came is no block yet
                    continue
        self._emit()
        self._emit_early()
        super().fail(failed)

    # -- frames --

    def _read(self, frame: Frame) -> None:
        """Read a frame of any shape."""
        name = frame.name
        if frame.kind != "event" or name in EXCEPTIONS:
            self._failed(frame)
            return
        action = self._EVENTS.get(name)
        if action is None:
            self._native(frame)
            return
        try:
            fields = opened(frame.data)
            fields.pop("p", None)
            complete = action(self, fields)
        except DecodeError as error:
            raise error.within(name) from None
        if not complete:
            self._native(frame)

    def _failed(self, frame: Frame) -> None:
        text = frame.data.decode(errors="replace")
        raw: Raw | UnsetType = UNSET
        if jsontext.is_json(text):
            raw = Raw(jsontext.source(text))
            match jsontext.value(text):
                case {"message": str(message)} | {"Message": str(message)}:
                    text = message
                case _:
                    pass
        self.fail(Failed("provider", text or frame.name or "an error without a message", frame.name or None, raw))

    def _native(self, frame: Frame) -> None:
        """Emit a frame without a neutral meaning as a provider event; padding is dropped."""
        try:
            fields = jsontext.fields(jsontext.source(frame.data))
            raw = jsontext.raw({key: each for key, each in fields.items() if key != "p"})
        except DecodeError:  # no object, or no JSON at all
            raw = jsontext.raw(frame.data.decode(errors="backslashreplace"))
        event = ProviderEvent(WIRE, frame.name, raw)
        if self._started:
            self.emit(event)
        else:
            self._early.append(event)

    # -- the answer as a whole --

    def _head(self) -> Response:
        message = trusted.AssistantMessage(provider_json=provider(WIRE, self._beside_role, self._role))
        return trusted.Response(message, origin=self.origin, provider_json=provider(WIRE, self._beside_output))

    def _begin(self) -> None:
        """Begin the answer with the first event of any kind."""
        if not self._started:
            self._started = True
            self._emitted_head = self._head()
            self.emit(Start(self._emitted_head))
            self._emit_early()

    def _emit(self) -> None:
        """Emit new fields of the whole answer."""
        if self._usage:
            self.emit(UsageUpdate(read_usage(Raw(jsontext.encode(self._usage)))))
            self._usage = {}
        head = self._head()
        if self._started and head != self._emitted_head:
            self._emitted_head = head
            self.emit(Update(head))

    def _emit_early(self) -> None:
        for event in self._early:
            self.emit(event)
        self._early = []

    def _message_start(self, fields: Fields) -> bool:
        if self._count:
            raise DecodeError("a second answer begins within the first")
        self._role = role_note(fields.pop("role", NULL))
        self._beside_role = fields
        self._begin()
        return True

    def _message_stop(self, fields: Fields) -> bool:
        self._begin()
        self._close_all()
        word = json_fields.take_text(fields, "stopReason")
        self._beside_output |= fields
        if not self._stopped:
            self._stopped = True
            self.emit(Finish(finish(word, self.assembler.content()), UNSET if word is None else word))
        self._end_when_complete()
        return True

    def _metadata(self, fields: Fields) -> bool:
        self._begin()
        usage = object_or_kept(fields.pop("usage", ABSENT), fields)
        if usage is not None:
            new = jsontext.fields(usage)
            snapshot(self._usage, new)
        self._beside_output |= fields
        self._measured = True
        self._end_when_complete()
        return True

    def _end_when_complete(self) -> None:
        if self._stopped and self._measured:
            self._close_all()
            self._emit()
            self.done = True

    # -- blocks begin and end --

    def _block_start(self, fields: Fields) -> bool:
        index, start = json_fields.need_int(fields, "contentBlockIndex"), json_fields.need_fields(fields, "start")
        kind = choose(start, STARTS)
        if kind is None:
            return False
        inner = json_fields.need_fields(start, kind)
        self._begin()
        self._close(index)
        block = OpenBlock(kind, self._count, inner, start)
        part = block.initial()
        self._put(index, block, structs.replace(part, arguments_json="") if isinstance(part, ToolCall) else part)
        return _is_empty(fields)

    def _put(self, index: int, block: OpenBlock, part: AssistantPart) -> None:
        self._open[index] = block
        self._count += 1
        self.emit(PartStart(block.number, part, 0, (index,)))

    def _at(self, index: int, kinds: tuple[str, ...], part: AssistantPart) -> OpenBlock:
        """The block at an index, if it is of one of these kinds; else a new one of the first."""
        block = self._open.get(index)
        if block is None or block.kind not in kinds:
            self._begin()
            self._close(index)
            block = OpenBlock(kinds[0], self._count)
            self._put(index, block, part)
        return block

    def _block_stop(self, fields: Fields) -> bool:
        index = json_fields.need_int(fields, "contentBlockIndex")
        if index not in self._open:
            return False
        self._close(index)
        return _is_empty(fields)

    def _close_all(self) -> None:
        for index in list(self._open):
            self._close(index)

    def _close(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            return
        gathered = self.assembler.part(block.number)
        if block.kind == "toolUse" and has_no_arguments(gathered):
            self.emit(ArgumentsDelta(block.number, block.default()))
        self.emit(PartEnd(block.number, block.ended(gathered)))

    # -- what blocks are made of --

    def _block_delta(self, fields: Fields) -> bool:
        index, delta = json_fields.need_int(fields, "contentBlockIndex"), json_fields.need_fields(fields, "delta")
        kinds = members(delta, DELTAS)
        complete = bool(kinds)
        for kind in kinds:
            try:
                complete &= self._DELTAS[kind](self, index, delta.pop(kind))
            except DecodeError as error:
                raise error.within(f"delta.{kind}") from None
        return complete and _is_empty(delta) and _is_empty(fields)

    def _text(self, index: int, raw: Raw) -> bool:
        text = jsontext.text(raw)
        block = self._at(index, ("text", "citation"), trusted.Text(""))
        block.kind = "text"
        self.emit(TextDelta(block.number, text))
        return True

    def _cite(self, index: int, raw: Raw) -> bool:
        jsontext.fields(raw)
        block = self._at(index, ("citation", "text"), trusted.Text(""))
        block.raws.append(jsontext.own(raw))
        self.emit(CitationDelta(block.number, citation(raw)))
        return True

    def _reason(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        kinds = members(inner, THOUGHTS)
        for kind in kinds:
            text = json_fields.need_text(inner, kind)
            if kind == "redactedContent":
                block = self._at(index, ("redactedContent",), trusted.Reasoning(wire=WIRE))
                block.texts.append(text)
                self.emit(DataDelta(block.number, text))
            else:
                block = self._at(index, ("reasoningText",), trusted.Reasoning(wire=WIRE))
                self.emit((ReasoningDelta if kind == "text" else SignatureDelta)(block.number, text))
        return bool(kinds) and _is_empty(inner)

    def _input(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        text = json_fields.need_text(inner, "input")
        block = self._at(index, ("toolUse",), trusted.ToolCall("", ""))
        self.emit(ArgumentsDelta(block.number, text))
        return _is_empty(inner)

    def _result(self, index: int, raw: Raw) -> bool:
        self._block_at(index, "toolResult").raws += map(jsontext.own, jsontext.items(raw))
        return True

    def _image(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        source = json_fields.take_fields(inner, "source")
        block = self._block_at(index, "image")
        if source is not None:
            data = json_fields.take_text(source, "bytes")
            if data is not None:
                block.texts.append(data)
            block.source |= source
        block.fields |= inner
        return True

    def _block_at(self, index: int, kind: str) -> OpenBlock:
        """The block that a delta adds to, of a kind that cannot do without its start."""
        block = self._open.get(index)
        if block is None or block.kind != kind:
            raise DecodeError("a delta of a block that did not start")
        return block

    _DELTAS: ClassVar[dict[str, Callable[[Any, int, Raw], bool]]] = {
        "text": _text,
        "toolUse": _input,
        "toolResult": _result,
        "reasoningContent": _reason,
        "citation": _cite,
        "image": _image,
    }
    """The action for each kind of delta; it returns whether all of it was emitted."""

    _EVENTS: ClassVar[dict[str, Callable[[Any, Fields], bool]]] = {
        "messageStart": _message_start,
        "contentBlockStart": _block_start,
        "contentBlockDelta": _block_delta,
        "contentBlockStop": _block_stop,
        "messageStop": _message_stop,
        "metadata": _metadata,
    }
    """The action for each event; it returns whether all of it was emitted."""


def _is_empty(rest: Fields) -> bool:
    return all(raw == NULL for raw in rest.values())
