"""Read Chat Completions bodies.

Fields of the body, of a message, a part, a call or a tool without a neutral place stay under
``provider["openai_chat"]``. ``null`` and empty lists in known fields of an answer say nothing, and are not kept.

Notes (``provider["@openai_chat"]``):

- ``field``: where reasoning, a refusal, a file or an old function call stood, where there are several places;
  ``text``: ``summary``, of an item of ``reasoning_details`` that has its text there; ``id`` and ``arguments`` of a call
  (``decode_parts``);
- of a message: ``role`` (``function``, or what a server writes for ``assistant``), ``name`` (``there``: a result names
  its tool), ``choice`` (the fields beside it in its choice), ``vendor`` (``vendors``);
- of a request: ``max_tokens`` (the older name of the field), ``required`` (``any``, Mistral's word), what stands beside
  the meaning of ``tool_choice``, and the fields that thinking stood in (``thinking``).

Source: docs/spec/wires.md#2.1 to #2.7.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

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
from palaver.core.request import Request, Response, Settings, ToolChoice
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import provider, word
from palaver.wires._engine.list_memory import ListMemory
from palaver.wires._engine.shapes import ABSENT, Shape, Union, list_reader, reader
from palaver.wires._engine.tools import read_tool
from palaver.wires.openai_chat.decode_parts import Call, Part, TextPart, UserPart, call, content
from palaver.wires.openai_chat.shapes import (
    DETAILS,
    FINISH,
    REASONING,
    WIRE,
    beside_tool_choice,
    read_output_format,
    read_tool_choice,
    read_usage,
)

Thoughts: TypeAlias = tuple[str, ...]
"""Fields of an answer that are read as reasoning, in this order."""


class Reader:
    """This module for one vendor, of which it is known in which fields reasoning stands."""

    def __init__(self, thoughts: Thoughts) -> None:
        """Read reasoning from these fields only."""
        self._thoughts = thoughts

    def request(self, body: bytes, memory: ListMemory | None = None, /) -> Request:
        """Read a request body. Raises as ``request`` of the module."""
        return request(body, memory, self._thoughts)

    resume = request

    def response(self, body: bytes, /) -> Response:
        """Read a response body. Raises as ``response`` of the module."""
        return response(body, self._thoughts)


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes, memory: ListMemory | None = None, thoughts: Thoughts = REASONING) -> Request:
    """Read a request body. Raises ``DecodeError``.

    With a ``memory``, only what is new is read. ``thoughts`` are the fields that are read as reasoning.
    """
    rest = jsontext.fields(body)
    notes: Fields = {}
    raw_messages = rest.pop("messages", None)
    if raw_messages is None:
        raise DecodeError("missing", path="messages")
    raw_tools = json_fields.take_items(rest, "tools")
    return trusted.Request(
        messages=_messages(raw_messages, thoughts, memory),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest, notes),
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


resume = request
"""Read a request of a conversation that grows."""


def _settings(rest: Fields, notes: Fields) -> Settings:
    max_tokens = json_fields.take_int(rest, "max_completion_tokens")
    if max_tokens is None:
        max_tokens = json_fields.take_int(rest, "max_tokens")
        if max_tokens is not None:
            notes["max_tokens"] = word("max_tokens")
    output = read_output_format(rest.get("response_format", NULL))
    if output is not None:
        del rest["response_format"]
    return trusted.Settings(
        max_tokens=max_tokens,
        temperature=json_fields.take_number(rest, "temperature"),
        top_p=json_fields.take_number(rest, "top_p"),
        stop=_stop(rest),
        seed=json_fields.take_int(rest, "seed"),
        frequency_penalty=json_fields.take_number(rest, "frequency_penalty"),
        presence_penalty=json_fields.take_number(rest, "presence_penalty"),
        tool_choice=_tool_choice(rest, notes),
        parallel_tool_calls=json_fields.take_bool(rest, "parallel_tool_calls"),
        output=output,
        **thinking.take(rest, notes, thinking.CHAT_PLACES),
        stream=json_fields.take_bool(rest, "stream"),
    )


def _stop(rest: Fields) -> tuple[str, ...] | None:
    raw = rest.get("stop")
    if raw is not None and jsontext.kind(raw) == "a string":
        return (json_fields.need_text(rest, "stop"),)
    return json_fields.take_texts(rest, "stop")


def _tool_choice(rest: Fields, notes: Fields) -> ToolChoice | None:
    raw = rest.get("tool_choice", NULL)
    choice = read_tool_choice(raw)
    if choice is None:
        return None
    del rest["tool_choice"]
    if raw == _ANY:
        notes["required"] = raw
    left = beside_tool_choice(raw)
    if left:
        notes["tool_choice"] = jsontext.raw(left)
    return choice


_ANY: Final = word("any")


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE, kinds=("function", "custom"), strict=True)


# -- messages --------------------------------------------------------------------------------------


_Word: TypeAlias = str | UnsetType | None


class _System(Shape, tag="system", tag_field="role"):
    """Instructions."""

    content: str | list[TextPart] | UnsetType | None = UNSET


class _Developer(_System, tag="developer", tag_field="role"):
    """Instructions of the app."""


class _User(Shape, tag="user", tag_field="role"):
    """A message of the user."""

    content: str | list[UserPart] | UnsetType | None = UNSET


class _Tool(_User, tag="tool", tag_field="role"):
    """The result of a call."""

    tool_call_id: _Word = UNSET
    name: _Word = UNSET


class _Function(_User, tag="function", tag_field="role"):
    """The result of the deprecated ``function_call``."""

    name: _Word = UNSET


class _Answer(Shape):
    """An answer of a model, in a request or in a choice."""

    content: str | list[Part] | UnsetType | None = UNSET
    tool_calls: list[Call] | UnsetType | None = UNSET
    refusal: _Word = UNSET
    annotations: Raw = ABSENT
    audio: Raw = ABSENT
    function_call: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_content: Raw = ABSENT
    reasoning_details: Raw = ABSENT


class _Assistant(_Answer, tag="assistant", tag_field="role"):
    """An answer in a request."""


class _Chosen(_Answer):
    """An answer in a choice, to which servers give other roles too, or none."""

    role: Raw = ABSENT


_Message: TypeAlias = _System | _Developer | _User | _Assistant | _Tool | _Function

_MESSAGES: Final = Union[_Message](_System, _Developer, _User, _Assistant, _Tool, _Function, tag="role")


def _messages(raws: Raw, thoughts: Thoughts, memory: ListMemory | None) -> tuple[Message, ...]:
    try:
        if memory is not None:
            return _new_messages(jsontext.items(raws), thoughts, memory)
        messages: list[Message] = []
        called = _Called(messages)
        for index, found in enumerate(_MESSAGES.items(raws)):
            try:
                messages.append(_message(found, index, called, thoughts))
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
    except DecodeError as error:
        raise error.within("messages") from None
    return tuple(messages)


def _new_messages(items: list[Raw], thoughts: Thoughts, memory: ListMemory) -> tuple[Message, ...]:
    """Read what is new in a list that grows."""
    start, messages = memory.resume(items)
    called = _Called(messages)
    for index in range(start, len(items)):
        try:
            messages.append(_message(_MESSAGES.item(items[index]), index, called, thoughts))
        except DecodeError as error:
            raise error.within(f"[{index}]") from None
        memory.note(index + 1)
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


def _message(found: _Message | Raw, index: int, called: _Called, thoughts: Thoughts) -> Message:
    match found:
        case _Assistant():
            rest = found.rest or {}
            parts = tuple([part for group in _groups(found, rest, f"call_{index}", thoughts) for part in group])
            return trusted.AssistantMessage(content=parts, provider_json=provider(WIRE, rest))
        case _Tool() | _Function():
            return _result(found, called)
        case _User():
            return trusted.UserMessage(content=content(found.content), provider_json=provider(WIRE, found.rest))
        case _Developer():
            return trusted.DeveloperMessage(content=content(found.content), provider_json=provider(WIRE, found.rest))
        case _System():
            return trusted.SystemMessage(content=content(found.content), provider_json=provider(WIRE, found.rest))
        case _:
            role = json_fields.need_text(jsontext.fields(found), "role")
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _result(found: _Tool | _Function, called: _Called) -> ToolMessage:
    name = None if found.name is UNSET else found.name
    if isinstance(found, _Function):
        call_id, notes = called.id_of(name), {"role": word("function")}
    else:
        call_id = None if found.tool_call_id is UNSET else found.tool_call_id
        notes = {} if name is None else {"name": word("there")}
    stored = provider(WIRE, found.rest, notes)
    return trusted.ToolMessage(
        content=content(found.content), tool_call_id=call_id, tool_name=name, provider_json=stored
    )


def _groups(found: _Answer, rest: Fields, place: str, thoughts: Thoughts) -> Groups:
    """Read the parts of an answer, by the field they stand in, in the order of the message.

    What is no part is put into ``rest``. ``place`` makes ids for calls without.
    """
    if found.reasoning is not ABSENT and found.reasoning != NULL:
        rest["reasoning"] = found.reasoning
    if found.reasoning_content is not ABSENT and found.reasoning_content != NULL:
        rest["reasoning_content"] = found.reasoning_content
    if found.reasoning_details is not ABSENT and found.reasoning_details != NULL:
        rest[DETAILS] = found.reasoning_details
    reasoning = _reasoning(rest, thoughts) if rest else ()
    said = content(found.content)
    if found.annotations is not ABSENT:
        said = _cited(said, found.annotations, rest)
    refusal = (trusted.Refusal(found.refusal),) if found.refusal else ()
    recorded = () if found.audio is ABSENT else _audio(found.audio, rest)
    calls = () if not found.tool_calls and found.function_call is ABSENT else _calls(found, rest, place)
    return reasoning, said, refusal, recorded, calls


def _audio(raw: Raw, rest: Fields) -> tuple[Audio, ...]:
    fields = jsontext.fields(raw) if jsontext.kind(raw) == "an object" else {}
    data = fields.pop("data", None)
    if data is None or jsontext.kind(data) != "a string" or data == Raw(b'""'):
        _keep(rest, "audio", raw)
        return ()
    stored = provider(WIRE, {"audio": jsontext.raw(fields)})
    return (trusted.Audio(trusted.Inline(jsontext.text(data)), provider_json=stored),)


def _keep(rest: Fields, key: str, raw: Raw) -> None:
    """Keep a field that is not a part, unless it is empty."""
    if raw not in _NOTHING:
        rest[key] = raw


_NOTHING: Final = (NULL, Raw(b"[]"))


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
            stored = provider(WIRE, {}, {"field": word(field)})
            return (trusted.Reasoning(json_fields.need_text(rest, field), wire=WIRE, provider_json=stored),)
    return ()


class _Detail(Shape):
    """An item of ``reasoning_details``."""

    text: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    data: str | UnsetType | None = UNSET


_detail = reader(_Detail)


def detail(raw: Raw) -> Reasoning:
    """Read one item of ``reasoning_details``."""
    found = _detail(raw)
    rest, notes = found.rest, {"field": word(DETAILS)}
    text, summary = found.text, found.summary
    if isinstance(summary, str):
        if isinstance(text, str):
            rest = {**rest, "summary": jsontext.raw(summary)}
        else:
            text, notes["text"] = summary, word("summary")
    signature = None if found.signature is UNSET else found.signature
    encrypted = None if found.data is UNSET else found.data
    return trusted.Reasoning(text or "", signature, encrypted, WIRE, provider_json=provider(WIRE, rest, notes))


def _cited(parts: tuple[Any, ...], raw: Raw, rest: Fields) -> tuple[Any, ...]:
    """Put URL citations on the text they cite; other annotations stay with the message."""
    texts = [position for position, part in enumerate(parts) if isinstance(part, Text)]
    found = jsontext.items(raw) if jsontext.kind(raw) == "an array" and texts else []
    if not found:
        _keep(rest, "annotations", raw)
        return parts
    citations = tuple(json_fields.each(found, "annotations", _citation))
    last = texts[-1]
    return (*parts[:last], parts[last].replace(citations=citations), *parts[last + 1 :])


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


def _calls(found: _Answer, rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    calls: list[ToolCall | MalformedToolCall] = []
    for index, each in enumerate(found.tool_calls or ()):
        try:
            calls.append(call(each, f"{place}_{index}"))
        except DecodeError as error:
            raise error.within(f"tool_calls[{index}]") from None
    return (*calls, *function_call(found.function_call, rest, place))


class _OldCall(Shape):
    """The deprecated ``function_call``."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


