"""Write the content blocks of Converse messages: each part as one block, an object with one key.

- A request that is sent back as it was read keeps every part. Any other drops blank text (docs/spec/wires.md#6.2.3)
  and reasoning text without a signature, unless the model is of a family that takes it: Anthropic refuses it (6.2.8),
  and an unknown model may be Anthropic's.
- Names of documents have only allowed characters and are unique within the request (6.2.4).
- A JSON result that is no object is wrapped in one (6.2.5).

Source: docs/spec/wires.md#6.1, #6.2.
"""

from __future__ import annotations

import re
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Raw

from palaver.core import jsontext, media_types, trusted
from palaver.core.jsontext import EMPTY_OBJECT, Fields
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    Opaque,
    Reasoning,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.wires._engine.fit import blank_result, lose_fields
from palaver.wires._engine.json_fields import native, notes
from palaver.wires.bedrock_converse.decode_parts import cited_text
from palaver.wires.bedrock_converse.settings import family
from palaver.wires.bedrock_converse.shapes import FORMATS, KINDS, WIRE, WORDS

if TYPE_CHECKING:
    from palaver.core.messages import Message
    from palaver.wires._engine.encode_state import Context

_SIGNED_ONLY: Final = frozenset({None, "anthropic", "deepseek"})
"""Families that refuse reasoning without a signature (DeepSeek: any); ``None`` is an unknown family."""


class Block(NamedTuple):
    """A block and its kind, the key it has."""

    kind: str
    body: Any


def blocks(message: Message, context: Context, index: int) -> list[Block]:
    """Write what one message holds."""
    if not isinstance(message, AssistantMessage):
        message = _uncited(message, context, index)
    if isinstance(message, ToolMessage):
        return _result(message, context, index)
    found: list[Block] = []
    for position, part in enumerate(message.content):
        block = written(part, context, index, position)
        if block is not None and block.kind == "text" and isinstance(part, Text) and _is_refused(part, context):
            context.lose("dropped", "text", "blank, which the wire refuses", index, position)
        elif block is not None:
            found.append(block)
    return found


def _is_refused(part: Text, context: Context) -> bool:
    """Whether a text is a blank one. A result may hold one, also a result that became user text."""
    return not context.own and not part.text.strip()


def _uncited(message: Message, context: Context, index: int) -> Message:
    """Remove citations outside answers: the service knows them only there."""
    content: list[Any] = []
    for position, part in enumerate(message.content):
        if isinstance(part, Text) and part.citations:
            context.lose("dropped", "citations", "stand on the assistant's text only; the text stays", index, position)
            content.append(trusted.Text(part.text))
        else:
            content.append(part)
    return message if all(map(is_, content, message.content)) else message.replace(content=tuple(content))


def plain(text: str) -> Block:
    """Write a text of our own."""
    return Block("text", {"text": text})


def _wrapped(kind: str, inner: object, stored: Fields) -> Block:
    beside = stored.get("beside")
    return Block(kind, {kind: inner} if beside is None else {kind: inner, **jsontext.fields(beside)})


def written(part: AnyPart, context: Context, index: int, position: int | None) -> Block | None:
    """Write one part; ``None`` when the wire cannot express it."""
    rest, stored = native(part, WIRE), notes(part, WIRE)
    match part:
        case Text():
            block = _text(part, rest, stored)
            if block.kind == "text" and not context.own:
                lose_fields(rest, "a text, where the wire needs an object", context, index, position)
            return block
        case Reasoning():
            return _reasoning(part, rest, stored, context, index, position)
        case ToolCall():
            return _wrapped("toolUse", {**_call(part, context), **rest}, stored)
        case Json():
            return _wrapped("json", _object(part, context, index, position), stored)
        case Image() | File() | Video() | Audio():
            return _media(part, rest, stored, context, index, position)
        case ServerToolResult():
            return Block("toolResult", part.output_json)
        case Opaque():
            kind = kind_of(part.raw_json)
            if kind or context.own:
                return Block(kind, part.raw_json)
            context.lose("dropped", "opaque block", "is not a block of this wire", index, position)
            return None
        case _:
            context.lose("dropped", type(part).__name__, "the wire has no such block", index, position)
            return None


def kind_of(raw: Raw) -> str:
    """Return the kind of a raw block; ``""`` when it has none."""
    return next(iter(jsontext.fields(raw)), "") if jsontext.kind(raw) == "an object" else ""


# -- text and reasoning ----------------------------------------------------------------------------


def _text(part: Text, rest: Fields, stored: Fields) -> Block:
    if not part.citations and "kind" not in stored:
        return _wrapped("text", part.text, stored)
    inner: dict[str, Any] = {}
    preserved = rest.pop("content", None)
    if preserved is not None and cited_text(preserved) == part.text:
        inner["content"] = preserved
    elif part.text:
        inner["content"] = [{"text": part.text}]
    if part.citations:
        inner["citations"] = [each.raw_json for each in part.citations if isinstance(each.raw_json, Raw)]
    return _wrapped("citationsContent", {**inner, **rest}, stored)


