"""Read Ollama chat bodies.

Fields without a neutral place stay under ``provider["ollama_chat"]``, with hints on form: ``@@id`` (``absent``: a
call had none and got one from its place), ``@@image`` (images stand beside the text, after it), ``@@content`` (absent).
A result without ``tool_call_id`` answers the call of its ``tool_name``, else the first that is open
(docs/spec/wires.md#8).

Source: docs/spec/wires.md#8; ollama/ollama ``api/types.go``.
"""

from __future__ import annotations

from typing import Any, Final, cast

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    ToolMessage,
)
from palaver.core.parts import AssistantPart, Image, Inline, MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires._engine.tools import OpenCalls, read_tool
from palaver.wires.ollama_chat.shapes import FINISH, INTEGERS, OPTIONS, WIRE, read_format, write_format

# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    raw_messages = json_fields.need_items(rest, "messages")
    raw_tools = json_fields.take_items(rest, "tools")
    if raw_tools == []:
        rest["@@tools"] = hint("empty")
    return trusted.Request(
        messages=_messages(raw_messages),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _settings(rest: Fields) -> Settings:
    options = json_fields.take_fields(rest, "options")
    found: dict[str, Any] = {}
    if options is not None:
        for name, key in OPTIONS.items():
            found[name] = (json_fields.take_int if name in INTEGERS else json_fields.take_number)(options, key)
        found["stop"] = json_fields.take_texts(options, "stop")
        if options or all(value is None for value in found.values()):
            rest["options"] = Raw(jsontext.encode(options))
    raw = rest.get("format")
    output = None if raw is None else read_format(raw)
    if raw is not None and output is not None:
        del rest["format"]
        json_fields.keep_form(rest, "format", raw, write_format(output))
    think = rest.get("think", jsontext.NULL)
    found["effort"], found["reasoning_tokens"] = thinking.read_word(think), thinking.read_switch(think)
    if found["effort"] is not None or found["reasoning_tokens"] is not None:
        del rest["think"]
    stream = json_fields.take_bool(rest, "stream")
    return trusted.Settings(output=output, stream=stream, **found)


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE)


# -- messages --------------------------------------------------------------------------------------


def _messages(raws: list[Raw]) -> tuple[Message, ...]:
    messages: list[Message] = []
    open_calls = OpenCalls((), _keys)
    for index, raw in enumerate(raws):
        try:
            message = _message(raw, index, open_calls)
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
        if isinstance(message, AssistantMessage):
            open_calls = OpenCalls(message.tool_calls, _keys)
        messages.append(message)
    return tuple(messages)


def _message(raw: Raw, index: int, open_calls: OpenCalls) -> Message:
    rest = jsontext.fields(raw)
    role = json_fields.need_text(rest, "role")
    if role == "assistant":
        return trusted.AssistantMessage(content=_answer(rest, f"call_{index}"), provider_json=provider(WIRE, rest))
    content: tuple[Text | Image, ...] = (*_text(rest), *_images(rest))
    if role == "user":
        return trusted.UserMessage(content=content, provider_json=provider(WIRE, rest))
    if role == "system":
        return trusted.SystemMessage(content=_only_text(content, rest), provider_json=provider(WIRE, rest))
    if role == "tool":
        return _result(content, rest, open_calls)
    raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _only_text(content: tuple[Text | Image, ...], rest: Fields) -> tuple[Text, ...]:
    """System messages hold text; images on one stay with the message, unread."""
    images = [part for part in content if isinstance(part, Image)]
    if images:
        rest["images"] = jsontext.raw([cast("Inline", image.source).data for image in images])
    return tuple(part for part in content if isinstance(part, Text))


_ANY: Final = ("any",)


def _keys(call: ToolCall) -> tuple[tuple[str, ...], ...]:
    return (_ANY, ("id", call.id), ("name", call.name))


def _result(content: tuple[Text | Image, ...], rest: Fields, open_calls: OpenCalls) -> ToolMessage:
    name = json_fields.take_text(rest, "tool_name")
    call_id = json_fields.take_text(rest, "tool_call_id")
    if call_id is None:
        call = open_calls.take(_ANY if name is None else ("name", name))
        call_id = None if call is None else call.id
        rest["@@id"] = hint("absent")
    else:
        open_calls.take(("id", call_id))
    if name is None:
        rest["@@name"] = hint("absent")
    return trusted.ToolMessage(
        content=content, tool_call_id=call_id, tool_name=name, provider_json=provider(WIRE, rest)
    )


def _text(rest: Fields) -> tuple[Text, ...]:
    text = json_fields.take_text(rest, "content")
    if text is None and "content" not in rest:
        rest["@@content"] = hint("absent")
    return () if text is None else (trusted.Text(text),)


