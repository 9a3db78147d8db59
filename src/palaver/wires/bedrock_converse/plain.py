"""Responses of the common shape, read in one step: the fields that every response has, and the common blocks.

Any other shape gives ``None`` and is read field by field in ``decode``, to the same value; ``tests`` hold both against
each other.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.core.request import Response
from palaver.wires._engine.json_fields import provider
from palaver.wires.bedrock_converse.shapes import WIRE, finish
from palaver.wires.bedrock_converse.usage import read_usage


class _Use(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    tool_use_id: str
    name: str
    input: Raw
    type: Literal["tool_use"] | UnsetType = UNSET


class _Signed(Struct, gc=False, forbid_unknown_fields=True):
    text: str
    signature: str | UnsetType = UNSET


class _Reasoning(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    reasoning_text: _Signed


class _Block(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    text: str | UnsetType = UNSET
    tool_use: _Use | UnsetType = UNSET
    reasoning_content: _Reasoning | UnsetType = UNSET


class _Message(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: list[_Block]


class _Output(Struct, gc=False, forbid_unknown_fields=True):
    message: _Message


class _Response(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    output: _Output
    stop_reason: str
    usage: Raw
    metrics: Raw


_split = msgspec.json.Decoder(_Response).decode
_TYPED: Final = provider(WIRE, {"type": Raw(b'"tool_use"')})


def read(body: bytes) -> Response | None:
    """Read a response of the common shape; ``None`` when it is of another."""
    try:
        found = _split(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    parts = [_part(block) for block in found.output.message.content]
    content: tuple[AssistantPart, ...] = tuple([part for part in parts if part is not None])
    if len(content) != len(parts) or jsontext.kind(found.usage) != "an object":
        return None
    word = found.stop_reason
    message = trusted.AssistantMessage(
        content=content,
        usage=read_usage(found.usage),
        finish_reason=finish(word, content),
        finish_reason_raw=word,
    )
    metrics = Raw(b'{"bedrock_converse":{"metrics":%b}}' % bytes(found.metrics))
    return trusted.Response(message=message, origin=WIRE, provider_json=metrics)


def _part(block: _Block) -> Text | ToolCall | Reasoning | None:
    match block:
        case _Block(str(text), UnsetType(), UnsetType()):
            return trusted.Text(text)
        case _Block(UnsetType(), _Use() as use, UnsetType()):
            held = UNSET if use.type is UNSET else _TYPED
            return trusted.ToolCall(use.tool_use_id, use.name, bytes(use.input).decode(), provider_json=held)
        case _Block(UnsetType(), UnsetType(), _Reasoning(signed)):
            signature = signed.signature
            return trusted.Reasoning(signed.text, None if isinstance(signature, UnsetType) else signature, wire=WIRE)
        case _:
            return None
