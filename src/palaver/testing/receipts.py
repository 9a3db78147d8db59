"""Check that a receipt is complete: compare what a request has with what the body has, value by value.

``check_receipt`` returns complaints. The list is empty when the body and the receipt account for everything:

- Each value of the request (text, call, result, medium, proof, field, setting, tool, output format) is in the body, or
  a loss names its place.
- Each text of the body is in the request, unless the receipt reports a conversion.
- An empty value (``null``, ``""``, ``[]``) of the body is in the request, or the format requires it.
- The body has no address that only this machine can open.

Values that no wire carries (ids, times, tags, agents, modes, sources, payloads, metadata) are ignored. A request that
goes back unedited is covered by law 2.

Stability: experimental.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import canonical, jsontext, media_types
from palaver.core.errors import PalaverError
from palaver.core.jsontext import sayable, sayable_json
from palaver.core.messages import AssistantMessage, FlushMarker, RescueMarker, ToolMessage
from palaver.core.parts import (
    Blob,
    File,
    FileId,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.tools import ProviderTool, Tool
from palaver.testing.body_values import (
    KEYWORD_FIELDS,
    BodyValues,
    RequestValue,
    all_texts,
    compact_json,
    normalized,
    parsed_json,
    recoded_base64,
    standard_base64,
)
from palaver.testing.tables import row
from palaver.wires._engine import json_fields, metadata, vendors
from palaver.wires._engine.thinking import DYNAMIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.core.parts import AnyPart
    from palaver.core.request import Encoded, OutputFormat, Request
    from palaver.core.value import Value

__all__ = ["check_receipt"]

_EMPTY: Final = ("null", '""', "[]")
_FORMS: Final[dict[str, frozenset[tuple[str, str]]]] = {
    "openai_chat": frozenset({("content", "null"), ("arguments", '""'), ("reasoning_content", '""')}),
    "openai_responses": frozenset(
        {("summary", "[]"), ("annotations", "[]"), ("arguments", '""'), ("parameters", "null")}
    ),
    "anthropic_messages": frozenset(),
    "google_generate": frozenset(),
    "bedrock_converse": frozenset({("system", "[]")}),
    "cohere_chat": frozenset({("arguments", '""')}),
    "ollama_chat": frozenset({("content", '""'), ("messages", "[]")}),
}
"""Empty values that a format requires, by their field: Chat Completions needs ``content: null`` beside calls."""
_FETCHED: Final = ("http://", "https://", "gs://", "s3://", "data:")
_ADDRESSES: Final = frozenset(
    {"url", "image_url", "file_uri", "fileUri", "file_url", "uri", "document_url", "video_url"}
)


def check_receipt(name: str, request: Request, encoded: Encoded) -> list[str]:
    """Return the values that are neither in the body nor on the receipt, and those that are only in the body.

    ``name`` is the wire that encoded the request, with its variant: ``"openai_chat:groq"``.

    Stability: experimental.
    """
    wire, _, variant = name.partition(":")
    if request.origin == name:
        return []
    body = BodyValues(encoded.body)
    complaints = [
        f"{_place(each)}: {each.what} {_short(each.value)} is neither sent nor on the receipt"
        for each in _of_request(request, name)
        if not body.contains(each) and not _on_receipt(each, encoded) and not _is_carried(each, body)
    ]
    complaints += [
        f"{_place(each)}: {each.what} {_short(each.value)} belongs to another vendor and has no loss"
        for each in _foreign(request, wire, variant)
        if not _on_receipt(each, encoded) and not _is_carried(each, body)
    ]
    complaints += _missing_settings(request, name, encoded)
    complaints += [f"the body names {each!r}, which no provider fetches" for each in _unreachable(request, body)]
    complaints += _extra_empties(name, request, body, encoded)
    if not any(loss.kind != "dropped" for loss in encoded.losses):
        complaints += _extra_texts(request, body)
    return complaints


_MARKS: Final = frozenset({"cache_control", "cachePoint"})


def _is_carried(item: RequestValue, body: BodyValues) -> bool:
    """Return whether a value is one that the body says in its own wire's way: a cache mark, the detail of an image."""
    value: Any = item.value
    if item.what.rpartition(".")[2] == "detail":
        return ("detail", value) in body.leaves
    verbatim = item.what in {"block", "provider tool"}
    block = verbatim and isinstance(value, dict) and any(name in value for name in _MARKS)
    return (block or item.what in _MARKS) and not _MARKS.isdisjoint(body.names)


