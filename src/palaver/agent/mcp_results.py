"""What an MCP server answered a call with, as an output.

Rules (docs/spec/deepagents-swift.md#10, #13: media are kept as parts):

- Text, images and recordings are parts. An embedded resource is its text, under its URI, or its bytes as media; a link
  to a resource is told as text, and never fetched.
- A structured result is one JSON part where the only text says the same, or where there is nothing else. Otherwise the
  model gets what the server wrote for it, and the application finds the structured result in ``metadata``.
- ``isError`` is an error result.

Source: modelcontextprotocol.io/specification, server/tools, “Tool Result”.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.agent.outputs import NO_OUTPUT, media_of
from palaver.agent.tool import Output
from palaver.core import jsontext
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.parts import Audio, File, Image, Inline, Json, Text, ToolPart

if TYPE_CHECKING:
    from mcp.types import CallToolResult


def output_of_result(result: CallToolResult) -> Output:
    """Make an output of an answer."""
    parts = tuple(_part(block) for block in result.content)
    structured = result.structured_content
    metadata: dict[str, Any] = {}
    if structured is not None:
        value = _json(structured)
        if value is not None and _says_no_more(parts, structured):
            parts = (value,)
        elif value is not None:
            metadata = {"structured_content": structured}
    return Output(content=parts or (Text(NO_OUTPUT),), is_error=result.is_error, metadata=metadata)


def _json(structured: Any) -> Json | None:
    try:
        return Json.of(structured)
    except PalaverError:
        return None


def _says_no_more(parts: tuple[ToolPart, ...], structured: Any) -> bool:
    """Whether the parts say what the structured result says, or nothing."""
    match parts:
        case ():
            return True
        case (Text(text=text),):
            try:
                return bool(jsontext.value(text) == structured)
            except DecodeError:
                return False
        case _:
            return False


def _part(block: Any) -> ToolPart:
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return Image(Inline(block.data), block.mime_type)
        case "audio":
            return Audio(Inline(block.data), block.mime_type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            return Text(f"[resource: {block.name} ({block.uri})]")
        case kind:
            return Text(f"[{kind}]")


def _resource(resource: Any) -> ToolPart:
    uri = str(resource.uri)
    text = getattr(resource, "text", None)
    if text is not None:
        return Text(f"[resource: {uri}]\n{text}")
    cls = media_of(resource.mime_type)
    if cls is File:
        return File(Inline(resource.blob), resource.mime_type, name=uri.rstrip("/").rpartition("/")[2] or None)
    return cls(Inline(resource.blob), resource.mime_type)
