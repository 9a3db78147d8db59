"""Read Chat Completions bodies.

What the neutral message cannot say stays under ``provider["openai_chat"]``, where ``encode`` finds it:

- fields of the body, of a message, a part, a call or a tool that have no neutral place, verbatim;
- hints on form: ``@content`` (``list``, ``null``, ``absent``), ``@field`` (where reasoning, a refusal or an old
  function call stood), ``@type`` and ``@id`` (``absent``), ``@arguments`` (``object``), ``@role``, ``@max_tokens``;
- ``@choice``: what stood beside a message in its choice (``index``, ``logprobs``, …).

Source: wires.md 2.1 to 2.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError, ProviderError
from palaver.core.jsontext import NULL, Fields
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FinishReason,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    Citation,
    File,
    FileId,
    Image,
    Inline,
    MalformedToolCall,
    MediaSource,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core import mediatypes
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.core.usage import Usage
from palaver.wires import reading
from palaver.wires.openai_chat.forms import (
    AUDIO_FORMATS,
    FINISH,
    WIRE,
    nested,
    read_output_format,
    read_tool_choice,
    write_output_format,
    write_tool_choice,
)
from palaver.wires.reading import hint, provider

if TYPE_CHECKING:
    from collections.abc import Callable


# -- requests --------------------------------------------------------------------------------------


def request(body: bytes) -> Request:
    """Read a request body. Raises ``DecodeError``."""
    rest = jsontext.fields(body)
    raw_messages = reading.take_items(rest, "messages")
    if raw_messages is None:
        missing = "missing"
        raise DecodeError(missing, path="messages")
    raw_tools = reading.take_items(rest, "tools")
    if raw_tools == []:
        rest["@tools"] = hint("empty")
    return Request(
        messages=_messages(raw_messages),
        model=reading.take_text(rest, "model"),
        tools=tuple(reading.each(raw_tools or [], "tools", _tool)),
        settings=_settings(rest),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _settings(rest: Fields) -> Settings:
    max_tokens = reading.take_int(rest, "max_completion_tokens")
    if max_tokens is None:
        max_tokens = reading.take_int(rest, "max_tokens")
        if max_tokens is not None:
            rest["@max_tokens"] = hint("max_tokens")
    return Settings(
        max_tokens=max_tokens,
        temperature=reading.take_number(rest, "temperature"),
        top_p=reading.take_number(rest, "top_p"),
        stop=_stop(rest),
        seed=reading.take_int(rest, "seed"),
        frequency_penalty=reading.take_number(rest, "frequency_penalty"),
        presence_penalty=reading.take_number(rest, "presence_penalty"),
        tool_choice=_formed(rest, "tool_choice", read_tool_choice, write_tool_choice),
        parallel_tool_calls=reading.take_bool(rest, "parallel_tool_calls"),
        output=_formed(rest, "response_format", read_output_format, write_output_format),
        effort=reading.take_text(rest, "reasoning_effort"),
        stream=reading.take_bool(rest, "stream"),
    )


def _stop(rest: Fields) -> tuple[str, ...] | None:
    raw = rest.get("stop")
    if raw is not None and jsontext.kind(raw) == "a string":
        rest["@stop"] = hint("string")
        return (reading.need_text(rest, "stop"),)
    return reading.take_texts(rest, "stop")


def _formed(rest: Fields, key: str, read: Callable[[Raw], Any], write: Callable[[Any], object]) -> Any:  # noqa: ANN401
    """Take a field that has several forms; keep its form where ours is another."""
    raw = rest.get(key)
    found = None if raw is None else read(raw)
    if raw is None or found is None:
        return None
    del rest[key]
    reading.keep_form(rest, key, raw, write(found))
    return found


def _tool(raw: Raw) -> AnyTool:
    rest = jsontext.fields(raw)
    kind = reading.take_text(rest, "type")
    if kind is None and "type" not in rest:
        rest["@type"] = hint("absent")
        kind = "function"
    if kind not in ("function", "custom"):
        return ProviderTool(WIRE, jsontext.own(raw))
    inner = reading.take_fields(rest, kind)
    if inner is None:
        missing = "missing"
        raise DecodeError(missing, path=kind)
    try:
        parameters = inner.pop("parameters", UNSET) if kind == "function" else UNSET
        return Tool(
            reading.need_text(inner, "name"),
            reading.take_text(inner, "description"),
            UNSET if parameters is UNSET else jsontext.own(parameters),
            reading.take_bool(inner, "strict"),
            kind == "custom",
            provider_json=provider(WIRE, nested(rest, kind, inner)),
        )
    except DecodeError as error:
        raise error.within(kind) from None


# -- messages --------------------------------------------------------------------------------------


def _messages(raws: list[Raw]) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(raws):
        try:
            messages.append(_message(raw, index, messages))
        except DecodeError as error:
            raise error.within(f"messages[{index}]") from None
    return tuple(messages)


_ROLES: Final[dict[str, type]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
}


def _message(raw: Raw, index: int, before: list[Message]) -> Message:
    rest = jsontext.fields(raw)
    role = reading.need_text(rest, "role")
    if role == "assistant":
        return assistant(rest, f"call_{index}")
    content, _ = _content(rest, absent="null" if role in _ROLES else "")
    if role in _ROLES:
        return _ROLES[role](content=content, provider_json=provider(WIRE, rest))
    if role == "tool":
        call_id = reading.take_text(rest, "tool_call_id")
        return ToolMessage(content=content, tool_call_id=call_id, provider_json=provider(WIRE, rest))
    if role == "function":
        name = reading.take_text(rest, "name")
        rest["@role"] = hint("function")
        call_id = next((c.id for m in reversed(before) for c in m.tool_calls if c.name == name), None)
        return ToolMessage(content=content, tool_call_id=call_id, tool_name=name, provider_json=provider(WIRE, rest))
    unknown = f"unknown role {role[:40]!r}"
    raise DecodeError(unknown, path="role")


def _content(rest: Fields, *, absent: str = "") -> tuple[tuple[Any, ...], bool]:
    """Read ``content`` into parts; the hint says which form it had where that is not the one we would write."""
    raw = rest.pop("content", None)
    if raw is None:
        rest["@content"] = hint("absent")
        return (), False
    try:
        found = reading.string_or_items(raw)
    except DecodeError as error:
        raise error.within("content") from None
    if found is None:
        if absent != "assistant":
            rest["@content"] = hint("null")
        return (), False
    if isinstance(found, str):
        return (Text(found),), False
    parts = tuple(reading.each(found, "content", _part))
    if len(parts) == 0 or (len(parts) == 1 and isinstance(parts[0], Text) and parts[0].provider_json is UNSET):
        rest["@content"] = hint("list")
    return parts, True


def assistant(rest: Fields, place: str) -> AssistantMessage:
    """Read the fields of an assistant message, of a request or of a choice. ``place`` makes ids for calls without."""
    reasoning = _reasoning(rest)
    content, _ = _content(rest, absent="assistant")
    refusal = _refusal(rest)
    audio = _audio(rest)
    calls = _calls(rest, place)
    content = _cited(content, rest)
    return AssistantMessage(
        content=(*reasoning, *content, *refusal, *audio, *calls), provider_json=provider(WIRE, rest)
    )


def _refusal(rest: Fields) -> tuple[Refusal, ...]:
    raw = rest.get("refusal")
    if raw is None or raw in (NULL, Raw(b'""')):
        return ()
    return (Refusal(reading.need_text(rest, "refusal")),)


def _audio(rest: Fields) -> tuple[Audio, ...]:
    raw = rest.get("audio")
    if raw is None or jsontext.kind(raw) != "an object":
        return ()
    fields = jsontext.fields(raw)
    data = fields.pop("data", None)
    if data is None or jsontext.kind(data) != "a string" or data == Raw(b'""'):
        return ()
    del rest["audio"]
    return (Audio(Inline(jsontext.text(data)), provider_json=provider(WIRE, {"audio": jsontext.raw(fields)})),)


def _reasoning(rest: Fields) -> tuple[Reasoning, ...]:
    """Read reasoning where accents put it; proofs first, since the text beside them is a copy (wires.md 2.9)."""
    raw = rest.get("reasoning_details")
    if raw is not None and jsontext.kind(raw) == "an array" and (details := jsontext.items(raw)):
        del rest["reasoning_details"]
        return tuple(reading.each(details, "reasoning_details", _detail))
    for field in ("reasoning_content", "reasoning"):
        raw = rest.get(field)
        if raw is not None and jsontext.kind(raw) == "a string" and raw != Raw(b'""'):
            held = provider(WIRE, {"@field": hint(field)})
            return (Reasoning(reading.need_text(rest, field), wire=WIRE, provider_json=held),)
    return ()


def _detail(raw: Raw) -> Reasoning:
    rest = jsontext.fields(raw)
    text = reading.take_text(rest, "text")
    summary = reading.take_text(rest, "summary") if text is None else None
    if summary is not None:
        rest["@text"] = hint("summary")
    elif text is None:
        rest["@text"] = hint("absent")
    signature = reading.take_text(rest, "signature")
    encrypted = reading.take_text(rest, "data")
    rest["@field"] = hint("reasoning_details")
    return Reasoning(text or summary or "", signature, encrypted, WIRE, provider_json=provider(WIRE, rest))


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
    citations = tuple(reading.each(found, "annotations", _citation))
    last = texts[-1]
    return (*content[:last], content[last].replace(citations=citations), *content[last + 1 :])


def _citation(raw: Raw) -> Citation:
    fields = jsontext.value(raw)
    inner = fields.get("url_citation") if isinstance(fields, dict) else None
    table = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}

    def of(key: str, kind: type) -> Any:  # noqa: ANN401 (as asked for)
        found = table.get(key)
        return found if isinstance(found, kind) and not isinstance(found, bool) else None

    return Citation(
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
            found = jsontext.items(raw)
            if found:
                calls = tuple(_call(each, f"{place}_{index}", index) for index, each in enumerate(found))
                del rest["tool_calls"]
        except DecodeError as error:
            raise error.within("tool_calls") from None
    return calls + _function_call(rest, place)


def _function_call(rest: Fields, place: str) -> tuple[ToolCall | MalformedToolCall, ...]:
    """Read the deprecated ``function_call``; one whose name is empty is none (wires.md 2.9, Snowflake)."""
    raw = rest.get("function_call")
    if raw is None or jsontext.kind(raw) != "an object":
        return ()
    inner = jsontext.fields(raw)
    name = reading.take_text(inner, "name")
    if not name:
        return ()
    arguments = reading.take_text(inner, "arguments") or ""
    del rest["function_call"]
    held = provider(WIRE, {"@field": hint("function_call"), **inner})
    return (reading.call(f"{place}_function", name, arguments, held),)


def _call(raw: Raw, made_id: str, index: int) -> ToolCall | MalformedToolCall:
    try:
        rest = jsontext.fields(raw)
        call_id = reading.take_text(rest, "id")
        if call_id is None:
            rest["@id"] = hint("absent")
        kind = reading.take_text(rest, "type")
        if kind is None:
            rest["@type"] = hint("absent")
        key = "custom" if kind == "custom" else "function"
        inner = reading.take_fields(rest, key)
        if inner is None:
            missing = "missing"
            raise DecodeError(missing, path=key)
        name = reading.need_text(inner, "name")
        if kind == "custom":
            text = inner.pop("input", Raw(b'""'))
            held = provider(WIRE, nested(rest, key, inner))
            return ToolCall(call_id or made_id, name, bytes(text).decode(), custom=True, provider_json=held)
        arguments = _arguments(inner, rest)
        if kind not in (None, "function"):
            rest["type"] = jsontext.raw(kind)
        return reading.call(call_id or made_id, name, arguments, provider(WIRE, nested(rest, key, inner)))
    except DecodeError as error:
        raise error.within(f"[{index}]") from None


def _arguments(inner: Fields, rest: Fields) -> str:
    """Read the arguments text; some servers write an object, and some nothing."""
    raw = inner.pop("arguments", None)
    if raw is None or raw == NULL:
        rest["@arguments"] = hint("absent" if raw is None else "null")
        return ""
    if jsontext.kind(raw) == "an object":
        rest["@arguments"] = hint("object")
        return bytes(raw).decode()
    try:
        return jsontext.text(raw)
    except DecodeError as error:
        raise error.within("function.arguments") from None


# -- parts -----------------------------------------------------------------------------------------


def _part(raw: Raw) -> AnyPart:
    rest = jsontext.fields(raw)
    kind = reading.need_text(rest, "type")
    read = _PARTS.get(kind)
    return Opaque(WIRE, jsontext.own(raw)) if read is None else read(rest, raw)


def _text(rest: Fields, _raw: Raw) -> AnyPart:
    text = reading.need_text(rest, "text")
    return Text(text, provider_json=provider(WIRE, rest)) if rest else Text(text)


def _refused(rest: Fields, _raw: Raw) -> AnyPart:
    text = reading.need_text(rest, "refusal")
    rest["@field"] = hint("part")
    return Refusal(text, provider_json=provider(WIRE, rest))


def _linked(cls: type[Image] | type[Video] | type[File], key: str) -> Callable[[Fields, Raw], AnyPart]:
    """Read a part that points to a URL, given as an object or (Mistral) as a bare string."""

    def read(rest: Fields, _raw: Raw) -> AnyPart:
        raw = rest.pop(key, None)
        if raw is None:
            missing = "missing"
            raise DecodeError(missing, path=key)
        if jsontext.kind(raw) == "a string":
            rest["@form"] = hint("string")
            url, inner = jsontext.text(raw), {}
        else:
            try:
                inner = jsontext.fields(raw)
                url = reading.need_text(inner, "url")
            except DecodeError as error:
                raise error.within(key) from None
        if cls is File:
            rest["@field"] = hint(key)
        source, media_type = _source(url)
        return cls(source, media_type, provider_json=provider(WIRE, nested(rest, key, inner)))

    return read


def _source(url: str) -> tuple[MediaSource, str | None]:
    """Take a data URI apart where writing it again gives the same text; else the URL stays whole."""
    if url[:5] == "data:":
        try:
            media_type, data = mediatypes.split_data_uri(url)
        except MessageError:
            return Url(url), None
        if url == f"data:{media_type};base64,{data}":
            return Inline(data), media_type
    return Url(url), None


def _recording(rest: Fields, _raw: Raw) -> AnyPart:
    inner = reading.take_fields(rest, "input_audio")
    if inner is None:
        missing = "missing"
        raise DecodeError(missing, path="input_audio")
    try:
        data = reading.need_text(inner, "data")
        word = reading.take_text(inner, "format")
    except DecodeError as error:
        raise error.within("input_audio") from None
    media_type = None if word is None else AUDIO_FORMATS.get(word)
    if word is not None and media_type is None:
        inner["format"] = jsontext.raw(word)
    return Audio(Inline(data), media_type, provider_json=provider(WIRE, nested(rest, "input_audio", inner)))


def _file(rest: Fields, _raw: Raw) -> AnyPart:
    inner = reading.take_fields(rest, "file")
    if inner is None:
        missing = "missing"
        raise DecodeError(missing, path="file")
    try:
        file_id = reading.take_text(inner, "file_id")
        data = None if file_id is not None else reading.take_text(inner, "file_data")
        name = reading.take_text(inner, "filename")
    except DecodeError as error:
        raise error.within("file") from None
    held = provider(WIRE, nested(rest, "file", inner))
    if file_id is not None:
        return File(FileId(file_id, WIRE), None, name, provider_json=held)
    if data is None:
        missing = "neither file_id nor file_data"
        raise DecodeError(missing, path="file")
    source, media_type = _source(data)
    return File(source, media_type, name, provider_json=held)


def _thinking(rest: Fields, _raw: Raw) -> AnyPart:
    """Read Mistral's thinking block; its list of texts is kept, the text is a view."""
    raw = rest.get("thinking")
    if raw is None:
        missing = "missing"
        raise DecodeError(missing, path="thinking")
    text = thinking_text(raw)
    rest["@field"] = hint("thinking")
    return Reasoning(text, wire=WIRE, provider_json=provider(WIRE, rest))


