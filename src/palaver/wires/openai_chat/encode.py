"""Write Chat Completions bodies.

The wire cannot express these (docs/spec/wires.md#2.8): reasoning of other wires, server tools, citations that are no
URL citations of its own, an error flag on results, media in results, documents by URL, text between tool calls.
``fit`` deals with those before this module is asked.

Source: docs/spec/wires.md#2.1 to #2.5, #2.8, #2.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, UnsetType, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import Fields
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    SystemMessage,
    ToolMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.tools import Tool
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.fit import are_alike, fitting_name, join_neighbors
from palaver.wires._engine.json_fields import native, notes, word
from palaver.wires._engine.schemas import OPENAI, fit_output, fit_tool
from palaver.wires._engine.tools import NO_TOOLS, write_tool
from palaver.wires._engine.vendors import fit_request_fields
from palaver.wires.openai_chat.decode_parts import thinking_text
from palaver.wires.openai_chat.shapes import (
    AUDIO_WORDS,
    DETAILS,
    FINISH,
    NEAR_WORD,
    WIRE,
    finish_words,
    write_output_format,
    write_tool_choice,
    write_usage,
)
from palaver.wires.openai_chat.variants import CAPABILITIES, Variant, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.pairs import Placed
    from palaver.core.request import Request, Response
    from palaver.wires._engine.encode_state import Context

__all__ = ["CAPABILITIES", "LIST", "assistant", "head", "hoists", "response", "turn"]

LIST: Final = "messages"
_BETWEEN: Final = "Understood."
"""Stands between a tool result and a user message where a vendor refuses them side by side."""


def hoists(_message: SystemMessage, _context: Context) -> bool:
    """System messages stand among the others."""
    return False


# -- the head --------------------------------------------------------------------------------------


def head(request: Request, _system: Sequence[SystemMessage], context: Context) -> dict[str, Any]:
    """Write model, settings and tools."""
    rest, noted = native(request, WIRE), notes(request, WIRE)
    settings, variant = request.settings, row(context.variant)
    fields: dict[str, Any] = {}
    if request.model is not None:
        fields["model"] = request.model
    if settings.max_tokens is not None:
        newer = "max_completion_tokens" if context.own else variant.max_tokens
        fields["max_tokens" if "max_tokens" in noted else newer] = settings.max_tokens
    for key in (
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "parallel_tool_calls",
        "stream",
    ):
        value = getattr(settings, key)
        if value is not None:
            fields[key] = value
    if settings.stop is not None:
        fields["stop"] = list(settings.stop)
    _put_thinking(fields, rest, noted, request, context)
    if settings.top_k is not None:
        context.lose("dropped", "top_k", "the wire has no such setting")
    tools = [
        written
        for tool in request.tools
        if (written := write_tool(fit_tool(tool, OPENAI, context), context, strict=True)) is not None
    ]
    if tools:
        fields["tools"] = tools
    _put_tool_choice(fields, noted, request, variant, context)
    if not context.own and "tools" not in fields and fields.pop("parallel_tool_calls", None) is not None:
        context.lose("dropped", "parallel_tool_calls", NO_TOOLS)
    if settings.output is not None:
        output = fit_output(settings.output, OPENAI, context, strict=True)
        fields["response_format"] = write_output_format(output, named=not context.own)
    _list_foreign(request, context)
    body = {**fields, **(rest if context.own else fit_request_fields(rest, context)), **fields}
    for key in () if context.own else sorted(variant.refuses.intersection(body)):
        context.lose("dropped", key, "the vendor refuses it")
        del body[key]
    return body


def _put_tool_choice(
    fields: dict[str, Any], noted: Fields, request: Request, variant: Variant, context: Context
) -> None:
    choice, tools = request.settings.tool_choice, fields.get("tools")
    if choice is None:
        return
    own_custom = context.own or context.capabilities.custom_calls
    custom = [each.name for each in request.tools if isinstance(each, Tool) and each.custom] if own_custom else []
    if choice.names and not context.own:
        choice = structs.replace(choice, names=tuple([fitting_name(name, context) for name in choice.names]))
        custom = [fitting_name(name, context) for name in custom]
    written = write_tool_choice(choice, custom, jsontext.fields(noted.get("tool_choice", jsontext.EMPTY_OBJECT)))
    if written == "required":
        any_word = variant.required == "required" and "required" in noted and (context.own or context.variant is None)
        if any_word:
            written = "any"
        elif not (context.own and variant.required == "auto"):
            if variant.required == "auto":
                context.lose("approximated", "tool_choice", "“required” is refused; “auto” was sent")
            written = variant.required
    if written == "none" and not variant.none_keeps_tools and tools:
        context.lose("converted", "tool_choice", "“none” is refused beside tools; the tools were left out")
        del fields["tools"]
        return
    if not tools and not context.own:
        if written != "none":
            context.lose("dropped", "tool_choice", "there is no tool to choose")
        return
    fields["tool_choice"] = written


def _put_thinking(fields: dict[str, Any], rest: Fields, noted: Fields, request: Request, context: Context) -> None:
    """Write effort and budget where the vendor reads them; OpenAI's own models refuse sampling beside them."""
    model_row = thinking.row(WIRE, context.variant, context.model)
    places: tuple[thinking.Place, ...] = thinking.CHAT_PLACES
    here = (*model_row.places, *(thinking.SERVER_PLACES if context.variant == "compatible" else ()))
    if context.own or thinking.stays(noted, request.settings, here):
        settings = request.settings
    else:
        settings, places = thinking.fit_effort(request.settings, context), model_row.places
        if request.settings.reasoning_tokens == thinking.OFF or request.settings.effort == "none":
            thinking.drop_unread(rest, thinking.CHAT_PLACES, context)
    thinking.put(fields, rest, noted, settings, places, model_row.on)
    if not context.own and context.variant is None and settings.effort in thinking.SCALE[1:]:
        for key in ("temperature", "top_p", "frequency_penalty", "presence_penalty"):
            if fields.pop(key, None) is not None:
                context.lose("dropped", key, "refused beside a reasoning effort")


