"""Read Ollama chat bodies.

Fields without a neutral place stay under ``provider["ollama_chat"]``. A result without ``tool_call_id`` answers the
call of its ``tool_name``, else the first that is open (docs/spec/wires.md#8).

Notes (``provider["@ollama_chat"]``): ``id`` of a call and of a result (``made``: it had none, and got one from its
place), ``name`` of a result (``absent``: the tool was not named), ``arguments`` of a call (``text``: they stood there
as text), ``role`` of an answer that is not the assistant's.

Source: docs/spec/wires.md#8; ollama/ollama ``api/types.go``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

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
from palaver.core.parts import AssistantPart, Image, MalformedToolCall, Text, ToolCall
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.shapes import ABSENT, Shape, Union, reader, role_note
from palaver.wires._engine.tools import OpenCalls, read_tool
from palaver.wires.ollama_chat.shapes import FINISH, INTEGERS, OPTIONS, WIRE, read_format

# -- shapes ----------------------------------------------------------------------------------------


class _Function(Shape):
    name: str
    arguments: Raw = ABSENT
    index: Raw = ABSENT  # the server writes it, and it has no neutral place


class _Call(Shape):
    function: _Function
    id: str | UnsetType = UNSET


class _System(Shape, tag="system", tag_field="role"):
    content: str | UnsetType = UNSET


class _Seen(Shape):
    content: str | UnsetType = UNSET
    images: list[str] | UnsetType = UNSET


class _User(_Seen, tag="user", tag_field="role"):
    pass


class _Result(_Seen, tag="tool", tag_field="role"):
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET


class _Said(_Seen):
    thinking: str | UnsetType = UNSET
    tool_calls: list[_Call] | UnsetType = UNSET


class _Assistant(_Said, tag="assistant", tag_field="role"):
    pass


class _Answer(_Said):
    role: Raw = ABSENT


class _Response(Shape):
    message: _Answer | UnsetType = UNSET
    model: str | UnsetType = UNSET
    done_reason: str | UnsetType | None = UNSET
    prompt_eval_count: Raw = ABSENT
    eval_count: Raw = ABSENT
    created_at: Raw = ABSENT
    done: Raw = ABSENT
    total_duration: Raw = ABSENT
    load_duration: Raw = ABSENT
    prompt_eval_duration: Raw = ABSENT
    eval_duration: Raw = ABSENT


_Message: TypeAlias = _System | _User | _Result | _Assistant
_MESSAGES: Final = Union[_Message](_System, _User, _Result, _Assistant, tag="role")
_read_call = reader(_Call)
_read_response = reader(_Response)

_COUNTS: Final = ("prompt_eval_count", "eval_count")
_MEASURED: Final = ("created_at", "done", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
"""Fields that the server writes into nearly every answer, and that have no neutral place."""

# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    if rest.get("messages", NULL) == NULL:
        raise DecodeError("missing", path="messages")
    return trusted.Request(
        messages=_messages(rest.pop("messages")),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(json_fields.take_items(rest, "tools") or [], "tools", _tool)),
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
        if options:
            rest["options"] = Raw(jsontext.encode(options))
    raw = rest.get("format")
    output = None if raw is None else read_format(raw)
    if output is not None:
        del rest["format"]
    think = rest.get("think", jsontext.NULL)
    found["effort"], found["reasoning_tokens"] = thinking.read_word(think), thinking.read_switch(think)
    if found["effort"] is not None or found["reasoning_tokens"] is not None:
        del rest["think"]
    stream = json_fields.take_bool(rest, "stream")
    return trusted.Settings(output=output, stream=stream, **found)


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE)


# -- messages --------------------------------------------------------------------------------------


def _messages(raw: Raw) -> tuple[Message, ...]:
    messages: list[Message] = []
    open_calls = OpenCalls((), _keys)
    try:
        for index, found in enumerate(_MESSAGES.items(raw)):
            try:
                message = _message(found, index, open_calls)
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
            if isinstance(message, AssistantMessage):
                open_calls = OpenCalls(message.tool_calls, _keys)
            messages.append(message)
    except DecodeError as error:
        raise error.within("messages") from None
    return tuple(messages)


def _message(found: _Message | Raw, index: int, open_calls: OpenCalls) -> Message:
    match found:
        case Raw():
            role = json_fields.need_text(jsontext.fields(found), "role")
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")
        case _Assistant():
            content = _said(found, f"call_{index}")
            return trusted.AssistantMessage(content=content, provider_json=provider(WIRE, found.rest))
        case _User():
            return trusted.UserMessage(content=_seen(found), provider_json=provider(WIRE, found.rest))
        case _System():
            return trusted.SystemMessage(content=_text(found.content), provider_json=provider(WIRE, found.rest))
        case _:
            return _result(found, open_calls)


def _text(content: str | UnsetType) -> tuple[Text, ...]:
    return () if content is UNSET else (trusted.Text(content),)


def _seen(found: _Seen) -> tuple[Text | Image, ...]:
    images = () if found.images is UNSET else found.images
    return (*_text(found.content), *[trusted.Image(trusted.Inline(data)) for data in images])


_ANY: Final = ("any",)


def _keys(call: ToolCall) -> tuple[tuple[str, ...], ...]:
    return (_ANY, ("id", call.id), ("name", call.name))


def _result(found: _Result, open_calls: OpenCalls) -> ToolMessage:
    name = None if found.tool_name is UNSET else found.tool_name
    notes: Fields = {} if name is not None else {"name": word("absent")}
    if found.tool_call_id is UNSET:
        call = open_calls.take(_ANY if name is None else ("name", name))
        call_id = None if call is None else call.id
        notes |= _MADE
    else:
        call_id = found.tool_call_id
        open_calls.take(("id", call_id))
    stored = provider(WIRE, found.rest, notes)
    return trusted.ToolMessage(content=_seen(found), tool_call_id=call_id, tool_name=name, provider_json=stored)


_MADE: Final[Fields] = {"id": word("made")}


def image(raw: Raw) -> Image:
    """Read one image: its base64 text."""
    return trusted.Image(trusted.Inline(jsontext.text(raw)))


def _said(found: _Said, place: str) -> tuple[AssistantPart, ...]:
    """Read what an assistant message holds, of a request or a response. ``place`` makes ids for calls without."""
    reasoning = (trusted.Reasoning(found.thinking, wire=WIRE),) if found.thinking else ()
    calls = () if found.tool_calls is UNSET else found.tool_calls
    return (*reasoning, *_seen(found), *[_call(each, f"{place}_{index}") for index, each in enumerate(calls)])


def call(raw: Raw, made_id: str) -> ToolCall | MalformedToolCall:
    """Read one call, which gets ``made_id`` where it has no id of its own. Raises ``DecodeError``."""
    return _call(_read_call(raw), made_id)


def _call(found: _Call, made_id: str) -> ToolCall | MalformedToolCall:
    function, arguments = found.function, found.function.arguments
    notes: Fields = dict(_MADE) if found.id is UNSET else {}
    if arguments is ABSENT or arguments == NULL:
        text = ""
    elif jsontext.kind(arguments) == "a string":
        notes["arguments"] = word("text")
        text = jsontext.text(arguments)
    else:
        text = bytes(arguments).decode()
    inner = function.rest if function.index is ABSENT else {**function.rest, "index": function.index}
    stored = provider(WIRE, nested(found.rest, "function", inner), notes)
    return json_fields.call(made_id if found.id is UNSET else found.id, function.name, text, stored)


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for ``{"error": …}``."""
    found = _read_response(body)
    rest = dict(found.rest)
    answer = found.message
    if answer is UNSET:
        raise _provider_error(rest, body)
    for key in (*_COUNTS, *_MEASURED):
        if (raw := getattr(found, key)) is not ABSENT:
            rest[key] = raw
    content = _said(answer, "call")
    message = trusted.AssistantMessage(
        content=content,
        model=None if found.model is UNSET else found.model,
        usage=usage(rest),
        finish_reason=finish(found.done_reason, called=any(isinstance(part, ToolCall) for part in content)),
        finish_reason_raw=found.done_reason,
        provider_json=provider(WIRE, answer.rest, role_note(answer.role)),
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
    counts = {key: rest[key] for key in _COUNTS if key in rest}
    if not counts:
        return None
    prompt = json_fields.take_int(rest, "prompt_eval_count")
    output = json_fields.take_int(rest, "eval_count")
    return trusted.Usage(input=prompt, output=output, raw_json=Raw(jsontext.encode(counts)))
