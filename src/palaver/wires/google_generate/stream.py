"""The stream of Gemini: each event is a whole answer that holds what is new (docs/spec/wires.md#5.3).

How events become the answer that is not streamed:

- Fields of the answer, of a candidate and of its content are merged, the later value counts; ``null`` and what is empty
  replace nothing. Usage is merged field by field: it is a snapshot, but a later one may leave out what an earlier one
  said, and may be lower. What is merged is read as a whole answer is (``decode.answer``).
- A candidate is told by its ``index``, else by its place in the list.
- Texts that adjoin are one text, thoughts that adjoin are one thought. A text or thought that is signed, or has any
  other field of its own, stands alone: a signature goes back on the part that it came with (5.2.4).
- A text that is empty, unsigned and has no other field begins no part. It is how Gemini fills the event that holds the
  finish reason. No recorded answer that was not streamed holds one.
- Calls come whole, unless the request said ``streamFunctionCallArguments`` (``partial_args``). Then ``willContinue`` on
  the call says that more of it follows; a call without name and fields ends it, and so does any other part.
- Calls without an id get one from their place among the parts, as in a whole answer. Gemini names the answer, whose id
  is part of theirs, in every event.

There is no end mark. A ``finishReason`` may come in every event, or before the last part. So what it means, and all
that is known of the answer as a whole, is said at the end of the input. A stream that ends without is torn; a prompt
that was blocked ends it too. Behind a finish reason, damage is of no account.

An object ``{"error": …}``, alone or in a list, is the provider's error. An object that is neither answer nor error is a
provider event. The body is server-sent events, a streamed array, or a single object: the first byte tells.

Source: docs/spec/wires.md#5.3 to #5.6; https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, structs

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
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires._engine.stream_decoder import StreamDecoder, opened, snapshot
from palaver.wires.google_generate import decode, field_names
from palaver.wires.google_generate.frames import EventReader, Plain, plain
from palaver.wires.google_generate.gathered import Choice, GrowingCall, merge
from palaver.wires.google_generate.partial_args import PartialArguments, take
from palaver.wires.google_generate.parts import data_field, model_part
from palaver.wires.google_generate.shapes import WIRE
from palaver.wires.google_generate.stream_write import Encoder

if TYPE_CHECKING:
    from palaver.core.errors import ProviderError
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart
    from palaver.core.request import Response
    from palaver.core.usage import Usage
    from palaver.stream.frames import Frame

__all__ = ["Decoder", "Encoder"]


# -- reading ---------------------------------------------------------------------------------------

_CHOICES: Final = 256
_AT: Final = ord("@")  # a byte as a number is found many times as fast
_BACKSLASH: Final = ord("\\")


class Decoder(StreamDecoder):
    """Reads one stream of Gemini."""

    def __init__(self, origin: str) -> None:
        """Begin with nothing."""
        super().__init__(origin, EventReader())
        self._fields: Fields = {}
        self._usage: dict[str, Any] | None = None
        self._usage_name = "usageMetadata"
        self._choices: dict[int, Choice] = {}
        self._none: list[Fields] | None = None
        self._head: Response | None = None
        self._counted: Usage | None = None
        self._around: tuple[object, ...] | None = None
        self._count = 0
        self._over = False

    def read(self, frame: Frame, /) -> None:
        """Say what one event means."""
        data = frame.data
        try:
            found = plain(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._around = None
            self._careful(data)
            return
        around = found.around()
        hinted = _AT in data or (_BACKSLASH in data and b"\\u0040" in data)  # maybe: see ``opened``
        if around != self._around or hinted or not self._quick(found):
            self._around = None
            self._careful(data)
            self._around = around

    def end(self) -> None:
        """The answer is over if it has a finish reason."""
        self._settle()

    def fail(self, failed: Failed, /) -> None:
        """Hand out the end of a stream that ended badly; behind a finish reason, only the provider can say so."""
        try:
            over = self._settle(failed=failed.kind == "provider")
        except DecodeError:
            over = False
        if over:
            self.done = True
        else:
            super().fail(failed)

    # -- one event at a time -----------------------------------------------------------------------

    def _quick(self, found: Plain) -> bool:
        """Take an event of the common shape that goes on with the open part; ``False`` when it does something else."""
        candidate = found.candidates[0]
        part = candidate.content.parts[0]
        choice = self._choices[0 if candidate.index is UNSET else candidate.index]
        text, more = part.text, part.functionCall
        if text is UNSET:
            call = choice.call
            if call is None or more is UNSET or part.thought is not UNSET or not more.willContinue:
                return False
            piece = more.partialArgs[0]
            if piece.jsonPath != call.arguments.string:
                return False
            added = call.arguments.more(piece.stringValue, goes_on=piece.willContinue)
            if added:
                self.say(ArgumentsDelta(call.number, added))
        elif more is not UNSET:
            return False
        elif choice.kind is Text and part.thought is UNSET:
            if text:
                self.say(TextDelta(choice.open, text))
        elif choice.kind is Reasoning and part.thought is True:
            if text:
                self.say(ReasoningDelta(choice.open, text))
        else:
            return False
        if found.usageMetadata is not UNSET:
            if self._usage is None:
                self._usage = {}
            self._usage |= found.usageMetadata
        return True

    def _careful(self, data: bytes) -> None:
        if not data.strip():
            return
        if jsontext.kind(data) == "an array":
            self._refused(decode.listed_error(data))
            return
        rest = opened(data)
        raws = decode.take_candidates(rest)
        if raws is None and "error" in rest:
            self._refused(decode.provider_error(rest["error"], data))
        elif raws is None and decode.ANSWER.isdisjoint(rest):
            self.say(ProviderEvent(WIRE, "", Raw(data)))
        else:
            self._answer(rest, raws, data)

    def _refused(self, error: ProviderError) -> None:
        self.fail(Failed("provider", error.message, error.code, Raw(error.body)))

    def _answer(self, rest: Fields, raws: list[Fields] | None, data: bytes) -> None:
        """Take an event that is a piece of the answer."""
        self._take_usage(rest)
        merge(self._fields, rest)
        if raws is not None:
            self._fields.pop("candidates", None)  # it was null before
            self._none = []
        said: list[tuple[str, Choice, list[Fields]]] = []
        for position, beside in enumerate(raws or ()):
            try:
                choice = self._choice(beside, position)
                said.append((f"candidates[{position}].content", choice, choice.take(beside)))
            except DecodeError as error:
                raise error.within(f"candidates[{position}]") from None
        if self._head is None:
            self._tell_head()
        for path, choice, parts in said:
            for position, fields in enumerate(parts):
                try:
                    self._part(choice, fields, data)
                except DecodeError as error:
                    raise error.within(f"{path}.parts[{position}]") from None

    def _take_usage(self, rest: Fields) -> None:
        for name in ("usageMetadata", field_names.SNAKE["usageMetadata"]):
            if name in rest and jsontext.kind(rest[name]) == "an object":
                if self._usage is None:
                    self._usage, self._usage_name = {}, name
                snapshot(self._usage, jsontext.fields(rest.pop(name)))

    def _choice(self, beside: Fields, position: int) -> Choice:
        """Find the candidate that an event speaks of."""
        index = json_fields.take_int(dict(beside), "index")
        number = position if index is None else index
        if not 0 <= number < _CHOICES:
            raise DecodeError(f"expected a number below {_CHOICES}", path="index")
        if number not in self._choices:
            self._choices[number] = Choice(number)
        return self._choices[number]

    # -- parts -------------------------------------------------------------------------------------

    def _part(self, choice: Choice, fields: Fields, data: bytes) -> None:
        kind = _joins(fields)
        if kind is not None:
            self._joined(choice, kind, json_fields.need_text(fields, "text"))
            return
        if data_field(fields) == "functionCall" and self._piece(choice, fields, data):
            return
        self._close(choice)
        part = model_part(fields, self._made_id(choice), self._run(choice))
        if isinstance(part, ToolCall) and part.provider_executed:
            choice.run = part.id
        self._whole(self._next(choice), part, choice.number)

    def _joined(self, choice: Choice, kind: type[Text | Reasoning], text: str) -> None:
        """Say a text or thought that may be part of the one before."""
        if not text:
            return
        if choice.kind is not kind:
            self._close(choice)
            choice.open, choice.kind = self._next(choice), kind
            part = trusted.Text("") if kind is Text else trusted.Reasoning(wire=WIRE)
            self.say(PartStart(choice.open, part, choice.number))
        self.say(TextDelta(choice.open, text) if kind is Text else ReasoningDelta(choice.open, text))

    def _whole(self, number: int, part: AssistantPart, choice: int) -> None:
        """Say a part that came whole."""
        match part:
            case Text(text=text):
                self.say(PartStart(number, structs.replace(part, text=""), choice))
                if text:
                    self.say(TextDelta(number, text))
            case Reasoning(text=text):
                self.say(PartStart(number, structs.replace(part, text=""), choice))
                if text:
                    self.say(ReasoningDelta(number, text))
            case ToolCall(arguments_json=text):
                self.say(PartStart(number, structs.replace(part, arguments_json=""), choice))
                if text:
                    self.say(ArgumentsDelta(number, text))
            case _:
                self.say(PartStart(number, part, choice))
        self.say(PartEnd(number))

    def _next(self, choice: Choice) -> int:
        """Number a part that begins."""
        choice.count += 1
        choice.after_call = False
        self._count += 1
        return self._count - 1

    def _close(self, choice: Choice) -> None:
        """Another part begins: what is open ends."""
        if choice.kind is not None:
            self.say(PartEnd(choice.open))
            choice.kind = None
        if choice.call is not None:
            self._end_call(choice, choice.call)

    def _place(self, choice: Choice) -> str:
        return decode.place(field_names.word(dict(self._fields), "responseId"), choice.number)

    def _made_id(self, choice: Choice) -> str:
        return f"{self._place(choice)}_{choice.count}"

    def _run(self, choice: Choice) -> str:
        return choice.run or f"{self._place(choice)}_run"

    # -- calls whose arguments come in pieces ------------------------------------------------------

    def _piece(self, choice: Choice, fields: Fields, data: bytes) -> bool:
        """Take a piece of a call; ``False`` when it is a whole call."""
        name = "functionCall" if fields.get("functionCall", NULL) != NULL else field_names.SNAKE["functionCall"]
        if jsontext.kind(fields[name]) != "an object":
            return False
        inner = jsontext.fields(fields[name])
        pieces = take(inner, "partialArgs")
        goes_on = take(inner, "willContinue") == TRUE
        call = choice.call
        if call is not None and _continues(call, inner, pieces):
            call.learn({key: raw for key, raw in fields.items() if key != name}, inner)
        elif pieces is None and not goes_on:
            return choice.after_call and not inner and len(fields) == 1  # a second end of the call says nothing
        else:
            del fields[name]
            call = self._begin_call(choice, fields, inner)
        if pieces is not None and pieces != NULL:
            self._pieces(call, pieces, data)
        if not goes_on:
            self._end_call(choice, call)
        return True

    def _begin_call(self, choice: Choice, beside: Fields, inner: Fields) -> GrowingCall:
        self._close(choice)
        made_id, run = self._made_id(choice), self._run(choice)
        call = GrowingCall(self._count, beside, inner, made_id, run, PartialArguments())
        part = call.built("")
        choice.call = call
        self.say(PartStart(self._next(choice), part, choice.number))
        return call

    def _pieces(self, call: GrowingCall, pieces: Raw, data: bytes) -> None:
        unknown = False
        try:
            for index, raw in enumerate(jsontext.items(pieces)):
                try:
                    piece = jsontext.fields(raw)
                    added = call.arguments.add(piece)
                except DecodeError as error:
                    raise error.within(f"[{index}]") from None
                if added:
                    self.say(ArgumentsDelta(call.number, added))
                unknown = unknown or bool(piece)
        except DecodeError as error:
            raise error.within("functionCall.partialArgs") from None
        if unknown:
            self.say(ProviderEvent(WIRE, "partialArgs", Raw(data)))

    def _end_call(self, choice: Choice, call: GrowingCall, *, cut: bool = False) -> None:
        """Tell that a call is over. ``cut``: the answer ended within it, and what there is of it is not whole."""
        choice.call = None
        choice.after_call = True
        last: AssistantPart | None = None
        if not call.arguments.grows:
            text = call.arguments.whole()
            last = call.built(text[:-1] if cut else text)
        else:
            more = "" if cut else call.arguments.close()
            if not call.arguments.begun and call.inner.get("args", NULL) != NULL:
                more = bytes(call.inner["args"]).decode()
            if more:
                self.say(ArgumentsDelta(call.number, more))
            if call.changed:
                found = self.assembler.part(call.number)
                text = found.arguments_json if isinstance(found, ToolCall) else ""
                last = call.built(found.raw if isinstance(found, MalformedToolCall) else text)
        self.say(PartEnd(call.number, last))

    # -- the answer as a whole ---------------------------------------------------------------------

    def _settle(self, *, failed: bool = False) -> bool:
        """Say what is known of the answer as a whole, and why it ended; ``False`` when it did not end."""
        if self._over or self._head is None:
            return self._over
        whole = self._whole_answer()
        choices = list(self._choices.values())
        blocked = not choices and whole.message.finish_reason == "content_filter"
        self._over = not failed and (blocked or (bool(choices) and all(choice.word is not None for choice in choices)))
        for choice in choices:
            cut = not self._over or choice.word != "STOP"
            if choice.call is not None and (self._over or not choice.call.arguments.grows):
                self._end_call(choice, choice.call, cut=cut)
            if self._over:
                self._close(choice)
        self._tell_head()
        if blocked and self._over:
            self.say(Finish("content_filter"))
        elif self._over:
            for choice in choices:
                reason = decode.finish(choice.word, self.assembler.content(choice.number))
                self.say(Finish(reason or "other", choice.word, choice.number))
        return self._over

    def _tell_head(self) -> None:
        """Say what stands around the parts, where it is new."""
        whole = self._whole_answer()
        others = tuple([_bare(each) for each in whole.alternatives])
        head = structs.replace(whole, message=_bare(whole.message), alternatives=others, origin=self.origin)
        if self._head is None:
            self.say(Start(head))
        elif head != self._head:
            self.say(Update(head))
        self._head = head
        usage = whole.message.usage
        if usage is not None and usage != self._counted:
            self.say(UsageUpdate(usage))
        self._counted = usage

    def _whole_answer(self) -> Response:
        """All that is known, read as an answer that was not streamed and holds no parts."""
        fields = dict(self._fields)
        if self._usage is not None:
            fields[self._usage_name] = jsontext.raw(self._usage)
        raws = self._none
        if self._choices:
            numbers = range(max(self._choices) + 1)
            raws = [self._choices[number].whole() if number in self._choices else {} for number in numbers]
        return decode.answer(fields, raws)


def _bare(message: AssistantMessage) -> AssistantMessage:
    return structs.replace(message, content=(), usage=None, finish_reason=None, finish_reason_raw=UNSET)


def _joins(fields: Fields) -> type[Text | Reasoning] | None:
    """What a part is that may be joined to the one before; ``None`` for any other."""
    if fields.get("text", NULL) == NULL:
        return None
    if len(fields) == 1:
        return Text
    return Reasoning if len(fields) == 2 and fields.get("thought") == TRUE else None  # noqa: PLR2004 (text and thought)


def _continues(call: GrowingCall, inner: Fields, pieces: Raw | None) -> bool:
    """Whether a piece belongs to the call that is open; one that is named anew must look like it."""
    name = inner.get("name", NULL)
    if name == NULL:
        return True
    known_id = call.inner.get("id")
    return pieces is not None and name == call.inner.get("name") and inner.get("id", known_id) == known_id
