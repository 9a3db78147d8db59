"""Read the common answer in one step: one choice, a text or calls, and nothing that is not in every answer.

An answer of any other shape is read field by field, in ``decode``; what comes out is the same (a test compares them).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.parts import AssistantPart, MalformedToolCall, ToolCall
from palaver.wires._engine import json_fields
from palaver.wires.openai_chat.shapes import WIRE


class PlainFunction(Struct, gc=False, forbid_unknown_fields=True):
    """What every call names."""

    name: str
    arguments: str


class PlainCall(Struct, gc=False, forbid_unknown_fields=True):
    """A call with the fields that calls have. Mistral leaves the type out, and numbers them."""

    id: str
    function: PlainFunction
    type: Literal["function"] | UnsetType = UNSET
    index: int | UnsetType = UNSET


class _Message(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str | UnsetType | None = UNSET
    tool_calls: list[PlainCall] | UnsetType | None = UNSET
    refusal: UnsetType | None = UNSET
    annotations: list[Raw] | UnsetType | None = UNSET


class _Choice(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    message: _Message
    finish_reason: str
    logprobs: UnsetType | None = UNSET


_choices = msgspec.json.Decoder(list[_Choice]).decode


def plain_answer(raw: Raw) -> tuple[tuple[AssistantPart, ...], str, Raw | UnsetType] | None:
    """Read ``choices``: the content, the finish word, and what is kept; ``None`` for any other shape."""
    try:
        found = _choices(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if len(found) != 1 or found[0].index != 0 or found[0].message.annotations:
        return None
    message = found[0].message
    content: list[AssistantPart] = [trusted.Text(message.content)] if isinstance(message.content, str) else []
    calls = message.tool_calls
    if calls:
        content += [plain_call(each) for each in calls]
    logprobs = found[0].logprobs is None
    fields = (message.content is UNSET, message.refusal is None, _empty(message.annotations), _empty(calls), logprobs)
    return tuple(content), found[0].finish_reason, _kept(*fields)


def plain_call(call: PlainCall) -> ToolCall | MalformedToolCall:
    """Make the part for a call of the common shape."""
    held = UNSET if call.type is not UNSET and call.index is UNSET else _kept_of_call(call.type is UNSET, call.index)
    return json_fields.call(call.id, call.function.name, call.function.arguments, held)


@lru_cache(maxsize=64)
def _kept_of_call(untyped: bool, index: int | UnsetType) -> Raw | UnsetType:  # noqa: FBT001 (a key)
    rest: jsontext.Fields = {} if index is UNSET else {"index": jsontext.raw(index)}
    return json_fields.provider(WIRE, {**rest, "@@type": json_fields.hint("absent")} if untyped else rest)


def _empty(items: list[Any] | UnsetType | None) -> str:
    """How a list that holds nothing was written; ``""`` where there is nothing to keep."""
    return "null" if items is None else "[]" if items == [] else ""


@lru_cache(maxsize=64)
def _kept(absent: bool, refusal: bool, annotations: str, calls: str, logprobs: bool) -> Raw | UnsetType:  # noqa: FBT001 (a key)
    """What remains of the few common shapes, written once."""
    rest: jsontext.Fields = {}
    if absent:
        rest["@@content"] = json_fields.hint("absent")
    if refusal:
        rest["refusal"] = jsontext.NULL
    if annotations:
        rest["annotations"] = Raw(annotations.encode())
    if calls:
        rest["tool_calls"] = Raw(calls.encode())
    if logprobs:
        rest["@@choice"] = Raw(b'{"index":0,"logprobs":null}')
    return json_fields.provider(WIRE, rest)
