"""Read streams of Chat Completions.

- Chunks have one id, model and time: the first that is not ``""`` or 0 (Azure). Other fields of the answer are merged,
  and padding is dropped. Usage is merged field by field; Groq may have it only in ``x_groq``.
- A choice ends with a finish reason, or at ``[DONE]`` when the provider sends none (Snowflake, Ollama). A stream whose
  choices all have one is complete without ``[DONE]``. A reason may come twice, and the last one counts, so finish
  events are emitted at the end.
- An ``error`` in a chunk, an ``object`` that is one (Mistral, vLLM), or an event of that name, is the provider's error
  and ends the stream. A Groq error has the model's text in ``failed_generation``.
- A chunk without choices, usage and error is a provider event.
- A chunk that differs from an earlier one only in a piece of text adds to the same part. The earlier one is stored
  without its piece and compared whole. This only recognises chunks, and takes a quarter of the time: ``_read`` is the
  reader, of every first chunk of its kind and of any other.

Source: docs/spec/wires.md#1.2, #1.3, #2.6, #2.7, #2.9, #2.10.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, EncodeError
from palaver.core.events import Failed, Finish, PartEnd, PartStart, ProviderEvent, Start, Update, UsageUpdate
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import AssistantMessage
from palaver.core.request import Response
from palaver.stream.sse import SSEReader
from palaver.wires._engine import json_fields, vendors
from palaver.wires._engine.json_fields import provider
from palaver.wires._engine.stream_decoder import StreamDecoder, opened
from palaver.wires.openai_chat import decode
from palaver.wires.openai_chat.shapes import FAILED_CALL, WIRE, read_usage
from palaver.wires.openai_chat.stream_calls import Table, put
from palaver.wires.openai_chat.stream_choice import Choice
from palaver.wires.openai_chat.stream_write import Encoder
from palaver.wires.openai_chat.variants import reasoning_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.events import Event
    from palaver.core.parts import AssistantPart
    from palaver.stream.frames import Frame


# -- the common chunk ------------------------------------------------------------------------------


_Null: TypeAlias = UnsetType | None
_Word: TypeAlias = str | UnsetType | None


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str
    name: Literal[""] | _Null = UNSET


class _Call(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    function: _Function
    type: Literal["function"] | _Null = UNSET
    id: Literal[""] | _Null = UNSET


class _Delta(Struct, gc=False, forbid_unknown_fields=True):
    content: _Word = UNSET
    reasoning_content: _Word = UNSET
    reasoning: _Word = UNSET
    tool_calls: tuple[_Call] | _Null = UNSET
    role: Literal["assistant"] | _Null = UNSET
    refusal: _Null = UNSET
    channel: str | UnsetType = UNSET


class _Choice(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    delta: _Delta
    finish_reason: _Null = UNSET
    logprobs: _Null = UNSET
    native_finish_reason: _Null = UNSET
    token_ids: _Null = UNSET


class Chunk(Struct, gc=False, forbid_unknown_fields=True):
    """A chunk with one choice, whose delta holds one piece of text."""

    choices: tuple[_Choice]
    id: _Word = UNSET
    kind: _Word = field(default=UNSET, name="object")
    created: int | UnsetType = UNSET
    model: _Word = UNSET
    system_fingerprint: _Word = UNSET
    service_tier: _Word = UNSET
    provider: _Word = UNSET
    usage: _Null = UNSET
    obfuscation: _Word = UNSET
    p: _Word = UNSET

    @property
    def head(self) -> tuple[object, ...]:
        """The fields of the answer and of the whole message."""
        channel = self.choices[0].delta.channel
        return (self.id, self.kind, self.model, self.system_fingerprint, self.service_tier, self.provider, channel)


NOISE: Final = ("obfuscation", "p")
"""Padding of OpenAI's, and of Mistral's."""

read_chunk = msgspec.json.Decoder(Chunk).decode


def taken(chunk: Chunk) -> tuple[str | int, str] | None:
    """Take the one piece out of a chunk: whose it is, and the piece; ``None`` when there is not exactly one."""
    delta = chunk.choices[0].delta
    content, thought, reasoning, calls = delta.content, delta.reasoning_content, delta.reasoning, delta.tool_calls
    found: tuple[str | int, str]
    if content:
        if thought or reasoning or calls:
            return None
        delta.content = ""
        found = ("content", content)
    elif calls:
        if thought or reasoning:
            return None
        (call,) = calls
        function = call.function
        found = (call.index, function.arguments)
        if call.type is UNSET and call.id is UNSET and function.name is UNSET:
            delta.tool_calls = None  # all of it was taken, and nothing is faster to compare
        else:
            function.arguments = ""
    elif thought:
        if reasoning:
            return None
        delta.reasoning_content = ""
        found = ("reasoning_content", thought)
    elif reasoning:
        delta.reasoning = ""
        found = ("reasoning", reasoning)
    else:
        return None
    chunk.created = 0
    chunk.obfuscation = chunk.p = None
    return found


__all__ = ["Decoder", "Encoder"]

_CHUNK: Final = "chat.completion.chunk"
_WHOLE: Final = Raw(b'"chat.completion"')
_USAGE: Final = 8192
"""Bytes that a snapshot of the usage may have, and then some."""
_FIRST: Final = frozenset({"id", "model", "created", "object"})
"""Fields of which the first word counts."""
_CHOICES: Final = 128
"""The most choices that ``n`` may ask for."""


class Decoder(StreamDecoder):
    """One stream of Chat Completions."""

    def __init__(self, origin: str) -> None:
        """Start empty."""
        super().__init__(origin, SSEReader())
        self._thoughts = reasoning_fields(origin.partition(":")[2] or None)
        self._head: Table = {}
        self._emitted_head: Response | None = None
        self._usage: Table = {}
        self._choices: dict[int, Choice] = {}
        self._parts = 0
        self._settled = False
        self._shape: tuple[object, ...] = ()
        self._skeletons: dict[tuple[int, str | int], tuple[Chunk, Callable[[int, str], Event], int, list[str]]] = {}

    def read(self, frame: Frame, /) -> None:
        """Read one chunk."""
        try:
            chunk = read_chunk(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._skeletons = {}
            self._read(frame)
            return
        found = taken(chunk)
        if found is None:
            self._read(frame)
            return
        kind, piece = found
        key = (chunk.choices[0].index, kind)
        known = self._skeletons.get(key)
        if known is not None and known[0] == chunk and not frame.name:
            if piece:
                known[3].append(piece)
                self._out.append(known[1](known[2], piece))
            return
        self._read(frame)
        self._learn(key, chunk)

    def _learn(self, key: tuple[int, str | int], chunk: Chunk) -> None:
        """Remember a chunk without its piece, and where pieces like it go."""
        if chunk.head != self._shape:
            self._shape = chunk.head
            self._skeletons = {}
        choice = self._choices.get(key[0])
        target = None if choice is None else choice.target(key[1])
        if target is not None:
            self._skeletons[key] = (chunk, *target)

    def end(self) -> None:
        """Finish a stream that ended without its mark."""
        self._settle(whole=self._over)

    def fail(self, failed: Failed, /) -> None:
        """Emit what comes first: a call that was held back, fields, and the end of a finished answer."""
        try:
            self._settle(whole=failed.kind != "provider" and self._over)
        except DecodeError:
            self._settle(whole=False)
        super().fail(failed)

    # -- for choices --

    def begin(self, part: AssistantPart, place: tuple[int, ...], choice: int = 0) -> int:
        """Begin a part."""
        number = self._parts
        self._parts += 1
        self.emit(PartStart(number, part, choice, place))
        return number

    def emitted(self, number: int) -> AssistantPart | None:
        """The part as emitted so far."""
        return self.assembler.part(number)

    # -- a chunk, field by field --

    def _read(self, frame: Frame) -> None:
        data = frame.data.strip()
        if data == b"[DONE]":
            self._settle(whole=bool(self._choices))
            self.done = True
        elif data:
            try:
                rest = opened(data)
            except DecodeError:
                if frame.name != "error":
                    raise
                rest = {"error": jsontext.raw(data.decode("utf-8", "replace"))}
            self._chunk(rest, frame, data)

    def _chunk(self, rest: Fields, frame: Frame, data: bytes) -> None:
        error = rest.pop("error", None)
        if error == NULL:
            error = None
        failed = frame.name == "error" or error is not None or rest.get("object") == _ERROR
        raw_choices = json_fields.take_items(rest, "choices")
        if raw_choices is None and not failed and "usage" not in rest and rest.get("object") != _CHUNK_TEXT:
            name = frame.name or (rest.get("type", NULL) != NULL and _word(rest["type"])) or ""
            self.emit(ProviderEvent(WIRE, name, Raw(data)))
            return
        if raw_choices is not None:
            rest.pop("choices", None)
            self._emit_head(rest)
            for position, raw in enumerate(raw_choices):
                try:
                    self._choice(jsontext.fields(raw), position, data)
                except DecodeError as found:
                    raise found.within(f"choices[{position}]") from None
        elif not failed:
            rest.pop("choices", None)
            self._emit_head(rest)
        if failed:
            whole = {**rest, "error": error} if error is not None else rest
            failure = decode.provider_error(whole, jsontext.encode(whole))
            self._store_failed_call(whole.get("error", NULL))
            self.fail(Failed("provider", failure.message, failure.code, Raw(data) if jsontext.is_json(data) else UNSET))

    def _store_failed_call(self, error: Raw) -> None:
        """Keep the call that Groq could not read: it stands in the error, as the model wrote it.

        Source: docs/spec/wires.md#2.9.
        """
        if jsontext.kind(error) != "an object":
            return
        raw = jsontext.fields(error).get("failed_generation", NULL)
        if jsontext.kind(raw) == "a string":
            part = trusted.MalformedToolCall(jsontext.text(raw), FAILED_CALL)
            self.emit(PartEnd(self.begin(part, (5,))))

    def _emit_head(self, rest: Fields) -> None:
        usage = self._counted(rest)
        for key in NOISE:
            if key in rest and jsontext.kind(rest[key]) == "a string":
                del rest[key]
        for key in ("id", "model"):
            json_fields.take_text(dict(rest), key)
        for key, raw in rest.items():
            if key not in _FIRST:
                put(self._head, key, raw)
            elif self._head.get(key, NULL) in _NOTHING:
                self._head[key] = _WHOLE if raw == _CHUNK_TEXT else jsontext.own(raw)
        if self._emitted_head is None:
            self._emitted_head = self._answer({})
            self.emit(Start(self._emitted_head))
        if usage is not None:
            self._emit_usage(usage)

    def _emit_usage(self, usage: Raw) -> None:
        """Emit all known fields; a snapshot that would grow without bound starts anew."""
        fields = jsontext.fields(usage)
        for key, item in fields.items():
            put(self._usage, key, item)
        raw = jsontext.raw(self._usage)
        if len(bytes(raw)) > _USAGE + 8 * len(bytes(usage)):
            self._usage, raw = dict(fields), jsontext.own(usage)
        self.emit(UsageUpdate(read_usage(raw)))

    @staticmethod
    def _counted(rest: Fields) -> Raw | None:
        """Take the usage out of a chunk; that in Groq's own object stays there."""
        raw = rest.get("usage")
        if raw is None or raw == NULL:
            rest.pop("usage", None)
            own = rest.get("x_groq")
            raw = jsontext.fields(own).get("usage") if _is_object(own) else None
            return raw if _is_object(raw) else None
        return rest.pop("usage") if _is_object(raw) else None

    def _choice(self, rest: Fields, position: int, data: bytes) -> None:
        index = json_fields.take_int({**rest}, "index")
        number = position if index is None else index
        if not 0 <= number < _CHOICES:
            raise DecodeError(f"expected 0 to {_CHOICES - 1}", path="index")
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = Choice(number, _ChoiceTelling(self, number), self._thoughts)
        delta = json_fields.take_fields(rest, "delta")
        rest.pop("delta", None)
        if "message" in rest:  # some servers end with the whole answer
            message = json_fields.take_fields(rest, "message")
            rest.pop("message", None)
            if delta is None and not choice.heard:
                delta = message
            elif message is not None:
                self.emit(ProviderEvent(WIRE, "", Raw(data)))
        choice.beside(rest)
        if delta:
            try:
                choice.delta(delta)
            except DecodeError as error:
                raise error.within("delta") from None

    # -- the end --

    @property
    def _over(self) -> bool:
        """Whether every choice has a finish reason."""
        return bool(self._choices) and all(choice.word for choice in self._choices.values())

    def _settle(self, *, whole: bool) -> None:
        """Emit what is known only at the end. Raises ``DecodeError``; a stream that broke off emits what it can."""
        if self._settled:
            return
        found: dict[int, tuple[AssistantMessage, tuple[tuple[AssistantPart, ...], ...]]] = {}
        for number, choice in sorted(self._choices.items()):
            try:
                found[number] = self._signed(*choice.read())
            except (DecodeError, EncodeError) as error:
                if whole:
                    raise DecodeError(str(error)) from None
        answer = (
            self._answer({number: message for number, (message, _) in found.items()}) if self._emitted_head else None
        )
        self._settled = True
        for number, choice in sorted(self._choices.items()):
            if whole:
                choice.finish(found[number][1])
            else:
                choice.calls.flush()
        if answer is not None and answer != self._emitted_head:
            self._emitted_head = answer
            self.emit(Update(answer))
        if whole:
            for number, (message, _) in found.items():
                self.emit(Finish(message.finish_reason or "stop", message.finish_reason_raw, number))

    def _signed(
        self, message: AssistantMessage, groups: tuple[tuple[AssistantPart, ...], ...]
    ) -> tuple[AssistantMessage, tuple[tuple[AssistantPart, ...], ...]]:
        variant = self.origin.partition(":")[2]
        content = [part for group in groups for part in group]
        return (vendors.signed_message(message, content, WIRE, variant) if variant else message), groups

    def _answer(self, messages: dict[int, AssistantMessage]) -> Response:
        """What is known of the answer as a whole; its messages hold no parts."""
        rest = jsontext.fields(jsontext.encode(self._head))
        model, response_id = json_fields.take_text(rest, "model"), json_fields.take_text(rest, "id")
        first, *others = [_bare(messages.get(number)) for number in range(max(messages, default=0) + 1)]
        message = structs.replace(first, model=model, response_id=response_id)
        return trusted.Response(message, tuple(others), self.origin, provider_json=provider(WIRE, rest))


class _ChoiceTelling:
    """Where the events of one choice go."""

    __slots__ = ("_choice", "_decoder", "emit", "emitted")

    def __init__(self, decoder: Decoder, choice: int) -> None:
        self._decoder = decoder
        self._choice = choice
        self.emit = decoder.emit
        self.emitted = decoder.emitted

    def begin(self, part: AssistantPart, place: tuple[int, ...]) -> int:
        """Hand out the beginning of a part."""
        return self._decoder.begin(part, place, self._choice)


_CHUNK_TEXT: Final = Raw(f'"{_CHUNK}"'.encode())
_ERROR: Final = Raw(b'"error"')
_NOTHING: Final = (NULL, Raw(b'""'), Raw(b"0"))


def _bare(message: AssistantMessage | None) -> AssistantMessage:
    if message is None:
        return trusted.AssistantMessage()
    return structs.replace(message, finish_reason=None, finish_reason_raw=UNSET)


def _is_object(raw: Raw | None) -> TypeGuard[Raw]:
    return raw is not None and jsontext.kind(raw) == "an object"


def _word(raw: Raw) -> str:
    return jsontext.text(raw) if jsontext.kind(raw) == "a string" else ""