def thinking_text(raw: Raw) -> str:
    """Join the texts of a thinking block."""
    found = jsontext.value(raw)
    if isinstance(found, str):
        return found
    if not isinstance(found, list):
        wrong = f"expected an array, got {jsontext.kind(raw)}"
        raise DecodeError(wrong, path="thinking")
    blocks = cast("list[Any]", found)
    return "".join(block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


_PARTS: Final[dict[str, Callable[[Fields, Raw], AnyPart]]] = {
    "text": _text,
    "refusal": _refused,
    "image_url": _linked(Image, "image_url"),
    "video_url": _linked(Video, "video_url"),
    "document_url": _linked(File, "document_url"),
    "input_audio": _recording,
    "file": _file,
    "thinking": _thinking,
}


# -- responses -------------------------------------------------------------------------------------


def response(body: bytes) -> Response:
    """Read a response body. Raises ``DecodeError``, or ``ProviderError`` for an error or no completion at all."""
    rest = jsontext.fields(body)
    raw_choices = rest.get("choices")
    if raw_choices is None or raw_choices in (NULL, Raw(b"[]")):
        raise _provider_error(rest, body)
    usage = _usage(rest)
    model = reading.take_text(rest, "model")
    response_id = reading.take_text(rest, "id")
    del rest["choices"]
    try:
        choices = [_choice(raw, index) for index, raw in enumerate(jsontext.items(raw_choices))]
    except DecodeError as error:
        raise error.within("choices") from None
    first, *others = choices
    return Response(
        message=_completed(first, model, usage, response_id),
        alternatives=tuple(others),
        origin=WIRE,
        provider_json=provider(WIRE, rest),
    )


def _completed(message: AssistantMessage, model: str | None, usage: Usage | None, response_id: str | None) -> AssistantMessage:
    return AssistantMessage(
        content=message.content,
        model=model,
        usage=usage,
        finish_reason=message.finish_reason,
        finish_reason_raw=message.finish_reason_raw,
        response_id=response_id,
        provider_json=message.provider_json,
    )


def _provider_error(rest: Fields, body: bytes) -> ProviderError:
    table = jsontext.value(body)
    found = table.get("error") if isinstance(table, dict) else None
    inner = cast("dict[str, Any]", found if isinstance(found, dict) else table)
    text = found if isinstance(found, str) else inner.get("message") or inner.get("detail")
    code = inner.get("code") or inner.get("type")
    message = text if isinstance(text, str) else "no completion in the body" if "error" not in rest else str(text)
    return ProviderError(WIRE, message, code=None if code is None else str(code), body=body)


def _choice(raw: Raw, index: int) -> AssistantMessage:
    try:
        rest = jsontext.fields(raw)
        fields = reading.take_fields(rest, "message")
        if fields is None:
            missing = "missing"
            raise DecodeError(missing, path="message")
        role = fields.pop("role", None)
        if role != Raw(b'"assistant"'):
            rest["@role"] = NULL if role is None else role
        word = reading.take_text(rest, "finish_reason")
        finish_raw = word if word is not None else None if "finish_reason" in rest else UNSET
        rest.pop("finish_reason", None)
        if rest != _PLAIN_CHOICE:
            fields["@choice"] = Raw(jsontext.encode(rest))
        message = assistant(fields, "call")
    except DecodeError as error:
        raise error.within(f"[{index}]") from None
    return AssistantMessage(
        content=message.content,
        finish_reason=_finish(word, message),
        finish_reason_raw=finish_raw,
        provider_json=message.provider_json,
    )


_PLAIN_CHOICE: Final[Fields] = {"index": Raw(b"0")}


def _finish(word: str | None, message: AssistantMessage) -> FinishReason:
    if not word:
        return "tool_calls" if message.tool_calls else "stop"
    reason = FINISH.get(word, "other")
    refused = reason == "stop" and any(isinstance(part, Refusal) for part in message.content)
    return "refusal" if refused else reason


def _usage(rest: Fields) -> Usage | None:
    raw = rest.get("usage")
    if raw is None or jsontext.kind(raw) != "an object":
        return None
    del rest["usage"]
    return usage(raw)


def usage(raw: Raw) -> Usage:
    """Read the usage object into disjoint counters (wires.md 1.2)."""
    table = jsontext.value(raw)
    count = reading.counter
    prompt, completion = count(table, "prompt_tokens"), count(table, "completion_tokens")
    read = count(table, "prompt_tokens_details", "cached_tokens")
    for name in ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens"):
        read = count(table, name) if read is None else read
    written = count(table, "prompt_tokens_details", "cache_write_tokens")
    reasoning = count(table, "completion_tokens_details", "reasoning_tokens")
    total = count(table, "total_tokens")
    beside = reasoning and total == (prompt or 0) + (completion or 0) + reasoning  # xAI counts it beside
    output = completion if completion is None or beside or not reasoning else max(0, completion - reasoning)
    excluded = prompt is not None and read is not None and read > prompt and not written  # xAI leaves it out
    return Usage(
        input=prompt if excluded else reading.uncached(prompt, read, written),
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )
