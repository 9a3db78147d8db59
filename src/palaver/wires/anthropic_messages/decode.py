"""Read Messages bodies.

``system`` becomes a leading system message. A wire message becomes one message, except a user message with tool
results: each result becomes a tool message, and the content between them becomes user messages. Fields without a
neutral place stay under ``provider["anthropic_messages"]``; a tool message has those of its result.

Notes (``provider["@anthropic_messages"]``):

- ``type`` of a call that the provider runs; ``joined``: whether a message shares the wire message of the one before it,
  where two results would not, or others would; ``message``, on a tool message: the other fields of its wire message;
  ``place``: ``messages``, of a system message that stands first among them;
- of a request: ``max_tokens`` (``warm``: 0, which only warms the cache), ``budget`` (``beyond``: not below
  ``max_tokens``), ``thinking`` (``absent``: an effort alone), ``effort`` (a word that is new to us), and what stands in
  ``tool_choice`` and ``thinking`` beside their meaning.

Source: docs/spec/wires.md#4.1 to #4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import AnyPart, Text
from palaver.core.request import OutputFormat, Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import provider, word
from palaver.wires._engine.list_memory import ListMemory
from palaver.wires._engine.shapes import ABSENT, Shape, reader
from palaver.wires.anthropic_messages.decode_parts import (
    ResultBlock,
    answer_parts,
    result_parts,
    system_parts,
    user_blocks,
)
from palaver.wires.anthropic_messages.shapes import (
    CHOICE_FIELDS,
    FINISH,
    THINKING_FIELDS,
    WIRE,
    read_output_format,
    read_thinking,
    read_tool_choice,
    read_usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.parts import AssistantPart, UserPart


P = TypeVar("P", bound=AnyPart)


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes, memory: ListMemory | None = None) -> Request:
    """Read a request body. Raises ``DecodeError``. With a ``memory``, only what is new is read."""
    rest = jsontext.fields(body)
    raw_messages = json_fields.need_items(rest, "messages")
    raw_tools = json_fields.take_items(rest, "tools")
    memory = ListMemory() if memory is None else memory
    start, messages = memory.resume(raw_messages, _leading(rest))
    notes: Fields = {}
    for index in range(start, len(raw_messages)):
        try:
            _message(raw_messages[index], messages)
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
        memory.note(index + 1)
    return trusted.Request(
        messages=tuple(messages),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest, notes),
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


resume = request
"""Read a request of a conversation that grows."""


def _leading(rest: Fields) -> tuple[SystemMessage, ...]:
    raw = rest.get("system")
    if raw is None or raw == NULL:
        return ()
    del rest["system"]
    return (trusted.SystemMessage(content=_content(raw, "system", system_parts)),)


def _settings(rest: Fields, notes: Fields) -> Settings:
    choosing = json_fields.take_object(rest, notes, "tool_choice", read_tool_choice, CHOICE_FIELDS)
    max_tokens = json_fields.take_int(rest, "max_tokens")
    if max_tokens == 0:
        notes["max_tokens"] = word("warm")
    budget = json_fields.take_object(rest, notes, "thinking", read_thinking, THINKING_FIELDS)
    if budget is not None and max_tokens is not None and budget >= max_tokens:
        notes["budget"] = word("beyond")
    output, effort = _output_config(rest, notes)
    if effort is not None and budget is None and "thinking" not in rest:
        notes["thinking"] = word("absent")
    return trusted.Settings(
        max_tokens=max_tokens,
        temperature=json_fields.take_number(rest, "temperature"),
        top_p=json_fields.take_number(rest, "top_p"),
        top_k=json_fields.take_int(rest, "top_k"),
        stop=json_fields.take_texts(rest, "stop_sequences"),
        tool_choice=None if choosing is None else choosing.choice,
        parallel_tool_calls=None if choosing is None else choosing.parallel,
        output=output,
        effort=effort,
        reasoning_tokens=budget,
        stream=json_fields.take_bool(rest, "stream"),
    )


def _output_config(rest: Fields, notes: Fields) -> tuple[OutputFormat | None, str | None]:
    raw = rest.get("output_config")
    if raw is None or jsontext.kind(raw) != "an object":
        return None, None
    inner = jsontext.fields(raw)
    found = inner.get("format")
    output = None if found is None else read_output_format(found)
    if output is not None:
        del inner["format"]
    effort = json_fields.take_text(inner, "effort")
    if effort is not None and effort not in thinking.SCALE:
        notes["effort"] = jsontext.raw(effort)
    if output is not None or effort is not None:
        del rest["output_config"]
        if inner:
            rest["output_config"] = Raw(jsontext.encode(inner))
    return output, effort


def _tool(raw: Raw) -> AnyTool:
    rest = jsontext.fields(raw)
    kind = rest.get("type")
    if kind == _CUSTOM:
        del rest["type"]
    elif kind is not None and kind != NULL:
        return trusted.ProviderTool(WIRE, jsontext.own(raw))
    schema = rest.get("input_schema", NULL)
    parameters: Raw | UnsetType = UNSET
    if jsontext.kind(schema) == "an object":
        parameters = jsontext.own(rest.pop("input_schema"))
    return trusted.Tool(
        json_fields.need_text(rest, "name"),
        json_fields.take_text(rest, "description"),
        parameters,
        json_fields.take_bool(rest, "strict"),
        provider_json=provider(WIRE, rest),
    )


_CUSTOM: Final = Raw(b'"custom"')


# -- messages --------------------------------------------------------------------------------------


class _Message(Shape):
    role: str
    content: Raw = ABSENT


_read_message = reader(_Message)


def _message(raw: Raw, messages: list[Message]) -> None:
    """Read one wire message, and put what it holds behind ``messages``."""
    found = _read_message(raw)
    stored = provider(WIRE, found.rest)
    match found.role:
        case "user":
            messages += _user(found, messages[-1] if messages else None)
        case "assistant":
            content = _content(found.content, "content", answer_parts)
            messages.append(trusted.AssistantMessage(content=content, provider_json=stored))
        case "system":
            first = all(isinstance(message, SystemMessage) for message in messages)
            parts = _content(found.content, "content", system_parts)
            stored = provider(WIRE, found.rest, {"place": word("messages")} if first else None)
            messages.append(trusted.SystemMessage(content=parts, provider_json=stored))
        case role:
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _content(raw: Raw, path: str, read: Callable[[Raw], tuple[P, ...]]) -> tuple[P | Text, ...]:
    """Read content, a text or a list of blocks, into parts."""
    if raw is ABSENT or raw == NULL:
        return ()
    try:
        if jsontext.kind(raw) == "an array":
            return read(raw)
        return (trusted.Text(_text(raw)),)
    except DecodeError as error:
        raise error.within(path) from None


def _text(raw: Raw) -> str:
    if jsontext.kind(raw) != "a string":
        raise DecodeError(f"expected a string or an array, got {jsontext.kind(raw)}")
    return jsontext.text(raw)


def _user(found: _Message, before: Message | None) -> list[Message]:
    """Read a user message: each result is a tool message, and what stands between results a user message."""
    if found.content is ABSENT or jsontext.kind(found.content) != "an array":
        content = _content(found.content, "content", system_parts)
        return [trusted.UserMessage(content=content, provider_json=provider(WIRE, found.rest))]
    try:
        blocks = user_blocks(found.content)
        out: list[Message] = []
        parts: list[UserPart] = []
        for index, block in enumerate(blocks):
            if not isinstance(block, ResultBlock):
                parts.append(block)
                continue
            if parts:
                out.append(_user_message(parts, found.rest, first=not out))
                parts = []
            try:
                out.append(_result(block, found.rest, out[-1] if out else None, before))
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
    except DecodeError as error:
        raise error.within("content") from None
    if parts or not out:
        out.append(_user_message(parts, found.rest, first=not out))
    return out


def _user_message(parts: list[UserPart], rest: Fields, *, first: bool) -> UserMessage:
    stored = provider(WIRE, rest) if first else provider(WIRE, {}, _JOINED)
    return trusted.UserMessage(content=tuple(parts), provider_json=stored)


_JOINED: Final[Fields] = {"joined": jsontext.TRUE}


def _result(found: ResultBlock, around: Fields, beside: Message | None, before: Message | None) -> ToolMessage:
    """Make a tool message. ``around`` are the fields of its wire message.

    ``beside`` is what stands before it in its wire message, and ``before`` the last message of the one before.
    """
    notes: Fields = {}
    if isinstance(beside, UserMessage):
        notes = _JOINED
    elif beside is None and isinstance(before, ToolMessage):
        notes = {"joined": jsontext.FALSE}
    if beside is None and around:
        notes = {**notes, "message": Raw(jsontext.encode(around))}
    return trusted.ToolMessage(
        content=_content(found.content, "content", result_parts),
        tool_call_id=found.tool_use_id,
        is_error=found.is_error is True,
        provider_json=provider(WIRE, found.rest, notes),
    )


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no message at all."""
    rest = jsontext.fields(body)
    raw = rest.get("content")
    if raw is None or raw == NULL:
        raise provider_error(body)
    del rest["content"]
    return around(rest, _content(raw, "content", answer_parts))