def _reasoning(  # noqa: PLR0917 (what it keeps, and where a loss is)
    part: Reasoning, rest: Fields, stored: Fields, context: Context, index: int, position: int | None
) -> Block | None:
    if part.encrypted is not None:
        for proof in ("text", "signature"):
            if getattr(part, proof):
                context.lose("dropped", f"reasoning {proof}", "encrypted reasoning goes alone", index, position)
        return _wrapped("reasoningContent", {"redactedContent": part.encrypted, **rest}, stored)
    asks = context.request is not None and not context.own
    if asks and not part.signature and family(context.model) in _SIGNED_ONLY:
        context.lose("dropped", "reasoning", "has no signature", index, position)
        return None
    inner: dict[str, Any] = {"text": part.text}
    if part.signature is not None:
        inner["signature"] = part.signature
    inner.update(jsontext.fields(rest.pop("reasoningText", EMPTY_OBJECT)))
    return _wrapped("reasoningContent", {"reasoningText": inner, **rest}, stored)


# -- tools -----------------------------------------------------------------------------------------


def _call(part: ToolCall, context: Context) -> dict[str, Any]:
    fields = {"toolUseId": part.id, "name": part.name, "input": _input(part, context)}
    if part.provider_executed:
        fields["type"] = "server_tool_use"
    return fields


def _input(part: ToolCall, context: Context) -> object:
    """Write the arguments. ``fit`` made them an object, but it leaves the service's own calls alone."""
    text = part.arguments_json
    if not text.strip():
        return EMPTY_OBJECT
    if part.provider_executed and not context.own and (text.lstrip()[0] != "{" or not jsontext.is_json(text)):
        return {"INVALID_JSON": text}
    return Raw(jsontext.source(text))


def _object(part: Json, context: Context, index: int, position: int | None) -> object:
    if context.own or jsontext.kind(part.value_json) == "an object":
        return part.value_json
    context.lose("converted", "json", "not an object; wrapped in one", index, position)
    return {"value": part.value_json}


def _result(message: ToolMessage, context: Context, index: int) -> list[Block]:
    """Write a tool result, and the cache point that stands behind it."""
    rest, stored = native(message, WIRE), notes(message, WIRE)
    found = (written(part, context, index, position) for position, part in enumerate(message.content))
    content = [block.body for block in found if block is not None]
    empty_taken = "content" in stored and not message.is_error
    if not (content or context.own or empty_taken):
        context.lose("converted", "tool result", "without content; a fixed text was sent", index)
        content = [{"text": blank_result().text}]
    mark = rest.pop("cachePoint", None)
    inner: dict[str, Any] = {"toolUseId": message.tool_call_id, "content": content, **rest}
    if message.is_error:
        inner["status"] = "error"
    inner.update(jsontext.fields(stored.get("result", EMPTY_OBJECT)))
    block = _wrapped("toolResult", inner, stored)
    return [block] if mark is None else [block, Block("cachePoint", {"cachePoint": mark})]


# -- media -----------------------------------------------------------------------------------------


def _media(  # noqa: PLR0917 (what it keeps, and where a loss is)
    part: Image | File | Video | Audio,
    rest: Fields,
    stored: Fields,
    context: Context,
    index: int,
    position: int | None,
) -> Block | None:
    kind = KINDS[type(part)]
    media_type = (part.media_type or "").partition(";")[0].strip().lower()
    word = WORDS[kind].get(media_type)
    source = _source(part, rest, stored)
    if source is None or word is None:
        context.lose("dropped", kind, f"{part.media_type} is not taken", index, position)
        return None
    preserved = stored.get("format")
    if preserved is not None and FORMATS[kind].get(jsontext.text(preserved)) == media_type:
        word = jsontext.text(preserved)
    inner: dict[str, Any] = {"format": word}
    if isinstance(part, File):
        inner["name"] = part.name if context.own else _name(part, context, index, position)
    inner["source"] = source
    return _wrapped(kind, {**inner, **rest}, stored)


def _source(part: Image | File | Video | Audio, rest: Fields, stored: Fields) -> dict[str, Any] | None:
    left = jsontext.fields(rest.pop("source", EMPTY_OBJECT))
    match part.source:
        case Url(uri):
            location = jsontext.fields(left.pop("s3Location", EMPTY_OBJECT))
            return {"s3Location": {"uri": uri, **location}, **left}
        case Inline() as found if "source" in stored:
            return {"text": found.bytes.decode(errors="replace"), **left}
        case Inline() as found:
            return {"bytes": found.data, **left}
        case _:
            return None


_REFUSED: Final = re.compile(r"[^a-zA-Z0-9()\[\]-]+")
_LONGEST: Final = 200


def _name(part: File, context: Context, index: int, position: int | None) -> str:
    """Name a document by letters, digits, single spaces, ``-()[]``; a name that is taken gets a number."""
    wanted = part.name or ""
    stem = wanted.rpartition(".")[0] if media_types.of_name(wanted) is not None else wanted
    base = _REFUSED.sub(" ", stem).strip()[:_LONGEST].strip() or "document"
    name, number = base, 1
    while not context.take(f"document {name}"):
        number += 1
        name = f"{base[: _LONGEST - len(str(number)) - 1].rstrip()} {number}"
    if part.name is not None and name != part.name:
        context.lose("converted", "file name", f"not taken, or taken twice; sent as {name!r}", index, position)
    return name
