"""Read the content parts of Chat Completions messages, and the common answer in one step.

A part of an unknown type is ``Opaque``. A missing or wrong field of a known type is a ``DecodeError``. The common
answer has one choice with a text or calls and only the usual fields; ``decode`` reads any other shape, and the common
one with the same result.

Source: docs/spec/wires.md#2.2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import Fields
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    File,
    Image,
    MalformedToolCall,
    ToolCall,
    Video,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires._engine.media import source_of
from palaver.wires.openai_chat.shapes import AUDIO_FORMATS, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable


def part(raw: Raw) -> AnyPart:
    """Read one content part."""
    rest = jsontext.fields(raw)
    kind = json_fields.need_text(rest, "type")
    read = _PARTS.get(kind)
    return trusted.Opaque(WIRE, jsontext.own(raw)) if read is None else read(rest, raw)


def _text(rest: Fields, _raw: Raw) -> AnyPart:
    text = json_fields.need_text(rest, "text")
    return trusted.Text(text, provider_json=provider(WIRE, rest)) if rest else trusted.Text(text)


def _refused(rest: Fields, _raw: Raw) -> AnyPart:
    text = json_fields.need_text(rest, "refusal")
    rest["@@field"] = hint("part")
    return trusted.Refusal(text, provider_json=provider(WIRE, rest))


def _linked(cls: type[Image | Video | File], key: str) -> Callable[[Fields, Raw], AnyPart]:
    """Read a part that points to a URL, given as an object or (Mistral) as a bare string."""

    def read(rest: Fields, _raw: Raw) -> AnyPart:
        raw = rest.pop(key, None)
        if raw is None:
            raise DecodeError("missing", path=key)
        if jsontext.kind(raw) == "a string":
            rest["@@form"] = hint("string")
            url, inner = jsontext.text(raw), {}
        else:
            try:
                inner = jsontext.fields(raw)
                url = json_fields.need_text(inner, "url")
            except DecodeError as error:
                raise error.within(key) from None
        source, media_type = source_of(url)
        if cls is File:
            rest["@@field"] = hint(key)
            name = json_fields.take_text(rest, "document_name")
            return trusted.File(source, media_type, name, provider_json=provider(WIRE, nested(rest, key, inner)))
        return cls(source, media_type, provider_json=provider(WIRE, nested(rest, key, inner)))

    return read


def _recording(rest: Fields, _raw: Raw) -> AnyPart:
    inner = json_fields.need_fields(rest, "input_audio")
    try:
        data = json_fields.need_text(inner, "data")
        word = json_fields.take_text(inner, "format")
    except DecodeError as error:
        raise error.within("input_audio") from None
    media_type = None if word is None else AUDIO_FORMATS.get(word)
    if word is not None and media_type is None:
        inner["format"] = jsontext.raw(word)
    return trusted.Audio(
        trusted.Inline(data), media_type, provider_json=provider(WIRE, nested(rest, "input_audio", inner))
    )


def _file(rest: Fields, _raw: Raw) -> AnyPart:
    inner = json_fields.need_fields(rest, "file")
    try:
        file_id = json_fields.take_text(inner, "file_id")
        data = None if file_id is not None else json_fields.take_text(inner, "file_data")
        name = json_fields.take_text(inner, "filename")
    except DecodeError as error:
        raise error.within("file") from None
    stored = provider(WIRE, nested(rest, "file", inner))
    if file_id is not None:
        return trusted.File(trusted.FileId(file_id, WIRE), None, name, provider_json=stored)
    if data is None:
        raise DecodeError("neither file_id nor file_data", path="file")
    source, media_type = source_of(data)
    return trusted.File(source, media_type, name, provider_json=stored)


def _thinking(rest: Fields, _raw: Raw) -> AnyPart:
    """Read Mistral's thinking block; its list of texts is kept, the text is a view."""
    raw = rest.get("thinking")
    if raw is None:
        raise DecodeError("missing", path="thinking")
    text = thinking_text(raw)
    rest["@@field"] = hint("thinking")
    return trusted.Reasoning(text, wire=WIRE, provider_json=provider(WIRE, rest))


