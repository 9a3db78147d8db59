"""The stream of Ollama: lines of JSON, each an answer of its own that holds what is new (docs/spec/wires.md#8).

- ``content`` and ``thinking`` append, calls and images come whole, the lists of ``logprobs`` are joined. Of every other
  field the last line that has it is kept, ``created_at`` included: the server makes the answer that is not streamed so.
- ``content`` stands in every line, mostly empty. Its part begins with the first letter; text that stays empty is told
  at the end, since the answer that is not streamed holds it too.
- The line whose ``done`` is true ends the answer. A line whose ``error`` says something ends it badly.
- A line without a ``message`` is an event of the provider's own, unless it is the last.
- Calls without an id get the one that their place gives them, as in the answer that is not streamed.

Written is one line a delta, a call in a line of its own, and a last line with all that the answer has beside its parts.
Several texts become one, parted by a blank line.

Source: docs/spec/wires.md#8, #1.3; ollama/ollama ``api/types.go``, ``server/routes.go``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

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
from palaver.core.parts import AssistantPart, Image, Inline, MalformedToolCall, Reasoning, ToolCall
from palaver.core.request import Response
from palaver.stream import ndjson
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, native, provider
from palaver.wires._engine.metadata import iso
from palaver.wires._engine.stream_decoder import StreamDecoder, opened
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.ollama_chat import encode
from palaver.wires.ollama_chat.decode import call, error_text, finish, finish_word, image, usage
from palaver.wires.ollama_chat.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.events import Delta, Event
    from palaver.core.parts import Citation
    from palaver.stream.frames import Frame

# -- the line that nearly every line is ------------------------------------------------------------


class _Words(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str
    thinking: str | UnsetType = UNSET


class _Line(Struct, gc=False, forbid_unknown_fields=True):
    model: str
    created_at: str
    message: _Words
    done: bool


_line = msgspec.json.Decoder(_Line).decode

# -- reading ---------------------------------------------------------------------------------------

_REASONING, _TEXT, _IMAGE, _CALL = (0,), (1,), (2,), (3,)
"""Places of parts: the order in which an answer that is not streamed is read."""

_NO_ERROR: Final = (NULL, Raw(b'""'))


class Decoder(StreamDecoder):
    """Reads one stream of Ollama."""

    def __init__(self, origin: str) -> None:
        """Begin with nothing."""
        super().__init__(origin, ndjson.NDJSONReader())
        self._rest: Fields = {}
        self._fields: Fields = {}
        self._logprobs: list[Raw] = []
        self._plain: _Line | None = None
        self._begun = False
        self._early: list[Event] = []
        """Events of the provider's own that came before the answer."""
        self._says_content = False
        self._count = 0
        self._calls = 0
        self._images = 0
        self._called = False
        self._text: int | None = None
        self._reasoning: int | None = None

    def read(self, frame: Frame, /) -> None:
        """Say what one line means."""
        try:
            line = _line(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._careful(frame.data)
            return
        words = line.message
        if line.done or not self._begun or words.thinking == "":
            self._careful(frame.data)
            return
        self._plain = line
        self._says_content = True
        if words.thinking:
            self._think(words.thinking)
        if words.content:
            self._speak(words.content)

    def end(self) -> None:
        """Tell what is known of an answer that broke off."""
        self._say_early()
        if self._begun and not self.done:
            self._tell_head()

    def fail(self, failed: Failed, /) -> None:
        """Hand out the last event of a stream that ended badly."""
        self._say_early()
        super().fail(failed)

    # -- lines --

    def _careful(self, data: bytes) -> None:
        rest = opened(data)
        error = rest.get("error", NULL)
        if error not in _NO_ERROR:
            self._refused(error_text(error), rest, data)
            return
        done = rest.get("done", NULL)
        if done not in (NULL, TRUE, _FALSE):
            raise DecodeError(f"expected true or false, got {jsontext.kind(done)}", path="done")
        message = json_fields.take_fields(rest, "message")
        if message is None and not (done == TRUE and self._begun):
            if done == TRUE:
                self._refused("no message in the body", rest, data)
            else:
                (self.say if self._begun else self._early.append)(ProviderEvent(WIRE, "", Raw(data)))
            return
        self._merge(rest)
        self._message(message or {})
        if done == TRUE:
            self._over()

    def _refused(self, reason: str, rest: Fields, data: bytes) -> None:
        status = rest.get("status")
        code = None if status is None or jsontext.kind(status) != "a number" else bytes(status).decode()
        self.fail(Failed("provider", reason, code, Raw(data)))

    def _say_early(self) -> None:
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
        """Take over the fields of the last plain line, which nobody asked for until now."""
        line = self._plain
        if line is not None:
            self._plain = None
            self._rest["model"] = jsontext.raw(line.model)
            self._rest["created_at"] = jsontext.raw(line.created_at)
            self._rest["done"] = _FALSE
            self._fields["role"] = _ASSISTANT
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
        self._says_content = self._says_content or content is not None
        if not self._begun:
            self._begun = True
            self.say(Start(self._head(dict(self._rest))))
            self._say_early()
        if thinking:
            self._think(thinking)
        if content:
            self._speak(content)
        for each in images:
            self._images += 1
            self.say(PartEnd(self._start(each, _IMAGE)))
        for position, raw in enumerate(calls):
            try:
                made = call(raw, f"call_{self._calls}")
            except DecodeError as error:
                raise error.within(f"message.tool_calls[{position}]") from None
            self._tell_call(made)

    # -- parts --

    def _start(self, part: AssistantPart, place: tuple[int, ...]) -> int:
        number = self._count
        self._count += 1
        self.say(PartStart(number, part, place=place))
        return number

    def _think(self, text: str) -> None:
        if self._reasoning is None:
            self._reasoning = self._start(trusted.Reasoning(wire=WIRE), _REASONING)
        self._out.append(ReasoningDelta(self._reasoning, text))

    def _speak(self, text: str) -> None:
        if self._text is None:
            self._text = self._start(trusted.Text(""), _TEXT)
        self._out.append(TextDelta(self._text, text))

    def _tell_call(self, made: ToolCall | MalformedToolCall) -> None:
        """Tell a call, whole. One that did not parse is judged again by whoever assembles it."""
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
            self.say(ArgumentsDelta(number, text))
        self.say(PartEnd(number))

    # -- the answer as a whole --

    def _over(self) -> None:
        if self._text is None and self._says_content:
            self._text = self._start(trusted.Text(""), _TEXT)
        for number in (self._reasoning, self._text):
            if number is not None:
                self.say(PartEnd(number))
        word = self._tell_head()
        self.say(Finish(finish(word, called=self._called), word))
        self.done = True

    def _tell_head(self) -> str | UnsetType | None:
        self._settle()
        rest = dict(self._rest)
        word = finish_word(rest)
        counts = usage(rest)
        self.say(Update(self._head(rest)))
        if counts is not None:
            self.say(UsageUpdate(counts))
        return word

    def _head(self, rest: Fields) -> Response:
        """Build what is known beside the parts, as ``decode.response`` does."""
        fields = dict(self._fields)
        role = fields.pop("role", None)
        if role != _ASSISTANT:
            fields["@@role"] = NULL if role is None else role
        if self._says_content:
            fields.pop("content", None)
        elif "content" not in fields:
            fields["@@content"] = hint("absent")
        told = (("thinking", self._reasoning is not None), ("images", self._images), ("tool_calls", self._calls))
        for key, known in told:
            if known or (key in fields and jsontext.value(fields[key])):
                fields.pop(key, None)
        if self._logprobs:
            rest["logprobs"] = jsontext.raw(self._logprobs)
        message = trusted.AssistantMessage(
            model=json_fields.take_text(rest, "model"), provider_json=provider(WIRE, fields)
        )
        return trusted.Response(message=message, origin=self.origin, provider_json=provider(WIRE, rest))


_ASSISTANT: Final = Raw(b'"assistant"')
_FALSE: Final = Raw(b"false")


# -- writing ---------------------------------------------------------------------------------------


class Encoder(StreamEncoder):
    """Writes one stream of Ollama."""

    WHOLE_CALLS = True

    _texts = 0
    _thoughts = 0

    def begin(self, head: Response) -> None:
        """Nothing is said before the first part; every line names model and time."""
        model, time = head.message.model, native(head, WIRE).get("created_at")
        made = encode.NO_TIME if head.message.sent_at is None else iso(head.message.sent_at)
        self._around: dict[str, Any] = {} if self.context.own else {"model": "", "created_at": made}
        if model is not None:
            self._around["model"] = model
        if time is not None and self.context.own:
            self._around["created_at"] = time
        fields = native(head.message, WIRE)
        role = fields.get("@@role", _ASSISTANT)
        self._message: dict[str, Any] = {} if role == NULL else {"role": role}
        self._blank: dict[str, Any] = {} if json_fields.is_hint(fields, "content", "absent") else {"content": ""}

    def open(self, shown: Shown) -> None:
        """Part a further text from the one before; the first needs no beginning."""
        if isinstance(shown.part, Reasoning):
            if self._thoughts:
                self._say({**self._blank, "thinking": _BETWEEN})
            self._thoughts += 1
        else:
            if self._texts:
                self._say({"content": _BETWEEN})
            self._texts += 1

    def grow(self, shown: Shown, event: Delta) -> None:  # noqa: ARG002 (lines do not name parts)
        """Say what is new in a line."""
        if isinstance(event, ReasoningDelta):
            self._say({**self._blank, "thinking": event.text})
        elif isinstance(event, TextDelta):
            self._say({"content": event.text})
        else:
            self.context.lose("dropped", "signature", "the wire has no proofs")

    def cite(self, shown: Shown, citation: Citation) -> None:  # noqa: ARG002 (never written)
        """There are none here."""
        self.context.lose("dropped", "citations", "the wire has none")

    def close(self, shown: Shown, part: AssistantPart | None, /) -> None:
        """Nothing marks the end of a text."""

    def whole(self, shown: Shown) -> None:
        """Say a call, or an image, in a line of its own."""
        part = shown.part
        if isinstance(part, (ToolCall, MalformedToolCall)):
            self._say({**self._blank, "tool_calls": [encode.call(part, self.context)]})
        elif isinstance(part, Image) and isinstance(part.source, Inline):
            self._say({**self._blank, "images": [part.source.data]})
        else:
            self.context.lose("dropped", type(part).__name__, "an answer here cannot hold it")

    def over(self, answer: Response) -> None:
        """Say the last line: the answer without its parts."""
        message = structs.replace(answer.message, content=())
        body = encode.response(structs.replace(answer, message=message, alternatives=()), self.context)
        self._line(body)

    def fail(self, failed: Failed) -> None:
        """Say the error, in the provider's own words where they are its own."""
        raw = failed.raw_json
        if self.context.own and failed.kind == "provider" and isinstance(raw, Raw) and "error" in jsontext.fields(raw):
            self.write(_flat(raw))
        else:
            self._line({"error": failed.reason})

    def native(self, event: ProviderEvent) -> None:
        """Say a line that we did not understand, as it was."""
        self.write(_flat(event.data_json))

    def _must_fit(self, part: AssistantPart) -> bool:  # noqa: ARG002 (all parts alike)
        """Decide that a call of this wire's own goes back as it came, also when it did not parse."""
        return not self.context.own

    def _say(self, fields: dict[str, Any]) -> None:
        self._line({**self._around, "message": {**self._message, **fields}, "done": False})

    def _line(self, fields: dict[str, Any]) -> None:
        self.write(_flat(jsontext.encode(fields)))


_BETWEEN: Final = "\n\n"


def _flat(data: bytes | Raw) -> bytes:
    """Make a line. Outside of strings, where a line break is escaped, JSON takes a space for one.

    The official client takes U+0085, U+2028 and U+2029 for line ends too; the server escapes the last two, as here.
    """
    line = bytes(data)
    if not line.isascii():
        for end, escaped in _LINE_ENDS:
            line = line.replace(end, escaped)
    return ndjson.write(line.replace(b"\r", b" ").replace(b"\n", b" "))


_LINE_ENDS: Final = tuple((chr(code).encode(), f"\\u{code:04x}".encode()) for code in (0x85, 0x2028, 0x2029))
