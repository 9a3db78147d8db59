"""Read Chat Completions bodies.

Under ``provider["openai_chat"]`` stay, for ``encode``:

- fields of the body, of a message, a part, a call or a tool without a neutral place;
- hints on form: ``@@content`` (``list``, ``null``, ``absent``), ``@@field`` (where reasoning, a refusal or an old
  function call stood), ``@@type`` and ``@@id`` (``absent``), ``@@arguments`` (``object``), ``@@role``,
  ``@@no_role``, ``@@max_tokens``;
- ``@@choice``: the fields beside a message in its choice (``index``, ``logprobs``, …).

Source: docs/spec/wires.md#2.1 to #2.7.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FinishReason,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    holds,
)
from palaver.core.parts import (
    AssistantPart,
    Audio,
    Citation,
    MalformedToolCall,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires._engine.tools import read_tool
from palaver.wires.openai_chat.decode_parts import PlainCall, part, plain_answer, plain_call
from palaver.wires.openai_chat.shapes import (
    DETAILS,
    FINISH,
    REASONING,
    WIRE,
    read_output_format,
    read_tool_choice,
    read_usage,
    write_output_format,
    write_tool_choice,
)

Thoughts: TypeAlias = tuple[str, ...]
"""Fields of an answer that are read as reasoning, in this order."""


class Reader:
    """This module for one vendor, of which it is known in which fields reasoning stands."""

    def __init__(self, thoughts: Thoughts) -> None:
        """Read reasoning from these fields only."""
        self._thoughts = thoughts

    def request(self, body: bytes, /) -> Request:
        """Read a request body. Raises as ``request`` of the module."""
        return request(body, self._thoughts)

    def response(self, body: bytes, /) -> Response:
        """Read a response body. Raises as ``response`` of the module."""
        return response(body, self._thoughts)


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes, thoughts: Thoughts = REASONING) -> Request:
    """Read a request body. Raises ``DecodeError``. ``thoughts`` are the fields that are read as reasoning."""
    rest = jsontext.fields(body)
    raw_messages = json_fields.need_items(rest, "messages")
    raw_tools = json_fields.take_items(rest, "tools")
    if raw_tools == []:
        rest["@@tools"] = hint("empty")
    return trusted.Request(
        messages=_messages(raw_messages, thoughts),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _settings(rest: Fields) -> Settings:
    max_tokens = json_fields.take_int(rest, "max_completion_tokens")
    if max_tokens is None:
        max_tokens = json_fields.take_int(rest, "max_tokens")
        if max_tokens is not None:
            rest["@@max_tokens"] = hint("max_tokens")
    return trusted.Settings(
        max_tokens=max_tokens,
        temperature=json_fields.take_number(rest, "temperature"),
        top_p=json_fields.take_number(rest, "top_p"),
        stop=_stop(rest),
        seed=json_fields.take_int(rest, "seed"),
        frequency_penalty=json_fields.take_number(rest, "frequency_penalty"),
        presence_penalty=json_fields.take_number(rest, "presence_penalty"),
        tool_choice=json_fields.take_formed(rest, "tool_choice", read_tool_choice, write_tool_choice),
        parallel_tool_calls=json_fields.take_bool(rest, "parallel_tool_calls"),
        output=json_fields.take_formed(rest, "response_format", read_output_format, write_output_format),
        **thinking.take(rest, thinking.CHAT_PLACES),
        stream=json_fields.take_bool(rest, "stream"),
    )


def _stop(rest: Fields) -> tuple[str, ...] | None:
    raw = rest.get("stop")
    if raw is not None and jsontext.kind(raw) == "a string":
        rest["@@stop"] = hint("string")
        return (json_fields.need_text(rest, "stop"),)
    return json_fields.take_texts(rest, "stop")


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE, kinds=("function", "custom"), strict=True)


# -- messages --------------------------------------------------------------------------------------


def _messages(raws: list[Raw], thoughts: Thoughts) -> tuple[Message, ...]:
    messages: list[Message] = []
    called = _Called(messages)
    for index, raw in enumerate(raws):
        try:
            messages.append(_message(raw, index, called, thoughts))
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
    return tuple(messages)


class _Called:
    """The id of the last call of each tool. Messages are read on first use, each once."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._seen = 0
        self._ids: dict[str, str] = {}

    def id_of(self, name: str | None) -> str | None:
        for message in self._messages[self._seen :]:
            self._ids.update((call.name, call.id) for call in reversed(message.tool_calls))
        self._seen = len(self._messages)
        return None if name is None else self._ids.get(name)