def _place(item: RequestValue) -> str:
    if item.message is None:
        return "request"
    return f"messages[{item.message}]" + ("" if item.part is None else f".content[{item.part}]")


def _short(value: Any) -> str:
    return repr(value)[:60]


def _on_receipt(item: RequestValue, encoded: Encoded) -> bool:
    for loss in encoded.losses:
        if item.message is None:
            if loss.message is None and loss.what in {
                item.what,
                "request",
                *_COVERED_BY.get("tool" if item.of_tool else item.what, ()),
            }:
                return True
        elif loss.message == item.message and (loss.part in {item.part, None} or loss.what == item.what):
            return True
    return False


_COVERED_BY: Final = {
    **dict.fromkeys(("output name", "output description", "output strict"), ("output",)),
    "tool_choice": ("tool name", "tools"),
    "strict": ("tools", "tool_choice"),
    "tool name": ("tool", "tools", "tool_choice"),
    "tool parameters": ("parameters", "tool", "tools", "tool_choice"),
    "custom tool": ("tool", "tools", "tool_choice"),
    "provider tool": ("tool", "tools", "tool_choice"),
    "tool": ("tools", "tool_choice"),
}
"""Losses that also cover another value: a wire may leave all tools out."""


def _of_request(request: Request, name: str) -> Iterator[RequestValue]:
    wire, _, variant = name.partition(":")
    if request.model is not None and wires.get(wire, variant or None).capabilities.names_model:
        yield RequestValue("model", request.model)
    for key in ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
        if (value := getattr(request.settings, key)) is not None:
            yield RequestValue(key, value, json=True)
    for word in request.settings.stop or ():
        yield RequestValue("stop", word)
    yield from _of_tools(request)
    yield from _own_fields(request, name, None, None, request)
    yield from _of_output(request.settings.output)
    for index, message in enumerate(request.messages):
        if isinstance(message, RescueMarker | FlushMarker):
            continue
        yield from _own_fields(message, name, index, None, message)
        if isinstance(message, ToolMessage) and message.is_error and message.content:
            continue
        for position, part in enumerate(message.content):
            for item in _of_part(part, wire):
                yield RequestValue(item.what, item.value, index, position, item.json)
            if not isinstance(part, Reasoning):  # each vendor has another field for it
                yield from _own_fields(part, name, index, position, message)


def _of_tools(request: Request) -> Iterator[RequestValue]:
    for tool in request.tools:
        if isinstance(tool, Tool):
            yield RequestValue("tool name", tool.name)
            if tool.description:
                yield RequestValue("tool", tool.description)
            if tool.strict:
                yield RequestValue("strict", tool.strict, json=True)
            if tool.custom:
                yield RequestValue("custom tool", "custom", json=True)
            if tool.parameters_json is not UNSET:
                yield RequestValue("tool parameters", _value(tool.parameters_json), json=True)
        else:
            yield RequestValue("provider tool", _value(tool.raw_json), json=True)
    choice = request.settings.tool_choice
    declared = {tool.name for tool in request.tools if isinstance(tool, Tool)}
    for word in () if choice is None or choice.mode == "none" else choice.names:
        if word in declared:
            yield RequestValue("tool_choice", word)


def _of_output(output: OutputFormat | None) -> Iterator[RequestValue]:
    if output is None or output.kind != "json_schema":
        return
    if output.schema_json is not UNSET:
        yield RequestValue("output", _value(output.schema_json), json=True)
    for key in ("name", "description"):
        if getattr(output, key):
            yield RequestValue(f"output {key}", sayable(getattr(output, key)))
    if output.strict:
        yield RequestValue("output strict", output.strict, json=True)


