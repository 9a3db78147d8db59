"""Read streams of Gemini: each event has the form of a whole answer and holds what is new.

- The body is server-sent events (``alt=sse``), a JSON array, or one object. The first byte that is not blank decides.
- Fields of the answer, of a candidate and of its content are merged, the later value counts; ``null`` and empty values
  replace nothing. Usage is merged field by field, since a later one may leave out fields.
- ``index`` identifies a candidate, else its place in the list does.
- Adjacent texts are one part, and so are adjacent thoughts. A text or thought with a signature or another field of its
  own is a part of its own (docs/spec/wires.md#5.2.4). An empty, unsigned text begins no part.
- Calls arrive whole, unless the request had ``streamFunctionCallArguments`` (``stream_calls``). ``willContinue`` on a
  call announces more of it; a call without name and fields ends it, and so does any other part.
- Most events differ from the one before only in a piece of text and in usage. ``Plain`` and ``_quick`` recognise these,
  which takes a fifth of the time that ``_event`` takes, the reader of all events.
- There is no end mark, and ``finishReason`` may come early. The finish and the whole answer follow at the end of the
  input. A stream without a finish reason is torn, unless the prompt was blocked.
- ``{"error": …}``, alone or in a list, is the provider's error. Any other unknown object is a provider event.

Source: docs/spec/wires.md#1.3, #5.3 to #5.6;
https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent.

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
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.stream.json_array import JSONArrayReader
from palaver.stream.sse import SSEReader
from palaver.wires._engine import json_fields
from palaver.wires._engine.stream_decoder import StreamDecoder, snapshot
from palaver.wires.google_generate import decode
from palaver.wires.google_generate.field_names import camel
from palaver.wires.google_generate.parts import data_field, model_part
from palaver.wires.google_generate.shapes import WIRE
from palaver.wires.google_generate.stream_calls import Choice, GrowingCall, PartialArguments, merge
from palaver.wires.google_generate.stream_write import Encoder

if TYPE_CHECKING:
    from palaver.core.errors import ProviderError
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart
    from palaver.core.request import Response
    from palaver.core.usage import Usage
    from palaver.stream.frames import Frame, Reader


# -- framing ---------------------------------------------------------------------------------------


_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Reads one stream, however it is framed; see ``Reader``."""

    def __init__(self) -> None:
        self._chosen: Reader | None = None
        self._pending = b""

    @property
    def error(self) -> DecodeError | None:
        """The damage that was found; nothing after it is read."""
        return None if self._chosen is None else self._chosen.error

    def feed(self, data: bytes, /) -> list[Frame]:
        """The frames that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        if self._chosen is not None:
            return self._chosen.feed(data)
        data = (self._pending + data).lstrip(_SPACE)  # blank lines before the first event have no meaning
        begun = data.removeprefix(_BOM).lstrip(_SPACE)
        if not begun or _BOM.startswith(begun):
            self._pending = data[: len(_BOM)]
            return []
        if begun[:1] not in b"[{":
            self._chosen = SSEReader()
            return self._chosen.feed(data)
        self._chosen = JSONArrayReader()
        return self._chosen.feed(begun if begun[:1] == b"[" else b"[" + begun)

    def finish(self) -> list[Frame]:
        """The frames that the end of input completes. Raises ``DecodeError``, one met earlier or its own."""
        return [] if self._chosen is None else self._chosen.finish()


# -- the common event ------------------------------------------------------------------------------


class _Piece(Struct, gc=False, forbid_unknown_fields=True):
    jsonPath: str  # noqa: N815 (the wire's name)
    stringValue: str  # noqa: N815 (the wire's name)
    willContinue: bool = False  # noqa: N815 (the wire's name)


class _More(Struct, gc=False, forbid_unknown_fields=True):
    partialArgs: tuple[_Piece]  # noqa: N815 (the wire's name)
    willContinue: bool  # noqa: N815 (the wire's name)


class _Part(Struct, gc=False, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    functionCall: _More | UnsetType = UNSET  # noqa: N815 (the wire's name)


class _Content(Struct, gc=False, forbid_unknown_fields=True):
    parts: tuple[_Part]
    role: Literal["model"] | UnsetType = UNSET


class _Candidate(Struct, gc=False, forbid_unknown_fields=True):
    content: _Content
    index: int | UnsetType = UNSET


class Plain(Struct, gc=False, forbid_unknown_fields=True):
    """An event with one part and no other news."""

    candidates: tuple[_Candidate]
    usageMetadata: dict[str, int | str | list[Raw]] | UnsetType = UNSET  # noqa: N815 (the wire's name)
    modelVersion: str | UnsetType = UNSET  # noqa: N815 (the wire's name)
    responseId: str | UnsetType = UNSET  # noqa: N815 (the wire's name)
    createTime: str | UnsetType = UNSET  # noqa: N815 (the wire's name)

    def around(self) -> tuple[object, ...]:
        """The fields around the part; two events with equal ones differ only in the part and usage."""
        candidate = self.candidates[0]
        return (self.modelVersion, self.responseId, self.createTime, candidate.index, candidate.content.role)


plain = msgspec.json.Decoder(Plain).decode
"""Read an event of that shape; raises what msgspec raises for any other."""


__all__ = ["Decoder", "Encoder"]


# -- reading ---------------------------------------------------------------------------------------

_CHOICES: Final = 256


class Decoder(StreamDecoder):
    """Reads one stream of Gemini."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, EventReader())
        self._fields: Fields = {}
        self._usage: dict[str, Any] | None = None
        self._choices: dict[int, Choice] = {}
        self._none: list[Fields] | None = None
        self._head: Response | None = None
        self._counted: Usage | None = None
        self._around: tuple[object, ...] | None = None
        self._count = 0
        self._over = False

    def read(self, frame: Frame, /) -> None:
        """Emit what one event means."""
        data = frame.data
        try:
            found = plain(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._around = None
            self._event(data)
            return
        around = found.around()
        if around != self._around or not self._quick(found):
            self._around = None
            self._event(data)
            self._around = around

    def end(self) -> None:
        """The answer is over if it has a finish reason."""
        self._settle()

    def fail(self, failed: Failed, /) -> None:
        """Emit a failure; after a finish reason, only one from the provider."""
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
                self.emit(ArgumentsDelta(call.number, added))
        elif more is not UNSET:
            return False
        elif choice.kind is Text and part.thought is UNSET:
            if text:
                self.emit(TextDelta(choice.open, text))
        elif choice.kind is Reasoning and part.thought is True:
            if text:
                self.emit(ReasoningDelta(choice.open, text))
        else:
            return False
        if found.usageMetadata is not UNSET:
            if self._usage is None:
                self._usage = {}
            self._usage |= found.usageMetadata
        return True

    def _event(self, data: bytes) -> None:
        if not data.strip():
            return
        if jsontext.kind(data) == "an array":
            self._refused(decode.listed_error(data))
            return
        rest = camel(jsontext.fields(jsontext.source(data)))
        raws = decode.take_candidates(rest)
        if raws is None and "error" in rest:
            self._refused(decode.provider_error(rest["error"], data))
        elif raws is None and decode.ANSWER.isdisjoint(rest):
            self.emit(ProviderEvent(WIRE, "", Raw(data)))
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
        updates: list[tuple[str, Choice, list[Fields]]] = []
        for position, beside in enumerate(raws or ()):
            try:
                choice = self._choice(beside, position)
                updates.append((f"candidates[{position}].content", choice, choice.take(beside)))
            except DecodeError as error:
                raise error.within(f"candidates[{position}]") from None
        if self._head is None:
            self._emit_head()
        for path, choice, parts in updates:
            for position, fields in enumerate(parts):
                try:
                    self._part(choice, fields, data)
                except DecodeError as error:
                    raise error.within(f"{path}.parts[{position}]") from None

    def _take_usage(self, rest: Fields) -> None:
        if jsontext.kind(rest.get("usageMetadata", NULL)) == "an object":
            if self._usage is None:
                self._usage = {}
            snapshot(self._usage, jsontext.fields(rest.pop("usageMetadata")))

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
        """Emit a text or thought that may continue the one before."""
        if not text:
            return
        if choice.kind is not kind:
            self._close(choice)
            choice.open, choice.kind = self._next(choice), kind
            part = trusted.Text("") if kind is Text else trusted.Reasoning(wire=WIRE)
            self.emit(PartStart(choice.open, part, choice.number))
        self.emit(TextDelta(choice.open, text) if kind is Text else ReasoningDelta(choice.open, text))

    def _whole(self, number: int, part: AssistantPart, choice: int) -> None:
        """Emit a whole part."""
        match part:
            case Text(text=text):
                self.emit(PartStart(number, structs.replace(part, text=""), choice))
                if text:
                    self.emit(TextDelta(number, text))
            case Reasoning(text=text):
                self.emit(PartStart(number, structs.replace(part, text=""), choice))
                if text:
                    self.emit(ReasoningDelta(number, text))
            case ToolCall(arguments_json=text):
                self.emit(PartStart(number, structs.replace(part, arguments_json=""), choice))
                if text:
                    self.emit(ArgumentsDelta(number, text))
            case _:
                self.emit(PartStart(number, part, choice))
        self.emit(PartEnd(number))

    def _next(self, choice: Choice) -> int:
        """Number a part that begins."""
        choice.count += 1
        choice.after_call = False
        self._count += 1
        return self._count - 1

    def _close(self, choice: Choice) -> None:
        """Another part begins: what is open ends."""
        if choice.kind is not None:
            self.emit(PartEnd(choice.open))
            choice.kind = None
        if choice.call is not None:
            self._end_call(choice, choice.call)

    def _place(self, choice: Choice) -> str:
        found = self._fields.get("responseId", NULL)
        return decode.place(jsontext.text(found) if jsontext.kind(found) == "a string" else None, choice.number)

    def _made_id(self, choice: Choice) -> str:
        return f"{self._place(choice)}_{choice.count}"

    def _run(self, choice: Choice) -> str:
        return choice.run or f"{self._place(choice)}_run"

    # -- calls whose arguments come in pieces ------------------------------------------------------

    def _piece(self, choice: Choice, fields: Fields, data: bytes) -> bool:
        """Take a piece of a call; ``False`` when it is a whole call."""
        if jsontext.kind(fields["functionCall"]) != "an object":
            return False
        inner = camel(jsontext.fields(fields["functionCall"]))
        pieces = inner.pop("partialArgs", None)
        goes_on = inner.pop("willContinue", NULL) == TRUE
        call = choice.call
        if call is not None and _continues(call, inner, pieces):
            call.learn({key: raw for key, raw in fields.items() if key != "functionCall"}, inner)
        elif pieces is None and not goes_on:
            return choice.after_call and not inner and len(fields) == 1  # a second end of the call has no meaning
        else:
            del fields["functionCall"]
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
        self.emit(PartStart(self._next(choice), part, choice.number))
        return call

    def _pieces(self, call: GrowingCall, pieces: Raw, data: bytes) -> None:
        unknown = False
        try:
            for index, raw in enumerate(jsontext.items(pieces)):
                try:
                    piece = camel(jsontext.fields(raw))
                    added = call.arguments.add(piece)
                except DecodeError as error:
                    raise error.within(f"[{index}]") from None
                if added:
                    self.emit(ArgumentsDelta(call.number, added))
                unknown = unknown or bool(piece)
        except DecodeError as error:
            raise error.within("functionCall.partialArgs") from None
        if unknown:
            self.emit(ProviderEvent(WIRE, "partialArgs", Raw(data)))

    def _end_call(self, choice: Choice, call: GrowingCall, *, cut: bool = False) -> None:
        """End a call. ``cut``: the answer ended within it, so it is incomplete."""
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
                self.emit(ArgumentsDelta(call.number, more))
            if call.changed:
                found = self.assembler.part(call.number)
                text = found.arguments_json if isinstance(found, ToolCall) else ""
                last = call.built(found.raw if isinstance(found, MalformedToolCall) else text)
        self.emit(PartEnd(call.number, last))

    # -- the answer as a whole ---------------------------------------------------------------------

    def _settle(self, *, failed: bool = False) -> bool:
        """Emit the whole answer and its finish; ``False`` when it did not end."""
        if self._over or self._head is None:
            return self._over
        whole = self._whole_answer()
        choices = list(self._choices.values())
        blocked = not choices and whole.message.finish_reason == "content_filter"
        self._over = not failed and (
            blocked or (bool(choices) and all(choice.reason is not UNSET for choice in choices))
        )
        for choice in choices:
            cut = not self._over or choice.reason != "STOP"
            if choice.call is not None and (self._over or not choice.call.arguments.grows):
                self._end_call(choice, choice.call, cut=cut)
            if self._over:
                self._close(choice)
        self._emit_head()
        if blocked and self._over:
            self.emit(Finish("content_filter"))
        elif self._over:
            for choice in choices:
                found = choice.reason
                reason = decode.finish(found, self.assembler.content(choice.number))
                self.emit(Finish(reason or "other", found, choice.number))
        return self._over

    def _emit_head(self) -> None:
        """Emit new fields around the parts."""
        whole = self._whole_answer()
        others = tuple([_bare(each) for each in whole.alternatives])
        head = structs.replace(whole, message=_bare(whole.message), alternatives=others, origin=self.origin)
        if self._head is None:
            self.emit(Start(head))
        elif head != self._head:
            self.emit(Update(head))
        self._head = head
        usage = whole.message.usage
        if usage is not None and usage != self._counted:
            self.emit(UsageUpdate(usage))
        self._counted = usage

    def _whole_answer(self) -> Response:
        """All that is known, read as an answer that was not streamed and holds no parts."""
        fields = dict(self._fields)
        if self._usage is not None:
            fields["usageMetadata"] = jsontext.raw(self._usage)
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