def _images(rest: Fields) -> tuple[Image, ...]:
    raw = json_fields.take_items(rest, "images")
    if raw == []:
        rest["images"] = Raw(b"[]")
    return tuple(json_fields.each(raw or [], "images", image))


def image(raw: Raw) -> Image:
    """Read one image: its base64 text."""
    return trusted.Image(trusted.Inline(jsontext.text(raw)))


def _answer(rest: Fields, place: str) -> tuple[AssistantPart, ...]:
    """Read the content of an assistant message, of a request or a response. ``place`` makes ids for calls without."""
    thinking = rest.get("thinking")
    reasoning: tuple[Reasoning, ...] = ()
    if thinking is not None and jsontext.kind(thinking) == "a string" and thinking != Raw(b'""'):
        reasoning = (trusted.Reasoning(json_fields.need_text(rest, "thinking"), wire=WIRE),)
    content: tuple[AssistantPart, ...] = (*_text(rest), *_images(rest))
    raw = json_fields.take_items(rest, "tool_calls")
    if raw == []:
        rest["tool_calls"] = Raw(b"[]")
    try:
        calls = tuple([_numbered(each, place, index) for index, each in enumerate(raw or [])])
    except DecodeError as error:
        raise error.within("tool_calls") from None
    return (*reasoning, *content, *calls)


def _numbered(raw: Raw, place: str, index: int) -> ToolCall | MalformedToolCall:
    try:
        return call(raw, f"{place}_{index}")
    except DecodeError as error:
        raise error.within(f"[{index}]") from None


def call(raw: Raw, made_id: str) -> ToolCall | MalformedToolCall:
    """Read one call, which gets ``made_id`` where it has no id of its own. Raises ``DecodeError``."""
    rest = jsontext.fields(raw)
    call_id = json_fields.take_text(rest, "id")
    if call_id is None:
        rest["@@id"] = hint("absent")
    inner = json_fields.need_fields(rest, "function")
    try:
        name = json_fields.need_text(inner, "name")
    except DecodeError as error:
        raise error.within("function") from None
    arguments = inner.pop("arguments", None)
    if arguments is None or arguments == NULL:
        rest["@@arguments"] = hint("absent" if arguments is None else "null")
        text = ""
    elif jsontext.kind(arguments) == "a string":
        rest["@@arguments"] = hint("text")
        text = jsontext.text(arguments)
    else:
        text = bytes(arguments).decode()
    return json_fields.call(call_id or made_id, name, text, provider(WIRE, nested(rest, "function", inner)))


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for ``{"error": …}``."""
    rest = jsontext.fields(body)
    fields = json_fields.take_fields(rest, "message")
    if fields is None:
        raise _provider_error(rest, body)
    role = fields.pop("role", None)
    if role != Raw(b'"assistant"'):
        fields["@@role"] = NULL if role is None else role
    try:
        content = _answer(fields, "call")
    except DecodeError as error:
        raise error.within("message") from None
    word = finish_word(rest)
    message = trusted.AssistantMessage(
        content=content,
        model=json_fields.take_text(rest, "model"),
        usage=usage(rest),
        finish_reason=finish(word, called=any(isinstance(part, ToolCall) for part in content)),
        finish_reason_raw=word,
        provider_json=provider(WIRE, fields),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


def _provider_error(rest: Fields, body: bytes) -> ProviderError:
    raw = rest.get("error")
    return ProviderError(WIRE, "no message in the body" if raw is None else error_text(raw), body=body)


def error_text(raw: Raw) -> str:
    """Read ``error``: a text, or the JSON of anything else."""
    found = jsontext.value(raw)
    return found if isinstance(found, str) else bytes(raw).decode()


def finish_word(rest: Fields) -> str | UnsetType | None:
    """Take ``done_reason`` out: ``None`` where it is null, ``UNSET`` where it is absent."""
    word = json_fields.take_text(rest, "done_reason")
    if word is not None:
        return word
    return UNSET if rest.pop("done_reason", None) is None else None


def finish(word: str | UnsetType | None, *, called: bool) -> FinishReason:
    """Return the neutral finish reason; ``called``: the answer has a call."""
    reason = FINISH.get(word or "", "other")
    return "tool_calls" if reason == "stop" and called else reason


def usage(rest: Fields) -> Usage | None:
    """Read the counters, which stand among the other fields; a zero is left out by the server."""
    counts = {key: rest[key] for key in ("prompt_eval_count", "eval_count") if key in rest}
    if not counts:
        return None
    prompt = json_fields.take_int(rest, "prompt_eval_count")
    output = json_fields.take_int(rest, "eval_count")
    return trusted.Usage(input=prompt, output=output, raw_json=Raw(jsontext.encode(counts)))
