"""Read Messages bodies.

``system`` becomes a leading system message. A wire message becomes one message, except a user message with tool
results: each result becomes a tool message, and the content between them becomes user messages. Fields without a
neutral place stay under ``provider["anthropic_messages"]``; a tool message has those of its result.

Hints on form:

- ``@@content``: ``string`` (else a list of blocks), ``null``, ``absent``; on a result also ``list`` for an empty list.
- ``@@joined``: ``true`` on a message that shares the wire message of the one before it; ``apart`` on a result that
  begins a wire message after another result.
- ``@@message``: on a tool message, the other fields of its wire message. ``@@place``: ``messages`` for a system message
  among the messages. ``@@is_error``: an explicit ``false``.
- ``@@tools`` (``empty``), ``@@type`` and ``@@role`` (absent in a response), ``@@max_tokens`` (``warm``: 0, which only
  warms the cache), ``@@budget`` (``beyond``: not below ``max_tokens``), and the original form of ``@@tool_choice``,
  ``@@thinking``, ``@@format`` and ``@@effort``.

Source: docs/spec/wires.md#4.1 to #4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

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
from palaver.core.request import OutputFormat, Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import hint, provider
from palaver.wires.anthropic_messages.decode_parts import answer_parts, result_part, system_part, user_part
from palaver.wires.anthropic_messages.shapes import (
    FINISH,
    WIRE,
    Choosing,
    read_output_format,
    read_thinking,
    read_tool_choice,
    read_usage,
    write_output_format,
    write_thinking,
    write_tool_choice,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.parts import AssistantPart, ToolPart, UserPart


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    raw_messages = json_fields.need_items(rest, "messages")
    raw_tools = json_fields.take_items(rest, "tools")
    if raw_tools == []:
        rest["@@tools"] = hint("empty")
    messages: list[Message] = [*_leading(rest)]
    for index, raw in enumerate(raw_messages):
        try:
            _message(raw, messages)
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
    return trusted.Request(
        messages=tuple(messages),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _leading(rest: Fields) -> tuple[SystemMessage, ...]:
    raw = rest.get("system")
    if raw is None or raw == NULL:
        return ()
    del rest["system"]
    stored: Fields = {}
    try:
        content = _content(raw, stored, "system", system_part)
    except DecodeError as error:
        raise error.within("system") from None
    return (trusted.SystemMessage(content=content, provider_json=provider(WIRE, stored)),)


def _settings(rest: Fields) -> Settings:
    choosing: Choosing | None = json_fields.take_formed(rest, "tool_choice", read_tool_choice, write_tool_choice)
    max_tokens = json_fields.take_int(rest, "max_tokens")
    if max_tokens == 0:
        rest["@@max_tokens"] = hint("warm")
    budget: int | None = json_fields.take_formed(rest, "thinking", read_thinking, write_thinking)
    if budget is not None and max_tokens is not None and budget >= max_tokens:
        rest["@@budget"] = hint("beyond")
    output, effort = _output_config(rest)
    if effort is not None and budget is None and "thinking" not in rest:
        rest["@@thinking"] = hint("absent")
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


def _output_config(rest: Fields) -> tuple[OutputFormat | None, str | None]:
    raw = rest.get("output_config")
    if raw is None or jsontext.kind(raw) != "an object":
        return None, None
    inner = jsontext.fields(raw)
    found = inner.get("format")
    output = None if found is None else read_output_format(found)
    if found is not None and output is not None:
        del inner["format"]
        json_fields.keep_form(rest, "format", found, write_output_format(output))
    effort = json_fields.take_text(inner, "effort")
    if effort is not None and effort not in thinking.SCALE:
        rest["@@effort"] = jsontext.raw(effort)
    if output is not None or effort is not None:
        del rest["output_config"]
        if inner:
            rest["output_config"] = Raw(jsontext.encode(inner))
    return output, effort


def _tool(raw: Raw) -> AnyTool:
    rest = jsontext.fields(raw)
    kind = rest.get("type")
    if kind == _CUSTOM:
        rest["@@type"] = rest.pop("type")
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


def _message(raw: Raw, messages: list[Message]) -> None:
    """Read one wire message, and put what it holds behind ``messages``."""
    rest = jsontext.fields(raw)
    role = json_fields.need_text(rest, "role")
    content = rest.pop("content", None)
    match role:
        case "user":
            messages += _user(content, rest, follows_result=bool(messages) and isinstance(messages[-1], ToolMessage))
        case "assistant":
            messages.append(
                trusted.AssistantMessage(content=_answer(content, rest), provider_json=provider(WIRE, rest))
            )
        case "system":
            if all(isinstance(message, SystemMessage) for message in messages):
                rest["@@place"] = hint("messages")
            parts = _content(content, rest, "content", system_part)
            messages.append(trusted.SystemMessage(content=parts, provider_json=provider(WIRE, rest)))
        case _:
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _content(raw: Raw | None, rest: Fields, path: str, read: Callable[[Raw], Any]) -> tuple[Any, ...]:
    """Read content into parts; the hint says which form it had where that is not the one we would write."""
    if raw is None or raw == NULL:
        rest["@@content"] = hint("absent" if raw is None else "null")
        return ()
    inside = "" if path == "system" else path
    try:
        found = json_fields.string_or_items(raw)
    except DecodeError as error:
        raise (error.within(inside) if inside else error) from None
    if isinstance(found, str):
        rest["@@content"] = hint("string")
        return (trusted.Text(found),)
    return tuple(json_fields.each(cast("list[Raw]", found), inside, read))


def _answer(raw: Raw | None, rest: Fields) -> tuple[AssistantPart, ...]:
    if raw is None or jsontext.kind(raw) != "an array":
        return _content(raw, rest, "content", system_part)
    try:
        return answer_parts(raw)
    except DecodeError as error:
        raise error.within("content") from None


def _user(raw: Raw | None, rest: Fields, *, follows_result: bool) -> list[Message]:
    if raw is None or jsontext.kind(raw) != "an array":
        parts = _content(raw, rest, "content", result_part)
        return [trusted.UserMessage(content=parts, provider_json=provider(WIRE, rest))]
    out: list[Message] = []
    run: list[UserPart] = []
    for index, block in enumerate(jsontext.items(raw)):
        try:
            fields = jsontext.fields(block)
            kind = json_fields.need_text(fields, "type")
            if kind != "tool_result":
                run.append(user_part(fields, kind, block))
                continue
            if run:
                out.append(_user_message(run, rest, first=not out))
            out.append(_result(fields, rest, first=not out, apart=follows_result))
        except DecodeError as error:
            raise error.within(f"content[{index}]") from None
        run = []
    if run or not out:
        out.append(_user_message(run, rest, first=not out))
    return out


def _user_message(parts: list[UserPart], rest: Fields, *, first: bool) -> UserMessage:
    stored = rest if first else {"@@joined": jsontext.TRUE}
    return trusted.UserMessage(content=tuple(parts), provider_json=provider(WIRE, stored))


def _result(fields: Fields, rest: Fields, *, first: bool, apart: bool) -> ToolMessage:
    call_id = json_fields.need_text(fields, "tool_use_id")
    content = _result_content(fields)
    is_error = fields.get("is_error") == jsontext.TRUE
    if is_error:
        del fields["is_error"]
    elif fields.get("is_error") == _FALSE:
        fields["@@is_error"] = fields.pop("is_error")
    if not first:
        fields["@@joined"] = jsontext.TRUE
    elif apart:
        fields["@@joined"] = hint("apart")
    if first and rest:
        fields["@@message"] = Raw(jsontext.encode(rest))
    return trusted.ToolMessage(
        content=content, tool_call_id=call_id, is_error=is_error, provider_json=provider(WIRE, fields)
    )


_FALSE: Final = Raw(b"false")


def _result_content(fields: Fields) -> tuple[ToolPart, ...]:
    raw = fields.pop("content", None)
    if raw is None:
        return ()
    content = _content(raw, fields, "content", result_part)
    if not content and raw != NULL:
        fields["@@content"] = hint("list")
    return content


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no message at all."""
    rest = jsontext.fields(body)
    raw = rest.get("content")
    if raw is None or raw == NULL:
        raise provider_error(body)
    del rest["content"]
    try:
        content = answer_parts(raw)
    except DecodeError as error:
        raise error.within("content") from None
    return around(rest, content)


def around(rest: Fields, content: tuple[AssistantPart, ...] = ()) -> Response:
    """Read what stands around the content of an answer."""
    for key, usual in _ENVELOPE.items():
        found = rest.get(key)
        if found == usual:
            del rest[key]
        elif found is None:
            rest[f"@@{key}"] = hint("absent")
    word = json_fields.take_text(rest, "stop_reason")
    finish_raw: str | UnsetType | None = word
    if word is None:
        finish_raw = UNSET if rest.pop("stop_reason", None) is None else None
    message = trusted.AssistantMessage(
        content=content,
        model=json_fields.take_text(rest, "model"),
        usage=_usage(rest),
        finish_reason="other" if word is None else FINISH.get(word, "other"),
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
