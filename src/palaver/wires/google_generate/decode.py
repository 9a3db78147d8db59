"""Read Gemini bodies.

A function response belongs to the call of its id, else to the first open call of its name. One with only
``{"error": …}`` is an error (docs/spec/message-fields.md#F70). The URL has the model and whether to stream. Fields of
the body, of a content, a part, a call or a tool without a neutral place stay under ``provider["google_generate"]``.

Notes (``provider["@google_generate"]``; ``parts`` lists those of parts, ``settings`` those of tools and settings):

- ``role`` of a content: a word other than ``user`` and ``model``, such as ``function``;
- ``joined``: whether a message shares the content of the one before it, where two results would not, or others would;
  ``content`` on a part: a second content of the model began here, with these fields (calls in two contents are one
  message, since one user content answers them all);
- ``id`` of a result: the one that it named, ``null`` for none, where its call has another;
- ``model`` of a request: the body named it. ``candidates`` of a response: ``none``, as when the prompt was blocked;
- ``candidate``: the fields beside the content of an answer (``index``, ``avgLogprobs``, …). Grounding, citations and
  URL metadata are fields of the message; ``cited`` names them, so that they are not sent back.

Source: docs/spec/wires.md#5.1 to #5.4; https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET, Raw, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import FALSE, NULL, TRUE, Fields
from palaver.core.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    SystemMessage,
    ToolMessage,
)
from palaver.core.parts import AssistantPart, Json, ToolCall, ToolPart, UserPart
from palaver.core.request import Request, Response
from palaver.wires._engine import json_fields
from palaver.wires._engine.json_fields import provider, word
from palaver.wires._engine.shapes import ABSENT, from_fields, reader
from palaver.wires._engine.tools import OpenCalls
from palaver.wires.google_generate import field_names
from palaver.wires.google_generate.field_names import Spelled, camel
from palaver.wires.google_generate.parts import (
    data_field,
    function_response,
    model_part,
    text_part,
    user_part,
)
from palaver.wires.google_generate.settings import read_settings, read_tools
from palaver.wires.google_generate.shapes import FINISH, WIRE, read_usage, tells_error

if TYPE_CHECKING:
    from palaver.core.usage import Usage

# -- requests --------------------------------------------------------------------------------------


class Content(Spelled):
    """A content, of the conversation or of an answer."""

    parts: dict[str, Raw] | list[dict[str, Raw]] | None = None
    role: Raw = ABSENT


read_content = reader(Content)


class _Body(Spelled):
    contents: Content | list[Content]
    system_instruction: Content | UnsetType = UNSET
    tools: Raw = ABSENT


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    found = from_fields(_Body, jsontext.fields(body))
    rest, notes = found.rest, dict[str, Raw]()
    contents = found.contents if isinstance(found.contents, list) else [found.contents]
    tools = read_tools(found.tools)
    settings = read_settings(rest, notes)
    model = field_names.soft(rest, "model", json_fields.take_text)
    if model is not None:
        notes["model"] = TRUE
    return trusted.Request(
        messages=(*_system(found.system_instruction), *_contents(contents)),
        model=model,
        tools=tools,
        settings=settings,
        origin=WIRE,
        provider_json=provider(WIRE, rest, notes),
    )


def _system(found: Content | UnsetType) -> tuple[SystemMessage, ...]:
    if isinstance(found, UnsetType):
        return ()
    rest = found.rest if found.role is ABSENT else {**found.rest, "role": found.role}
    try:
        parts = [text_part(fields) for fields in parts_of(found)]
    except DecodeError as error:
        raise error.within("systemInstruction") from None
    return (trusted.SystemMessage(content=tuple(parts), provider_json=provider(WIRE, rest)),)


# -- contents --------------------------------------------------------------------------------------


def _contents(contents: list[Content]) -> tuple[Message, ...]:
    messages: list[Message] = []
    joined: dict[int, list[AssistantPart]] = {}
    pending = OpenCalls((), _keys)
    for index, found in enumerate(contents):
        try:
            role = _role(found)
            if role != "model":
                before = messages[-1] if messages else None
                messages += _user(found, {} if role == "user" else {"role": word(role)}, pending, before)
                continue
            content = _model_parts(parts_of(found), f"call_{index}")
        except DecodeError as error:
            raise error.within(f"contents[{index}]") from None
        if pending and content and isinstance(before := messages[-1], AssistantMessage):
            parts = joined.setdefault(len(messages) - 1, list(before.content))
            parts += (_begins(content[0], found.rest), *content[1:])
            pending.add(_client_calls(content))
        else:
            messages.append(trusted.AssistantMessage(content=content, provider_json=provider(WIRE, found.rest)))
            pending = OpenCalls(_client_calls(content), _keys)
    for place, parts in joined.items():
        messages[place] = cast("AssistantMessage", messages[place]).replace(content=tuple(parts))
    return tuple(messages)


def _role(found: Content) -> str:
    """Return the role; the user's when there is none. ``function`` is what results had in the first version."""
    if found.role is ABSENT or found.role == NULL:
        return "user"
    if found.role == _MODEL:
        return "model"
    try:
        role = jsontext.text(found.role)
    except DecodeError as error:
        raise error.within("role") from None
    if role not in ("user", "model", "function"):
        raise DecodeError(f"unknown role {role[:40]!r}", path="role")
    return role


