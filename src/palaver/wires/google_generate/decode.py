"""Read Gemini bodies.

A function response belongs to the call of its id, else to the first open call of its name. One with only
``{"error": …}`` is an error (docs/spec/message-fields.md#F70). The URL has the model and whether to stream. Under
``provider["google_generate"]`` stay, for ``encode``:

- fields of the body, of a content, a part, a call or a tool without a neutral place;
- ``@@snake``: fields in snake_case (``field_names``); ``@@role`` and ``@@parts`` (``null``: absent);
- ``@@joined``: the message shared a content with the one before it; ``@@content`` on a part: a second content of the
  model began here (calls in two contents are one message, since one user content answers them all);
- ``@@candidate``: the fields beside the content of an answer (``index``, ``avgLogprobs``, …). Grounding, citations and
  URL metadata are fields of the message; ``@@cited`` names them, so that they are not sent back.

Source: docs/spec/wires.md#5.1 to #5.4; https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, ProviderError
from palaver.core.jsontext import NULL, TRUE, Fields
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
from palaver.wires._engine.json_fields import hint, native, provider
from palaver.wires._engine.tools import OpenCalls
from palaver.wires.google_generate import field_names
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


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    raw = rest.get("contents")
    if raw is not None and jsontext.kind(raw) == "an object":
        rest["@@contents"] = hint("object")
        contents = [rest.pop("contents")]
    else:
        contents = json_fields.need_items(rest, "contents")
    system = _system(rest)
    tools = read_tools(rest)
    settings = read_settings(rest)
    model = field_names.soft(rest, "model", json_fields.take_text)
    if model is not None:
        rest["@@model"] = TRUE
    return trusted.Request(
        messages=(*system, *_contents(contents)),
        model=model,
        tools=tools,
        settings=settings,
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _system(rest: Fields) -> tuple[SystemMessage, ...]:
    found = field_names.take(rest, "systemInstruction", json_fields.take_fields)
    if found is None:
        return ()
    if "@@snake" in rest:  # the only field taken out so far; the message keeps its spelling
        del rest["@@snake"]
        found["@@field"] = hint("system_instruction")
    try:
        parts = tuple([text_part(fields) for fields in take_parts(found)])
    except DecodeError as error:
        raise error.within("systemInstruction") from None
    return (trusted.SystemMessage(content=parts, provider_json=provider(WIRE, found)),)


# -- contents --------------------------------------------------------------------------------------


def _contents(raws: list[Raw]) -> tuple[Message, ...]:
    messages: list[Message] = []
    joined: dict[int, list[AssistantPart]] = {}
    pending = OpenCalls((), _keys)
    for index, raw in enumerate(raws):
        try:
            rest = jsontext.fields(raw)
            if _role(rest) != "model":
                messages += _user(rest, take_parts(rest), pending)
                continue
            content = _model_parts(take_parts(rest), f"call_{index}")
        except DecodeError as error:
            raise error.within(f"contents[{index}]") from None
        if pending and content and isinstance(before := messages[-1], AssistantMessage):
            parts = joined.setdefault(len(messages) - 1, list(before.content))
            parts += (_begins(content[0], rest), *content[1:])
            pending.add(_client_calls(content))
        else:
            messages.append(trusted.AssistantMessage(content=content, provider_json=provider(WIRE, rest)))
            pending = OpenCalls(_client_calls(content), _keys)
    for place, parts in joined.items():
        messages[place] = cast("AssistantMessage", messages[place]).replace(content=tuple(parts))
    return tuple(messages)


def _role(rest: Fields) -> str:
    """Take the role; the user's when there is none. ``function`` is what results had in the first version."""
    raw = rest.get("role")
    if raw is None or raw == NULL:
        rest["@@role"] = NULL
        return "user"
    role = json_fields.need_text(rest, "role")
    if role == "function":
        rest["@@role"] = raw
    elif role not in ("user", "model"):
        raise DecodeError(f"unknown role {role[:40]!r}", path="role")
    return role


