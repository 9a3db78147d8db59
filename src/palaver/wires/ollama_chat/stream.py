"""Read streams of Ollama: lines of JSON, each an answer of its own that holds what is new (docs/spec/wires.md#8).

- ``content`` and ``thinking`` append, calls and images come whole, the lists of ``logprobs`` are joined. Of every other
  field the last line that has it is kept, ``created_at`` included: the server makes the answer that is not streamed so.
- ``content`` stands in every line, mostly empty. Its part begins with the first letter; text that stays empty is
  emitted at the end, since the answer that is not streamed holds it too.
- The line whose ``done`` is true ends the answer. A line with a non-empty ``error`` is a failure.
- A line without a ``message`` is an event of the provider's own, unless it is the last.
- Calls without an id get the one that their place gives them, as in the answer that is not streamed.

Source: docs/spec/wires.md#8, #1.3; ollama/ollama ``api/types.go``, ``server/routes.go``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.events import (
    ArgumentsDelta,
    Failed,
    Finish,
    PartEnd,
    PartStart,
    ProviderEvent,
    ReasoningDelta,
    Start,
    TextDelta,
    Update,
    UsageUpdate,
)
from palaver.core.jsontext import NULL, TRUE, Fields
from palaver.core.parts import AssistantPart, MalformedToolCall, ToolCall
from palaver.core.request import Response
from palaver.stream import ndjson
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider
from palaver.wires._engine.shapes import role_note
from palaver.wires._engine.stream_decoder import StreamDecoder, opened
from palaver.wires.ollama_chat.decode import call, error_text, finish, finish_word, image, usage
from palaver.wires.ollama_chat.shapes import ASSISTANT, WIRE
from palaver.wires.ollama_chat.stream_write import Encoder

if TYPE_CHECKING:
    from palaver.core.events import Event
    from palaver.stream.frames import Frame

__all__ = ["Decoder", "Encoder"]


# -- the common line -------------------------------------------------------------------------------
# A line that adds text is recognised in one step: nearly all lines of a stream are such, and reading them field by
# field takes several times as long. Any other line is read by its fields.


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str
    thinking: str | UnsetType = UNSET


class _Line(Struct, gc=False, forbid_unknown_fields=True):
    model: str
    created_at: str
    message: _Text
    done: bool


_line = msgspec.json.Decoder(_Line).decode

# -- reading ---------------------------------------------------------------------------------------

_REASONING, _TEXT, _IMAGE, _CALL = (0,), (1,), (2,), (3,)
"""Places of parts: the order in which an answer that is not streamed is read."""

_NO_ERROR: Final = (NULL, Raw(b'""'))


class Decoder(StreamDecoder):
    """Reads one stream of Ollama."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, ndjson.NDJSONReader())
        self._rest: Fields = {}
        self._fields: Fields = {}
        self._logprobs: list[Raw] = []
        self._plain: _Line | None = None
        self._started = False
        self._early: list[Event] = []
        """Events of the provider's own that came before the answer."""
        self._has_content = False
        self._count = 0
        self._calls = 0
        self._images = 0
        self._called = False
        self._text: int | None = None
        self._reasoning: int | None = None

    def read(self, frame: Frame, /) -> None:
        """Emit what one line means."""
        try:
            line = _line(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._slow_path(frame.data)
            return
        words = line.message
        if line.done or not self._started or words.thinking == "":
            self._slow_path(frame.data)
            return
        self._plain = line
        self._has_content = True
        if words.thinking:
            self._emit_reasoning(words.thinking)
        if words.content:
            self._emit_text(words.content)

    def end(self) -> None:
        """Emit what is known of an answer that broke off."""
        self._emit_early()
        if self._started and not self.done:
            self._emit_head()

    def fail(self, failed: Failed, /) -> None:
        """Hand out the last event of a stream that ended badly."""
        self._emit_early()
        super().fail(failed)

    # -- lines --

    def _slow_path(self, data: bytes) -> None:
        rest = opened(data)
        error = rest.get("error", NULL)
        if error not in _NO_ERROR:
            self._refused(error_text(error), rest, data)
            return
        done = rest.get("done", NULL)
        if done not in (NULL, TRUE, _FALSE):
            raise DecodeError(f"expected true or false, got {jsontext.kind(done)}", path="done")
        message = json_fields.take_fields(rest, "message")
        if message is None and not (done == TRUE and self._started):
            if done == TRUE:
                self._refused("no message in the body", rest, data)
            else:
                (self.emit if self._started else self._early.append)(ProviderEvent(WIRE, "", Raw(data)))
            return
        self._merge(rest)
        self._message(message or {})
        if done == TRUE:
            self._over()

    def _refused(self, reason: str, rest: Fields, data: bytes) -> None:
        status = rest.get("status")
        code = None if status is None or jsontext.kind(status) != "a number" else bytes(status).decode()
        self.fail(Failed("provider", reason, code, Raw(data)))

    def _emit_early(self) -> None:
        self._out.extend(self._early)
        self._early.clear()

    def _merge(self, rest: Fields) -> None:
        self._settle()
        items = rest.get("logprobs")
        if items is not None and items != NULL:
            try:
                self._logprobs.extend(jsontext.items(items))
            except DecodeError as error:
                raise error.within("logprobs") from None
        self._rest.update(rest)

    def _settle(self) -> None:
        """Take over the fields of the last plain line."""
        line = self._plain
        if line is not None:
            self._plain = None
            self._rest["model"] = jsontext.raw(line.model)
            self._rest["created_at"] = jsontext.raw(line.created_at)
            self._rest["done"] = _FALSE
            self._fields["role"] = ASSISTANT
            self._fields["content"] = jsontext.raw(line.message.content)

    def _message(self, fields: Fields) -> None:
        self._fields.update(fields)
        try:
            thinking = json_fields.take_text(fields, "thinking")
            content = json_fields.take_text(fields, "content")
            images = list(json_fields.each(json_fields.take_items(fields, "images") or [], "images", image))
            calls = json_fields.take_items(fields, "tool_calls") or []
        except DecodeError as error:
            raise error.within("message") from None
        self._has_content = self._has_content or content is not None
        if not self._started:
            self._started = True
            self.emit(Start(self._head(dict(self._rest))))
            self._emit_early()
        if thinking:
            self._emit_reasoning(thinking)
        if content:
            self._emit_text(content)
        for each in images:
            self._images += 1
            self.emit(PartEnd(self._start(each, _IMAGE)))
        for position, raw in enumerate(calls):
            try:
                made = call(raw, f"call_{self._calls}")
            except DecodeError as error:
                raise error.within(f"message.tool_calls[{position}]") from None
            self._emit_call(made)

    # -- parts --

    def _start(self, part: AssistantPart, place: tuple[int, ...]) -> int:
        number = self._count
        self._count += 1
        self.emit(PartStart(number, part, place=place))
        return number

    def _emit_reasoning(self, text: str) -> None:
        if self._reasoning is None:
            self._reasoning = self._start(trusted.Reasoning(wire=WIRE), _REASONING)
        self._out.append(ReasoningDelta(self._reasoning, text))

    def _emit_text(self, text: str) -> None:
        if self._text is None:
            self._text = self._start(trusted.Text(""), _TEXT)
        self._out.append(TextDelta(self._text, text))

    def _emit_call(self, made: ToolCall | MalformedToolCall) -> None:
        """Emit a whole call. The assembler judges one that did not parse again."""
        self._calls += 1
        if isinstance(made, MalformedToolCall):
            text = made.raw
            bare = trusted.ToolCall(made.id or "", made.name or "", provider_json=made.provider_json)
        else:
            self._called = True
            text = made.arguments_json
            bare = structs.replace(made, arguments_json="")
        number = self._start(bare, _CALL)
        if text:
            self.emit(ArgumentsDelta(number, text))
        self.emit(PartEnd(number))

    # -- the answer as a whole --

    def _over(self) -> None:
        if self._text is None and self._has_content:
            self._text = self._start(trusted.Text(""), _TEXT)
        for number in (self._reasoning, self._text):
            if number is not None:
                self.emit(PartEnd(number))
        word = self._emit_head()
        self.emit(Finish(finish(word, called=self._called), word))
        self.done = True

    def _emit_head(self) -> str | UnsetType | None:
        self._settle()
        rest = dict(self._rest)
        word = finish_word(rest)
        counts = usage(rest)
        self.emit(Update(self._head(rest)))
        if counts is not None:
            self.emit(UsageUpdate(counts))
        return word

    def _head(self, rest: Fields) -> Response:
        """Build what is known beside the parts, as ``decode.response`` does."""
        fields = dict(self._fields)
        notes = role_note(fields.pop("role", NULL))
        if self._has_content:
            fields.pop("content", None)
        emitted = (("thinking", self._reasoning is not None), ("images", self._images), ("tool_calls", self._calls))
        for key, known in emitted:
            if known or fields.get(key, NULL) != NULL:
                fields.pop(key, None)
        if self._logprobs:
            rest["logprobs"] = jsontext.raw(self._logprobs)
        message = trusted.AssistantMessage(
            model=json_fields.take_text(rest, "model"), provider_json=provider(WIRE, fields, notes)
        )
        return trusted.Response(message=message, origin=self.origin, provider_json=provider(WIRE, rest))


_FALSE: Final = Raw(b"false")