_MODEL: Final = word("model")


def parts_of(found: Content) -> list[Fields]:
    """Return the parts, or the only one, in camelCase."""
    if found.parts is None:
        return []
    return [camel(each) for each in (found.parts if isinstance(found.parts, list) else [found.parts])]


def _model_parts(found: list[Fields], place: str) -> tuple[AssistantPart, ...]:
    """Read the parts of the model. ``place`` makes ids for calls without."""
    parts: list[AssistantPart] = []
    run = f"{place}_run"
    for index, fields in enumerate(found):
        try:
            part = model_part(fields, f"{place}_{index}", run)
        except DecodeError as error:
            raise error.within(f"parts[{index}]") from None
        if isinstance(part, ToolCall) and part.provider_executed:
            run = part.id
        parts.append(part)
    return tuple(parts)


def _begins(part: AssistantPart, rest: Fields) -> AssistantPart:
    """Note on a part that a content began with it, and what that content had beside its parts."""
    return json_fields.with_native(
        part, f"@{WIRE}", {**json_fields.notes(part, WIRE), "content": Raw(jsontext.encode(dict(rest)))}
    )


def _client_calls(content: tuple[AssistantPart, ...]) -> list[ToolCall]:
    return [part for part in content if isinstance(part, ToolCall) and not part.provider_executed]


class _Result(NamedTuple):
    """A function response on its way to a message."""

    content: tuple[ToolPart, ...]
    name: str
    call_id: str | None
    notes: Fields


def _user(found: Content, notes: Fields, pending: OpenCalls, before: Message | None) -> list[Message]:
    """Read a content of the user: one message for each function response, and one for what stands between."""
    groups: list[_Result | list[UserPart]] = []
    for index, fields in enumerate(parts_of(found)):
        try:
            if data_field(fields) == "functionResponse":
                groups.append(_result(fields, pending))
                continue
            part = user_part(fields)
        except DecodeError as error:
            raise error.within(f"parts[{index}]") from None
        if groups and isinstance(groups[-1], list):
            groups[-1].append(part)
        else:
            groups.append([part])
    messages: list[Message] = []
    for place, group in enumerate(groups or [[]]):
        rest = {} if place else found.rest
        if isinstance(group, list):
            about = _JOINED if place else notes
            messages.append(trusted.UserMessage(content=tuple(group), provider_json=provider(WIRE, rest, about)))
            continue
        if place and isinstance(messages[-1], ToolMessage):
            about = {}
        elif place:
            about = _JOINED
        else:
            about = {**notes, "joined": FALSE} if isinstance(before, ToolMessage) else notes
        messages.append(_tool_message(group, rest, about))
    return messages


_JOINED: Final[Fields] = {"joined": TRUE}


def _tool_message(result: _Result, rest: Fields, notes: Fields) -> ToolMessage:
    outcome = cast("Json", result.content[0])
    return trusted.ToolMessage(
        content=result.content,
        tool_call_id=result.call_id,
        tool_name=result.name,
        is_error=tells_error(outcome.value_json),
        provider_json=provider(WIRE, rest, {**notes, **result.notes}),
    )


def _keys(call: ToolCall) -> tuple[tuple[str, str], ...]:
    keys = (("id", call.id), ("name", call.name))
    return (*keys, ("named without id", call.name)) if "id" in json_fields.notes(call, WIRE) else keys