_ROLES: Final[dict[str, type[SystemMessage | DeveloperMessage | UserMessage]]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
}


def _message(raw: Raw, index: int, called: _Called, thoughts: Thoughts) -> Message:
    rest = jsontext.fields(raw)
    role = json_fields.need_text(rest, "role")
    if role == "assistant":
        return trusted.AssistantMessage(
            content=_answer(rest, f"call_{index}", thoughts), provider_json=provider(WIRE, rest)
        )
    cls = _ROLES.get(role)
    if cls is not None:
        return cls(content=_content(rest, cls), provider_json=provider(WIRE, rest))
    content = _content(rest, ToolMessage)
    if role == "tool":
        call_id = json_fields.take_text(rest, "tool_call_id")
        name = json_fields.take_text(rest, "name")
        if name is not None:
            rest["@@name"] = hint("there")
        return trusted.ToolMessage(
            content=content, tool_call_id=call_id, tool_name=name, provider_json=provider(WIRE, rest)
        )
    if role == "function":
        name = json_fields.take_text(rest, "name")
        rest["@@role"] = hint("function")
        return trusted.ToolMessage(
            content=content,
            tool_call_id=called.id_of(name),
            tool_name=name,
            provider_json=provider(WIRE, rest),
        )
    raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _content(rest: Fields, cls: type) -> tuple[Any, ...]:
    """Read ``content`` into parts that ``cls`` can hold; the hint says which form it had, where we would write another.

    A part that the role cannot hold is kept as it is, unread.
    """
    raw = rest.pop("content", None)
    if raw is None:
        rest["@@content"] = hint("absent")
        return ()
    try:
        found = json_fields.string_or_items(raw)
    except DecodeError as error:
        raise error.within("content") from None
    if found is None:
        if cls is not AssistantMessage:
            rest["@@content"] = hint("null")
        return ()
    if isinstance(found, str):
        return (trusted.Text(found),)
    parts: tuple[Any, ...] = tuple(
        [
            each if holds(cls, each) else trusted.Opaque(WIRE, jsontext.own(raw))
            for each, raw in zip(json_fields.each(found, "content", part), found, strict=True)
        ]
    )
    if len(parts) == 0 or (len(parts) == 1 and isinstance(parts[0], Text) and parts[0].provider_json is UNSET):
        rest["@@content"] = hint("list")
    return parts


def _answer(rest: Fields, place: str, thoughts: Thoughts) -> tuple[AssistantPart, ...]:
    """Read the content of an assistant message, of a request or of a choice. ``place`` makes ids for calls without."""
    return tuple([part for group in _groups(rest, place, thoughts) for part in group])


def _groups(rest: Fields, place: str, thoughts: Thoughts) -> tuple[tuple[AssistantPart, ...], ...]:
    """Read the parts of an assistant message, by the field they stand in, in the order of the message."""
    reasoning = _reasoning(rest, thoughts)
    content = _content(rest, AssistantMessage)
    if "annotations" in rest:
        content = _cited(content, rest)
    return reasoning, content, _refusal(rest), _audio(rest), _calls(rest, place)


def _refusal(rest: Fields) -> tuple[Refusal, ...]:
    raw = rest.get("refusal")
    if raw is None or raw in (NULL, Raw(b'""')):
        return ()
    return (trusted.Refusal(json_fields.need_text(rest, "refusal")),)


def _audio(rest: Fields) -> tuple[Audio, ...]:
    raw = rest.get("audio")
    if raw is None or jsontext.kind(raw) != "an object":
        return ()
    fields = jsontext.fields(raw)
    data = fields.pop("data", None)
    if data is None or jsontext.kind(data) != "a string" or data == Raw(b'""'):
        return ()
    del rest["audio"]
    return (
        trusted.Audio(
            trusted.Inline(jsontext.text(data)),
            provider_json=provider(WIRE, {"audio": jsontext.raw(fields)}),
        ),
    )


def _reasoning(rest: Fields, thoughts: Thoughts) -> tuple[Reasoning, ...]:
    """Read reasoning where variants put it: from the first field that holds any, since the others are copies.

    Source: docs/spec/wires.md#2.9.
    """
    for field in thoughts:
        raw = rest.get(field)
        if field == DETAILS:
            if raw is not None and jsontext.kind(raw) == "an array" and (details := jsontext.items(raw)):
                del rest[field]
                return tuple(json_fields.each(details, field, detail))
        elif raw is not None and jsontext.kind(raw) == "a string" and raw != Raw(b'""'):
            stored = provider(WIRE, {"@@field": hint(field)})
            return (trusted.Reasoning(json_fields.need_text(rest, field), wire=WIRE, provider_json=stored),)
    return ()