def thinking_text(raw: Raw) -> str:
    """Join the texts of a thinking block."""
    found = jsontext.value(raw)
    if isinstance(found, str):
        return found
    if not isinstance(found, list):
        raise DecodeError(f"expected an array, got {jsontext.kind(raw)}", path="thinking")
    return "".join(_block_text(block) for block in found)  # pyright: ignore[reportUnknownVariableType] (parsed JSON)


def _block_text(block: Any) -> str:
    match block:
        case {"text": str(text)}:
            return text
        case _:
            return ""


_PARTS: Final[dict[str, Callable[[Fields, Raw], AnyPart]]] = {
    "text": _text,
    "refusal": _refused,
    "image_url": _linked(Image, "image_url"),
    "video_url": _linked(Video, "video_url"),
    "document_url": _linked(File, "document_url"),
    "input_audio": _recording,
    "file": _file,
    "thinking": _thinking,
}


# -- the common answer -----------------------------------------------------------------------------


class PlainFunction(Struct, gc=False, forbid_unknown_fields=True):
    """What every call names."""

    name: str
    arguments: str


class PlainCall(Struct, gc=False, forbid_unknown_fields=True):
    """A call with the fields that calls have. Mistral leaves the type out, and numbers them."""

    id: str
    function: PlainFunction
    type: Literal["function"] | UnsetType = UNSET
    index: int | UnsetType = UNSET


class _Message(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str | UnsetType | None = UNSET
    tool_calls: list[PlainCall] | UnsetType | None = UNSET
    refusal: UnsetType | None = UNSET
    annotations: list[Raw] | UnsetType | None = UNSET


class _Choice(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    message: _Message
    finish_reason: str
    logprobs: UnsetType | None = UNSET


_choices = msgspec.json.Decoder(list[_Choice]).decode


def plain_answer(raw: Raw) -> tuple[tuple[AssistantPart, ...], str, Raw | UnsetType] | None:
    """Read ``choices``: the content, the finish word, and what is kept; ``None`` for any other shape."""
    try:
        found = _choices(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if len(found) != 1 or found[0].index != 0 or found[0].message.annotations:
        return None
    message = found[0].message
    content: list[AssistantPart] = [trusted.Text(message.content)] if isinstance(message.content, str) else []
    calls = message.tool_calls
    if calls:
        content += [plain_call(each) for each in calls]
    logprobs = found[0].logprobs is None
    fields = (message.content is UNSET, message.refusal is None, _empty(message.annotations), _empty(calls), logprobs)
    return tuple(content), found[0].finish_reason, _provider_json(*fields)


def plain_call(call: PlainCall) -> ToolCall | MalformedToolCall:
    """Make the part for a call of the common shape."""
    stored = UNSET if call.type is not UNSET and call.index is UNSET else _kept_of_call(call.type is UNSET, call.index)
    return json_fields.call(call.id, call.function.name, call.function.arguments, stored)


@lru_cache(maxsize=64)
def _kept_of_call(untyped: bool, index: int | UnsetType) -> Raw | UnsetType:  # noqa: FBT001 (a key)
    rest: jsontext.Fields = {} if index is UNSET else {"index": jsontext.raw(index)}
    return json_fields.provider(WIRE, {**rest, "@@type": json_fields.hint("absent")} if untyped else rest)


def _empty(items: list[Any] | UnsetType | None) -> str:
    """How a list that holds nothing was written; ``""`` where there is nothing to keep."""
    return "null" if items is None else "[]" if items == [] else ""


@lru_cache(maxsize=64)
def _provider_json(absent: bool, refusal: bool, annotations: str, calls: str, logprobs: bool) -> Raw | UnsetType:  # noqa: FBT001 (a key)
    """What remains of the few common shapes, written once."""
    rest: jsontext.Fields = {}
    if absent:
        rest["@@content"] = json_fields.hint("absent")
    if refusal:
        rest["refusal"] = jsontext.NULL
    if annotations:
        rest["annotations"] = Raw(annotations.encode())
    if calls:
        rest["tool_calls"] = Raw(calls.encode())
    if logprobs:
        rest["@@choice"] = Raw(b'{"index":0,"logprobs":null}')
    return json_fields.provider(WIRE, rest)
