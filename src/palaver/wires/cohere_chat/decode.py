"""Read Cohere v2 chat bodies.

Fields of the body, of a message, a part, a call or a tool without a neutral place (``documents``, ``safety_mode``,
``strict_tools``, ``logprobs``, …) stay under ``provider["cohere_chat"]``, and so do ``citations`` that do not point at
texts in order. Others are a ``Citation`` on the text that they cite.

The data of a document in a tool result are a text, or a JSON value where they are an object.

Notes (``provider["@cohere_chat"]``): ``field`` of a text or a JSON value (``tool_plan``, ``document``), where it stood;
``id`` of a call (``made``: it had none, and got one from its place); ``role`` of an answer that is not the assistant's;
of a request ``schema`` (the field that held the schema of the answer, where it was not ``json_schema``) and
``thinking`` (what stood in it beside its meaning).

Source: docs/spec/wires.md#7; https://docs.cohere.com/v2/reference/chat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import Message
from palaver.core.parts import (
    AnyPart,
    AssistantPart,
    Citation,
    MalformedToolCall,
    Text,
    ToolCall,
)
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import nested, provider, word
from palaver.wires._engine.media import source_of
from palaver.wires._engine.shapes import ABSENT, Shape, Union, reader, role_note
from palaver.wires._engine.tools import read_tool
from palaver.wires.cohere_chat.shapes import (
    FINISH,
    INTEGERS,
    SETTINGS,
    THINKING_FIELDS,
    WIRE,
    read_output_format,
    read_thinking,
    read_tool_choice,
    read_usage,
    schema_field,
)

# -- shapes ----------------------------------------------------------------------------------------


class _TextPart(Shape, tag="text", tag_field="type"):
    text: str


class _ThinkingPart(Shape, tag="thinking", tag_field="type"):
    thinking: str


class _Link(Shape):
    url: str


class _ImagePart(Shape, tag="image_url", tag_field="type"):
    image_url: _Link


_Part: TypeAlias = _TextPart | _ThinkingPart | _ImagePart
_TEXTS: Final = Union[_Part](_TextPart)
_SEEN: Final = Union[_Part](_TextPart, _ImagePart)
_ANSWERED: Final = Union[_Part](_TextPart, _ThinkingPart, _ImagePart)


class _Function(Shape):
    name: str
    arguments: Raw = ABSENT


class _Call(Shape):
    function: _Function
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class _System(Shape, tag="system", tag_field="role"):
    content: Raw = ABSENT


class _User(Shape, tag="user", tag_field="role"):
    content: Raw = ABSENT


class _Result(Shape, tag="tool", tag_field="role"):
    content: Raw = ABSENT
    tool_call_id: str | UnsetType = UNSET


class _Said(Shape):
    content: Raw = ABSENT
    tool_plan: str | UnsetType = UNSET
    tool_calls: list[_Call] | UnsetType = UNSET
    citations: Raw = ABSENT


class _Assistant(_Said, tag="assistant", tag_field="role"):
    pass


class _Answer(_Said):
    role: Raw = ABSENT


class _Response(Shape):
    message: Raw = ABSENT
    id: str | UnsetType = UNSET
    finish_reason: str | UnsetType | None = UNSET
    usage: Raw = ABSENT


_Message: TypeAlias = _System | _User | _Result | _Assistant
_MESSAGES: Final = Union[_Message](_System, _User, _Result, _Assistant, tag="role")
_read_call = reader(_Call)
_read_answer = reader(_Answer)
_read_response = reader(_Response)

# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    if rest.get("messages", NULL) == NULL:
        raise DecodeError("missing", path="messages")
    notes: Fields = {}
    return trusted.Request(
        messages=_messages(rest.pop("messages")),
        model=json_fields.take_text(rest, "model"),
        tools=tuple(json_fields.each(json_fields.take_items(rest, "tools") or [], "tools", _tool)),
        settings=_settings(rest, notes),
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


def _settings(rest: Fields, notes: Fields) -> Settings:
    found: dict[str, Any] = {
        name: (json_fields.take_int if name in INTEGERS else json_fields.take_number)(rest, key)
        for name, key in SETTINGS.items()
    }
    form = rest.get("response_format", NULL)
    output = read_output_format(form)
    if output is not None:
        del rest["response_format"]
        if schema_field(jsontext.fields(form)) == "schema":
            notes["schema"] = word("schema")
    return trusted.Settings(
        stop=json_fields.take_texts(rest, "stop_sequences"),
        tool_choice=json_fields.take_object(rest, notes, "tool_choice", read_tool_choice, ()),
        output=output,
        reasoning_tokens=json_fields.take_object(rest, notes, "thinking", read_thinking, THINKING_FIELDS),
        stream=json_fields.take_bool(rest, "stream"),
        **found,
    )


def _tool(raw: Raw) -> AnyTool:
    return read_tool(raw, WIRE)


# -- messages --------------------------------------------------------------------------------------


def _messages(raw: Raw) -> tuple[Message, ...]:
    messages: list[Message] = []
    try:
        for index, found in enumerate(_MESSAGES.items(raw)):
            try:
                messages.append(_message(found, index))
            except DecodeError as error:
                raise error.within(f"[{index}]") from None
    except DecodeError as error:
        raise error.within("messages") from None
    return tuple(messages)


def _message(found: _Message | Raw, index: int) -> Message:
    match found:
        case Raw():
            role = json_fields.need_text(jsontext.fields(found), "role")
            raise DecodeError(f"unknown role {role[:40]!r}", path="role")
        case _Assistant():
            content = _said(found, f"call_{index}")
            return trusted.AssistantMessage(content=content, provider_json=provider(WIRE, found.rest))
        case _User():
            parts = cast("Any", _content(found.content, _SEEN))
            return trusted.UserMessage(content=parts, provider_json=provider(WIRE, found.rest))
        case _System():
            parts = cast("Any", _content(found.content, _TEXTS))
            return trusted.SystemMessage(content=parts, provider_json=provider(WIRE, found.rest))
        case _:
            parts = cast("Any", _content(found.content, _SEEN, _result_part))
            call_id = None if found.tool_call_id is UNSET else found.tool_call_id
            return trusted.ToolMessage(content=parts, tool_call_id=call_id, provider_json=provider(WIRE, found.rest))


def _content(
    raw: Raw, union: Union[_Part], part: Callable[[_Part | Raw], AnyPart] | None = None
) -> tuple[AnyPart, ...]:
    """Read ``content``, a text or a list of parts; a part that the role cannot hold is kept as it is, unread."""
    if raw is ABSENT or raw == NULL:
        return ()
    try:
        if jsontext.kind(raw) == "an array":
            return tuple(json_fields.each(cast("Any", union.items(raw)), "", part or _part))
        if jsontext.kind(raw) != "a string":
            raise DecodeError(f"expected a string or an array, got {jsontext.kind(raw)}")  # noqa: TRY301 (with a path)
        return (trusted.Text(jsontext.text(raw)),)
    except DecodeError as error:
        raise error.within("content") from None


def _said(found: _Said, place: str) -> tuple[AssistantPart, ...]:
    """Read what an assistant message holds, of a request or a response. ``place`` makes ids for calls without."""
    content = _content(found.content, _ANSWERED)
    if found.tool_plan is not UNSET:
        content = (*content, trusted.Text(found.tool_plan, provider_json=PLAN))
    if found.citations is not ABSENT:
        found.rest = {**found.rest, "citations": found.citations}
        content = with_citations(content, found.rest)
    calls = () if found.tool_calls is UNSET else found.tool_calls
    try:
        made = [_made_call(each, f"{place}_{index}", index) for index, each in enumerate(calls)]
    except DecodeError as error:
        raise error.within("tool_calls") from None
    return cast("tuple[AssistantPart, ...]", (*content, *made))


_PLAN: Final = word("tool_plan")
PLAN: Final = provider(WIRE, {}, {"field": _PLAN})
"""What marks the text that stood in ``tool_plan``."""


# -- parts -----------------------------------------------------------------------------------------


def content_part(raw: Raw) -> AnyPart:
    """Read one content part of an answer; one of an unknown type, documents included, is kept as it is."""
    return _part(_ANSWERED.item(raw))


def _part(found: _Part | Raw) -> AnyPart:
    match found:
        case _TextPart():
            return trusted.Text(found.text, provider_json=provider(WIRE, found.rest))
        case _ThinkingPart():
            return trusted.Reasoning(found.thinking, wire=WIRE, provider_json=provider(WIRE, found.rest))
        case _ImagePart():
            source, media_type = source_of(found.image_url.url)
            stored = provider(WIRE, nested(found.rest, "image_url", found.image_url.rest))
            return trusted.Image(source, media_type, provider_json=stored)
        case Raw():
            return trusted.Opaque(WIRE, jsontext.own(found))


def _result_part(found: _Part | Raw) -> AnyPart:
    """Read one part of a tool result: what a document holds is what the tool gave back."""
    rest = jsontext.fields(found) if isinstance(found, Raw) else {}
    if rest.get("type") == DOCUMENT and jsontext.kind(rest.get("document", NULL)) == "an object":
        inner = jsontext.fields(rest["document"])
        data = inner.pop("data", NULL)
        left = {key: raw for key, raw in rest.items() if key not in {"type", "document"}}
        stored = provider(WIRE, nested(left, "document", inner), {"field": DOCUMENT})
        match jsontext.kind(data):
            case "a string":
                return trusted.Text(jsontext.text(data), provider_json=stored)
            case "an object":
                return trusted.Json(jsontext.own(data), provider_json=stored)
            case _:
                pass
    return _part(found)


DOCUMENT: Final = word("document")


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
    return isinstance(part, Text) and part.provider_json is not UNSET and stands_in(part, _PLAN)


def stands_in(part: AnyPart, field: Raw) -> bool:
    """Whether a part stood in this field."""
    return json_fields.notes(part, WIRE).get("field") == field


# -- tool calls ------------------------------------------------------------------------------------


def call(raw: Raw, made_id: str) -> ToolCall | MalformedToolCall:
    """Read one call, which gets ``made_id`` where it has no id of its own. Raises ``DecodeError``."""
    return _call(_read_call(raw), made_id)


def _made_call(found: _Call, made_id: str, index: int) -> ToolCall | MalformedToolCall:
    try:
        return _call(found, made_id)
    except DecodeError as error:
        raise error.within(f"[{index}]") from None


def _call(found: _Call, made_id: str) -> ToolCall | MalformedToolCall:
    function = found.function
    rest = found.rest if found.type in {"function", UNSET} else {**found.rest, "type": jsontext.raw(found.type)}
    stored = provider(WIRE, nested(rest, "function", function.rest), _MADE if found.id is UNSET else None)
    return json_fields.call(
        made_id if found.id is UNSET else found.id, function.name, _arguments(function.arguments), stored
    )


_MADE: Final[Fields] = {"id": word("made")}


def _arguments(raw: Raw) -> str:
    """Read the arguments text; for a call without parameters it may be ``null``, ``{}``, empty or missing."""
    if raw is ABSENT or raw in _NOTHING:
        return ""
    if jsontext.kind(raw) == "an object":
        return bytes(raw).decode()
    try:
        return jsontext.text(raw)
    except DecodeError as error:
        raise error.within("function.arguments") from None


_NOTHING: Final = (NULL, word("null"))


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no message at all."""
    found = _read_response(body)
    rest = dict(found.rest)
    if found.message is ABSENT or found.message == NULL or jsontext.kind(found.message) == "a string":
        raise _provider_error(found.message, body)
    try:
        answer = _read_answer(found.message)
        content = _said(answer, "call")
    except DecodeError as error:
        raise error.within("message") from None
    if found.usage is not ABSENT:
        rest["usage"] = found.usage
    message = trusted.AssistantMessage(
        content=content,
        usage=usage(rest),
        finish_reason=FINISH.get(found.finish_reason or "", "other"),
        finish_reason_raw=found.finish_reason,
        response_id=None if found.id is UNSET else found.id,
        provider_json=provider(WIRE, answer.rest, role_note(answer.role)),
    )
    return trusted.Response(message=message, origin=WIRE, provider_json=provider(WIRE, rest))


def _provider_error(raw: Raw, body: bytes) -> ProviderError:
    """Read ``{"message": "…"}``, the only field of an error."""
    found = None if raw is ABSENT else jsontext.value(raw)
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
