"""Read the content blocks of Messages.

- Each role has a table of shapes. A block of another type becomes ``Opaque``. A missing or wrong field of a known type
  is a ``DecodeError``.
- A document given as text becomes an inline file, so that other wires can carry it. Its ``title`` is the name of the
  file. A document made of content blocks stays ``Opaque``.
- Calls that the provider runs keep their type as the note ``type``. Their results stay raw.

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
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.shapes import ABSENT, Shape, Union
from palaver.wires.anthropic_messages.shapes import PDF, PLAIN_TEXT, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# -- shapes ----------------------------------------------------------------------------------------


class TextBlock(Shape, tag="text", tag_field="type"):
    """A text, with the sources that it cites."""

    text: str
    citations: Raw = ABSENT


class ThinkingBlock(Shape, tag="thinking", tag_field="type"):
    """Readable reasoning, with its proof."""

    thinking: str
    signature: str | UnsetType | None = UNSET


class RedactedBlock(Shape, tag="redacted_thinking", tag_field="type"):
    """Encrypted reasoning."""

    data: str


class CallBlock(Shape, tag="tool_use", tag_field="type"):
    """A call of a client's tool."""

    id: str
    name: str
    input: Raw
    caller: Raw = ABSENT


class ServerCallBlock(CallBlock, tag="server_tool_use", tag_field="type"):
    """A call of a tool that the provider runs."""


class McpCallBlock(CallBlock, tag="mcp_tool_use", tag_field="type"):
    """A call of a tool of an MCP server that the provider asks."""


class Source(Shape):
    """Where a medium comes from."""

    type: str
    media_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class ImageBlock(Shape, tag="image", tag_field="type"):
    """An image."""

    source: Source


class DocumentBlock(Shape, tag="document", tag_field="type"):
    """A document, with its name."""

    source: Source
    title: str | UnsetType | None = UNSET


class ResultBlock(Shape, tag="tool_result", tag_field="type"):
    """The result of a client's tool."""

    tool_use_id: str
    content: Raw = ABSENT
    is_error: bool | UnsetType | None = UNSET


Block: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedBlock
    | CallBlock
    | ServerCallBlock
    | McpCallBlock
    | ImageBlock
    | DocumentBlock
    | ResultBlock
)

_SYSTEM: Final = Union[Block](TextBlock)
_USER: Final = Union[Block](TextBlock, ImageBlock, DocumentBlock)
_CONTENT: Final = Union[Block](TextBlock, ImageBlock, DocumentBlock, ResultBlock)
_ASSISTANT: Final = Union[Block](TextBlock, ThinkingBlock, RedactedBlock, CallBlock, ServerCallBlock, McpCallBlock)


# -- by role ---------------------------------------------------------------------------------------


def system_parts(blocks: Raw) -> tuple[TextPart, ...]:
    """Read the blocks of a system message."""
    return tuple(cast("Iterator[TextPart]", _parts(blocks, _SYSTEM)))


def user_blocks(blocks: Raw) -> list[UserPart | ResultBlock]:
    """Read the blocks of a user message: parts, and results between them."""
    return list(cast("Iterator[UserPart | ResultBlock]", _parts(blocks, _CONTENT)))


def result_parts(blocks: Raw) -> tuple[ToolPart, ...]:
    """Read the blocks of a tool result."""
    return tuple(cast("Iterator[ToolPart]", _parts(blocks, _USER)))


def answer_parts(blocks: Raw) -> tuple[AssistantPart, ...]:
    """Read the blocks of an assistant message."""
    return tuple(cast("Iterator[AssistantPart]", _parts(blocks, _ASSISTANT)))


def answer_part(raw: Raw) -> AssistantPart:
    """Read one block of an assistant message."""
    return cast("AssistantPart", _part(_ASSISTANT.item(raw), raw, _server_result))


def _parts(blocks: Raw, union: Union[Block]) -> Iterator[AnyPart | ResultBlock]:
    other = _server_result if union is _ASSISTANT else _opaque
    for index, (found, raw) in enumerate(zip(union.items(blocks), jsontext.items(blocks), strict=True)):
        try:
            yield _part(found, raw, other)
        except DecodeError as error:
            raise error.within(f"[{index}]") from None


def _part(found: Block | Raw, raw: Raw, other: Callable[[Raw], AnyPart]) -> AnyPart | ResultBlock:
    match found:
        case TextBlock():
            return _text(found)
        case CallBlock():
            return _call(found)
        case ThinkingBlock():
            signature = None if found.signature is UNSET else found.signature
            return trusted.Reasoning(found.thinking, signature, wire=WIRE, provider_json=provider(WIRE, found.rest))
        case RedactedBlock():
            return trusted.Reasoning(encrypted=found.data, wire=WIRE, provider_json=provider(WIRE, found.rest))
        case ImageBlock() | DocumentBlock():
            return _medium(found, raw)
        case ResultBlock():
            return found
        case _:
            return other(raw)