def _list_foreign(request: Request, context: Context) -> None:
    for wire, key, _ in json_fields.foreign(request, WIRE):
        context.lose("dropped", key, f"a field of {wire}")


# -- messages --------------------------------------------------------------------------------------


def turn(messages: Sequence[Placed], context: Context) -> list[dict[str, Any]]:
    """Write each message as one; neighbours that are alike become one."""
    variant = row(context.variant)
    written: list[dict[str, Any]] = []
    alike: list[bool] = []
    before: Message | None = None
    for item in messages:
        fields = _message(item.message, context, variant, item.index)
        if not context.own and _is_empty(fields):
            continue
        after_tool = written and written[-1]["role"] == "tool" and fields["role"] == "user"
        if after_tool and not variant.user_after_tool and not context.own:
            why = "refused right behind a tool message; a fixed assistant text was put between"
            context.lose("converted", "user message", why, item.index)
            written.append({"role": "assistant", "content": _BETWEEN})
            alike.append(False)
        written.append(fields)
        alike.append(are_alike(before, item.message, context))
        before = item.message
    return join_neighbors(written, alike, "text", lists=bool(context.capabilities.media))


def _is_empty(fields: dict[str, Any]) -> bool:
    """Whether the provider refuses an assistant message as empty, such as one with reasoning only."""
    if (
        fields["role"] != "assistant"
        or fields.get("content") is not None
        or not fields.keys().isdisjoint(_CONTENT_KEYS)
    ):
        return False
    fields["content"] = ""
    return fields.keys() == {"role", "content"}


_CONTENT_KEYS: Final = frozenset({"tool_calls", "function_call", "refusal", "audio"})


def _message(message: Message, context: Context, variant: Variant, index: int) -> dict[str, Any]:
    rest = native(message, WIRE)
    if isinstance(message, AssistantMessage):
        return assistant(message, rest, context, variant, index)
    fields: dict[str, Any] = {"role": "developer" if isinstance(message, DeveloperMessage) else message.role}
    if isinstance(message, ToolMessage):
        noted = notes(message, WIRE)
        named = {} if message.tool_name is None else {"name": message.tool_name}
        if noted.get("role") == _FUNCTION:
            fields = {"role": "function", **named}
        elif message.tool_call_id is not None:
            fields["tool_call_id"] = message.tool_call_id
        if "name" in noted:
            fields |= named
    fields["content"] = _content(message.content, context, none="" if isinstance(message, ToolMessage) else None)
    return {**fields, **rest, **fields}


