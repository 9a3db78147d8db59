"""Write the content blocks of Messages.

Source: docs/spec/wires.md#4.1; anthropic-sdk-python ``types``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.parts import (
    AnyPart,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.wires._engine.json_fields import native, notes
from palaver.wires.anthropic_messages.shapes import PLAIN_TEXT, TEXT_TYPES, WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.wires._engine.encode_state import Context


def block(part: AnyPart, index: int, context: Context) -> Any:
    """Write a block: a JSON object, or one as text."""
    match part:
        case Text():
            return text_block(part)
        case Json():
            return {"type": "text", "text": bytes(part.value_json).decode()}
        case Reasoning():
            return _reasoning(part, index, context)
        case ToolCall():
            return _call(part)
        case ServerToolResult():
            return part.output_json
        case Opaque():
            return part.raw_json
        case Image():
            return _medium("image", part, index, context)
        case File():
            return _medium("document", part, index, context)
        case Refusal():
            return {"type": "text", "text": part.text}
        case MalformedToolCall():
            return {"type": "text", "text": part.raw}
        case _:
            context.lose("dropped", type(part).__name__.lower(), "the wire has no such part", index)
            return {"type": "text", "text": f"[{type(part).__name__.lower()}]"}


def is_plain(content: Sequence[AnyPart]) -> bool:
    """Whether content is one text and nothing beside it, which may be sent as a string."""
    match content:
        case (Text(provider_json=stored, citations=()),):
            return stored is UNSET
        case _:
            return False


def text_block(part: Text) -> dict[str, Any]:
    """Write a text with its citations."""
    fields: dict[str, Any] = {"type": "text", "text": part.text}
    if part.citations:
        fields["citations"] = [cited.raw_json for cited in part.citations if isinstance(cited.raw_json, Raw)]
    return fields if part.provider_json is UNSET else {**fields, **native(part, WIRE)}


def _reasoning(part: Reasoning, index: int, context: Context) -> dict[str, Any]:
    rest = native(part, WIRE)
    if part.encrypted is not None:
        for proof in ("text", "signature"):
            if getattr(part, proof):
                context.lose("dropped", f"reasoning {proof}", "encrypted reasoning goes alone", index)
        return {"type": "redacted_thinking", "data": part.encrypted, **rest}
    fields = {"type": "thinking", "thinking": part.text}
    if part.signature is not None or not context.own:
        fields["signature"] = part.signature or ""
    return {**fields, **rest}


def _call(part: ToolCall) -> dict[str, Any]:
    kind = notes(part, WIRE).get("type", "tool_use")
    arguments = Raw(part.arguments_json.encode() or b"{}")
    return {"type": kind, "id": part.id, "name": part.name, "input": arguments, **native(part, WIRE)}


# -- media -----------------------------------------------------------------------------------------


def _medium(kind: str, part: Media, index: int, context: Context) -> dict[str, Any]:
    rest = native(part, WIRE)
    inner = jsontext.fields(rest.pop("source", jsontext.EMPTY_OBJECT))
    fields: dict[str, Any] = {"type": kind, "source": {**_source(part, index, context), **inner}}
    if isinstance(part, File) and part.name is not None:
        fields["title"] = part.name
    return {**fields, **rest}


def _source(part: Media, index: int, context: Context) -> dict[str, Any]:
    match part.source:
        case Url(url):
            return {"type": "url", "url": url}
        case FileId(file_id):
            return {"type": "file", "file_id": file_id}
        case Inline(data) as stored:
            if isinstance(part, File) and _media_type(part) in TEXT_TYPES:
                return {"type": "text", "media_type": PLAIN_TEXT, "data": _decoded(part, stored, index, context)}
            media_type = part.media_type if context.own else _media_type(part)
            return {"type": "base64", "media_type": media_type, "data": data}
        case _:
            return {"type": "url", "url": ""}


def _media_type(part: Media) -> str:
    return (part.media_type or "").partition(";")[0].strip().lower()


def _decoded(part: File, stored: Inline, index: int, context: Context) -> str:
    """Read the text of a document; invalid UTF-8 is replaced, and other kinds of text become plain text."""
    if _media_type(part) != PLAIN_TEXT:
        context.lose("approximated", "media_type", f"{part.media_type} is sent as plain text", index)
    try:
        data = stored.bytes
    except MessageError:
        context.lose("dropped", "file", "its bytes are not base64", index)
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        context.lose("converted", "file", "text that is not UTF-8 was replaced", index)
        return data.decode(errors="replace")
