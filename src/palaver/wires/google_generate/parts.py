"""Parts, read and written side by side (docs/spec/wires.md#5.1).

- The data field identifies a part. A part with an unknown data field, or without one, is ``Opaque``; one that the
  message at hand cannot hold (a call of the user's, a result of the model's) is ``Opaque`` too.
- The marks beside the data field stay with the part. ``thoughtSignature`` is never decoded; on a thought it is the
  signature of the ``Reasoning`` (5.2.4).
- Code that Google ran, and tools it called, are calls it executed.

Notes (``provider["@google_generate"]``) of a part:

- ``id``: ``null`` on a call that had none, and whose id is made from its place;
- ``unsigned`` on a call without a signature: Gemini itself left it so, and it needs no stand-in (5.2.5);
- ``part``: the data field of what Google ran; ``untyped`` on a medium that came without its type;
- ``named`` on a file that came with its name. Only such a name is sent: Vertex AI takes it, the Gemini API answers
  with an error (https://github.com/googleapis/js-genai/issues/1369), and neither shows it to the model.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, Raw, UnsetType

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
from palaver.wires._engine.json_fields import native, nested, notes, provider, word
from palaver.wires._engine.shapes import ABSENT, reader
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.field_names import Spelled, joined
from palaver.wires.google_generate.shapes import WIRE

if TYPE_CHECKING:
    from collections.abc import Callable

_DATA: Final = frozenset(
    {
        "functionCall",
        "functionResponse",
        "toolCall",
        "toolResponse",
        "executableCode",
        "codeExecutionResult",
        "inlineData",
        "fileData",
        "text",
    }
)


def data_field(rest: Fields) -> str | None:
    """Name the data field of a part; text gives way to any other. ``None`` when there is none."""
    found = None
    for key, raw in rest.items():
        if key in _DATA and raw != NULL:
            if key != "text":
                return key
            found = key
    return found


# -- shapes ----------------------------------------------------------------------------------------


class _Call(Spelled):
    SOFT = frozenset({"id"})
    name: str
    args: Raw = ABSENT
    id: str | UnsetType = UNSET


class _ToolCall(Spelled):
    SOFT = frozenset({"id"})
    tool_type: str
    args: Raw = ABSENT
    id: str | UnsetType = UNSET


class _Result(Spelled):
    SOFT = frozenset({"id", "parts"})
    name: str
    response: Raw
    id: str | UnsetType = UNSET
    parts: list[dict[str, Raw]] | UnsetType = UNSET


class _Data(Spelled):
    SOFT = frozenset({"mimeType", "displayName"})
    mime_type: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class _InlineData(_Data, kw_only=True):
    data: str


class _FileData(_Data, kw_only=True):
    file_uri: str


class _Code(Spelled):
    SOFT = frozenset({"id"})
    code: str
    language: Raw = ABSENT
    id: str | UnsetType = UNSET


class _Outcome(Spelled):
    SOFT = frozenset({"id"})
    outcome: str
    output: Raw = ABSENT
    id: str | UnsetType = UNSET


class _ToolResponse(Spelled):
    SOFT = frozenset({"id"})
    tool_type: str
    response: Raw = ABSENT
    id: str | UnsetType = UNSET


_read_call = reader(_Call)
_read_tool_call = reader(_ToolCall)
_read_result = reader(_Result)
_read_inline = reader(_InlineData)
_read_file = reader(_FileData)
_read_code = reader(_Code)
_read_outcome = reader(_Outcome)
_read_tool_response = reader(_ToolResponse)

_T = TypeVar("_T")


def _data(rest: Fields, name: str, read: Callable[[Raw], _T]) -> _T:
    """Take the data field out."""
    try:
        return read(rest.pop(name))
    except DecodeError as error:
        raise error.within(name) from None


# -- reading: what every message may hold ----------------------------------------------------------


def _opaque(rest: Fields) -> Opaque:
    return trusted.Opaque(WIRE, Raw(jsontext.encode(rest)))


def _text(rest: Fields) -> Text:
    text = json_fields.need_text(rest, "text")
    return trusted.Text(text, provider_json=provider(WIRE, rest)) if rest else trusted.Text(text)


_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}
_STORED_BY_GOOGLE: Final = re.compile(r"(?!https?://)|https?://generativelanguage\.googleapis\.com/")


def _media(rest: Fields, name: str) -> Image | Audio | Video | File:
    """Read ``inlineData`` or ``fileData``; the media type decides its kind."""
    found: _InlineData | _FileData
    source: MediaSource
    if name == "inlineData":
        found = _data(rest, name, _read_inline)
        source = trusted.Inline(found.data)
    else:
        found = _data(rest, name, _read_file)
        uri = found.file_uri
        source = trusted.FileId(uri, WIRE) if _STORED_BY_GOOGLE.match(uri) else trusted.Url(uri)
    media_type = None if found.mime_type is UNSET else found.mime_type
    title = None if found.display_name is UNSET else found.display_name
    cls = _MEDIA.get((media_type or "").partition("/")[0].lower())
    inner = found.rest
    if cls is not None and title is not None:
        inner = {**inner, "displayName": jsontext.raw(title)}
    about: Fields = {} if media_type is not None else {"untyped": TRUE}
    if cls is None and title is not None:
        about["named"] = TRUE
    stored = provider(WIRE, nested(rest, name, inner), about or None)
    if cls is not None:
        return cls(source, media_type, provider_json=stored)
    return trusted.File(source, media_type, title, provider_json=stored)


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


def _call(rest: Fields, made_id: str) -> ToolCall:
    found = _data(rest, "functionCall", _read_call)
    about: Fields = {}
    if rest.get("thoughtSignature", NULL) == NULL:
        about["unsigned"] = TRUE
    call_id = _id(found.id, made_id, about)
    stored = provider(WIRE, nested(rest, "functionCall", found.rest), about)
    return trusted.ToolCall(call_id, found.name, _arguments(found.args), provider_json=stored)


def _id(found: str | UnsetType, made_id: str, about: Fields) -> str:
    """Return the id; one that is not there, or empty, is made up, and never sent."""
    if isinstance(found, str) and found:
        return found
    about["id"] = NULL
    return made_id


def _arguments(args: Raw) -> str:
    return "{}" if args is ABSENT or args == NULL else bytes(args).decode()


def _tool_call(rest: Fields, made_id: str, _last_run: str) -> ToolCall:
    found = _data(rest, "toolCall", _read_tool_call)
    about = {"part": word("toolCall")}
    call_id = _id(found.id, made_id, about)
    stored = provider(WIRE, nested(rest, "toolCall", found.rest), about)
    return trusted.ToolCall(
        call_id, found.tool_type, _arguments(found.args), provider_executed=True, provider_json=stored
    )


def _executable(rest: Fields, made_id: str, _last_run: str) -> ToolCall:
    raw = rest["executableCode"]
    found = _data(rest, "executableCode", _read_code)
    about = {"part": word("executableCode")}
    call_id = _id(found.id, made_id, about)
    stored = provider(WIRE, rest, about)
    text = bytes(raw).decode()
    return trusted.ToolCall(call_id, "code_execution", text, provider_executed=True, provider_json=stored)


def _executed(rest: Fields, _made_id: str, last_run: str) -> ServerToolResult:
    raw = rest["codeExecutionResult"]
    found = _data(rest, "codeExecutionResult", _read_outcome)
    about = {"part": word("codeExecutionResult")}
    call_id = _id(found.id, last_run, about)
    stored = provider(WIRE, rest, about)
    failed = found.outcome != "OUTCOME_OK"
    return ServerToolResult(call_id, jsontext.own(raw), WIRE, "code_execution", failed, provider_json=stored)


def _tool_response(rest: Fields, _made_id: str, last_run: str) -> ServerToolResult:
    raw = rest["toolResponse"]
    found = _data(rest, "toolResponse", _read_tool_response)
    about = {"part": word("toolResponse")}
    call_id = _id(found.id, last_run, about)
    stored = provider(WIRE, rest, about)
    return ServerToolResult(call_id, jsontext.own(raw), WIRE, found.tool_type, provider_json=stored)


_RUN: Final[dict[str, Callable[[Fields, str, str], AssistantPart]]] = {
    "executableCode": _executable,
    "codeExecutionResult": _executed,
    "toolCall": _tool_call,
    "toolResponse": _tool_response,
}


# -- reading: function responses -------------------------------------------------------------------


def function_response(rest: Fields) -> tuple[tuple[ToolPart, ...], str | None, str]:
    """Read a part that holds a function response: its content, its id, its name. The marks stay on the first part."""
    found = _data(rest, "functionResponse", _read_result)
    if jsontext.kind(found.response) != "an object":
        raise DecodeError(f"expected an object, got {jsontext.kind(found.response)}", path="functionResponse.response")
    media = [_attached(index, each) for index, each in enumerate(found.parts or ())]
    stored = provider(WIRE, nested(rest, "functionResponse", found.rest))
    response = trusted.Json(jsontext.own(found.response), provider_json=stored)
    call_id = found.id if isinstance(found.id, str) and found.id else None
    return (response, *media), call_id, found.name


def _attached(index: int, rest: Fields) -> ToolPart:
    rest = field_names.camel(rest)
    name = data_field(rest)
    try:
        return _media(rest, name) if name in ("inlineData", "fileData") else _opaque(rest)
    except DecodeError as error:
        raise error.within(f"functionResponse.parts[{index}]") from None


# -- writing ---------------------------------------------------------------------------------------


def write_thought(part: Reasoning, rest: Fields) -> dict[str, Any]:
    """Write a thought, with its signature where it has one."""
    fields: dict[str, Any] = {"text": part.text, "thought": True}
    if part.signature is not None:
        fields["thoughtSignature"] = part.signature
    return joined(fields, rest)


def loses_name(part: AnyPart) -> bool:
    """Return whether a part is a file whose name is not sent."""
    return isinstance(part, File) and part.name is not None and "named" not in notes(part, WIRE)


def write_media(part: Media, rest: Fields) -> dict[str, Any]:
    """Write a medium, inline or by its URI."""
    name = "inlineData" if isinstance(part.source, Inline) else "fileData"
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
    if isinstance(part, File) and part.name is not None and not loses_name(part):
        fields["displayName"] = part.name
    return joined({name: joined(fields, field_names.inside(rest, name))}, rest)


def write_call(part: ToolCall, rest: Fields) -> dict[str, Any]:
    """Write a call, of a function or of a tool that Google ran."""
    about = notes(part, WIRE)
    name = jsontext.text(about.get("part", _TOOL_CALL)) if part.provider_executed else "functionCall"
    if name == "executableCode":
        return joined({name: Raw(part.arguments_json.encode())}, rest)
    fields: dict[str, Any] = {"name" if name == "functionCall" else "toolType": part.name}
    if "id" not in about:
        fields["id"] = part.id
    fields["args"] = Raw(part.arguments_json.encode() if part.arguments_json.strip() else b"{}")
    return joined({name: joined(fields, field_names.inside(rest, name))}, rest)


_TOOL_CALL, _TOOL_RESPONSE = word("toolCall"), word("toolResponse")


def write_server_result(part: ServerToolResult, rest: Fields) -> dict[str, Any]:
    """Write the result of a tool that Google ran, as it was."""
    name = jsontext.text(notes(part, WIRE).get("part", _TOOL_RESPONSE))
    return joined({name: part.output_json}, rest)


def write_function_response(
    response: object, media: list[Any], name: str | None, call_id: Raw | str | None, rest: Fields
) -> dict[str, Any]:
    """Write a function response; ``rest`` is what the part that holds it has kept."""
    stored = field_names.inside(rest, "functionResponse")
    fields: dict[str, Any] = {"name": name, "response": response}
    if call_id is not None:
        fields["id"] = call_id
    if media:
        fields["parts"] = media
    return joined({"functionResponse": joined(fields, stored)}, rest)


def write_plain(part: AnyPart) -> Any:
    """Write a text, a medium, or an unknown block: what stands in any content."""
    match part:
        case Text():
            return joined({"text": part.text}, native(part, WIRE))
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
            return joined({"text": part.text}, rest)
        case Reasoning():
            return write_thought(part, rest)
        case ServerToolResult():
            return write_server_result(part, rest)
        case _:
            return write_plain(part)