_FUNCTION: Final = word("function")


def _content(parts: Sequence[AnyPart], context: Context, *, none: str | None = None) -> object:
    """Write ``content`` in the plainest form that holds the parts."""
    match list(parts):
        case []:
            return none
        case [Text() | Json() as only] if not native(only, WIRE):
            return only.text if isinstance(only, Text) else bytes(only.value_json).decode()
        case found:
            return [content_part(part, context) for part in found]


def assistant(
    message: AssistantMessage, rest: Fields, context: Context, variant: Variant, index: int | None = None
) -> dict[str, Any]:
    """Write an assistant message, of a request or of a choice."""
    fields: dict[str, Any] = {"role": "assistant"}
    content: list[AnyPart] = []
    calls: list[Any] = []
    for part in message.content:
        match part:
            case ToolCall() | MalformedToolCall():
                if has_field(part, "function_call"):
                    fields["function_call"] = _function_call(part)
                else:
                    calls.append(_call(part, context))
            case Reasoning():
                _put_reasoning(part, fields, content, variant, context, index)
            case Refusal() if not has_field(part, "part"):
                fields["refusal"] = f"{fields.get('refusal', '')}{part.text}"
            case Audio() if index is not None and not context.own and "id" not in _audio_fields(part):
                context.lose("dropped", "audio", "the model's audio is sent back by its id only", index)
            case Audio() if "audio" in native(part, WIRE) or not context.own:
                fields["audio"] = audio(part)
            case _:
                content.append(part)
    fields["content"] = _content(content, context)
    if variant.reasoning_with_calls and variant.reasoning and not context.own:
        if calls:
            fields.setdefault(variant.reasoning, "")
        elif fields.pop(variant.reasoning, None):
            context.lose("dropped", "reasoning", "goes back on messages with tool calls only", index)
    if calls:
        fields["tool_calls"] = calls
    citations = [c.raw_json for part in content if isinstance(part, Text) for c in part.citations]
    if citations:
        fields["annotations"] = citations
    written = {**fields, **rest, **fields}
    if "audio" in written and index is not None and not context.own:
        written["audio"] = _by_id(written["audio"])
    return written


def _by_id(recording: dict[str, Any] | Raw) -> object:
    """The audio of an earlier answer: a request takes its id only, and the provider has the rest.

    Source: https://platform.openai.com/docs/api-reference/chat/create.
    """
    if isinstance(recording, Raw) and jsontext.kind(recording) != "an object":
        return recording
    found = jsontext.fields(recording) if isinstance(recording, Raw) else recording
    return {"id": found["id"]} if "id" in found else recording


def has_field(part: AnyPart, field: str) -> bool:
    """Whether a part stood in this field, of several that are possible."""
    return notes(part, WIRE).get("field") == word(field)


def _put_reasoning(  # noqa: PLR0917 (a part, and where it goes)
    part: Reasoning,
    fields: dict[str, Any],
    content: list[AnyPart],
    variant: Variant,
    context: Context,
    index: int | None,
) -> None:
    """Put reasoning where it stood; where a vendor was chosen, into the field which that vendor reads."""
    target = reasoning_field(part, variant, context)
    for proof in ("signature", "encrypted") if target not in (None, DETAILS) else ():
        if getattr(part, proof) is not None and not context.own:
            context.lose("dropped", f"reasoning {proof}", "only “reasoning_details” has one", index)
    if target == DETAILS:
        fields.setdefault(DETAILS, []).append(detail(part))
    elif target == "thinking" and (part.text or has_field(part, "thinking")):
        content.append(part if has_field(part, "thinking") else trusted.Reasoning(part.text, wire=part.wire))
    elif target not in (None, "thinking") and part.text:
        before = fields.get(target)
        fields[target] = part.text if before is None else f"{before}\n\n{part.text}"
    elif target not in (None, "thinking") and not context.own and not has_field(part, DETAILS):
        fields.setdefault(target, "")
    else:
        context.lose("dropped", "reasoning", "no field for it here", index)


