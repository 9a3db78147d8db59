"""Parts, read and written side by side (docs/spec/wires.md#5.1).

- The data field identifies a part. A part with an unknown data field, or without one, is ``Opaque``; one that the
  message at hand cannot hold (a call of the user's, a result of the model's) is ``Opaque`` too.
- The marks beside the data field stay with the part. ``thoughtSignature`` is never decoded; on a thought it is the
  signature of the ``Reasoning`` (5.2.4).
- A call without an id gets one from its place; the hint ``@@id`` holds the id as it was found: ``null`` for none. A
  call without a signature is hinted ``@@thoughtSignature``: Gemini itself left it unsigned, so it needs no stand-in
  (5.2.5).
- Code that Google ran, and tools it called, are calls it executed. The hint ``@@part`` names the data field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, TRUE, Fields
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Audio,
    File,
    FileId,
    Image,
    Inline,
    Media,
    MediaSource,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
    ToolPart,
    Url,
    UserPart,
    Video,
)
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, native, provider
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.shapes import WIRE

if TYPE_CHECKING:
    from collections.abc import Callable

_DATA_FIELDS: Final = [
    "functionCall",
    "functionResponse",
    "toolCall",
    "toolResponse",
    "executableCode",
    "codeExecutionResult",
    "inlineData",
    "fileData",
    "text",
]
_DATA: Final[dict[str, str]] = {
    spelled: name for name in _DATA_FIELDS for spelled in (name, field_names.SNAKE.get(name, name))
}


def data_field(rest: Fields) -> str | None:
    """Name the data field of a part, in camelCase; text gives way to any other. ``None`` when there is none."""
    found = None
    for key, raw in rest.items():
        name = _DATA.get(key)
        if name is not None and raw != NULL:
            if name != "text":
                return name
            found = name
    return found


# -- reading: what every message may hold ----------------------------------------------------------


def _opaque(rest: Fields) -> Opaque:
    return trusted.Opaque(WIRE, Raw(jsontext.encode(rest)))


def _inner(rest: Fields, name: str) -> Fields:
    return field_names.need(rest, name, json_fields.take_fields)


def _text(rest: Fields) -> Text:
    text = json_fields.need_text(rest, "text")
    return trusted.Text(text, provider_json=provider(WIRE, rest)) if rest else trusted.Text(text)


_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}
_STORED_BY_GOOGLE: Final = re.compile(r"(?!https?://)|https?://generativelanguage\.googleapis\.com/")


def _media(rest: Fields, name: str) -> Image | Audio | Video | File:
    """Read ``inlineData`` or ``fileData``; the media type decides its kind."""
    inner = _inner(rest, name)
    try:
        source: MediaSource
        if name == "inlineData":
            source = trusted.Inline(field_names.need(inner, "data", json_fields.take_text))
        else:
            uri = field_names.need(inner, "fileUri", json_fields.take_text)
            source = trusted.FileId(uri, WIRE) if _STORED_BY_GOOGLE.match(uri) else trusted.Url(uri)
    except DecodeError as error:
        raise error.within(name) from None
    media_type = field_names.soft(inner, "mimeType", json_fields.take_text)
    if media_type is None:
        rest["@@mimeType"] = NULL
    cls = _MEDIA.get((media_type or "").partition("/")[0].lower())
    if cls is not None:
        field_names.keep(rest, name, inner)
        return cls(source, media_type, provider_json=provider(WIRE, rest))
    title = field_names.soft(inner, "displayName", json_fields.take_text)
    field_names.keep(rest, name, inner)
    return trusted.File(source, media_type, title, provider_json=provider(WIRE, rest))


def user_part(rest: Fields) -> UserPart:
    """Read a part of a user content that is no function response."""
    name = data_field(rest)
    if name == "text":
        return _text(rest)
    return _media(rest, name) if name in ("inlineData", "fileData") else _opaque(rest)


def text_part(rest: Fields) -> Text | Opaque:
    """Read a part of the system instruction."""
    return _text(rest) if data_field(rest) == "text" else _opaque(rest)


# -- reading: the model ----------------------------------------------------------------------------


def model_part(rest: Fields, made_id: str, last_run: str) -> AssistantPart:
    """Read a part of a model content. ``made_id`` is for a call without id, ``last_run`` of the code run last."""
    name = data_field(rest)
    if name == "text":
        return _text_part(rest)
    if name == "functionCall":
        return _call(rest, made_id)
    if name in ("inlineData", "fileData"):
        return _media(rest, name)
    read = _RUN.get(name or "")
    return _opaque(rest) if read is None else read(rest, made_id, last_run)


def _text_part(rest: Fields) -> Text | Reasoning:
    if rest.get("thought") != TRUE:
        return _text(rest)
    del rest["thought"]
    text = json_fields.need_text(rest, "text")
    signature = field_names.soft(rest, "thoughtSignature", json_fields.take_text)
    return trusted.Reasoning(text, signature, wire=WIRE, provider_json=provider(WIRE, rest))


class _PlainCall(Struct, gc=False, forbid_unknown_fields=True):
    """A call with the fields that all calls have, and no other."""

    name: str
    args: Raw
    id: str | UnsetType = UNSET


_plain_call = msgspec.json.Decoder(_PlainCall).decode


def _call(rest: Fields, made_id: str) -> ToolCall:
    plain = _plain_call_in(rest)
    if plain is None:
        call_id, name, text = _odd_call(rest, made_id)
    else:
        del rest["functionCall"]
        name, text = plain.name, bytes(plain.args).decode()
        if isinstance(plain.id, UnsetType):
            call_id, rest["@@id"] = made_id, NULL
        else:
            call_id = plain.id
    if "thoughtSignature" not in rest and "thought_signature" not in rest:
        rest["@@thoughtSignature"] = NULL
    return trusted.ToolCall(call_id, name, text, provider_json=provider(WIRE, rest))


def _plain_call_in(rest: Fields) -> _PlainCall | None:
    try:
        found = _plain_call(rest["functionCall"])
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if found.id == "" or found.args == NULL else found


def _odd_call(rest: Fields, made_id: str) -> tuple[str, str, str]:
    """Read a call with other fields, or in the other spelling: its id, name and arguments."""
    inner = _inner(rest, "functionCall")
    try:
        name = json_fields.need_text(inner, "name")
    except DecodeError as error:
        raise error.within("functionCall") from None
    call_id = _id(inner, rest, made_id)
    arguments = field_names.pull(inner, "args")
    if arguments is None:
        rest["@@args"] = NULL
    field_names.keep(rest, "functionCall", inner)
    return call_id, name, "" if arguments is None else bytes(arguments).decode()


def _id(inner: Fields, rest: Fields, made_id: str) -> str:
    """Take an id; one that is not there, or empty, is made up, and never sent."""
    found = field_names.soft(inner, "id", json_fields.take_text) if "id" in inner else None
    if found:
        return found
    rest["@@id"] = NULL if found is None else Raw(b'""')
    return made_id


def _executable(rest: Fields, made_id: str, _last_run: str) -> ToolCall:
    raw, inner = _block(rest, "executableCode", "code")
    call_id = _id(inner, rest, made_id)
    rest["@@part"] = hint("executableCode")
    text = bytes(raw).decode()
    return trusted.ToolCall(call_id, "code_execution", text, provider_executed=True, provider_json=provider(WIRE, rest))


def _executed(rest: Fields, _made_id: str, last_run: str) -> ServerToolResult:
    raw, inner = _block(rest, "codeExecutionResult", "outcome")
    call_id = _id(inner, rest, last_run)
    failed = inner["outcome"] != Raw(b'"OUTCOME_OK"')
    rest["@@part"] = hint("codeExecutionResult")
    stored = provider(WIRE, rest)
    return ServerToolResult(call_id, raw, WIRE, "code_execution", failed, provider_json=stored)


def _tool_call(rest: Fields, made_id: str, _last_run: str) -> ToolCall:
    inner = _inner(rest, "toolCall")
    try:
        name = field_names.need(inner, "toolType", json_fields.take_text)
    except DecodeError as error:
        raise error.within("toolCall") from None
    call_id = _id(inner, rest, made_id)
    arguments = field_names.pull(inner, "args")
    if arguments is None:
        rest["@@args"] = NULL
    field_names.keep(rest, "toolCall", inner)
    rest["@@part"] = hint("toolCall")
    text = "" if arguments is None else bytes(arguments).decode()
    return trusted.ToolCall(call_id, name, text, provider_executed=True, provider_json=provider(WIRE, rest))


def _tool_response(rest: Fields, _made_id: str, last_run: str) -> ServerToolResult:
    raw, inner = _block(rest, "toolResponse", "toolType")
    name = field_names.take(inner, "toolType", json_fields.take_text)
    call_id = _id(inner, rest, last_run)
    rest["@@part"] = hint("toolResponse")
    return ServerToolResult(call_id, raw, WIRE, name, provider_json=provider(WIRE, rest))


def _block(rest: Fields, name: str, required: str) -> tuple[Raw, Fields]:
    """Take out a block that stays whole; the field with its kind must be there."""
    raw = field_names.need(rest, name, field_names.pull)
    try:
        inner = jsontext.fields(raw)
        field_names.need(dict(inner), required, json_fields.take_text)
    except DecodeError as error:
        raise error.within(name) from None
    return jsontext.own(raw), inner


_RUN: Final[dict[str, Callable[[Fields, str, str], AssistantPart]]] = {
    "executableCode": _executable,
    "codeExecutionResult": _executed,
    "toolCall": _tool_call,
    "toolResponse": _tool_response,
}


# -- reading: function responses -------------------------------------------------------------------


def function_response(rest: Fields) -> tuple[tuple[ToolPart, ...], str | None, str]:
    """Read a part that holds a function response: its content, its id, its name. The marks stay on the first part."""
    inner = _inner(rest, "functionResponse")
    try:
        name = json_fields.need_text(inner, "name")
        response = _response(inner)
        found = field_names.soft(inner, "parts", json_fields.take_items)
        media = tuple(json_fields.each(found or [], "parts", _attached))
    except DecodeError as error:
        raise error.within("functionResponse") from None
    if found == []:
        inner["parts"] = Raw(b"[]")
    call_id = field_names.soft(inner, "id", json_fields.take_text)
    field_names.keep(rest, "functionResponse", inner)
    return (trusted.Json(jsontext.own(response), provider_json=provider(WIRE, rest)), *media), call_id, name


def _response(inner: Fields) -> Raw:
    response = field_names.need(inner, "response", field_names.pull)
    if jsontext.kind(response) != "an object":
        raise DecodeError(f"expected an object, got {jsontext.kind(response)}", path="response")
    return response


def _attached(raw: Raw) -> ToolPart:
    rest = jsontext.fields(raw)
    name = data_field(rest)
    return _media(rest, name) if name in ("inlineData", "fileData") else _opaque(rest)


# -- writing ---------------------------------------------------------------------------------------


def write_thought(part: Reasoning, rest: Fields) -> dict[str, Any]:
    """Write a thought, with its signature where it has one."""
    fields: dict[str, Any] = {"text": part.text, "thought": True}
    if part.signature is not None:
        fields["thoughtSignature"] = part.signature
    return field_names.spelled(fields, rest)


def write_media(part: Media, rest: Fields) -> dict[str, Any]:
    """Write a medium, inline or by its URI."""
    inline = isinstance(part.source, Inline)
    name = "inlineData" if inline else "fileData"
    stored = field_names.preserved(rest, name) or {}
    fields: dict[str, Any] = {}
    if part.media_type is not None:
        fields["mimeType"] = part.media_type
    match part.source:
        case Inline(data):
            fields["data"] = data
        case Url(uri):
            fields["fileUri"] = uri
        case FileId(uri):
            fields["fileUri"] = uri
        case _:
            fields["fileUri"] = ""
    if isinstance(part, File) and part.name is not None:
        fields["displayName"] = part.name
    return field_names.spelled({name: field_names.spelled(fields, stored)}, rest)


def write_call(part: ToolCall, rest: Fields) -> dict[str, Any]:
    """Write a call, of a function or of a tool that Google ran."""
    default = "toolCall" if part.provider_executed else "functionCall"
    name = jsontext.text(rest["@@part"]) if "@@part" in rest else default
    if name == "executableCode":
        return field_names.spelled({name: Raw(part.arguments_json.encode())}, rest)
    stored = field_names.preserved(rest, name) or {}
    fields: dict[str, Any] = {"name" if name == "functionCall" else "toolType": part.name}
    _write_id(fields, part.id, rest)
    text = part.arguments_json
    if "@@args" not in rest or text.strip() not in ("", "{}"):
        fields["args"] = Raw(text.encode() if text.strip() else b"{}")
    return field_names.spelled({name: field_names.spelled(fields, stored)}, rest)


def _write_id(fields: dict[str, Any], call_id: str | None, rest: Fields) -> None:
    found = rest.pop("@@id", None)
    if found is None:
        if call_id is not None:
            fields["id"] = call_id
    elif found != NULL:
        fields["id"] = found


def write_server_result(part: ServerToolResult, rest: Fields) -> dict[str, Any]:
    """Write the result of a tool that Google ran, as it was."""
    name = jsontext.text(rest["@@part"]) if "@@part" in rest else "toolResponse"
    return field_names.spelled({name: part.output_json}, rest)


def write_function_response(
    response: object, media: list[Any], name: str | None, call_id: Raw | str | None, rest: Fields
) -> dict[str, Any]:
    """Write a function response; ``rest`` is what the part that holds it has kept."""
    stored = field_names.preserved(rest, "functionResponse") or {}
    fields: dict[str, Any] = {"name": name, "response": response}
    if call_id is not None:
        fields["id"] = call_id
    if media:
        fields["parts"] = media
    return field_names.spelled({"functionResponse": field_names.spelled(fields, stored)}, rest)


def write_plain(part: AnyPart) -> Any:
    """Write a text, a medium, or an unknown block: what stands in any content."""
    match part:
        case Text():
            return field_names.spelled({"text": part.text}, native(part, WIRE))
        case Opaque():
            return part.raw_json
        case Image() | Audio() | Video() | File():
            return write_media(part, native(part, WIRE))
        case _:
            return {"text": ""}


def write_part(part: AnyPart, rest: Fields) -> Any:
    """Write a part of the model; ``rest`` is what it has kept for this wire."""
    match part:
        case ToolCall():
            return write_call(part, rest)
        case Text():
            return field_names.spelled({"text": part.text}, rest)
        case Reasoning():
            return write_thought(part, rest)
        case ServerToolResult():
            return write_server_result(part, rest)
        case _:
            return write_plain(part)
