"""Read a ConverseStream: frames of an AWS event stream, and what each of them means.

Rules:

- ``contentBlockStart`` comes for calls, results and images only: a first delta at an index that is not open opens a
  block, and so does a delta of another kind than the block that is open there.
- A text with citations is what ``citationsContent`` is in a whole answer. A result of the service's own tool and an
  image are whole when their block ends; they are put together as blocks of a whole answer and read by ``blocks``.
- A call without input has the arguments ``{}``, as in a whole answer.
- ``messageStop`` finishes the answer, ``metadata`` behind it ends the stream. What they hold beside reason and usage
  stands where a whole answer has it: beside the output.
- Padding (``p``) is dropped. An event, a kind of block or a field for which a whole answer has no place is a
  ``ProviderEvent``, and so is the end of a block that nobody opened.
- An exception is the provider's error; its name is the code.

Source: docs/spec/wires.md#6.3; ``ConverseStreamOutput`` in botocore's ``bedrock-runtime``.

Stability: experimental.
"""

from __future__ import annotations

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
from palaver.core.jsontext import NULL
from palaver.core.parts import ToolCall
from palaver.core.request import Response
from palaver.stream.event_stream import EventStreamReader
from palaver.stream.frames import Frame
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, provider
from palaver.wires._engine.stream_decoder import StreamDecoder, opened, snapshot
from palaver.wires.bedrock_converse.blocks import citation
from palaver.wires.bedrock_converse.decode import take_role, take_usage
from palaver.wires.bedrock_converse.open_block import OpenBlock, has_no_arguments
from palaver.wires.bedrock_converse.shapes import (
    DELTAS,
    EXCEPTIONS,
    STARTS,
    THOUGHTS,
    WIRE,
    choose,
    finish,
    members,
    optional,
)
from palaver.wires.bedrock_converse.stream_write import Encoder
from palaver.wires.bedrock_converse.usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart

__all__ = ["Decoder", "Encoder"]