def reasoning_field(part: Reasoning, variant: Variant, context: Context) -> str | None:
    """Which field reasoning goes into: ``thinking`` stands in the content; ``None``: there is none."""
    noted = notes(part, WIRE).get("field")
    found = None if noted is None else jsontext.text(noted)
    free = context.variant is None or context.own
    if found == DETAILS and variant.details:
        return found
    return found if free else variant.reasoning


def detail(part: Reasoning) -> dict[str, Any]:
    """Write one item of ``reasoning_details``."""
    fields: dict[str, Any] = {}
    if part.text or not part.encrypted:
        fields[text_field(part)] = part.text
    if part.signature is not None:
        fields["signature"] = part.signature
    if part.encrypted is not None:
        fields["data"] = part.encrypted
    return {**fields, **native(part, WIRE)}


def text_field(part: Reasoning) -> str:
    """The field of an item of ``reasoning_details`` that has its text."""
    return "summary" if "text" in notes(part, WIRE) else "text"


def _audio_fields(part: Audio) -> Fields:
    """What is kept of a recording beside its bytes."""
    return jsontext.fields(native(part, WIRE).get("audio", jsontext.EMPTY_OBJECT))


def audio(part: Audio) -> dict[str, Any]:
    """Write the audio of an answer."""
    return {**_audio_fields(part), "data": part.source.data if isinstance(part.source, Inline) else ""}


# -- tool calls ------------------------------------------------------------------------------------


def _function_call(part: ToolCall | MalformedToolCall) -> dict[str, Any]:
    text = part.arguments_json if isinstance(part, ToolCall) else part.raw
    return {"name": part.name, "arguments": text, **native(part, WIRE)}


def _call(part: ToolCall | MalformedToolCall, context: Context) -> dict[str, Any]:
    rest, noted = native(part, WIRE), notes(part, WIRE)
    fields: dict[str, Any] = {}
    if not (context.own and "id" in noted):  # the results name it
        fields["id"] = part.id
    custom = isinstance(part, ToolCall) and part.custom
    key = "custom" if custom else "function"
    fields["type"] = key
    inner: dict[str, Any] = {"name": part.name}
    text = part.arguments_json if isinstance(part, ToolCall) else part.raw
    if custom:
        inner["input"] = Raw(text.encode())
    elif "arguments" in noted and jsontext.is_json(text):
        inner["arguments"] = Raw(text.encode())
    else:
        inner["arguments"] = text
    inner.update(jsontext.fields(rest.pop(key, jsontext.EMPTY_OBJECT)))
    return {**fields, key: inner, **rest}


# -- parts -----------------------------------------------------------------------------------------


def content_part(part: AnyPart, context: Context) -> Any:
    """Write one item of a content list."""
    rest = native(part, WIRE)
    match part:
        case Text():
            return {"type": "text", "text": part.text, **rest}
        case Json():
            return {"type": "text", "text": bytes(part.value_json).decode(), **rest}
        case Opaque():
            return part.raw_json
        case Refusal():
            return {"type": "refusal", "refusal": part.text, **rest}
        case Reasoning():
            return _thinking(part, rest)
        case Image():
            return _linked(part, "image_url", rest)
        case Video():
            return _linked(part, "video_url", rest)
        case Audio():
            return _recording(part, rest)
        case File():
            linked = has_field(part, "document_url") or (
                row(context.variant).document == "document_url" and not context.own
            )
            return _linked(part, "document_url", rest) if linked else _file(part, rest, context)
        case _:
            context.lose("dropped", type(part).__name__, "the wire has no such part")
            return {"type": "text", "text": ""}


def _thinking(part: Reasoning, rest: Fields) -> dict[str, Any]:
    raw = rest.pop("thinking", None)
    if raw is None or thinking_text(raw) != part.text:
        raw = jsontext.raw([{"type": "text", "text": part.text}])
    return {"type": "thinking", "thinking": raw, **rest}


