"""Read the content parts and the tool calls of Chat Completions messages.

- A part of an unknown type is ``Opaque``, as is one that the role cannot hold. A missing or wrong field of a known type
  is a ``DecodeError``.
- Notes of a part: ``field`` (``part`` of a refusal in the content, ``thinking`` of reasoning there, ``document_url`` of
  a file, ``function_call`` of a call), ``id`` (``absent``, of a call), ``arguments`` (``object``, where a server writes
  no text).

Source: docs/spec/wires.md#2.2, #2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import AnyPart, MalformedToolCall, MediaSource, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.media import source_of
from palaver.wires._engine.shapes import ABSENT, NOTHING, Shape, Union, reader
from palaver.wires.openai_chat.shapes import AUDIO_FORMATS, WIRE

_Word: TypeAlias = str | UnsetType | None


# -- shapes ----------------------------------------------------------------------------------------


class TextPart(Shape, tag="text", tag_field="type"):
    """A text."""

    text: str


class RefusalPart(Shape, tag="refusal", tag_field="type"):
    """A refusal."""

    refusal: str


class ImagePart(Shape, tag="image_url", tag_field="type"):
    """An image by its URL: an object, or (Mistral) a text."""

    image_url: Raw


class VideoPart(Shape, tag="video_url", tag_field="type"):
    """A video by its URL."""

    video_url: Raw


class DocumentPart(Shape, tag="document_url", tag_field="type"):
    """A document by its URL, as Mistral takes it."""

    document_url: Raw
    document_name: _Word = UNSET


class Recording(Shape):
    """The bytes of a recording."""

    data: str
    format: _Word = UNSET


class AudioPart(Shape, tag="input_audio", tag_field="type"):
    """A recording."""

    input_audio: Recording


class StoredFile(Shape):
    """A file by its id or with its bytes."""

    file_id: _Word = UNSET
    file_data: _Word = UNSET
    filename: _Word = UNSET


class FilePart(Shape, tag="file", tag_field="type"):
    """A file."""

    file: StoredFile


class ThinkingPart(Shape, tag="thinking", tag_field="type"):
    """Mistral's reasoning, a list of texts and others."""

    thinking: Raw


class Link(Shape):
    """A URL."""

    url: str


UserPart: TypeAlias = TextPart | ImagePart | VideoPart | DocumentPart | AudioPart | FilePart
Part: TypeAlias = UserPart | RefusalPart | ThinkingPart

_PARTS: Final = Union[Part](
    TextPart, ImagePart, VideoPart, DocumentPart, AudioPart, FilePart, RefusalPart, ThinkingPart
)
_link = reader(Link)


# -- content ---------------------------------------------------------------------------------------


def content(found: str | Sequence[Part | Raw] | UnsetType | None) -> tuple[Any, ...]:
    """Make parts of ``content``: a text, or parts, of which those stay text that the role has not."""
    if isinstance(found, str):
        return (trusted.Text(found),)
    parts: list[AnyPart] = []
    for index, each in enumerate(found or ()):
        try:
            parts.append(_part(each))
        except DecodeError as error:
            raise error.within(f"content[{index}]") from None
    return tuple(parts)


def part(raw: Raw) -> AnyPart:
    """Read one content part. Raises ``DecodeError``."""
    return _part(_PARTS.item(raw))


def _part(found: Part | Raw) -> AnyPart:
    match found:
        case TextPart():
            return trusted.Text(found.text, provider_json=provider(WIRE, found.rest))
        case ImagePart():
            source, media_type, rest = _linked(found, "image_url", found.image_url)
            return trusted.Image(source, media_type, provider_json=provider(WIRE, rest))
        case VideoPart():
            source, media_type, rest = _linked(found, "video_url", found.video_url)
            return trusted.Video(source, media_type, provider_json=provider(WIRE, rest))
        case DocumentPart():
            source, media_type, rest = _linked(found, "document_url", found.document_url)
            stored = provider(WIRE, rest, {"field": word("document_url")})
            return trusted.File(source, media_type, found.document_name or None, provider_json=stored)
        case AudioPart():
            return _recording(found)
        case FilePart():
            return _file(found)
        case RefusalPart():
            return trusted.Refusal(found.refusal, provider_json=provider(WIRE, found.rest, {"field": word("part")}))
        case ThinkingPart():
            stored = provider(WIRE, {**found.rest, "thinking": found.thinking}, {"field": word("thinking")})
            return trusted.Reasoning(thinking_text(found.thinking), wire=WIRE, provider_json=stored)
        case _:
            return _opaque(found)


def _opaque(raw: Raw) -> AnyPart:
    return trusted.Opaque(WIRE, jsontext.own(raw))