# -- the common deltas, read in one step --


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
        """Begin with nothing."""
        super().__init__(origin, EventStreamReader())
        self._open: dict[int, OpenBlock] = {}
        self._count = 0
        self._begun = False
        self._early: list[ProviderEvent] = []
        self._beside_role: Fields = {"@@role": hint("absent")}
        self._beside_output: Fields = {}
        self._told: Response | None = None
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
        """Say what one frame means. Raises ``DecodeError`` when it does not follow its format."""
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
        """End what is open, if the answer is finished; say what ``metadata`` would have been waited for."""
        if self.assembler.state == "finished":
            self._close_all()
            self._tell()
        self._tell_early()

    def fail(self, failed: Failed, /) -> None:
        """Say what waited, then that the stream failed. A call or a reasoning that is not whole stays open."""
        for index, block in list(self._open.items()):
            if block.waits:
                try:
                    self._close(index)
                except DecodeError:  # what came is no block yet
                    continue
        self._tell()
        self._tell_early()
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
            all_said = action(self, fields)
        except DecodeError as error:
            raise error.within(name) from None
        if not all_said:
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
        self.fail(Failed("provider", text or frame.name or "an error without a word", frame.name or None, raw))

    def _native(self, frame: Frame) -> None:
        """Keep a frame that says something no neutral event says; padding is left out."""
        try:
            fields = jsontext.fields(jsontext.source(frame.data))
            raw = jsontext.raw({key: each for key, each in fields.items() if key != "p"})
        except DecodeError:  # no object, or no JSON at all
            raw = jsontext.raw(frame.data.decode(errors="backslashreplace"))
        event = ProviderEvent(WIRE, frame.name, raw)
        if self._begun:
            self.say(event)
        else:
            self._early.append(event)

    # -- the answer as a whole --

    def _head(self) -> Response:
        message = trusted.AssistantMessage(provider_json=provider(WIRE, self._beside_role))
        return trusted.Response(message, origin=self.origin, provider_json=provider(WIRE, self._beside_output))

    def _begin(self) -> None:
        """Begin the answer, whatever comes first."""
        if not self._begun:
            self._begun = True
            self._told = self._head()
            self.say(Start(self._told))
            self._tell_early()

    def _tell(self) -> None:
        """Say what became known of the whole answer."""
        if self._usage:
            self.say(UsageUpdate(read_usage(Raw(jsontext.encode(self._usage)))))
            self._usage = {}
        head = self._head()
        if self._begun and head != self._told:
            self._told = head
            self.say(Update(head))

    def _tell_early(self) -> None:
        for event in self._early:
            self.say(event)
        self._early = []

    def _message_start(self, fields: Fields) -> bool:
        if self._count:
            raise DecodeError("a second answer begins within the first")
        take_role(fields)
        self._beside_role = fields
        self._begin()
        return True

    def _message_stop(self, fields: Fields) -> bool:
        self._begin()
        self._close_all()
        word = optional(json_fields.take_text, fields, "stopReason")
        self._beside_output |= fields
        if not self._stopped:
            self._stopped = True
            self.say(Finish(finish(word, self.assembler.content()), UNSET if word is None else word))
        self._end_when_told()
        return True

    def _metadata(self, fields: Fields) -> bool:
        self._begin()
        usage = take_usage(fields)
        if usage is not None:
            new = jsontext.fields(usage)
            snapshot(self._usage, new)
        self._beside_output |= fields
        self._measured = True
        self._end_when_told()
        return True

    def _end_when_told(self) -> None:
        if self._stopped and self._measured:
            self._close_all()
            self._tell()
            self.done = True

    # -- blocks begin and end --

    def _block_start(self, fields: Fields) -> bool:
        index, start = _index(fields), json_fields.need_fields(fields, "start")
        kind = choose(start, STARTS)
        if kind is None:
            return False
        inner = json_fields.need_fields(start, kind)
        self._begin()
        self._close(index)
        block = OpenBlock(kind, self._count, inner, start)
        part = block.begun()
        self._put(index, block, structs.replace(part, arguments_json="") if isinstance(part, ToolCall) else part)
        return _is_empty(fields)

    def _put(self, index: int, block: OpenBlock, part: AssistantPart) -> None:
        self._open[index] = block
        self._count += 1
        self.say(PartStart(block.number, part, 0, (index,)))

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
        index = _index(fields)
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
            self.say(ArgumentsDelta(block.number, block.default()))
        self.say(PartEnd(block.number, block.ended(gathered)))

    # -- what blocks are made of --

    def _block_delta(self, fields: Fields) -> bool:
        index, delta = _index(fields), json_fields.need_fields(fields, "delta")
        kinds = members(delta, DELTAS)
        all_said = bool(kinds)
        for kind in kinds:
            try:
                all_said &= self._DELTAS[kind](self, index, delta.pop(kind))
            except DecodeError as error:
                raise error.within(f"delta.{kind}") from None
        return all_said and _is_empty(delta) and _is_empty(fields)

    def _text(self, index: int, raw: Raw) -> bool:
        text = jsontext.text(raw)
        block = self._at(index, ("text", "citation"), trusted.Text(""))
        block.kind = "text"
        self.say(TextDelta(block.number, text))
        return True

    def _cite(self, index: int, raw: Raw) -> bool:
        jsontext.fields(raw)
        block = self._at(index, ("citation", "text"), trusted.Text(""))
        block.raws.append(jsontext.own(raw))
        self.say(CitationDelta(block.number, citation(raw)))
        return True

    def _reason(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        kinds = members(inner, THOUGHTS)
        for kind in kinds:
            text = json_fields.need_text(inner, kind)
            if kind == "redactedContent":
                block = self._at(index, ("redactedContent",), trusted.Reasoning(wire=WIRE))
                block.texts.append(text)
                self.say(DataDelta(block.number, text))
            else:
                block = self._at(index, ("reasoningText",), trusted.Reasoning(wire=WIRE))
                self.say((ReasoningDelta if kind == "text" else SignatureDelta)(block.number, text))
        return bool(kinds) and _is_empty(inner)

    def _input(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        text = json_fields.need_text(inner, "input")
        block = self._at(index, ("toolUse",), trusted.ToolCall("", ""))
        self.say(ArgumentsDelta(block.number, text))
        return _is_empty(inner)

    def _result(self, index: int, raw: Raw) -> bool:
        self._begun_at(index, "toolResult").raws += map(jsontext.own, jsontext.items(raw))
        return True

    def _image(self, index: int, raw: Raw) -> bool:
        inner = jsontext.fields(raw)
        source = json_fields.take_fields(inner, "source")
        block = self._begun_at(index, "image")
        if source is not None:
            data = json_fields.take_text(source, "bytes")
            if data is not None:
                block.texts.append(data)
            block.source |= source
        block.fields |= inner
        return True

    def _begun_at(self, index: int, kind: str) -> OpenBlock:
        """The block that a delta adds to, of a kind that cannot do without its start."""
        block = self._open.get(index)
        if block is None or block.kind != kind:
            raise DecodeError("more of a block that did not begin")
        return block

    _DELTAS: ClassVar[dict[str, Callable[[Any, int, Raw], bool]]] = {
        "text": _text,
        "toolUse": _input,
        "toolResult": _result,
        "reasoningContent": _reason,
        "citation": _cite,
        "image": _image,
    }
    """What each kind of delta adds; each says whether it could say all."""

    _EVENTS: ClassVar[dict[str, Callable[[Any, Fields], bool]]] = {
        "messageStart": _message_start,
        "contentBlockStart": _block_start,
        "contentBlockDelta": _block_delta,
        "contentBlockStop": _block_stop,
        "messageStop": _message_stop,
        "metadata": _metadata,
    }
    """What each event says; each tells whether it could say all."""


def _index(fields: Fields) -> int:
    index = json_fields.take_int(fields, "contentBlockIndex")
    if index is None:
        raise DecodeError("missing", path="contentBlockIndex")
    return index


def _is_empty(rest: Fields) -> bool:
    return all(raw == NULL for raw in rest.values())