def _opaque(raw: Raw) -> AnyPart:
    return trusted.Opaque(WIRE, jsontext.own(raw))


# -- text ------------------------------------------------------------------------------------------


def _text(found: TextBlock) -> AnyPart:
    raw = found.citations
    if raw is ABSENT or raw == NULL:
        return trusted.Text(found.text, provider_json=provider(WIRE, found.rest))
    if jsontext.kind(raw) != "an array":
        return trusted.Text(found.text, provider_json=provider(WIRE, {**found.rest, "citations": raw}))
    citations = tuple(map(citation, jsontext.items(raw)))
    return trusted.Text(found.text, citations, provider_json=provider(WIRE, found.rest))


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


# -- tools -----------------------------------------------------------------------------------------


def _call(found: CallBlock) -> AnyPart:
    if jsontext.kind(found.input) != "an object":
        raise DecodeError(f"expected an object, got {jsontext.kind(found.input)}", path="input")
    rest = found.rest if found.caller is ABSENT else {**found.rest, "caller": found.caller}
    kind = _SERVED.get(type(found))
    stored = provider(WIRE, rest, None if kind is None else {"type": kind})
    arguments = bytes(found.input).decode()
    return trusted.ToolCall(found.id, found.name, arguments, provider_executed=kind is not None, provider_json=stored)


_SERVED: Final[dict[type[Block], Raw]] = {
    ServerCallBlock: word("server_tool_use"),
    McpCallBlock: word("mcp_tool_use"),
}


_RESULTS: Final = frozenset(
    {
        f"{name}_tool_result"
        for name in (
            "web_search",
            "web_fetch",
            "code_execution",
            "bash_code_execution",
            "text_editor_code_execution",
            "tool_search",
            "advisor",
            "mcp",
        )
    }
)


def _server_result(raw: Raw) -> AnyPart:
    """Read the result of a tool that the provider ran, also one of a type that is new; any other block is opaque.

    Source: docs/spec/wires.md#4.2.
    """
    rest = jsontext.fields(raw)
    kind = json_fields.need_text(rest, "type")
    named = kind.endswith("_tool_result") and jsontext.kind(rest.get("tool_use_id", NULL)) == "a string"
    if not named and kind not in _RESULTS:
        return _opaque(raw)
    call_id = json_fields.need_text(rest, "tool_use_id")
    name = kind.removesuffix("_tool_result")
    return ServerToolResult(call_id, jsontext.own(raw), WIRE, None if name == "mcp" else name, is_error=_failed(rest))


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


def _medium(found: ImageBlock | DocumentBlock, raw: Raw) -> AnyPart:
    try:
        source, media_type = _source(found.source)
    except DecodeError as error:
        raise error.within("source") from None
    if source is None:
        return _opaque(raw)
    stored = provider(WIRE, nested(found.rest, "source", found.source.rest))
    if isinstance(found, ImageBlock):
        return trusted.Image(source, media_type, provider_json=stored)
    if isinstance(source, Url):
        media_type = PDF  # the only kind of document that is taken by URL
    name = None if found.title is UNSET else found.title
    return trusted.File(source, media_type, name, provider_json=stored)


def _source(found: Source) -> tuple[MediaSource | None, str | None]:
    """Read a source and its media type; no source when it is of a kind that has no neutral form."""
    match found.type:
        case "base64":
            media_type = _needed(found.media_type, "media_type")
            return trusted.Inline(_needed(found.data, "data")), media_type
        case "url":
            return trusted.Url(_needed(found.url, "url")), None
        case "file":
            return trusted.FileId(_needed(found.file_id, "file_id"), WIRE), None
        case "text":
            return _text_source(_needed(found.media_type, "media_type"), _needed(found.data, "data"))
        case _:
            return None, None


def _needed(value: str | UnsetType, key: str) -> str:
    if value is UNSET:
        raise DecodeError("missing", path=key)
    return value


def _text_source(media_type: str, text: str) -> tuple[MediaSource | None, str | None]:
    try:
        data = binascii.b2a_base64(text.encode(), newline=False).decode()
    except UnicodeEncodeError:  # a lone surrogate has no bytes
        return None, None
    return (trusted.Inline(data), media_type) if media_type == PLAIN_TEXT else (None, None)