def _linked(found: Part, key: str, raw: Raw) -> tuple[MediaSource, str | None, Fields]:
    """Read a URL: its source and type, and what remains."""
    try:
        link = Link(url=jsontext.text(raw)) if jsontext.kind(raw) == "a string" else _link(raw)
    except DecodeError as error:
        raise error.within(key) from None
    source, media_type = source_of(link.url)
    return source, media_type, nested(found.rest, key, link.rest)


def _recording(found: AudioPart) -> AnyPart:
    inner = found.input_audio
    rest = inner.rest
    media_type = AUDIO_FORMATS.get(inner.format) if inner.format else None
    if media_type is None and isinstance(inner.format, str):
        rest = {**rest, "format": jsontext.raw(inner.format)}
    stored = provider(WIRE, nested(found.rest, "input_audio", rest))
    return trusted.Audio(trusted.Inline(inner.data), media_type, provider_json=stored)


def _file(found: FilePart) -> AnyPart:
    inner = found.file
    rest, name = inner.rest, None if inner.filename is UNSET else inner.filename
    if isinstance(inner.file_id, str):
        if isinstance(inner.file_data, str):
            rest = {**rest, "file_data": jsontext.raw(inner.file_data)}
        stored = provider(WIRE, nested(found.rest, "file", rest))
        return trusted.File(trusted.FileId(inner.file_id, WIRE), None, name, provider_json=stored)
    if not isinstance(inner.file_data, str):
        raise DecodeError("neither file_id nor file_data", path="file")
    source, media_type = source_of(inner.file_data)
    return trusted.File(source, media_type, name, provider_json=provider(WIRE, nested(found.rest, "file", rest)))


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


# -- tool calls ------------------------------------------------------------------------------------


class Function(Shape):
    """The name and the arguments of a call. Some servers write an object, and some nothing."""

    name: str
    arguments: Raw = ABSENT


class Custom(Shape):
    """The name and the text of a call of a free-text tool."""

    name: str
    input: Raw = ABSENT


class Call(Shape):
    """A call. Mistral leaves the type out, and numbers them."""

    function: Function | UnsetType = UNSET
    custom: Custom | UnsetType = UNSET
    id: _Word = UNSET
    type: _Word = UNSET
    index: Raw = ABSENT


def call(found: Call, made_id: str) -> ToolCall | MalformedToolCall:
    """Make the part of a call; ``made_id`` is for a call without id. Raises ``DecodeError``."""
    if found.type == "custom":
        return _custom_call(found, made_id)
    rest, notes, inner = found.rest, NOTHING if found.id else _NO_ID, found.function
    if inner is UNSET:
        raise DecodeError("missing", path="function")
    if found.index is not ABSENT:
        rest = {**rest, "index": found.index}
    if found.custom is not UNSET:
        rest = {**rest, "custom": _again(found.custom)}
    if found.type and found.type != "function":
        rest = {**rest, "type": jsontext.raw(found.type)}
    raw = inner.arguments
    try:
        text = "" if raw is ABSENT or raw == NULL else jsontext.text(raw)
    except DecodeError as error:
        if jsontext.kind(raw) != "an object":
            raise error.within("function.arguments") from None
        text, notes = bytes(raw).decode(), {**notes, "arguments": word("object")}
    stored = provider(WIRE, nested(rest, "function", inner.rest), notes)
    return json_fields.call(found.id or made_id, inner.name, text, stored)


def _custom_call(found: Call, made_id: str) -> ToolCall:
    rest, inner = found.rest, found.custom
    if inner is UNSET:
        raise DecodeError("missing", path="custom")
    if found.index is not ABSENT:
        rest = {**rest, "index": found.index}
    if found.function is not UNSET:
        rest = {**rest, "function": _again(found.function)}
    text = '""' if inner.input is ABSENT else bytes(inner.input).decode()
    stored = provider(WIRE, nested(rest, "custom", inner.rest), NOTHING if found.id else _NO_ID)
    return trusted.ToolCall(found.id or made_id, inner.name, text, custom=True, provider_json=stored)


def one_call(raw: Raw, made_id: str, index: int) -> ToolCall | MalformedToolCall:
    """Read one item of ``tool_calls``. Raises ``DecodeError`` that names it."""
    try:
        return call(_call(raw), made_id)
    except DecodeError as error:
        raise error.within(f"[{index}]") from None


_call = reader(Call)
_NO_ID: Final[Fields] = {"id": word("absent")}


def _again(found: Function | Custom) -> Raw:
    """What stands beside the kind that a call is."""
    key, raw = ("input", found.input) if isinstance(found, Custom) else ("arguments", found.arguments)
    text = {} if raw is ABSENT else {key: raw}
    return jsontext.raw({"name": found.name, **text, **found.rest})
