"""Read streams of Cohere: server-sent events with a ``type`` inside their data (docs/spec/wires.md#7).

- ``content-start``, ``-delta`` and ``-end`` are for texts and thinking, ``tool-call-*`` calls, ``tool-plan-delta`` the
  plan, which begins with its first delta. Each kind counts its indexes for itself; a new start under a number in use
  is a part of its own, and without a number the part begun last is meant. A delta without a start begins its part.
- Content stands before the plan, and the plan before the calls, as in the answer that is not streamed.
- ``citation-start`` holds one citation, whole. It is emitted at once, on the text that it cites. Whether citations
  point at texts in order is only known at the end: where they do not, they stay with the message, as in the answer that
  is not streamed, and the texts are emitted again without them, by a ``PartEnd``.
- ``message-end`` ends the answer; its ``error`` ends it badly. ``[DONE]`` may follow and has no meaning. Fields around
  the message, of the first event and of the last, are those that stand beside the message of a whole answer;
  ``logprobs`` of single deltas are listed there. Empty lists of the first event are noise.
- ``debug``, and unknown types are events of the provider's own. So is a known event, beside what it says,
  that holds unknown fields without a place in an answer.

Source: docs/spec/wires.md#7, #1.3; https://docs.cohere.com/v2/docs/streaming; cohere-python ``V2ChatStreamResponse``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    Failed,
    Finish,
    ProviderEvent,
    ReasoningDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import Image, Reasoning, Text
from palaver.core.request import Response
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider
from palaver.wires._engine.shapes import role_note
from palaver.wires._engine.stream_decoder import opened
from palaver.wires.cohere_chat import decode
from palaver.wires.cohere_chat.shapes import FINISH, WIRE
from palaver.wires.cohere_chat.stream_parts import CONTENT, CallEvent, ContentEvent, PartsDecoder, Slot, plain
from palaver.wires.cohere_chat.stream_write import Encoder

if TYPE_CHECKING:
    from palaver.stream.frames import Frame

__all__ = ["Decoder", "Encoder"]

# -- reading ---------------------------------------------------------------------------------------

_NOISE: Final = (NULL, Raw(b"[]"), Raw(b'""'))


class Decoder(PartsDecoder):
    """Reads one stream of Cohere."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin)
        self._rest: Fields = {}
        self._fields: Fields = {}
        self._role: Fields | None = None
        self._logprobs: list[Raw] = []
        self._emitted_head: Response | None = None

    def read(self, frame: Frame, /) -> None:
        """Emit what one event means."""
        try:
            event = plain(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._slow_path(frame)
            return
        if type(event) is ContentEvent:
            piece = event.delta.message.content
            text, thinking = piece.text, piece.thinking
            slot = self._texts.get(event.index) if thinking is UNSET else self._thoughts.get(event.index)
            if slot is None or (text and thinking):
                self._slow_path(frame)
            elif text:
                self._out.append(TextDelta(slot.number, text))
            elif thinking:
                self._out.append(ReasoningDelta(slot.number, thinking))
        elif type(event) is CallEvent:
            slot = self._calls.get(event.index)
            arguments = event.delta.message.tool_calls.function.arguments
            if slot is None or slot.null:
                self._slow_path(frame)
            elif arguments:
                self._out.append(ArgumentsDelta(slot.number, arguments))
        elif self._plan is None:
            self._slow_path(frame)
        elif event.delta.message.tool_plan:
            self._out.append(TextDelta(self._plan.number, event.delta.message.tool_plan))

    def end(self) -> None:
        """Emit what is known of an answer that broke off."""
        if self._emitted_head is not None and not self.done:
            self._emit_head(self._rest_of_answer())

    # -- events --

    def _slow_path(self, frame: Frame) -> None:
        data = frame.data
        if data == b"[DONE]":
            self.done = True
            return
        if not data.strip():
            return
        rest = opened(data)
        kind = json_fields.take_text(rest, "type")
        if kind is None:
            rest.pop("type", None)
            kind = frame.name
        action = self._EVENTS.get(kind)
        if action is None:
            self._other(kind, rest, data)
        elif action(self, rest, data):
            self._emit_provider_event(kind, data)

    def _other(self, kind: str, rest: Fields, data: bytes) -> None:
        """Read an event of a type that is not ours; an error has no type, or that of an error."""
        message = rest.get("message", NULL)
        if kind == "error" or (not kind and jsontext.kind(message) == "a string"):
            self.fail(Failed("provider", _error_text(rest), None, Raw(data)))
        else:
            self._emit_provider_event(kind, data)

    def _emit_provider_event(self, kind: str, data: bytes) -> None:
        """Hand out an event of the provider's own, behind the start of the answer."""
        self._begin()
        self.emit(ProviderEvent(WIRE, kind, Raw(data)))

    def _message_start(self, rest: Fields, _data: bytes) -> bool:
        delta = json_fields.take_fields(rest, "delta") or {}
        before, now = self._rest.get("id", NULL), rest.get("id", NULL)
        if NULL not in (before, now) and before != now:
            self.fail(Failed("corrupt", "a second answer begins within the first"))
            return False
        try:
            message = json_fields.take_fields(delta, "message")
        except DecodeError as error:
            raise error.within("delta") from None
        _drop(delta, "message")
        _drop(rest, "delta")
        self._rest.update({**rest, **delta})
        odd = self._first_fields(message) if message is not None else False
        self._begin()
        return odd

    def _first_fields(self, message: Fields) -> bool:
        """Keep the fields of the message that the first event knows; content in it has no meaning."""
        self._role = role_note(message.pop("role", NULL))
        return self._more_fields(message)

    def _more_fields(self, message: Fields) -> bool:
        found = [message.pop(key, NULL) for key in ("content", "tool_plan", "tool_calls", "citations")]
        self._fields.update(message)
        return any(raw not in _NOISE for raw in found)

    def _content_start(self, rest: Fields, _data: bytes) -> bool:
        piece, odd = _inside(rest, "content")
        index = _index(rest)
        kind = piece.get("type")
        if kind is None:
            kind = piece["type"] = _THINKING if "thinking" in piece else _TEXT
        if kind in (_TEXT, _THINKING):
            piece.setdefault(jsontext.text(kind), Raw(b'""'))
        try:
            made = decode.content_part(jsontext.raw(piece))
        except DecodeError as error:
            raise error.within("delta.message.content") from None
        if isinstance(made, Text):
            self._begin_text(made, index)
        elif isinstance(made, Reasoning):
            self._begin_thinking(made, index)
        else:
            whole = made if isinstance(made, Image) else trusted.Opaque(WIRE, jsontext.raw(piece))
            self._end("other", self._start("other", whole, index))
        return odd or bool(rest)

    def _content_delta(self, rest: Fields, _data: bytes) -> bool:
        piece, odd = _inside(rest, "content")
        index = _index(rest)
        logprobs = rest.pop("logprobs", NULL)
        if logprobs != NULL:
            self._logprobs.append(logprobs)
        _drop(piece, "type")
        slot: Slot | None = None
        try:
            thinking, text = json_fields.take_text(piece, "thinking"), json_fields.take_text(piece, "text")
        except DecodeError as error:
            raise error.within("delta.message.content") from None
        if thinking is not None:
            slot = self._find("thinking", index) or self._begin_thinking(trusted.Reasoning(wire=WIRE), index)
            if thinking:
                self.emit(ReasoningDelta(slot.number, thinking))
        if text is not None:
            slot = self._find("text", index) or self._begin_text(trusted.Text(""), index)
            if text:
                self.emit(TextDelta(slot.number, text))
        for key in ("thinking", "text"):
            _drop(piece, key)
        if slot is not None and piece:
            slot.late |= piece
            piece = {}
        return odd or bool(rest or piece)

    def _content_end(self, rest: Fields, _data: bytes) -> bool:
        index = _index(rest)
        known = False
        for kind in CONTENT:
            slot = self._find(kind, index)
            if slot is not None:
                known = True
                self._end(kind, slot)
        return not known or bool(rest)

    def _plan_delta(self, rest: Fields, _data: bytes) -> bool:
        message, delta = _message(rest)
        try:
            plan = json_fields.need_text(message, "tool_plan")
        except DecodeError as error:
            raise error.within("delta.message") from None
        _index(rest)
        if self._plan is None:
            self._plan = self._start("plan", trusted.Text("", provider_json=decode.PLAN), 0)
        if plan:
            self.emit(TextDelta(self._plan.number, plan))
        return bool(rest or delta or message)

    def _call_start(self, rest: Fields, _data: bytes) -> bool:
        found, odd = _inside(rest, "tool_calls")
        self._begin_call(found, _index(rest))
        return odd or bool(rest)

    def _call_delta(self, rest: Fields, _data: bytes) -> bool:
        found, odd = _inside(rest, "tool_calls")
        index = _index(rest)
        slot = self._find("call", index)
        if slot is None:
            self._begin_call(found, index)
            return odd or bool(rest)
        try:
            inner = json_fields.take_fields(found, "function") or {}
            try:
                arguments = json_fields.take_text(inner, "arguments")
            except DecodeError as error:
                raise error.within("function") from None
        except DecodeError as error:
            raise error.within("delta.message.tool_calls") from None
        if arguments:
            self._grow_call(slot, arguments)
        _drop(inner, "arguments")
        late = {key: raw for key, raw in found.items() if slot.call.get(key) != raw}
        if not slot.started:
            slot.started = jsontext.fields(slot.call["function"])
        later = {key: raw for key, raw in inner.items() if slot.started.get(key) != raw}
        if later:
            late["function"] = jsontext.raw({**slot.started, **later})
        slot.late |= late
        return odd or bool(rest)

    def _call_end(self, rest: Fields, _data: bytes) -> bool:
        slot = self._find("call", _index(rest))
        if slot is None or slot.ended:
            return True
        self._end("call", slot)
        return bool(rest)

    def _citation_start(self, rest: Fields, _data: bytes) -> bool:
        found, odd = _inside(rest, "citations")
        _index(rest)
        raw = jsontext.raw(found)
        self._begin()
        self._citations.append(raw)
        self._cite(raw)
        return odd or bool(rest)

    def _citation_end(self, rest: Fields, _data: bytes) -> bool:
        _index(rest)
        return bool(rest)

    def _message_end(self, rest: Fields, data: bytes) -> bool:
        delta = json_fields.take_fields(rest, "delta") or {}
        try:
            message = json_fields.take_fields(delta, "message") or {}
        except DecodeError as error:
            raise error.within("delta") from None
        refusal = delta.pop("error", NULL)
        _drop(delta, "message")
        _drop(rest, "delta")
        if rest.get("id") == NULL and "id" in self._rest:
            del rest["id"]
        _drop(message, "role")
        odd = self._more_fields(message)
        self._rest.update({**rest, **delta})
        self._begin()
        if refusal in _NOISE:
            self._over()
            return odd
        word = delta.get("finish_reason", NULL)
        code = jsontext.text(word) if jsontext.kind(word) == "a string" else None
        found = self._rest_of_answer()
        found.pop("finish_reason", None)
        self._emit_head(found)
        self.fail(Failed("provider", _error_text({"error": refusal}), code, Raw(data)))
        return False

    _EVENTS: ClassVar[dict[str, Callable[[Decoder, Fields, bytes], bool]]] = {
        "message-start": _message_start,
        "content-start": _content_start,
        "content-delta": _content_delta,
        "content-end": _content_end,
        "tool-plan-delta": _plan_delta,
        "tool-call-start": _call_start,
        "tool-call-delta": _call_delta,
        "tool-call-end": _call_end,
        "citation-start": _citation_start,
        "citation-end": _citation_end,
        "message-end": _message_end,
    }
    """The action for each event. It returns ``True`` for an event with fields that have no place in an answer."""

    def _begin(self) -> None:
        if self._emitted_head is None:
            self._emitted_head = self._head(dict(self._rest))
            self.emit(Start(self._emitted_head))

    # -- the answer as a whole --

    def _over(self) -> None:
        for kind, slots in self._slots.items():
            for slot in slots.values():
                self._end(kind, slot)
        if self._citations:
            self._fields.update(self._settle_citations())
        rest = self._rest_of_answer()
        word = decode.finish_word(rest)
        self._emit_head(rest)
        self.emit(Finish(FINISH.get(word or "", "other"), word))
        self.done = True

    def _rest_of_answer(self) -> Fields:
        rest = dict(self._rest)
        if self._logprobs:
            stored = rest.get("logprobs", NULL)
            rest["logprobs"] = jsontext.raw(
                [*self._logprobs, *(jsontext.items(stored) if jsontext.kind(stored) == "an array" else ())]
            )
        return rest

    def _emit_head(self, rest: Fields) -> None:
        counts = decode.usage(rest)
        head = self._head(rest)
        if head != self._emitted_head:
            self.emit(Update(head))
        if counts is not None:
            self.emit(UsageUpdate(counts))

    def _head(self, rest: Fields) -> Response:
        """Build what is known beside the parts, as ``decode.response`` does."""
        fields = provider(WIRE, self._fields, self._role)
        message = trusted.AssistantMessage(response_id=json_fields.take_text(rest, "id"), provider_json=fields)
        return trusted.Response(message=message, origin=self.origin, provider_json=provider(WIRE, rest))


_TEXT: Final = Raw(b'"text"')
_THINKING: Final = Raw(b'"thinking"')


def _drop(rest: Fields, key: str) -> None:
    """Drop a field that was read, or is null."""
    rest.pop(key, None)


def _index(rest: Fields) -> int | None:
    """Take ``index`` out, which some servers leave out."""
    index = json_fields.take_int(rest, "index")
    _drop(rest, "index")
    return index


def _message(rest: Fields) -> tuple[Fields, Fields]:
    """Take ``delta`` and its ``message`` out: the message, and what stands beside it."""
    delta = json_fields.need_fields(rest, "delta")
    try:
        return json_fields.need_fields(delta, "message"), delta
    except DecodeError as error:
        raise error.within("delta") from None


def _inside(rest: Fields, key: str) -> tuple[Fields, bool]:
    """Take ``delta.message.<key>`` out, an object; ``True`` when there are other fields beside it."""
    message, delta = _message(rest)
    try:
        return json_fields.need_fields(message, key), bool(delta or message)
    except DecodeError as error:
        raise error.within("delta.message") from None


def _error_text(rest: Fields) -> str:
    """Read the words of an error: ``message`` or ``error``, a text, or an object with a ``message``."""
    for key in ("message", "error"):
        match jsontext.value(rest.get(key, NULL)):
            case str(text) | {"message": str(text)}:
                return text
            case None:
                pass
            case other:
                return jsontext.encode(other).decode()
    return "an error without a message"