_old_call = reader(_OldCall)


def function_call(raw: Raw, rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    """Read the deprecated ``function_call``; one whose name is empty is none (docs/spec/wires.md#2.9, Snowflake)."""
    if raw is ABSENT:
        return ()
    found = _old_call(raw) if jsontext.kind(raw) == "an object" else _OldCall()
    if not found.name:
        _keep(rest, "function_call", raw)
        return ()
    stored = provider(WIRE, found.rest, {"field": word("function_call")})
    return (json_fields.call(f"{place}_function", found.name, found.arguments or "", stored),)


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes, thoughts: Thoughts = REASONING) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no completion at all.

    ``thoughts`` are the fields that are read as reasoning.
    """
    rest = jsontext.fields(body)
    raw_choices = rest.pop("choices", NULL)
    try:
        choices = [] if raw_choices == NULL else _choices(raw_choices)
        if not choices:
            raise provider_error(rest, body)
        usage, model = _usage(rest), json_fields.take_text(rest, "model")
        message = _whole(choices[0], 0, thoughts, model, usage, json_fields.take_text(rest, "id"))
        others = [_whole(each, index, thoughts) for index, each in enumerate(choices[1:], 1)]
    except DecodeError as error:
        raise error.within("choices") from None
    return trusted.Response(
        message=message, alternatives=tuple(others), origin=WIRE, provider_json=provider(WIRE, rest)
    )


def provider_error(rest: Fields, body: bytes) -> ProviderError:
    """Read the provider's error, or make one for a body that is not a completion."""
    table = cast("dict[str, Any]", jsontext.value(body))
    found = table.get("error")
    inner = cast("dict[str, Any]", found) if isinstance(found, dict) else table
    text = found if isinstance(found, str) else inner.get("message") or inner.get("detail")
    code = inner.get("code") or inner.get("type")
    message = text if isinstance(text, str) else "no completion in the body" if "error" not in rest else str(text)
    return ProviderError(WIRE, message, code=None if code is None else str(code), body=body)