_split = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def take_parts(rest: Fields) -> list[Fields]:
    """Take the parts out, split."""
    raw = rest.get("parts")
    if raw is None or raw == NULL:
        rest["@@parts"] = NULL
        return []
    del rest["parts"]
    try:
        return _split(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    if jsontext.kind(raw) == "an object":
        rest["@@parts"] = hint("object")
        return [jsontext.fields(raw)]
    return list(json_fields.each(jsontext.items(raw), "parts", jsontext.fields))


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
    stored = {**native(part, WIRE), "@@content": Raw(jsontext.encode(rest))}
    return part.replace(provider_json=provider(WIRE, stored))


def _client_calls(content: tuple[AssistantPart, ...]) -> list[ToolCall]:
    return [part for part in content if isinstance(part, ToolCall) and not part.provider_executed]


class _Result(NamedTuple):
    """A function response on its way to a message."""

    content: tuple[ToolPart, ...]
    name: str
    call_id: str | None
    stored: Fields


def _user(rest: Fields, found: list[Fields], pending: OpenCalls) -> list[Message]:
    """Read a content of the user: one message for each function response, and one for what stands between."""
    groups: list[_Result | list[UserPart]] = []
    for index, fields in enumerate(found):
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
    for group in groups or [[]]:
        beside = {"@@joined": TRUE} if messages else rest
        if isinstance(group, list):
            messages.append(trusted.UserMessage(content=tuple(group), provider_json=provider(WIRE, beside)))
        else:
            messages.append(_tool_message(group, beside))
    return messages


def _tool_message(result: _Result, beside: Fields) -> ToolMessage:
    outcome = cast("Json", result.content[0])
    return trusted.ToolMessage(
        content=result.content,
        tool_call_id=result.call_id,
        tool_name=result.name,
        is_error=tells_error(outcome.value_json),
        provider_json=provider(WIRE, {**beside, **result.stored}),
    )


def _keys(call: ToolCall) -> tuple[tuple[str, str], ...]:
    keys = (("id", call.id), ("name", call.name))
    return (*keys, ("named without id", call.name)) if "@@id" in native(call, WIRE) else keys


def _result(rest: Fields, pending: OpenCalls) -> _Result:
    content, found, name = function_response(rest)
    if found and pending.take(("id", found)) is not None:
        return _Result(content, name, found, {})
    stored: Fields = {"@@id": NULL if found is None else jsontext.raw(found)}
    call = pending.take(("named without id" if found else "name", name))
    if call is not None:
        return _Result(content, name, call.id, stored)
    return _Result(content, name, found or None, {} if found else stored)


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no answer at all."""
    try:
        rest = jsontext.fields(body)
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
    model = field_names.word(rest, "modelVersion")
    response_id = field_names.word(rest, "responseId")
    if not raws:
        rest["@@candidates"] = NULL if raws is None else Raw(b"[]")
        return trusted.Response(
            message=trusted.AssistantMessage(
                model=model,
                usage=usage,
                finish_reason="content_filter" if _blocked(rest) else "other",
                response_id=response_id,
            ),
            origin=WIRE,
            provider_json=provider(WIRE, rest),
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
    """Take the candidates out, split; ``None`` when there are none."""
    raw = rest.get("candidates")
    if raw is None or raw == NULL:
        return None
    del rest["candidates"]
    try:
        return _split(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        found = jsontext.items(raw)
    except DecodeError as error:
        raise error.within("candidates") from None
    return list(json_fields.each(found, "candidates", jsontext.fields))


ANSWER: Final = frozenset(
    key
    for name in ("promptFeedback", "usageMetadata", "modelVersion", "responseId")
    for key in (name, field_names.SNAKE[name])
)
"""Fields that make a body without candidates an answer: a blocked prompt, or no further content."""

_CITED: Final = frozenset(
    [
        "groundingMetadata",
        "grounding_metadata",
        "citationMetadata",
        "citation_metadata",
        "urlContextMetadata",
        "url_context_metadata",
    ]
)


def _candidate(
    beside: Fields,
    index: int,
    place: str,
    *,
    model: str | None = None,
    usage: Usage | None = None,
    response_id: str | None = None,
) -> AssistantMessage:
    try:
        rest, content = _answer(beside, place)
    except DecodeError as error:
        raise error.within(f"[{index}]") from None
    word = field_names.word(beside, "finishReason")
    _put_beside(beside, rest)
    return trusted.AssistantMessage(
        content=content,
        model=model,
        usage=usage,
        finish_reason=finish(word, content),
        finish_reason_raw=UNSET if word is None else word,
        response_id=response_id,
        provider_json=provider(WIRE, rest),
    )


class _PlainContent(Struct, gc=False, forbid_unknown_fields=True):
    """A content with the fields that all contents have, and no other."""

    parts: list[dict[str, Raw]]
    role: Literal["model"]


_plain_content = msgspec.json.Decoder(_PlainContent).decode
_MODEL: Final = Raw(b'"model"')


def _answer(beside: Fields, place: str) -> tuple[Fields, tuple[AssistantPart, ...]]:
    """Take the content of a candidate: what remains of it, and its parts."""
    raw = beside.get("content")
    if raw is None or raw == NULL:
        return {"@@content": NULL}, ()
    del beside["content"]
    rest: Fields = {}
    try:
        try:
            found = _plain_content(raw).parts
        except (msgspec.DecodeError, UnicodeDecodeError):
            rest = jsontext.fields(raw)
            role = rest.get("role", NULL)
            if role != NULL:
                del rest["role"]
            if role != _MODEL:
                rest["@@role"] = role
            found = take_parts(rest)
        return rest, _model_parts(found, place)
    except DecodeError as error:
        raise error.within("content") from None


def _put_beside(beside: Fields, rest: Fields) -> None:
    """Keep with the message what stood beside its content; what cites stands among its own fields."""
    if not _CITED.isdisjoint(beside):
        cited = [key for key in beside if key in _CITED and key not in rest]
        rest.update({key: beside.pop(key) for key in cited})
        rest["@@cited"] = jsontext.raw(cited)
    if beside:
        rest["@@candidate"] = Raw(jsontext.encode(beside))


def finish(word: str | None, content: tuple[AssistantPart, ...]) -> FinishReason | None:
    """Translate the word; an answer without one has not ended."""
    if word is None:
        return None
    reason = FINISH.get(word, "other")
    if reason != "stop":
        return reason
    called = any(isinstance(part, ToolCall) and not part.provider_executed for part in content)
    return "tool_calls" if called else reason


def _blocked(rest: Fields) -> bool:
    raw = field_names.raw(rest, "promptFeedback")
    found = None if raw is None else jsontext.value(raw)
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return bool(table.get("blockReason") or table.get("block_reason"))


_BRACE: Final = ord("{")


def _usage(rest: Fields) -> Usage | None:
    raw = field_names.raw(rest, "usageMetadata")
    if raw is None or memoryview(raw)[0] != _BRACE:
        return None
    field_names.take(rest, "usageMetadata", field_names.pull)
    return read_usage(raw)


def listed_error(body: bytes) -> ProviderError:
    """Find the error in a list, which is how a stream that has not begun reports one (5.3)."""
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