def around(rest: Fields, content: tuple[AssistantPart, ...] = ()) -> Response:
    """Read what stands around the content of an answer."""
    for key, usual in _ENVELOPE.items():
        if rest.get(key) == usual:
            del rest[key]
    reason = json_fields.take_text(rest, "stop_reason")
    finish_raw: str | UnsetType | None = reason
    if reason is None:
        finish_raw = UNSET if rest.pop("stop_reason", None) is None else None
    message = trusted.AssistantMessage(
        content=content,
        model=json_fields.take_text(rest, "model"),
        usage=_usage(rest),
        finish_reason="other" if reason is None else FINISH.get(reason, "other"),
        finish_reason_raw=finish_raw,
        response_id=json_fields.take_text(rest, "id"),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


_ENVELOPE: Final[Fields] = {"type": Raw(b'"message"'), "role": Raw(b'"assistant"')}


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    del rest["usage"]
    return read_usage(raw)


def provider_error(body: bytes) -> ProviderError:
    """Read the provider's error."""
    table = cast("dict[str, Any]", jsontext.value(body))
    found = table.get("error")
    inner = cast("dict[str, Any]", found if isinstance(found, dict) else {})
    text = found if isinstance(found, str) else inner.get("message")
    code = inner.get("type")
    message = text if isinstance(text, str) else "no message in the body"
    return ProviderError(WIRE, message, code=code if isinstance(code, str) else None, body=body)