_IMPLICIT: Final = frozenset(
    {
        ("anthropic_messages", "parallel_tool_calls", True),
        *((wire, "stream", expected) for wire in ("google_generate", "bedrock_converse") for expected in (True, False)),
    }
)
"""Settings that a body expresses by leaving them out: defaults of the wire, and streams with their own URL."""


def _missing_settings(request: Request, name: str, encoded: Encoded) -> list[str]:
    """Return complaints about settings that change nothing in the body and have no loss."""
    wire, settings, silent = name.partition(":")[0], request.settings, list[str]()
    choice, output = settings.tool_choice, settings.output
    functions = any(isinstance(each, Tool) for each in request.tools)
    expected = {
        "tool_choice": choice is not None and choice.mode != "auto" and functions,
        "output": output is not None and output.kind != "text",
    }
    expected |= {
        key: (value := getattr(settings, key)) is not None
        and (wire, key, value) not in _IMPLICIT
        and (key != "parallel_tool_calls" or (functions and (choice is None or choice.mode != "none")))
        for key in ("parallel_tool_calls", "effort", "reasoning_tokens", "stream")
    }
    if settings.effort is not None and settings.reasoning_tokens == DYNAMIC:  # a word leaves the number to the model
        expected["reasoning_tokens"] = False
    for key, is_set in expected.items():
        if is_set and not any(loss.message is None and loss.what.partition(" ")[0] == key for loss in encoded.losses):
            without = request.replace(settings=structs.replace(settings, **{key: None}))
            if wires.get(name).encode_request(without).body == encoded.body:
                silent.append(f"request: {key} {_short(getattr(settings, key))} changes nothing and has no loss")
    return silent


def _of_part(part: AnyPart, wire: str) -> Iterator[RequestValue]:
    match part:
        case Text(text) | Refusal(text):
            if text.strip():
                yield RequestValue("text", sayable(text.strip()))
        case Reasoning():
            for key, value in (("text", part.text), ("signature", part.signature), ("encrypted", part.encrypted)):
                if value:
                    yield RequestValue(f"reasoning {key}", sayable(value))
        case ToolCall():
            if part.provider_executed:  # a block of its wire
                return
            yield RequestValue("tool name", part.name)
            if part.arguments_json.strip():
                yield _json_value("arguments", part.arguments_json)
        case MalformedToolCall():
            yield RequestValue("malformed call", sayable(part.raw))
        case Json():
            yield _json_value("json", bytes(part.value_json).decode())
        case Opaque() | ServerToolResult():
            raw = part.raw_json if isinstance(part, Opaque) else part.output_json
            yield _json_value("block", bytes(raw).decode())
        case Media():
            yield _of_media(part)
            if isinstance(part, File) and part.name and wire not in {"cohere_chat", "ollama_chat"}:
                yield RequestValue("file name", sayable(part.name))


def _value(raw: Raw) -> Any:
    """Return a value as a body can hold it, with U+FFFD for lone surrogates."""
    return json.loads(sayable_json(bytes(raw).decode()))


def _json_value(what: str, text: str) -> RequestValue:
    try:
        return RequestValue(what, json.loads(sayable_json(text)), json=True)
    except ValueError:
        return RequestValue(what, sayable(text))


def _of_media(part: Media) -> RequestValue:
    kind = type(part).__name__.lower()
    match part.source:
        case Inline(data):
            return RequestValue(kind, _without_spaces(data))
        case Url(url):
            try:
                return RequestValue(kind, _without_spaces(media_types.split_data_uri(url)[1]))
            except PalaverError:
                return RequestValue(kind, sayable(url))
        case FileId(file_id):
            return RequestValue(kind, sayable(file_id))
        case Blob(digest):
            return RequestValue(kind, digest)


def _without_spaces(data: str) -> str:
    """Return base64 without white space, and any other text unchanged."""
    joined = "".join(data.split())
    return joined if Inline(joined).valid else sayable(data)


