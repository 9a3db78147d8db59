"""Read the content blocks of Messages.

- Each role has a table of block types. A type outside the table becomes ``Opaque``. A missing or wrong field of a known
  type is a ``DecodeError``.
- A document given as text becomes an inline file, so that other wires can carry it. Its ``title`` is the name of the
  file. A document made of content blocks stays ``Opaque``.
- Calls that the provider runs keep their type as the hint ``@@type``. Their results stay raw.
- ``@@source`` is ``base64`` when a text document came in that form.

Source: docs/spec/wires.md#4.1.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Citation,
    MediaSource,
    ServerToolResult,
    TextPart,
    ToolPart,
    Url,
    UserPart,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires.anthropic_messages.shapes import PDF, PLAIN_TEXT, SERVER_CALLS, TEXT_TYPES, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    _Read: TypeAlias = Callable[[Fields, Raw, str], AnyPart]


# -- by role ---------------------------------------------------------------------------------------


def system_part(raw: Raw) -> TextPart:
    """Read a block of a system message."""
    return cast("TextPart", _part(raw, _SYSTEM))


def user_part(fields: Fields, kind: str, raw: Raw) -> UserPart:
    """Read a block of a user message; ``fields`` are those of ``raw``, without the type."""
    return cast("UserPart", _USER.get(kind, _opaque)(fields, raw, kind))


def result_part(raw: Raw) -> ToolPart:
    """Read a block of a tool result."""
    return cast("ToolPart", _part(raw, _USER))


def answer_parts(blocks: Raw) -> tuple[AssistantPart, ...]:
    """Read the blocks of an assistant message; those of the common shapes in one step."""
    try:
        return tuple([_plain_part(each) for each in _plain(blocks)])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DecodeError):
        return tuple(json_fields.each(jsontext.items(blocks), "", answer_part))


def answer_part(raw: Raw) -> AssistantPart:
    """Read a block of an assistant message."""
    return cast("AssistantPart", _part(raw, _ASSISTANT))


class _PlainText(Struct, tag_field="type", tag="text", gc=False, forbid_unknown_fields=True):
    text: str


class _PlainThinking(Struct, tag_field="type", tag="thinking", gc=False, forbid_unknown_fields=True):
    thinking: str
    signature: str


class _PlainCall(Struct, tag_field="type", tag="tool_use", gc=False, forbid_unknown_fields=True):
    id: str
    name: str
    input: Raw
    caller: Raw | UnsetType = UNSET


_plain = msgspec.json.Decoder(list[_PlainText | _PlainThinking | _PlainCall]).decode


def _plain_part(found: _PlainText | _PlainThinking | _PlainCall) -> AssistantPart:
    match found:
        case _PlainText():
            return trusted.Text(found.text)
        case _PlainThinking():
            return trusted.Reasoning(found.thinking, found.signature, wire=WIRE)
        case _PlainCall():
            stored = UNSET if found.caller is UNSET else provider(WIRE, {"caller": found.caller})
            return trusted.ToolCall(found.id, found.name, _object(found.input), provider_json=stored)


def _part(raw: Raw, table: dict[str, _Read]) -> AnyPart:
    rest = jsontext.fields(raw)
    kind = json_fields.need_text(rest, "type")
    read = table.get(kind)
    if read is None:
        read = _server_result if table is _ASSISTANT and _names_result(kind, rest) else _opaque
    return read(rest, raw, kind)


def _opaque(_rest: Fields, raw: Raw, _kind: str) -> AnyPart:
    return trusted.Opaque(WIRE, jsontext.own(raw))


# -- text and reasoning ----------------------------------------------------------------------------


def _text(rest: Fields, _raw: Raw, _kind: str) -> AnyPart:
    text = json_fields.need_text(rest, "text")
    if not rest:
        return trusted.Text(text)
    citations = rest.get("citations")
    if citations is None or jsontext.kind(citations) != "an array":
        return trusted.Text(text, provider_json=provider(WIRE, rest))
    cited = tuple([citation(each) for each in jsontext.items(citations)])
    if cited:
        del rest["citations"]
    return trusted.Text(text, cited, provider_json=provider(WIRE, rest))


class _Cited(Struct, gc=False):
    """What we read of a citation; offsets are those of the source, not of our text, and stay in the block."""

    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    cited_text: str | None = None


_cited = msgspec.json.Decoder(_Cited).decode


def citation(raw: Raw) -> Citation:
    """Read a citation of a text."""
    preserved = jsontext.own(raw)
    try:
        found = _cited(raw)
    except msgspec.DecodeError:
        return trusted.Citation(wire=WIRE, raw_json=preserved)
    return trusted.Citation(
        wire=WIRE,
        url=found.url or found.source,
        title=found.title or found.document_title,
        quote=found.cited_text,
        raw_json=preserved,
    )


def _thinking(rest: Fields, _raw: Raw, _kind: str) -> AnyPart:
    text = json_fields.need_text(rest, "thinking")
    signature = json_fields.take_text(rest, "signature")
    return trusted.Reasoning(text, signature, wire=WIRE, provider_json=provider(WIRE, rest))


def _redacted(rest: Fields, _raw: Raw, _kind: str) -> AnyPart:
    data = json_fields.need_text(rest, "data")
    return trusted.Reasoning(encrypted=data, wire=WIRE, provider_json=provider(WIRE, rest))


# -- tools -----------------------------------------------------------------------------------------


def _call(rest: Fields, _raw: Raw, kind: str) -> AnyPart:
    call_id = json_fields.need_text(rest, "id")
    name = json_fields.need_text(rest, "name")
    arguments = rest.pop("input", None)
    if arguments is None:
        raise DecodeError("missing", path="input")
    served = kind in SERVER_CALLS
    if served:
        rest["@@type"] = hint(kind)
    stored = provider(WIRE, rest)
    return trusted.ToolCall(call_id, name, _object(arguments), provider_executed=served, provider_json=stored)


def _object(arguments: Raw) -> str:
    """Return the text of a call's input, which must be an object."""
    if jsontext.kind(arguments) != "an object":
        raise DecodeError(f"expected an object, got {jsontext.kind(arguments)}", path="input")
    return bytes(arguments).decode()


