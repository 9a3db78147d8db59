"""How a message is changed by compaction: its content is another, all else is kept, and its metadata say which stage.

Rules:

- A changed message is of the same class, with every field it had. ``metadata["compaction"]`` names the stage; what was
  in the metadata besides stays as it was written.
- Built with ``structs.replace``: that is the cheapest way, and there are thousands of them.

Stability: experimental.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.context.rewriting import COMPACTION
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import AnyPart

_M = TypeVar("_M", UserMessage, AssistantMessage, ToolMessage)


def marked(metadata: Raw | UnsetType, stage: str) -> Raw:
    """Metadata that name a stage. What is no object cannot, and stays."""
    if metadata is UNSET:
        return _fresh(stage)
    text = bytes(metadata)
    if text[:1] == b"{" and text[-1:] == b"}" and b"compaction" not in text and b"\\" not in text:
        inside = text[1:-1].strip()
        return Raw(b"{" + inside + b"," + _pair(stage) + b"}") if inside else _fresh(stage)
    return _remarked(metadata, stage)


def _remarked(metadata: Raw, stage: str) -> Raw:
    if jsontext.is_null(metadata):
        return _fresh(stage)
    try:
        fields = jsontext.fields(metadata)
    except DecodeError:
        return metadata
    fields[COMPACTION] = jsontext.raw(stage)
    return jsontext.raw(fields)


def _pair(stage: str) -> bytes:
    return b'"compaction":"' + stage.encode() + b'"'


@cache
def _fresh(stage: str) -> Raw:
    return Raw(b"{" + _pair(stage) + b"}")


def changed_with(message: _M, content: tuple[AnyPart, ...], stage: str) -> _M:
    """A message with other content, marked."""
    return structs.replace(message, content=content, metadata_json=marked(message.metadata_json, stage))