def _vendor(message: Value, wire: str) -> str | None:
    """Return the vendor of an answer; ``None`` for any other message."""
    if not isinstance(message, AssistantMessage):
        return None
    noted = json_fields.notes(message, wire).get("vendor")
    return None if noted is None else jsontext.text(noted)


def _own_fields(value: Value, name: str, index: int | None, part: int | None, message: Value) -> Iterator[RequestValue]:
    """Yield the wire's own fields, which it takes back."""
    wire, _, variant = name.partition(":")
    vendor = _vendor(message, wire)
    if vendor is not None and vendor != variant:
        return
    for key, raw in json_fields.native(value, wire).items():
        if not vendors.is_blank(raw) and json_fields.named(key, raw) is not None:
            yield from (RequestValue(key, each, index, part, json=True) for each in _within(_value(raw)))


def _within(node: Any) -> list[Any]:
    """Return the values inside an object, which may be spread over the body; any other value alone."""
    if not isinstance(node, dict):
        return [node]
    table = cast("dict[str, Any]", node)
    if table.keys() == {"id"}:
        return [*table.values()]
    visible = [each for key, each in table.items() if json_fields.named(key, jsontext.raw(each)) is not None]
    return [inner for each in visible if compact_json(each) not in _EMPTY for inner in _within(each)]


def _foreign(request: Request, wire: str, variant: str) -> Iterator[RequestValue]:
    """Yield the fields of other wires, and of other vendors of this wire. Each needs a loss."""
    values: list[tuple[Value, int | None, int | None]] = [(request, None, None)]
    values += [(tool, None, None) for tool in request.tools if isinstance(tool, Tool)]
    values += [] if request.settings.output is None else [(request.settings.output, None, None)]
    for index, message in enumerate(request.messages):
        if not isinstance(message, RescueMarker | FlushMarker):
            values.append((message, index, None))
            values += [(part, index, position) for position, part in enumerate(message.content)]
    for value, at, position in values:
        for other, key, raw in json_fields.foreign(value, wire):
            field = metadata.BODY_FIELDS.get(other)
            of_caller = value is request and key.partition(".")[0] == field
            what = "metadata" if of_caller else key
            yield RequestValue(what, jsontext.value(raw), at, position, of_tool=isinstance(value, Tool))
        vendor = None if at is None else _vendor(request.messages[at], wire)
        if vendor is not None and vendor != variant and not isinstance(value, Reasoning):
            for key, raw in json_fields.native(value, wire).items():
                if not vendors.is_blank(raw) and json_fields.named(key, raw) is not None and key != "name":
                    yield RequestValue(key, jsontext.value(raw), at, position)


def _unreachable(request: Request, body: BodyValues) -> list[str]:
    """Return the URLs of media that no provider can fetch. Ids of files in the same fields are none."""
    parts: list[AnyPart] = [part for message in request.messages for part in message.content]
    urls = {part.source.url for part in parts if isinstance(part, Media) and isinstance(part.source, Url)}
    return [
        text
        for key, text in body.leaves
        if key in _ADDRESSES and text in urls and not str(text).lower().startswith(_FETCHED)
    ]


def _extra_empties(name: str, request: Request, body: BodyValues, encoded: Encoded) -> list[str]:
    """Return complaints about empty values that are neither in the request or its original, nor on the receipt."""
    wire, original = name.partition(":")[0], request.original
    expected = _empties_of(wire, request)
    spelled = [] if original is None or original.wire != name else BodyValues(bytes(original.body_json)).leaves
    forms = forms_of(wire) | {(key, normalized(value)) for key, value in spelled}
    expected |= {
        '""' for loss in encoded.losses if loss.what == "message" and loss.why.endswith("an empty text was added")
    }
    found = [(key, normalized(value)) for key, value in body.leaves]
    odd = [(key, value) for key, value in found if value in _EMPTY and value not in expected]
    return [
        f"the body has {key}: {value}, which is not in the request" for key, value in odd if (key, value) not in forms
    ]


