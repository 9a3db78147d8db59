"""Read the content blocks of Converse messages.

- A block of an unknown kind is ``Opaque``, and so are a medium of an unknown format or source, a cache point, and a
  block that the neutral role cannot hold. A missing or wrong field of a known kind is a ``DecodeError``.
- ``reasoningContent`` is ``Reasoning`` with its signature or its redacted bytes. ``citationsContent`` is ``Text`` with
  citations. A result inside an assistant message belongs to the service's own tool: ``ServerToolResult``.
- A document with a text source is a file of ``text/plain``, or of its format.

Source: docs/spec/wires.md#6.1; ``ContentBlock`` in botocore's ``bedrock-runtime``.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from msgspec import Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, TRUE, Fields
from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    Citation,
    File,
    Image,
    MediaSource,
    ServerToolResult,
    Video,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires.bedrock_converse.shapes import FORMATS, KINDS, WIRE, WORDS, choose, optional

if TYPE_CHECKING:
    from collections.abc import Callable

Read: TypeAlias = "Callable[[Raw, Fields, Raw], AnyPart | None]"
"""Reads what stands under the key, given what stands beside it and the whole block; ``None`` is ``Opaque``."""


def assistant_part(raw: Raw) -> Any:
    """Read a block of an assistant message."""
    return _part(raw, _ASSISTANT)


def system_part(raw: Raw) -> Any:
    """Read a block of ``system``, or of a message of that role."""
    return _part(raw, _SYSTEM)


def _user_part(raw: Raw) -> Any:
    return _part(raw, _USER)


def _result_part(raw: Raw) -> Any:
    return _part(raw, _RESULT)


def _part(raw: Raw, table: dict[str, Read]) -> AnyPart:
    beside = jsontext.fields(raw)
    kind = choose(beside, table)
    if kind is None:
        return trusted.Opaque(WIRE, jsontext.own(raw))
    try:
        found = table[kind](beside.pop(kind), beside, raw)
    except DecodeError as error:
        raise error.within(kind) from None
    return trusted.Opaque(WIRE, jsontext.own(raw)) if found is None else found


def _provider_json(rest: Fields, beside: Fields) -> Raw | UnsetType:
    if beside:
        rest["@@beside"] = Raw(jsontext.encode(beside))
    return provider(WIRE, rest)


# -- text and reasoning ----------------------------------------------------------------------------


def _text(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart:
    text = jsontext.text(inner)
    return trusted.Text(text, provider_json=_provider_json({}, beside)) if beside else trusted.Text(text)


def _result_text(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart:
    """Read text of a result, which may be blank; elsewhere blank text is refused (docs/spec/wires.md#6.2.3)."""
    text = jsontext.text(inner)
    if not text.strip():
        return trusted.Text(text, provider_json=_provider_json({"@@blank": TRUE}, beside))
    return trusted.Text(text, provider_json=_provider_json({}, beside)) if beside else trusted.Text(text)


def _cited(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart:
    rest = jsontext.fields(inner)
    raw = rest.get("content")
    text = "" if raw is None else cited_text(raw)
    if raw is None:
        rest["@@content"] = hint("absent")
    elif jsontext.equal(raw, jsontext.raw([{"text": text}])):
        del rest["content"]
    found = rest.get("citations")
    citations: tuple[Citation, ...] = ()
    if found is not None and jsontext.kind(found) == "an array" and (blocks := jsontext.items(found)):
        citations = tuple(citation(block) for block in blocks)
        del rest["citations"]
    rest["@@kind"] = hint("citationsContent")
    return trusted.Text(text, citations, provider_json=_provider_json(rest, beside))


def cited_text(raw: Raw) -> str:
    """Join the texts that citations stand on."""
    found: object = jsontext.value(raw)
    blocks = cast("list[object]", found) if isinstance(found, list) else []
    texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    return "".join([text for text in texts if isinstance(text, str)])


def citation(raw: Raw) -> Citation:
    """Read a citation. Its offsets are those of the source, not of the text, so they stay in the raw block."""
    found = jsontext.value(raw)
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    location = table.get("location")
    web = cast("dict[str, Any]", location).get("web") if isinstance(location, dict) else None
    url = cast("dict[str, Any]", web).get("url") if isinstance(web, dict) else None
    title, quoted = table.get("title"), table.get("sourceContent")
    return trusted.Citation(
        wire=WIRE,
        url=url if isinstance(url, str) else None,
        title=title if isinstance(title, str) else None,
        quote=(cited_text(jsontext.raw(cast("object", quoted))) or None) if isinstance(quoted, list) else None,
        raw_json=jsontext.own(raw),
    )


def _reasoning(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart | None:
    rest = jsontext.fields(inner)
    kind = choose(rest, _PROOFS)
    if kind is None:
        return None
    if kind == "redactedContent":
        redacted = json_fields.need_text(rest, kind)
        return trusted.Reasoning(encrypted=redacted, wire=WIRE, provider_json=_provider_json(rest, beside))
    signed = _need(rest, kind)
    try:
        text = json_fields.need_text(signed, "text")
    except DecodeError as error:
        raise error.within(kind) from None
    signature = optional(json_fields.take_text, signed, "signature")
    if not (signed or rest or beside):
        return trusted.Reasoning(text, signature, wire=WIRE)
    return trusted.Reasoning(
        text, signature, wire=WIRE, provider_json=_provider_json(nested(rest, kind, signed), beside)
    )


_PROOFS: Final = ("reasoningText", "redactedContent")


def _need(rest: Fields, key: str) -> Fields:
    """Take an object out that must be there."""
    raw = rest.pop(key, None)
    if raw is None:
        raise DecodeError("missing", path=key)
    try:
        return jsontext.fields(raw)
    except DecodeError as error:
        raise error.within(key) from None


# -- tools -----------------------------------------------------------------------------------------


def _call(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart:
    rest = jsontext.fields(inner)
    call_id, name = json_fields.need_text(rest, "toolUseId"), json_fields.need_text(rest, "name")
    arguments = rest.pop("input", None)
    if arguments is None:
        raise DecodeError("missing", path="input")
    served = rest.get("type") == _SERVED
    return trusted.ToolCall(
        call_id, name, bytes(arguments).decode(), provider_executed=served, provider_json=_provider_json(rest, beside)
    )


_SERVED: Final = Raw(b'"server_tool_use"')


def _served_result(inner: Raw, _beside: Fields, raw: Raw) -> AnyPart:
    rest = jsontext.fields(inner)
    call_id = json_fields.need_text(rest, "toolUseId")
    return ServerToolResult(call_id, jsontext.own(raw), WIRE, is_error=rest.get("status") == _ERROR)


_ERROR: Final = Raw(b'"error"')


def _json(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart:
    return trusted.Json(jsontext.own(inner), provider_json=_provider_json({}, beside))


# -- media -----------------------------------------------------------------------------------------


class _Found(NamedTuple):
    source: MediaSource
    rest: Fields


def _media(cls: type[Image | Audio | Video | File]) -> Read:
    kind = KINDS[cls]
    formats, words = FORMATS[kind], WORDS[kind]

    def read(inner: Raw, beside: Fields, _raw: Raw) -> AnyPart | None:
        rest = jsontext.fields(inner)
        name = json_fields.need_text(rest, "name") if cls is File else None
        word = optional(json_fields.take_text, rest, "format") if cls is File else json_fields.need_text(rest, "format")
        if "source" not in rest and "error" in rest:  # an image that could not be made
            return None
        source = _need(rest, "source")
        try:
            found = _source(source, textual=cls is File)
        except DecodeError as error:
            raise error.within("source") from None
        if found is None:
            return None
        if word is None and found.rest.get("@@text") is not None and "format" not in rest:
            rest["@@format"] = hint("absent")
            word = "txt"
        media_type = formats.get(word or "")
        if media_type is None:
            return None
        if words[media_type] != word:
            rest["@@format"] = hint(cast("str", word))
        if found.rest.pop("@@text", None) is not None:
            rest["@@source"] = hint("text")
        stored = _provider_json(nested(rest, "source", found.rest), beside)
        if cls is File:
            return trusted.File(found.source, media_type, name, provider_json=stored)
        return cls(found.source, media_type, provider_json=stored)

    return read


def _source(rest: Fields, *, textual: bool) -> _Found | None:
    """Read where a medium comes from; ``None`` for an unknown source."""
    kind = choose(rest, _SOURCES if textual else _BINARY)
    match kind:
        case "bytes":
            return _Found(trusted.Inline(json_fields.need_text(rest, kind)), rest)
        case "s3Location":
            location = _need(rest, kind)
            try:
                uri = json_fields.need_text(location, "uri")
            except DecodeError as error:
                raise error.within(kind) from None
            return _Found(trusted.Url(uri), nested(rest, kind, location))
        case "text":
            text = json_fields.need_text(rest, kind)
            try:
                data = text.encode()
            except UnicodeEncodeError:  # a lone surrogate has no bytes
                return None
            encoded = binascii.b2a_base64(data, newline=False).decode()
            return _Found(trusted.Inline(encoded), {**rest, "@@text": TRUE})
        case _:
            return None


_BINARY: Final = ("bytes", "s3Location")
_SOURCES: Final = ("bytes", "s3Location", "text")


# -- which blocks stand where ----------------------------------------------------------------------

_MEDIA: Final[dict[str, Read]] = {KINDS[cls]: _media(cls) for cls in (Image, File, Video, Audio)}
_SYSTEM: Final[dict[str, Read]] = {"text": _text}
_USER: Final[dict[str, Read]] = {"text": _text, **_MEDIA}
_ASSISTANT: Final[dict[str, Read]] = {
    "text": _text,
    "toolUse": _call,
    "reasoningContent": _reasoning,
    "toolResult": _served_result,
    "citationsContent": _cited,
    **_MEDIA,
}
_RESULT: Final[dict[str, Read]] = {
    "text": _result_text,
    "json": _json,
    **{kind: read for kind, read in _MEDIA.items() if kind != "audio"},
}


# -- a user message, which is several --------------------------------------------------------------


def user_messages(blocks: list[Raw], rest: Fields) -> list[Message]:
    """Take a user message apart: each tool result is a message, and so is each run of other blocks.

    ``rest``, what stands beside role and content, stays with the first; the others have ``@@joined``.
    """
    messages: list[Message] = []
    run: list[Any] = []

    def beside() -> Fields:
        return {"@@joined": TRUE} if messages else rest

    def close() -> None:
        if run or not (blocks or messages):
            messages.append(trusted.UserMessage(content=tuple(run), provider_json=provider(WIRE, beside())))
            run.clear()

    index = 0
    while index < len(blocks):
        try:
            fields = jsontext.fields(blocks[index])
            inner = fields.pop("toolResult", None)
            if inner is None or inner == NULL:
                run.append(_user_part(blocks[index]))
            else:
                close()
                mark = _cache_point(blocks[index + 1 : index + 2])
                messages.append(_result(inner, fields, beside(), mark))
                index += mark is not None
        except DecodeError as error:
            raise error.within(f"content[{index}]") from None
        index += 1
    close()
    return messages


def _cache_point(behind: list[Raw]) -> Raw | None:
    """Find a cache point right behind a result, with which it stays."""
    if not behind or jsontext.kind(behind[0]) != "an object":
        return None
    fields = jsontext.fields(behind[0])
    return fields.get("cachePoint") if len(fields) == 1 else None


def _result(inner: Raw, beside: Fields, message: Fields, mark: Raw | None) -> ToolMessage:
    try:
        rest = jsontext.fields(inner)
        call_id = json_fields.need_text(rest, "toolUseId")
        found = json_fields.need_items(rest, "content")
        content = tuple(json_fields.each(found, "content", _result_part))
    except DecodeError as error:
        raise error.within("toolResult") from None
    is_error = rest.get("status") == _ERROR
    if is_error:
        del rest["status"]
    if not found:
        rest["@@content"] = hint("empty")
    if "cachePoint" in rest:  # an unknown field; the name is taken by the block behind the result
        rest["@@cachePoint"] = rest.pop("cachePoint")
    if mark is not None:
        rest["cachePoint"] = mark
    if message.pop("@@joined", None) is not None:
        rest["@@joined"] = TRUE
    elif message:
        rest["@@message"] = Raw(jsontext.encode(message))
    return trusted.ToolMessage(
        content=content, tool_call_id=call_id, is_error=is_error, provider_json=_provider_json(rest, beside)
    )
