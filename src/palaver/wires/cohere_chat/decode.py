"""Read Cohere v2 chat bodies.

Under ``provider["cohere_chat"]`` stay, for ``encode``:

- fields of the body, of a message, a part, a call or a tool without a neutral place (``documents``, ``safety_mode``,
  ``strict_tools``, ``logprobs``, …);
- hints on form: ``@@content`` (``list``, ``string``, ``null``, ``absent``), ``@@field`` (``tool_plan``: where a text
  stood), ``@@type`` and ``@@id`` (``absent``), ``@@arguments`` (``absent``, ``null``, ``null text``, ``object``),
  ``@@role``, ``@@no_role``, ``@@tools``;
- ``citations`` that do not point at texts in order. Others are a ``Citation`` on the text that they cite.

Source: docs/spec/wires.md#7; https://docs.cohere.com/v2/reference/chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    holds,
)
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Citation,
    Image,
    MalformedToolCall,
    Reasoning,
    Text,
    ToolCall,
)
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import hint, nested, provider
from palaver.wires._engine.media import source_of
from palaver.wires._engine.tools import read_tool
from palaver.wires.cohere_chat.shapes import (
    FINISH,
    INTEGERS,
    SETTINGS,
    WIRE,
    read_output_format,
    read_thinking,
    read_tool_choice,
    read_usage,
    write_output_format,
    write_thinking,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.core.usage import Usage

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
    found: dict[str, Any] = {
        name: (json_fields.take_int if name in INTEGERS else json_fields.take_number)(rest, key)
        for name, key in SETTINGS.items()
    }
    raw = rest.get("tool_choice")
    choice = None if raw is None else read_tool_choice(raw)
    if choice is not None:
        del rest["tool_choice"]
    raw = rest.get("response_format")
    output = None if raw is None else read_output_format(raw)
    if raw is not None and output is not None:
        del rest["response_format"]
        json_fields.keep_form(rest, "response_format", raw, write_output_format(output))
    raw = rest.get("thinking")
    budget = None if raw is None else read_thinking(raw)
    if raw is not None and budget is not None:
        del rest["thinking"]
        json_fields.keep_form(rest, "thinking", raw, write_thinking(budget))
    return trusted.Settings(
        stop=json_fields.take_texts(rest, "stop_sequences"),
        tool_choice=choice,
        output=output,
        reasoning_tokens=budget,
        stream=json_fields.take_bool(rest, "stream"),
        **found,
    )


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE)


# -- messages --------------------------------------------------------------------------------------


def _messages(raws: list[Raw]) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(raws):
        try:
            messages.append(_message(raw, index))
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
    return tuple(messages)


_ROLES: Final[dict[str, type[SystemMessage | UserMessage]]] = {"system": SystemMessage, "user": UserMessage}


def _message(raw: Raw, index: int) -> Message:
    rest = jsontext.fields(raw)
    role = json_fields.need_text(rest, "role")
    if role == "assistant":
        return trusted.AssistantMessage(content=_answer(rest, f"call_{index}"), provider_json=provider(WIRE, rest))
    cls = _ROLES.get(role)
    if cls is not None:
        return cls(content=_content(rest, cls), provider_json=provider(WIRE, rest))
    if role == "tool":
        content = _content(rest, ToolMessage)
        call_id = json_fields.take_text(rest, "tool_call_id")
        return trusted.ToolMessage(content=content, tool_call_id=call_id, provider_json=provider(WIRE, rest))
    raise DecodeError(f"unknown role {role[:40]!r}", path="role")


def _content(rest: Fields, cls: type, *, response: bool = False) -> tuple[Any, ...]:
    """Read ``content`` into parts that ``cls`` can hold; the hint says which form it had, where we would write another.

    A part that the role cannot hold is kept as it is, unread.
    """
    raw = rest.pop("content", None)
    if raw is None:
        if cls is not AssistantMessage:
            rest["@@content"] = hint("absent")
        return ()
    try:
        found = json_fields.string_or_items(raw)
    except DecodeError as error:
        raise error.within("content") from None
    if found is None:
        rest["@@content"] = hint("null")
        return ()
    if isinstance(found, str):
        if response:
            rest["@@content"] = hint("string")
        return (trusted.Text(found),)
    parts: tuple[Any, ...] = tuple(
        [
            each if holds(cls, each) else trusted.Opaque(WIRE, jsontext.own(raw))
            for each, raw in zip(json_fields.each(found, "content", content_part), found, strict=True)
        ]
    )
    if not parts or (not response and len(parts) == 1 and isinstance(parts[0], Text)):
        rest["@@content"] = hint("list")
    return parts


def _answer(rest: Fields, place: str, *, response: bool = False) -> tuple[AssistantPart, ...]:
    """Read the content of an assistant message, of a request or a response. ``place`` makes ids for calls without."""
    content: tuple[Any, ...] = (*_content(rest, AssistantMessage, response=response), *_plan(rest))
    if "citations" in rest:
        content = with_citations(content, rest)
    return (*content, *_calls(rest, place))


PLAN: Final = provider(WIRE, {"@@field": hint("tool_plan")})
"""What marks the text that stood in ``tool_plan``."""


def _plan(rest: Fields) -> tuple[Text, ...]:
    """Read ``tool_plan``: the text before the calls."""
    plan = json_fields.take_text(rest, "tool_plan")
    return () if plan is None else (trusted.Text(plan, provider_json=PLAN),)


# -- parts -----------------------------------------------------------------------------------------


def content_part(raw: Raw) -> AnyPart:
    """Read one content part; one of an unknown type, documents included, is kept as it is."""
    rest = jsontext.fields(raw)
    read = _PARTS.get(json_fields.need_text(rest, "type"))
    return trusted.Opaque(WIRE, jsontext.own(raw)) if read is None else read(rest)


def _text(rest: Fields) -> Text:
    text = json_fields.need_text(rest, "text")
    return trusted.Text(text, provider_json=provider(WIRE, rest)) if rest else trusted.Text(text)


def _thinking(rest: Fields) -> Reasoning:
    text = json_fields.need_text(rest, "thinking")
    return trusted.Reasoning(text, wire=WIRE, provider_json=provider(WIRE, rest))


def _image(rest: Fields) -> Image:
    inner = json_fields.need_fields(rest, "image_url")
    try:
        source, media_type = source_of(json_fields.need_text(inner, "url"))
    except DecodeError as error:
        raise error.within("image_url") from None
    return trusted.Image(source, media_type, provider_json=provider(WIRE, nested(rest, "image_url", inner)))


_PARTS: Final[dict[str, Callable[[Fields], AnyPart]]] = {"text": _text, "thinking": _thinking, "image_url": _image}


# -- citations -------------------------------------------------------------------------------------


class Cited(Struct, gc=False):
    """What we read of a citation; its sources are kept in the raw object."""

    type: str | None = None
    content_index: int | None = None
    text: str | None = None
    start: int | None = None
    end: int | None = None


_citations = msgspec.json.Decoder(list[Cited]).decode


def with_citations(content: tuple[Any, ...], rest: Fields) -> tuple[Any, ...]:
    """Put each citation on the text that it cites, where taking them off again gives the same list."""
    raw = rest["citations"]
    try:
        found = _citations(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return content
    plan = next((at for at, part in enumerate(content) if is_plan(part)), None)
    texts = [at for at, part in enumerate(content) if isinstance(part, Text) and at != plan]
    places = [cited_at(each, texts, plan) for each in found]
    known = [each for each in places if each is not None]
    if not known or len(known) != len(places) or known != sorted(known):
        return content
    del rest["citations"]
    made: dict[int, list[Citation]] = {}
    for at, each, own in zip(known, found, jsontext.items(raw), strict=True):
        made.setdefault(at, []).append(citation(each, own))
    return tuple([part.replace(citations=made[at]) if at in made else part for at, part in enumerate(content)])


def citation(cited: Cited, raw: Raw) -> Citation:
    """Make the neutral citation of one that was read."""
    return trusted.Citation(wire=WIRE, quote=cited.text, start=cited.start, end=cited.end, raw_json=jsontext.own(raw))


def cited_at(cited: Cited, texts: list[int], plan: int | None) -> int | None:
    """Where the text stands that a citation points at; ``None`` when it points at none."""
    if cited.type == "PLAN":
        return plan
    if cited.content_index is not None:
        return cited.content_index if cited.content_index in texts else None
    return texts[0] if len(texts) == 1 and cited.type != "THINKING_CONTENT" else None


def is_plan(part: AnyPart) -> bool:
    """Whether a part stood in ``tool_plan``."""
    return isinstance(part, Text) and json_fields.is_hint(json_fields.native(part, WIRE), "field", "tool_plan")


# -- tool calls ------------------------------------------------------------------------------------


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _PlainCall(Struct, gc=False, forbid_unknown_fields=True):
    """A call with the fields that all calls have, and no other."""

    id: str
    type: Literal["function"]
    function: _Function


_plain = msgspec.json.Decoder(list[_PlainCall]).decode


def _calls(rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    raw = rest.get("tool_calls")
    if raw is None or raw in (NULL, Raw(b"[]")):
        return ()
    try:
        found = _plain(raw)
        if any(each.function.arguments == "null" for each in found):
            raise msgspec.DecodeError  # noqa: TRY301 (not of the plain shape)
        calls = tuple([json_fields.call(each.id, each.function.name, each.function.arguments, UNSET) for each in found])
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            calls = tuple([_numbered(each, place, index) for index, each in enumerate(jsontext.items(raw))])
        except DecodeError as error:
            raise error.within("tool_calls") from None
    if calls:
        del rest["tool_calls"]
    return calls


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
    kind = json_fields.take_text(rest, "type")
    if kind is None:
        rest["@@type"] = hint("absent")
    elif kind != "function":
        rest["type"] = jsontext.raw(kind)
    inner = json_fields.need_fields(rest, "function")
    name = json_fields.need_text(inner, "name")
    arguments = _arguments(inner, rest)
    stored = provider(WIRE, nested(rest, "function", inner))
    return json_fields.call(made_id if call_id is None else call_id, name, arguments, stored)


def _arguments(inner: Fields, rest: Fields) -> str:
    """Read the arguments text; for a call without parameters it may be ``null``, ``{}``, empty or missing."""
    raw = inner.pop("arguments", None)
    if raw is None or raw == NULL:
        rest["@@arguments"] = hint("absent" if raw is None else "null")
        return ""
    if jsontext.kind(raw) == "an object":
        rest["@@arguments"] = hint("object")
        return bytes(raw).decode()
    try:
        text = jsontext.text(raw)
    except DecodeError as error:
        raise error.within("function.arguments") from None
    if text == "null":
        rest["@@arguments"] = hint("null text")
        return ""
    return text


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no message at all."""
    rest = jsontext.fields(body)
    raw = rest.get("message")
    if raw is None or raw == NULL or jsontext.kind(raw) == "a string":
        raise _provider_error(rest, body)
    fields = json_fields.need_fields(rest, "message")
    role = fields.pop("role", None)
    if role is None:
        fields["@@no_role"] = jsontext.TRUE
    elif role != _ASSISTANT:
        fields["@@role"] = role
    try:
        content = _answer(fields, "call", response=True)
    except DecodeError as error:
        raise error.within("message") from None
    word = finish_word(rest)
    message = trusted.AssistantMessage(
        content=content,
        usage=usage(rest),
        finish_reason=FINISH.get(word or "", "other"),
        finish_reason_raw=word,
        response_id=json_fields.take_text(rest, "id"),
        provider_json=provider(WIRE, fields),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


_ASSISTANT: Final = Raw(b'"assistant"')


def _provider_error(rest: Fields, body: bytes) -> ProviderError:
    """Read ``{"message": "…"}``, the only field of an error."""
    raw = rest.get("message", NULL)
    found = jsontext.value(raw)
    return ProviderError(WIRE, found if isinstance(found, str) else "no message in the body", body=body)


def finish_word(rest: Fields) -> str | UnsetType | None:
    """Take ``finish_reason`` out: ``None`` where it is null, ``UNSET`` where it is absent."""
    word = json_fields.take_text(rest, "finish_reason")
    if word is not None:
        return word
    return UNSET if rest.pop("finish_reason", None) is None else None


def usage(rest: Fields) -> Usage | None:
    """Take the usage object out; ``None``, and left in place, when there is none."""
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    return read_usage(rest.pop("usage"))