def forms_of(wire: str) -> frozenset[tuple[str, str]]:
    """Return the empty values that a wire's format requires. Raises ``MissingRowError``.

    Stability: experimental.
    """
    return row(_FORMS, wire, "_FORMS in src/palaver/testing/receipts.py")


def _empties_of(wire: str, request: Request) -> set[str]:
    """Return the empty values in a request's data: arguments, results, schemas, the caller's fields."""
    alike = wires.get(wire).capabilities.answer_fields is None
    values: list[Value] = [request, *request.tools]
    texts: list[str] = [bytes(each.raw_json).decode() for each in request.tools if isinstance(each, ProviderTool)]
    texts += [
        bytes(each.parameters_json).decode()
        for each in request.tools
        if isinstance(each, Tool) and each.parameters_json is not UNSET
    ]
    texts += ['""' for each in request.tools if isinstance(each, Tool) and each.description == ""]
    texts += ['""' for each in (request.model, *(request.settings.stop or ())) if each == ""]
    texts += ["[]"] if request.settings.stop == () else []
    output = request.settings.output
    if output is not None:
        values.append(output)
        texts += ['""' for each in (output.name, output.description) if each == ""]
        texts += [] if output.schema_json is UNSET else [bytes(output.schema_json).decode()]
    for message in request.messages:
        if alike or not isinstance(message, AssistantMessage):
            values += [message, *message.content]
        else:
            for value in (message, *message.content):
                fields = json_fields.native(value, wire).values()
                texts += [bytes(raw).decode() for raw in fields if not vendors.is_blank(raw)]
        if isinstance(message, ToolMessage) and (not message.content or (message.is_error and not message.text)):
            texts.append('""')
        if isinstance(message, AssistantMessage) and all(isinstance(part, Reasoning) for part in message.content):
            texts.append('""')  # a content beside reasoning, which some vendors demand
        for part in message.content:
            texts += _data_of(part)
    texts += [bytes(each.provider_json).decode() for each in values if each.provider_json is not UNSET]
    joined = "\n".join(texts).replace(" ", "")
    return {each for each in _EMPTY if each in joined}


def _data_of(part: AnyPart) -> list[str]:
    match part:
        case Text(text, citations=citations):
            citations_ = [bytes(each.raw_json).decode() for each in citations if each.raw_json is not UNSET]
            return citations_ if text.strip() else [*citations_, '""']
        case Refusal(text) | Reasoning(text):
            return [] if text.strip() else ['""']
        case ToolCall():
            return [part.arguments_json, '""'] if not part.arguments_json else [part.arguments_json]
        case Json():
            return [bytes(part.value_json).decode()]
        case Opaque():
            return [bytes(part.raw_json).decode()]
        case ServerToolResult():
            return [bytes(part.output_json).decode()]
        case File(name="") | Media(source=FileId("") | Url("")):
            return ['""']
        case _:
            return []


def _extra_texts(request: Request, body: BodyValues) -> list[str]:
    """Return complaints about texts that are not in the request. Called only when nothing was converted."""
    parts: list[AnyPart] = [part for message in request.messages for part in message.content]
    media = [recoded_base64(str(_of_media(part).value)) for part in parts if isinstance(part, Media)]
    known = "\n".join([*all_texts(json.loads(canonical.encode(request))), *media])
    return [
        f"the body has {key}: {_short(text)}, which is not in the request"
        for key, text in body.leaves
        if isinstance(text, str) and len(text) > _LETTERS and key not in KEYWORD_FIELDS and not _is_known(text, known)
    ]


_LETTERS: Final = 40
"""Texts up to this length may be keywords of a format."""


def _is_known(text: str, known: str) -> bool:
    data = text.partition(";base64,")[2] if text.startswith("data:") else text
    if data in known or standard_base64(data) in standard_base64(known.replace("=", "")):
        return True
    inner = parsed_json(text)
    pieces = text.split("\n\n") if inner is None else all_texts(inner)
    return all(piece in known for piece in pieces)