def _result(rest: Fields, pending: OpenCalls) -> _Result:
    content, found, name = function_response(rest)
    if found and pending.take(("id", found)) is not None:
        return _Result(content, name, found, {})
    notes: Fields = {"id": NULL if found is None else jsontext.raw(found)}
    call = pending.take(("named without id" if found else "name", name))
    if call is not None:
        return _Result(content, name, call.id, notes)
    return _Result(content, name, found, {} if found else notes)


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no answer at all."""
    try:
        rest = camel(jsontext.fields(body))
    except DecodeError:
        raise listed_error(body) from None
    raws = take_candidates(rest)
    if raws is None and "error" in rest:
        raise provider_error(rest["error"], body)
    if raws is None and ANSWER.isdisjoint(rest):
        raise ProviderError(WIRE, "no answer in the body", body=body)
    return answer(rest, raws)


def answer(rest: Fields, raws: list[Fields] | None) -> Response:
    """Read an answer whose candidates were taken out; ``None`` when it had none. Raises ``DecodeError``."""
    usage = _usage(rest)
    model = field_names.soft(rest, "modelVersion", json_fields.take_text)
    response_id = field_names.soft(rest, "responseId", json_fields.take_text)
    if not raws:
        return trusted.Response(
            message=trusted.AssistantMessage(
                model=model,
                usage=usage,
                finish_reason="content_filter" if _blocked(rest) else "other",
                response_id=response_id,
            ),
            origin=WIRE,
            provider_json=provider(WIRE, rest, {"candidates": word("none")}),
        )
    try:
        message = _candidate(raws[0], 0, place(response_id, 0), model=model, usage=usage, response_id=response_id)
        others = [_candidate(raw, index, place(response_id, index)) for index, raw in enumerate(raws[1:], 1)]
    except DecodeError as error:
        raise error.within("candidates") from None
    stored = provider(WIRE, rest)
    return trusted.Response(message=message, alternatives=tuple(others), origin=WIRE, provider_json=stored)


def place(response_id: str | None, choice: int) -> str:
    """What the ids begin with that are made for the calls of a candidate."""
    begun = f"call_{response_id}" if response_id else "call"
    return f"{begun}_{choice}" if choice else begun


def take_candidates(rest: Fields) -> list[Fields] | None:
    """Take the candidates out, split and in camelCase; ``None`` when there are none."""
    raw = rest.get("candidates")
    if raw is None or raw == NULL:
        return None
    del rest["candidates"]
    try:
        return [camel(each) for each in jsontext.rows(raw)]
    except DecodeError as error:
        raise error.within("candidates") from None


ANSWER: Final = frozenset({"promptFeedback", "usageMetadata", "modelVersion", "responseId"})
"""Fields that make a body without candidates an answer: a blocked prompt, or no further content."""

_CITED: Final = frozenset({"groundingMetadata", "citationMetadata", "urlContextMetadata"})


class _Candidate(Spelled):
    SOFT = frozenset({"finishReason"})
    content: Content | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET


def _candidate(
    fields: Fields,
    index: int,
    place: str,
    *,
    model: str | None = None,
    usage: Usage | None = None,
    response_id: str | None = None,
) -> AssistantMessage:
    try:
        found = from_fields(_Candidate, fields)
        rest, notes, content = _answer(found.content, place)
    except DecodeError as error:
        raise error.within(f"[{index}]") from None
    _put_beside(found.rest, rest, notes)
    return trusted.AssistantMessage(
        content=content,
        model=model,
        usage=usage,
        finish_reason=finish(found.finish_reason, content),
        finish_reason_raw=found.finish_reason,
        response_id=response_id,
        provider_json=provider(WIRE, rest, notes),
    )


def _answer(found: Content | UnsetType, place: str) -> tuple[Fields, Fields, tuple[AssistantPart, ...]]:
    """Read the content of a candidate: what remains of it, notes, and its parts."""
    if isinstance(found, UnsetType):
        return {}, {}, ()
    try:
        parts = _model_parts(parts_of(found), place)
    except DecodeError as error:
        raise error.within("content") from None
    notes: Fields = {} if found.role in _USUAL else {"role": found.role}
    return dict(found.rest), notes, parts


_USUAL: Final = (_MODEL, ABSENT, NULL)


def _put_beside(beside: Fields, rest: Fields, notes: Fields) -> None:
    """Keep with the message what stood beside its content; what cites stands among its own fields."""
    if not _CITED.isdisjoint(beside):
        cited = [key for key in beside if key in _CITED and key not in rest]
        rest.update({key: beside.pop(key) for key in cited})
        notes["cited"] = jsontext.raw(cited)
    if beside:
        notes["candidate"] = Raw(jsontext.encode(beside))


def finish(word: str | UnsetType, content: tuple[AssistantPart, ...]) -> FinishReason | None:
    """Translate the word; an answer without one has not ended."""
    if isinstance(word, UnsetType):
        return None
    reason = FINISH.get(word, "other")
    if reason != "stop":
        return reason
    called = any(isinstance(part, ToolCall) and not part.provider_executed for part in content)
    return "tool_calls" if called else reason


def _blocked(rest: Fields) -> bool:
    found = jsontext.value(rest.get("promptFeedback", NULL))
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return bool(table.get("blockReason") or table.get("block_reason"))


_BRACE: Final = ord("{")


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usageMetadata")
    if raw is None or memoryview(raw)[0] != _BRACE:
        return None
    del rest["usageMetadata"]
    return read_usage(raw)


def listed_error(body: bytes) -> ProviderError:
    """Find the error in a list, which is how a stream that has not begun reports one (5.3)."""
    if not jsontext.is_json(body):
        raise DecodeError("not JSON")
    for raw in jsontext.items(body) if jsontext.kind(body) == "an array" else ():
        if jsontext.kind(raw) == "an object" and "error" in (fields := jsontext.fields(raw)):
            return provider_error(fields["error"], body)
    raise DecodeError(f"expected an object, got {jsontext.kind(body)}")


def provider_error(raw: Raw, body: bytes) -> ProviderError:
    """Read the error of a body."""
    found = jsontext.value(raw)
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {"message": found}
    message, code = table.get("message"), table.get("status") or table.get("code")
    text = message if isinstance(message, str) else bytes(raw).decode()
    return ProviderError(WIRE, text, code=None if code is None else str(code), body=body)