class _Choice(Shape):
    """An answer, and what stands beside it."""

    message: _Chosen
    finish_reason: str | UnsetType | None = UNSET
    index: Raw = ABSENT
    logprobs: Raw = ABSENT


_choices = list_reader(_Choice)
_choice = reader(_Choice)


Groups: TypeAlias = tuple[tuple[AssistantPart, ...], ...]
"""The parts of an answer, by the field they stand in."""


def _whole(  # noqa: PLR0917 (a choice, and what stands around all of them)
    found: _Choice,
    index: int,
    thoughts: Thoughts,
    model: str | None = None,
    usage: Usage | None = None,
    response_id: str | None = None,
) -> AssistantMessage:
    groups, reason, stored = _said(found, index, thoughts)
    return trusted.AssistantMessage(
        content=tuple([part for group in groups for part in group]),
        model=model,
        usage=usage,
        finish_reason=reason,
        finish_reason_raw=found.finish_reason,
        response_id=response_id,
        provider_json=stored,
    )


def choice(raw: Raw, index: int, thoughts: Thoughts) -> tuple[AssistantMessage, Groups]:
    """Read one choice: a message without parts, and its parts by the field they stand in."""
    try:
        found = _choice(raw)
    except DecodeError as error:
        raise error.within(f"[{index}]") from None
    groups, reason, stored = _said(found, index, thoughts)
    message = trusted.AssistantMessage(
        finish_reason=reason, finish_reason_raw=found.finish_reason, provider_json=stored
    )
    return message, groups