def detail(raw: Raw) -> Reasoning:
    """Read one item of ``reasoning_details``."""
    rest = jsontext.fields(raw)
    text = json_fields.take_text(rest, "text")
    summary = json_fields.take_text(rest, "summary") if text is None else None
    if summary is not None:
        rest["@@text"] = hint("summary")
    elif text is None:
        rest["@@text"] = hint("absent")
    signature = json_fields.take_text(rest, "signature")
    encrypted = json_fields.take_text(rest, "data")
    rest["@@field"] = hint(DETAILS)
    return trusted.Reasoning(text or summary or "", signature, encrypted, WIRE, provider_json=provider(WIRE, rest))


def _cited(content: tuple[Any, ...], rest: Fields) -> tuple[Any, ...]:
    """Put URL citations on the text they cite; other annotations stay with the message."""
    raw = rest.get("annotations")
    texts = [position for position, part in enumerate(content) if isinstance(part, Text)]
    if raw is None or jsontext.kind(raw) != "an array" or not texts:
        return content
    found = jsontext.items(raw)
    if not found:
        return content
    del rest["annotations"]
    citations = tuple(json_fields.each(found, "annotations", _citation))
    last = texts[-1]
    return (*content[:last], content[last].replace(citations=citations), *content[last + 1 :])


def _citation(raw: Raw) -> Citation:
    fields: Any = jsontext.value(raw)
    match fields:
        case {"url_citation": {**table}}:
            inner = cast("dict[str, Any]", table)
        case _:
            inner = {}

    def of(key: str, kind: type) -> Any:
        found = inner.get(key)
        return found if isinstance(found, kind) and not isinstance(found, bool) else None

    return trusted.Citation(
        wire=WIRE,
        url=of("url", str),
        title=of("title", str),
        quote=of("content", str),
        start=of("start_index", int),
        end=of("end_index", int),
        raw_json=jsontext.own(raw),
    )


# -- tool calls ------------------------------------------------------------------------------------