def _names_result(kind: str, rest: Fields) -> bool:
    """Whether a block of a type that has no row yet is the result of a tool that the provider ran.

    Source: docs/spec/wires.md#4.2.
    """
    return kind.endswith("_tool_result") and jsontext.kind(rest.get("tool_use_id", NULL)) == "a string"


def _server_result(rest: Fields, raw: Raw, kind: str) -> AnyPart:
    name = kind.removesuffix("_tool_result")
    return ServerToolResult(
        json_fields.need_text(rest, "tool_use_id"),
        jsontext.own(raw),
        WIRE,
        None if name == "mcp" else name,
        is_error=_failed(rest),
    )


class _Typed(Struct, gc=False):
    type: str = ""


_typed = msgspec.json.Decoder(_Typed).decode


def _failed(rest: Fields) -> bool:
    """Whether the tool failed: by a flag of its result, or by a content that is an error."""
    content = rest.get("content")
    if content is None or jsontext.kind(content) != "an object":
        return rest.get("is_error") == jsontext.TRUE
    try:
        return _typed(content).type.endswith("_error")
    except msgspec.DecodeError:
        return False


# -- media -----------------------------------------------------------------------------------------


def _image(rest: Fields, raw: Raw, kind: str) -> AnyPart:
    inner = json_fields.need_fields(rest, "source")
    try:
        source, media_type = _source(inner, rest)
    except DecodeError as error:
        raise error.within("source") from None
    if source is None:
        return _opaque(rest, raw, kind)
    return trusted.Image(source, media_type, provider_json=provider(WIRE, nested(rest, "source", inner)))


def _document(rest: Fields, raw: Raw, kind: str) -> AnyPart:
    inner = json_fields.need_fields(rest, "source")
    try:
        source, media_type = _source(inner, rest)
    except DecodeError as error:
        raise error.within("source") from None
    if source is None:
        return _opaque(rest, raw, kind)
    if isinstance(source, Url):
        media_type = PDF  # the only kind of document that is taken by URL
    name = json_fields.take_text(rest, "title")
    return trusted.File(source, media_type, name, provider_json=provider(WIRE, nested(rest, "source", inner)))


def _source(inner: Fields, rest: Fields) -> tuple[MediaSource | None, str | None]:
    """Read a source and its media type; no source when it is of a kind that has no neutral form."""
    kind = json_fields.need_text(inner, "type")
    match kind:
        case "base64":
            media_type = json_fields.need_text(inner, "media_type")
            if media_type in TEXT_TYPES:
                rest["@@source"] = hint(kind)
            return trusted.Inline(json_fields.need_text(inner, "data")), media_type
        case "url":
            return trusted.Url(json_fields.need_text(inner, "url")), None
        case "file":
            return trusted.FileId(json_fields.need_text(inner, "file_id"), WIRE), None
        case "text":
            return _text_source(inner)
        case _:
            return None, None


def _text_source(inner: Fields) -> tuple[MediaSource | None, str | None]:
    media_type = json_fields.need_text(inner, "media_type")
    text = json_fields.need_text(inner, "data")
    try:
        data = binascii.b2a_base64(text.encode(), newline=False).decode()
    except UnicodeEncodeError:  # a lone surrogate has no bytes
        return None, None
    return (trusted.Inline(data), media_type) if media_type == PLAIN_TEXT else (None, None)


# -- tables ----------------------------------------------------------------------------------------

_SYSTEM: Final[dict[str, _Read]] = {"text": _text}

_USER: Final[dict[str, _Read]] = {"text": _text, "image": _image, "document": _document}

_ASSISTANT: Final[dict[str, _Read]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _call,
    "server_tool_use": _call,
    "mcp_tool_use": _call,
    "web_search_tool_result": _server_result,
    "web_fetch_tool_result": _server_result,
    "code_execution_tool_result": _server_result,
    "bash_code_execution_tool_result": _server_result,
    "text_editor_code_execution_tool_result": _server_result,
    "tool_search_tool_result": _server_result,
    "advisor_tool_result": _server_result,
    "mcp_tool_result": _server_result,
}
