"""Read Converse bodies.

A user message of the wire may hold results and text: it becomes tool messages and user messages, in their order. The
URL has the model and whether to stream, so ``Request.model`` and ``Settings.stream`` are ``None``. Responses of the
common shape are read in one step, with the same result.

Under ``provider["bedrock_converse"]`` stay, for ``encode``:

- fields of the body, of a message, a block or a tool without a neutral place;
- ``cachePoint`` of a tool result: the one directly after it. Other cache points are ``Opaque`` parts;
- hints on form: ``@@joined`` (shares the wire message of the one before), ``@@message`` (other fields of the wire
  message that begins with a tool result), ``@@beside`` (fields beside the one key of a block), ``@@place`` (a system
  message among the messages), ``@@system`` and ``@@content`` (``empty``, ``absent``), ``@@kind``, ``@@format``,
  ``@@source``, ``@@blank``, ``@@role``, and for settings ``@@<name>`` and ``@@<name>_at``.

Source: docs/spec/wires.md#6.1 to #6.4.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import Fields
from palaver.core.messages import Message, SystemMessage
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.core.request import Request, Response
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires.bedrock_converse import settings
from palaver.wires.bedrock_converse.decode_parts import assistant_part, system_part, user_messages
from palaver.wires.bedrock_converse.shapes import WIRE, finish, optional, read_usage

# -- responses of the common shape -----------------------------------------------------------------


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
            stored = UNSET if use.type is UNSET else _TYPED
            return trusted.ToolCall(use.tool_use_id, use.name, bytes(use.input).decode(), provider_json=stored)
        case _Block(UnsetType(), UnsetType(), _Reasoning(signed)):
            signature = signed.signature
            return trusted.Reasoning(signed.text, None if isinstance(signature, UnsetType) else signature, wire=WIRE)
        case _:
            return None


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    raw_messages = json_fields.take_items(rest, "messages")
    if raw_messages is None and "messages" not in rest:  # a prompt that the service keeps needs none
        rest["@@messages"] = hint("absent")
    tools = _tools(rest)
    return trusted.Request(
        messages=(*_system(rest), *_messages(raw_messages or [])),
        tools=tools,
        settings=settings.take(rest),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _system(rest: Fields) -> tuple[SystemMessage, ...]:
    raws = json_fields.take_items(rest, "system")
    if raws == []:
        rest["@@system"] = hint("empty")
    return (trusted.SystemMessage(content=tuple(json_fields.each(raws, "system", system_part))),) if raws else ()


def _tools(rest: Fields) -> tuple[AnyTool, ...]:
    """Take the tools out of ``toolConfig``; a list that is empty or none stays."""
    raw = rest.get("toolConfig")
    if raw is None or jsontext.kind(raw) != "an object":
        return ()
    config = jsontext.fields(raw)
    try:
        found = json_fields.take_items(config, "tools")
        if not found:
            return ()
        tools = tuple(json_fields.each(found, "tools", _tool))
    except DecodeError as error:
        raise error.within("toolConfig") from None
    rest["toolConfig"] = Raw(jsontext.encode(config))
    if not config:
        del rest["toolConfig"]
    return tools


def _tool(raw: Raw) -> AnyTool:
    beside = jsontext.fields(raw)
    if "toolSpec" not in beside:
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    rest = json_fields.need_fields(beside, "toolSpec")
    try:
        name = json_fields.need_text(rest, "name")
        schema = json_fields.need_fields(rest, "inputSchema")
    except DecodeError as error:
        raise error.within("toolSpec") from None
    parameters = schema.pop("json", None)
    if parameters is None:
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    description = optional(json_fields.take_text, rest, "description")
    strict = optional(json_fields.take_bool, rest, "strict")
    rest = nested(rest, "inputSchema", schema)
    if beside:
        rest["@@beside"] = Raw(jsontext.encode(beside))
    return trusted.Tool(name, description, jsontext.own(parameters), strict, provider_json=provider(WIRE, rest))


# -- messages --------------------------------------------------------------------------------------


def _messages(raws: list[Raw]) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(raws):
        try:
            messages += _message(raw)
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
    return tuple(messages)


def _message(raw: Raw) -> list[Message]:
    rest = jsontext.fields(raw)
    role = json_fields.need_text(rest, "role")
    blocks = json_fields.need_items(rest, "content")
    if role == "user":
        return user_messages(blocks, rest)
    if role == "assistant":
        content = tuple(json_fields.each(blocks, "content", assistant_part))
        return [trusted.AssistantMessage(content=content, provider_json=provider(WIRE, rest))]
    if role == "system":
        rest["@@place"] = hint("messages")
        content = tuple(json_fields.each(blocks, "content", system_part))
        return [trusted.SystemMessage(content=content, provider_json=provider(WIRE, rest))]
    raise DecodeError(f"unknown role {role[:40]!r}", path="role")


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for a body without output."""
    return read(body) or response_by_field(body)


def response_by_field(body: bytes) -> Response:
    """Read a response of any shape."""
    rest = jsontext.fields(body)
    if "output" not in rest:
        raise _provider_error(body)
    output = json_fields.need_fields(rest, "output")
    try:
        fields = json_fields.need_fields(output, "message")
        content = _answer(fields)
    except DecodeError as error:
        raise error.within("output") from None
    if output:
        rest["output"] = Raw(jsontext.encode(output))
    word = optional(json_fields.take_text, rest, "stopReason")
    usage = take_usage(rest)
    counted: Usage | None = None if usage is None else read_usage(usage)
    finish_raw: str | UnsetType = UNSET if word is None else word
    message = trusted.AssistantMessage(
        content=content,
        usage=counted,
        finish_reason=finish(word, content),
        finish_reason_raw=finish_raw,
        provider_json=provider(WIRE, fields),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


def take_usage(rest: Fields) -> Raw | None:
    """Take the usage object out; anything else stays."""
    usage = rest.get("usage")
    return rest.pop("usage") if usage is not None and jsontext.kind(usage) == "an object" else None


def take_role(fields: Fields) -> None:
    """Take the role of an answer out; one that is not the assistant's is kept as a hint."""
    role = fields.pop("role", None)
    if role != _ASSISTANT:
        fields["@@role"] = hint("absent") if role is None else role


def _answer(fields: Fields) -> tuple[Any, ...]:
    take_role(fields)
    try:
        blocks = json_fields.need_items(fields, "content")
        return tuple(json_fields.each(blocks, "content", assistant_part))
    except DecodeError as error:
        raise error.within("message") from None


_ASSISTANT: Final = Raw(b'"assistant"')


def _provider_error(body: bytes) -> ProviderError:
    table = cast("dict[str, Any]", jsontext.value(body))
    text, code = table.get("message") or table.get("Message"), table.get("__type")
    message = text if isinstance(text, str) else "no output in the body"
    return ProviderError(WIRE, message, code=code if isinstance(code, str) else None, body=body)