def _link(part: Media) -> str:
    match part.source:
        case Url(url):
            return url
        case Inline():
            return part.data_uri or ""
        case FileId(file_id):
            return file_id
        case _:
            return ""


def _linked(part: Media, key: str, rest: Fields) -> dict[str, Any]:
    inner = jsontext.fields(rest.pop(key, jsontext.EMPTY_OBJECT))
    plain = key == "document_url" and not inner  # as Mistral's own client sends it
    named = {"document_name": part.name} if isinstance(part, File) and part.name is not None else {}
    return {"type": key, key: _link(part) if plain else {"url": _link(part), **inner}, **named, **rest}


def _recording(part: Audio, rest: Fields) -> dict[str, Any]:
    inner: dict[str, Any] = {"data": part.source.data if isinstance(part.source, Inline) else ""}
    word = AUDIO_WORDS.get(part.media_type or "")
    if word is not None:
        inner["format"] = word
    inner.update(jsontext.fields(rest.pop("input_audio", jsontext.EMPTY_OBJECT)))
    return {"type": "input_audio", "input_audio": inner, **rest}


def _file(part: File, rest: Fields, context: Context) -> dict[str, Any]:
    inner: dict[str, Any] = {"file_id" if isinstance(part.source, FileId) else "file_data": _link(part)}
    if part.name is not None:
        inner["filename"] = part.name
    elif not isinstance(part.source, FileId) and not context.own:
        inner["filename"] = "document"
    inner.update(jsontext.fields(rest.pop("file", jsontext.EMPTY_OBJECT)))
    return {"type": "file", "file": inner, **rest}


# -- responses -------------------------------------------------------------------------------------


def response(response: Response, context: Context) -> dict[str, Any]:
    """Write a response body; a foreign one gets the fields that the official client requires."""
    rest = native(response, WIRE)
    message = response.message
    fields: dict[str, Any] = {}
    if message.response_id is not None or not context.own:
        fields["id"] = "chatcmpl-0" if message.response_id is None else message.response_id
    if not context.own:
        fields |= {
            "object": "chat.completion",
            "created": (message.sent_at or 0) // 1000,
            "model": message.model or "",
        }
    elif message.model is not None:
        fields["model"] = message.model
    choices = (message, *response.alternatives)
    fields["choices"] = [_choice(each, index, context) for index, each in enumerate(choices)]
    if message.usage is not None:
        fields["usage"] = write_usage(message.usage)
    return {**fields, **rest, **fields}


def finish_word(message: AssistantMessage, context: Context) -> str | UnsetType | None:
    """Return the word for why an answer ended; calls of the deprecated ``function_call`` have one of their own."""
    found = context.finish_word(message, FINISH.get, finish_words(message.content), near=NEAR_WORD)
    calls = [part for part in message.content if isinstance(part, ToolCall | MalformedToolCall)]
    old = not context.own and calls and all(has_field(part, "function_call") for part in calls)
    return "function_call" if old and found == "tool_calls" else found


def _choice(message: AssistantMessage, index: int, context: Context) -> dict[str, Any]:
    noted = notes(message, WIRE)
    body = assistant(message, native(message, WIRE), context, row(context.variant))
    if "role" in noted:
        body["role"] = noted["role"]
    if not context.own:
        body.setdefault("refusal", None)
        _join_texts(body, context, index)
    fields: dict[str, Any] = {"message": body}
    word = finish_word(message, context)
    if word is not UNSET:
        fields["finish_reason"] = word
    if not context.own:
        fields["logprobs"] = None
    if context.own or context.known is not None:
        fields |= jsontext.fields(noted.get("choice", jsontext.EMPTY_OBJECT))
    return {"index": index, **fields}


def _join_texts(body: dict[str, Any], context: Context, index: int) -> None:
    """Make several texts of an answer one: its content is a string, where a message of a request may hold a list."""
    if not isinstance(body.get("content"), list):
        return
    texts = [_text_of(part) for part in cast("list[Any]", body["content"])]
    found = [text for text in texts if text is not None]
    if len(found) == len(texts):
        body["content"] = "".join(found)
        if len(found) > 1:
            context.lose("converted", "text", "several texts became one; an answer has one string", index)


def _text_of(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return None