def _calls(rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    raw = rest.get("tool_calls")
    calls: tuple[ToolCall | MalformedToolCall, ...] = ()
    if raw is not None and raw != NULL:
        try:
            calls = _plain_calls(raw) or tuple(
                [call(each, f"{place}_{index}", index) for index, each in enumerate(jsontext.items(raw))]
            )
            if calls:
                del rest["tool_calls"]
        except DecodeError as error:
            raise error.within("tool_calls") from None
    return calls + function_call(rest, place)


_plain = msgspec.json.Decoder(list[PlainCall]).decode


def _plain_calls(raw: Raw) -> tuple[ToolCall | MalformedToolCall, ...]:
    """Read calls of the common shape in one step; nothing when there is any other."""
    try:
        found = _plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    return tuple([plain_call(each) for each in found])


def function_call(rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    """Read the deprecated ``function_call``; one whose name is empty is none (docs/spec/wires.md#2.9, Snowflake)."""
    raw = rest.get("function_call")
    if raw is None or jsontext.kind(raw) != "an object":
        return ()
    inner = jsontext.fields(raw)
    name = json_fields.take_text(inner, "name")
    if not name:
        return ()
    arguments = json_fields.take_text(inner, "arguments") or ""
    del rest["function_call"]
    stored = provider(WIRE, {"@@field": hint("function_call"), **inner})
    return (json_fields.call(f"{place}_function", name, arguments, stored),)


def call(raw: Raw, made_id: str, index: int) -> ToolCall | MalformedToolCall:
    """Read one item of ``tool_calls``; ``made_id`` is for a call without id."""
    try:
        rest = jsontext.fields(raw)
        call_id = json_fields.take_text(rest, "id")
        if call_id is None:
            rest["@@id"] = hint("absent")
        kind = json_fields.take_text(rest, "type")
        if kind is None:
            rest["@@type"] = hint("absent")
        key = "custom" if kind == "custom" else "function"
        inner = json_fields.need_fields(rest, key)
        try:
            name = json_fields.need_text(inner, "name")
        except DecodeError as error:
            raise error.within(key) from None
        if kind == "custom":
            text = inner.pop("input", Raw(b'""'))
            stored = provider(WIRE, nested(rest, key, inner))
            return trusted.ToolCall(call_id or made_id, name, bytes(text).decode(), custom=True, provider_json=stored)
        arguments = _arguments(inner, rest)
        if kind not in (None, "function"):
            rest["type"] = jsontext.raw(kind)
        return json_fields.call(call_id or made_id, name, arguments, provider(WIRE, nested(rest, key, inner)))
    except DecodeError as error:
        raise error.within(f"[{index}]") from None


def _arguments(inner: Fields, rest: Fields) -> str:
    """Read the arguments text; some servers write an object, and some nothing."""
    raw = inner.pop("arguments", None)
    if raw is None or raw == NULL:
        rest["@@arguments"] = hint("absent" if raw is None else "null")
        return ""
    if jsontext.kind(raw) == "an object":
        rest["@@arguments"] = hint("object")
        return bytes(raw).decode()
    try:
        return jsontext.text(raw)
    except DecodeError as error:
        raise error.within("function.arguments") from None


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes, thoughts: Thoughts = REASONING) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no completion at all.

    ``thoughts`` are the fields that are read as reasoning.
    """
    rest = jsontext.fields(body)
    raw_choices = rest.get("choices")
    if raw_choices is None or raw_choices in (NULL, Raw(b"[]")):
        raise provider_error(rest, body)
    del rest["choices"]
    usage = _usage(rest)
    model = json_fields.take_text(rest, "model")
    response_id = json_fields.take_text(rest, "id")
    plain = plain_answer(raw_choices)
    if plain is not None:
        content, word, stored = plain
        message = trusted.AssistantMessage(
            content=content,
            model=model,
            usage=usage,
            finish_reason=_finish(word, content),
            finish_reason_raw=word,
            response_id=response_id,
            provider_json=stored,
        )
        return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))
    try:
        first, *others = jsontext.items(raw_choices)
        message = structs.replace(_choice(first, 0, thoughts), model=model, usage=usage, response_id=response_id)
        alternatives = tuple([_choice(raw, index, thoughts) for index, raw in enumerate(others, 1)])
    except DecodeError as error:
        raise error.within("choices") from None
    return trusted.Response(message=message, alternatives=alternatives, origin=WIRE, provider_json=provider(WIRE, rest))


def provider_error(rest: Fields, body: bytes) -> ProviderError:
    """Read the provider's error, or make one for a body that is no completion."""
    table = cast("dict[str, Any]", jsontext.value(body))
    found = table.get("error")
    inner = cast("dict[str, Any]", found) if isinstance(found, dict) else table
    text = found if isinstance(found, str) else inner.get("message") or inner.get("detail")
    code = inner.get("code") or inner.get("type")
    message = text if isinstance(text, str) else "no completion in the body" if "error" not in rest else str(text)
    return ProviderError(WIRE, message, code=None if code is None else str(code), body=body)


def _choice(raw: Raw, index: int, thoughts: Thoughts) -> AssistantMessage:
    message, groups = choice(raw, index, thoughts)
    return structs.replace(message, content=tuple([part for group in groups for part in group]))


def choice(raw: Raw, index: int, thoughts: Thoughts) -> tuple[AssistantMessage, tuple[tuple[AssistantPart, ...], ...]]:
    """Read one choice: a message without parts, and its parts by the field they stand in."""
    try:
        beside = jsontext.fields(raw)
        rest = json_fields.need_fields(beside, "message")
        role = rest.pop("role", None)
        if role != _ASSISTANT:
            rest["@@no_role" if role is None else "@@role"] = NULL if role is None else role
        word = json_fields.take_text(beside, "finish_reason")
        finish_raw: str | UnsetType | None = word
        if word is None:
            finish_raw = UNSET if beside.pop("finish_reason", None) is None else None
        if beside != _PLAIN_CHOICE:
            rest["@@choice"] = Raw(jsontext.encode(beside))
        try:
            groups = _groups(rest, "call", thoughts)
        except DecodeError as error:
            raise error.within("message") from None
    except DecodeError as error:
        raise error.within(f"[{index}]") from None
    reason = _finish(word, tuple([part for group in groups for part in group]))
    stored = provider(WIRE, rest)
    return trusted.AssistantMessage(finish_reason=reason, finish_reason_raw=finish_raw, provider_json=stored), groups


_ASSISTANT: Final = Raw(b'"assistant"')
_PLAIN_CHOICE: Final[Fields] = {"index": Raw(b"0")}


def _finish(word: str | None, content: tuple[AssistantPart, ...]) -> FinishReason:
    if not word:
        return "tool_calls" if any(isinstance(part, ToolCall) for part in content) else "stop"
    reason = FINISH.get(word, "other")
    refused = reason == "stop" and any(isinstance(part, Refusal) for part in content)
    return "refusal" if refused else reason


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    del rest["usage"]
    return read_usage(raw)