def _said(found: _Choice, index: int, thoughts: Thoughts) -> tuple[Groups, FinishReason, Raw | UnsetType]:
    message = found.message
    rest: Fields = message.rest or {}
    notes: Fields = {}
    if message.role not in _USUAL_ROLES:
        notes["role"] = message.role
    beside = _beside(found, index)
    if beside:
        notes["choice"] = jsontext.raw(beside)
    try:
        groups = _groups(message, rest, "call", thoughts)
    except DecodeError as error:
        raise error.within(f"[{index}].message") from None
    return groups, _finish(found.finish_reason or None, groups), provider(WIRE, rest, notes)


_USUAL_ROLES: Final = (Raw(b'"assistant"'), ABSENT, NULL)


def _beside(found: _Choice, index: int) -> Fields:
    """The fields beside a message, but for the usual ones."""
    beside: Fields = found.rest or {}
    if found.index is not ABSENT and found.index not in (NULL, _FIRST if index == 0 else Raw(b"%d" % index)):
        beside["index"] = found.index
    if found.logprobs is not ABSENT and found.logprobs != NULL:
        beside["logprobs"] = found.logprobs
    return beside


_FIRST: Final = Raw(b"0")


def _finish(word: str | None, groups: Groups) -> FinishReason:
    if not word:
        return "tool_calls" if any(isinstance(part, ToolCall) for part in groups[4]) else "stop"
    reason = FINISH.get(word, "other")
    refused = reason == "stop" and any(isinstance(part, Refusal) for part in (*groups[1], *groups[2]))
    return "refusal" if refused else reason


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    del rest["usage"]
    return read_usage(raw)
