"""Read Converse bodies.

A user message of the wire may hold results and text: it becomes tool messages and user messages, in their order. The
URL has the model and whether to stream, so ``Request.model`` and ``Settings.stream`` are ``None``.

Fields of the body, of a message, a block or a tool without a neutral place stay under ``provider["bedrock_converse"]``,
and so does ``cachePoint`` of a tool result: the one directly after it. Other cache points are ``Opaque`` parts.

Notes (``provider["@bedrock_converse"]``):

- of a message: ``joined`` (shares the wire message of the one before), ``message`` (other fields of the wire message
  that begins with a tool result), ``place`` (``messages``, of a system message that stands first among them), ``role``
  of an answer that is not the assistant's;
- of a result: ``content`` (``empty``), ``result`` (a field in it that is named ``cachePoint``);
- of a block or a tool: ``beside`` (fields beside the one key), ``kind`` (``citationsContent``), ``blank`` (a blank text
  of a result), ``format`` (another word than ours for the same media type), ``source`` (``text``, of a document);
- of a request: where settings stood, and what stands in them beside their meaning (see ``settings``).

Source: docs/spec/wires.md#6.1 to #6.4.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import Message, SystemMessage
from palaver.core.request import Request, Response
from palaver.core.tools import AnyTool
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.shapes import ABSENT, Shape, Union, reader, role_note
from palaver.wires.bedrock_converse import settings
from palaver.wires.bedrock_converse.decode_parts import (
    AnswerBlock,
    SystemBlock,
    UserBlock,
    answer_parts,
    system_parts,
    user_messages,
)
from palaver.wires.bedrock_converse.shapes import WIRE, finish, read_usage

# -- shapes ----------------------------------------------------------------------------------------


class _User(Shape, tag="user", tag_field="role"):
    content: list[UserBlock]


class _Assistant(Shape, tag="assistant", tag_field="role"):
    content: list[AnswerBlock]


class _System(Shape, tag="system", tag_field="role"):
    content: list[SystemBlock]


_Message: TypeAlias = _User | _Assistant | _System
_MESSAGES: Final = Union[_Message](_User, _Assistant, _System, tag="role")


class _Schema(Shape):
    json: Raw = ABSENT


class _Spec(Shape, rename="camel"):
    name: str
    input_schema: _Schema
    description: str | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class _Tool(Shape, rename="camel"):
    tool_spec: _Spec | UnsetType = UNSET


class _Answer(Shape):
    content: list[AnswerBlock]
    role: Raw = ABSENT


class _Output(Shape):
    message: _Answer


class _Response(Shape, rename="camel"):
    output: _Output | UnsetType = UNSET
    stop_reason: str | UnsetType = UNSET
    usage: Raw = ABSENT
    metrics: Raw = ABSENT


_read_system = reader(SystemBlock)
_read_tool = reader(_Tool)
_read_response = reader(_Response)

# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    messages = (*_system(rest), *_messages(rest))
    tools = _tools(rest)
    notes: Fields = {}
    return trusted.Request(
        messages=messages,
        tools=tools,
        settings=settings.take(rest, notes),
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


def _system(rest: Fields) -> tuple[SystemMessage, ...]:
    raws = json_fields.take_items(rest, "system")
    if not raws:
        return ()
    try:
        return (trusted.SystemMessage(content=system_parts(list(json_fields.each(raws, "", _read_system)))),)
    except DecodeError as error:
        raise error.within("system") from None


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
    found = _read_tool(raw)
    spec = found.tool_spec
    if spec is UNSET:
        if "toolSpec" in found.rest:
            raise DecodeError("expected an object, got null", path="toolSpec")
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    if spec.input_schema.json is ABSENT:
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    return trusted.Tool(
        spec.name,
        None if spec.description is UNSET else spec.description,
        jsontext.own(spec.input_schema.json),
        None if spec.strict is UNSET else spec.strict,
        provider_json=provider(
            WIRE,
            nested(spec.rest, "inputSchema", spec.input_schema.rest),
            {"beside": Raw(jsontext.encode(found.rest))} if found.rest else None,
        ),
    )


# -- messages --------------------------------------------------------------------------------------


def _messages(rest: Fields) -> tuple[Message, ...]:
    raw = rest.pop("messages", NULL)
    if raw == NULL:  # a prompt that the service keeps needs none
        return ()
    messages: list[Message] = []
    try:
        for index, found in enumerate(_MESSAGES.items(raw)):
            try:
                messages += _message(found)
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
    except DecodeError as error:
        raise error.within("messages") from None
    return tuple(messages)


def _message(found: _Message | Raw) -> list[Message]:
    match found:
        case Raw():
            role = json_fields.need_text(jsontext.fields(found), "role")
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")
        case _User():
            return user_messages(found.content, found.rest)
        case _:
            pass
    try:
        if isinstance(found, _Assistant):
            content = answer_parts(found.content)
            return [trusted.AssistantMessage(content=content, provider_json=provider(WIRE, found.rest))]
        stored = provider(WIRE, found.rest, {"place": word("messages")})
        return [trusted.SystemMessage(content=system_parts(found.content), provider_json=stored)]
    except DecodeError as error:
        raise error.within("content") from None


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for a body without output."""
    found = _read_response(body)
    if found.output is UNSET:
        if "output" in found.rest:
            raise DecodeError("missing", path="output")
        raise _provider_error(body)
    answer, rest = found.output.message, dict(nested(found.rest, "output", found.output.rest))
    try:
        content = answer_parts(answer.content)
    except DecodeError as error:
        raise error.within("output.message.content") from None
    if found.metrics is not ABSENT:
        rest["metrics"] = found.metrics
    word = None if found.stop_reason is UNSET else found.stop_reason
    message = trusted.AssistantMessage(
        content=content,
        usage=None if (counted := object_or_kept(found.usage, rest)) is None else read_usage(counted),
        finish_reason=finish(word, content),
        finish_reason_raw=found.stop_reason,
        provider_json=provider(WIRE, answer.rest, role_note(answer.role)),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


def object_or_kept(usage: Raw, rest: Fields) -> Raw | None:
    """Return the usage object; anything else stays with what remains."""
    if usage is ABSENT:
        return None
    if jsontext.kind(usage) == "an object":
        return usage
    rest["usage"] = usage
    return None


def _provider_error(body: bytes) -> ProviderError:
    table = cast("dict[str, Any]", jsontext.value(body))
    text, code = table.get("message") or table.get("Message"), table.get("__type")
    message = text if isinstance(text, str) else "no output in the body"
    return ProviderError(WIRE, message, code=code if isinstance(code, str) else None, body=body)
