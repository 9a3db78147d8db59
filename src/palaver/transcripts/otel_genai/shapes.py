"""The OpenTelemetry conventions for generative AI: their names, the place of messages in a call, and their reading.

Rules (docs/spec/dialects.md#8):

- Attributes are an object, the ``attributes`` of a span (as the SDK for Python writes it), or OTLP's list of keys and
  values. Messages in them are structured, or JSON text. Text that was cut is reported and not read.
- Older generations are converted to the current form: attributes ``gen_ai.prompt.0.role``,
  ``gen_ai.completion.0.role``, and events ``gen_ai.user.message``, ``gen_ai.choice``.
- A message is ``{role, parts}``. A ``tool_call_response`` is a tool message of its own, in any message.
- ``arguments`` and ``response`` are any JSON; arguments that are text are the model's own text.
- A part of an unknown type, or one that the role cannot hold, is an ``Opaque`` part.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    holds,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    Image,
    ServerToolResult,
    Video,
    settled,
)
from palaver.core.usage import Usage
from palaver.transcripts import extension_slot
from palaver.transcripts.fields import either, inner, integer, listed, read_time, split, string, usage_of_totals, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason
    from palaver.transcripts.unknown_fields import Watch


NAME: Final = "otel_genai"

SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
CONVERSATION: Final = "gen_ai.conversation.id"
LISTS: Final = (SYSTEM, INPUT, OUTPUT)

PROVIDERS: Final = {
    "openai": "openai_chat",
    "azure.ai.openai": "openai_chat",
    "azure.ai.inference": "openai_chat",
    "az.ai.openai": "openai_chat",
    "anthropic": "anthropic_messages",
    "gcp.gemini": "google_generate",
    "gcp.gen_ai": "google_generate",
    "gcp.vertex_ai": "google_generate",
    "aws.bedrock": "bedrock_converse",
    "cohere": "cohere_chat",
    "ollama": "ollama_chat",
    "mistral_ai": "openai_chat",
    "groq": "openai_chat",
    "deepseek": "openai_chat",
    "x_ai": "openai_chat",
}
FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "tool_calls": "tool_calls",
    "error": "error",
}
STOPS: Final = {"tool_calls": "tool_call", "refusal": "content_filter", "pause": "stop"}

MESSAGE: Final = frozenset(("role", "parts", "name", "finish_reason", "palaver"))
PARTS: Final = {
    "text": frozenset(("type", "content")),
    "tool_call": frozenset(("type", "id", "name", "arguments")),
    "tool_call_response": frozenset(("type", "id", "response", "result", "name", "is_error")),
    "server_tool_call": frozenset(("type", "id", "name", "server_tool_call")),
    "server_tool_call_response": frozenset(("type", "id", "server_tool_call_response")),
    "reasoning": frozenset(("type", "content", "signature", "encrypted_content")),
    "compaction": frozenset(("type", "id", "content")),
    "blob": frozenset(("type", "modality", "mime_type", "content", "name")),
    "file": frozenset(("type", "modality", "mime_type", "file_id", "name")),
    "uri": frozenset(("type", "modality", "mime_type", "uri", "name")),
    "refusal": frozenset(("type", "content")),
    "palaver": frozenset(("type", "content")),
}
"""``refusal`` and ``palaver`` are generic parts of ours: the conventions allow any type."""
MODALITIES: Final = {"image": "image", "audio": "audio", "video": "video", "document": "file", "file": "file"}


_CLASSES: Final[dict[str, type]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "model": AssistantMessage,
    "tool": ToolMessage,
}
_TEXTS: Final = frozenset(("text", "refusal", "reasoning"))
_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}


class Parts:
    """Reads messages. ``wire`` is that of the provider, if it is known."""

    def __init__(self, wire: str | None, watch: Watch, line: int | None) -> None:
        """Start without messages."""
        self._wire = wire
        self._watch = watch
        self._line = line

    def messages(self, fields: Fields) -> list[Message]:
        """Return the messages of a record, with carried data. Raises ``DecodeError``."""
        plain = self.plain(fields)
        slot = value(fields, extension_slot.SLOT)
        restored = None if slot is None else extension_slot.restored(plain, slot)
        return plain if restored is None else list(restored)

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record, without carried data."""
        self._watch.keys(fields, MESSAGE, "message", self._line)
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None:
            self._watch.note("unread", f"role {role}", self._line)
        return self._split(cls or UserMessage, listed(fields, "parts"), fields)

    def system(self, parts: list[Raw]) -> SystemMessage:
        """Return system instructions: parts without a message around them."""
        content: Any = tuple(self._fitting(SystemMessage, parts))
        return trusted.SystemMessage(content=content)

    def _split(self, cls: type, raws: list[Raw], fields: Fields) -> list[Message]:
        """Return the results in a message, and the rest of it."""
        results: list[Message] = []
        others: list[Raw] = []
        for raw in raws:
            if jsontext.kind(raw) == "an object" and string(jsontext.fields(raw), "type") == "tool_call_response":
                results.append(self._result(jsontext.fields(raw)))
            else:
                others.append(raw)
        if results and not others:
            return results
        content: Any = tuple(self._fitting(cls, others))
        name = string(fields, "name")
        message: Message = cls(content=content)
        if isinstance(message, AssistantMessage):
            stop = string(fields, "finish_reason")
            reason = None if stop is None else FINISH.get(stop, "other")
            message = structs.replace(message, agent=name, finish_reason=reason)
            message = message if stop is None else structs.replace(message, finish_reason_raw=stop)
        elif isinstance(message, ToolMessage):
            message = structs.replace(message, tool_name=name)
        elif name is not None:
            message = message.replace(provider={NAME: {"name": name}})
        return [*results, message]

    def _result(self, fields: Fields) -> ToolMessage:
        self._watch.keys(fields, PARTS["tool_call_response"], "tool_call_response", self._line)
        raw = fields.get("response", fields.get("result"))
        content: tuple[Any, ...] = ()
        if raw is not None:
            content = (
                trusted.Text(jsontext.text(raw))
                if jsontext.kind(raw) == "a string"
                else trusted.Json(jsontext.own(raw)),
            )
        return trusted.ToolMessage(
            content=content,
            tool_call_id=string(fields, "id"),
            tool_name=string(fields, "name"),
            is_error=value(fields, "is_error") is True,
        )

    def _fitting(self, cls: type, raws: list[Raw]) -> list[AnyPart]:
        parts = [self._part(raw) for raw in raws]
        return [
            part if holds(cls, part) else trusted.Opaque(NAME, jsontext.own(raw))
            for part, raw in zip(parts, raws, strict=True)
        ]

    def _part(self, raw: Raw) -> AnyPart:
        if jsontext.kind(raw) != "an object":
            self._watch.note("block", jsontext.kind(raw), self._line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        fields = jsontext.fields(raw)
        kind = string(fields, "type") or ""
        if kind not in PARTS:
            self._watch.note("block", kind or "without a type", self._line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self._watch.keys(fields, PARTS[kind], kind, self._line)
        content = string(fields, "content") if kind in _TEXTS else None
        match kind:
            case "text" if content is not None:
                return trusted.Text(content)
            case "refusal" if content is not None:
                return trusted.Refusal(content)
            case "reasoning":
                proof, sealed = string(fields, "signature"), string(fields, "encrypted_content")
                return trusted.Reasoning(content or "", signature=proof, encrypted=sealed, wire=self._wire)
            case "tool_call":
                return _call(fields)
            case "server_tool_call":
                arguments = bytes(fields.get("server_tool_call", jsontext.EMPTY_OBJECT)).decode()
                named = string(fields, "name") or ""
                return trusted.ToolCall(string(fields, "id") or "", named, arguments, provider_executed=True)
            case "server_tool_call_response":
                output = fields.get("server_tool_call_response", jsontext.NULL)
                return ServerToolResult(string(fields, "id") or "", jsontext.own(output), self._wire or NAME)
            case "blob" | "file" | "uri":
                return self._medium(fields) or trusted.Opaque(NAME, jsontext.own(raw))
            case _:
                return trusted.Opaque(NAME, jsontext.own(raw))

    def _medium(self, fields: Fields) -> AnyPart | None:
        mime = string(fields, "mime_type")
        cls = _MEDIA.get(MODALITIES.get(string(fields, "modality") or "", ""))
        data, kept, uri = string(fields, "content"), string(fields, "file_id"), string(fields, "uri")
        if data is not None:
            source: Any = trusted.Inline(data)
        elif kept is not None:
            source = trusted.FileId(kept, self._wire or NAME)
        elif uri is not None:
            source = trusted.Url(uri)
        else:
            return None
        return trusted.File(source, mime, string(fields, "name")) if cls is None else cls(source, mime)


def _call(fields: Fields) -> AnyPart:
    raw = fields.get("arguments", jsontext.NULL)
    kind = jsontext.kind(raw)
    text = jsontext.text(raw) if kind == "a string" else "" if kind == "null" else bytes(raw).decode()
    return settled(trusted.ToolCall(string(fields, "id") or "", string(fields, "name") or "", text))


_OLD: Final = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(.+)")
_CALL: Final = re.compile(r"tool_calls\.(\d+)\.(id|name|arguments)")
_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message|gen_ai\.choice")


class Span(NamedTuple):
    """A call of a model, with its messages."""

    key: str | None
    attributes: Fields
    system: list[Raw]
    input: list[Raw]
    output: list[Raw]
    started: int | None = None
    ended: int | None = None
    runs_tool: bool = False
    """Whether it is the run of a tool: ``input`` is the call, ``output`` the result, if the span has one."""

    @property
    def wire(self) -> str | None:
        """The wire of the provider."""
        named = string(self.attributes, "gen_ai.provider.name") or string(self.attributes, "gen_ai.system")
        return PROVIDERS.get(named or "")

    @property
    def model(self) -> str | None:
        """The model that answered, else the requested one."""
        return string(self.attributes, "gen_ai.response.model") or string(self.attributes, "gen_ai.request.model")

    @property
    def usage(self) -> Usage | None:
        """The counters, which include cached and reasoning tokens."""
        counts = {
            key.removeprefix("gen_ai.usage."): raw
            for key, raw in self.attributes.items()
            if key.startswith("gen_ai.usage.")
        }
        if not counts:
            return None
        given, made = integer(counts, "input_tokens"), integer(counts, "output_tokens")
        given = integer(counts, "prompt_tokens") if given is None else given
        made = integer(counts, "completion_tokens") if made is None else made
        read, wrote = integer(counts, "cache_read.input_tokens"), integer(counts, "cache_creation.input_tokens")
        reasoned = integer(counts, "reasoning.output_tokens")
        raw = jsontext.raw(counts)
        return usage_of_totals(given, made, cached=read, written=wrote, reasoning=reasoned, raw=raw)


def spans_of(fields: Fields, watch: Watch, line: int | None) -> list[Span]:
    """Return the spans with messages in a record."""
    found = [span for each in _each(fields) if (span := _span(each, watch, line)) is not None]
    return sorted(found, key=lambda span: span.started or 0)


def _each(fields: Fields) -> Iterator[Fields]:
    """Yield the spans of a record: several in an export of OTLP."""
    groups = listed(fields, "resourceSpans")
    if not groups:
        yield fields
    for resource in groups:
        for scope in listed(split(resource), "scopeSpans"):
            for span in listed(split(scope), "spans"):
                yield split(span)


def _span(fields: Fields, watch: Watch, line: int | None) -> Span | None:
    attributes = attributes_of(fields)
    lists: dict[str, list[Raw]] = {}
    events = [split(raw) for raw in listed(fields, "events")]
    for each in (attributes, *(attributes_of(event) for event in events)):
        for key in LISTS:
            if key in each and key not in lists and (items := _list(each[key], key, watch, line)) is not None:
                lists[key] = items
    if not lists and not any(key in attributes for key in LISTS):
        lists = _flattened(attributes) or _told([fields, *events])
    tool = None if lists else _tool_run(attributes)
    if tool is not None:
        lists = tool
    if not lists:
        return None
    context = inner(fields, "context")
    traced = (string(each, key) for each in (fields, context) for key in ("traceId", "trace_id"))
    named = string(attributes, CONVERSATION) or next(filter(None, traced), None)
    started, ended = (
        next((at for name in names if (at := _time(fields, name)) is not None), None)
        for names in (("startTimeUnixNano", "start_time"), ("endTimeUnixNano", "end_time", "timeUnixNano"))
    )
    lists = {name: lists.get(name, []) for name in LISTS}
    return Span(named, attributes, lists[SYSTEM], lists[INPUT], lists[OUTPUT], started, ended, tool is not None)


def _tool_run(attributes: Fields) -> dict[str, list[Raw]] | None:
    """Return the call and the result of a span ``execute_tool``; ``None`` for any other."""
    named, name = string(attributes, "gen_ai.tool.call.id"), string(attributes, "gen_ai.tool.name")
    if string(attributes, "gen_ai.operation.name") != "execute_tool" or named is None:
        return None
    arguments, result = (attributes.get(f"gen_ai.tool.call.{key}") for key in ("arguments", "result"))
    call = {"type": "tool_call", "id": named, "name": name or "", "arguments": arguments}
    lists = {INPUT: [jsontext.raw({"role": "assistant", "parts": [call]})]}
    if result is not None:
        part = {"type": "tool_call_response", "id": named, "response": result}
        lists[OUTPUT] = [jsontext.raw({"role": "tool", "parts": [part]})]
    return lists


def _time(fields: Fields, key: str) -> int | None:
    either(fields.get(key), key, "a string", "a number")
    found = value(fields, key)
    return read_time(int(found) if isinstance(found, str) and found.isdigit() else found)


def attributes_of(fields: Fields) -> Fields:
    """Return the attributes of a span, or of an object that is only its attributes."""
    raw = fields.get("attributes")
    if raw is None:
        return fields
    if jsontext.kind(raw) == "an object":
        return jsontext.fields(raw)
    pairs = [split(each) for each in listed(fields, "attributes")]
    return {name: jsontext.raw(_any(value(pair, "value"))) for pair in pairs if (name := string(pair, "key"))}


def _any(stored: Any) -> Any:
    """Return a value of OTLP as plain JSON."""
    if not isinstance(stored, dict):
        return None
    for kind, each in cast("dict[str, Any]", stored).items():
        match kind:
            case "arrayValue" if isinstance(each, dict):
                return [_any(one) for one in _values(cast("dict[str, Any]", each))]
            case "kvlistValue" if isinstance(each, dict):
                pairs = [_object(one) for one in _values(cast("dict[str, Any]", each))]
                return {str(pair.get("key")): _any(pair.get("value")) for pair in pairs}
            case "intValue":
                return int(each) if isinstance(each, str) and each.lstrip("-").isdigit() else each
            case _:
                return each
    return None


def _values(stored: Mapping[str, Any]) -> list[Any]:
    found = stored.get("values")
    return list(cast("list[object]", found)) if isinstance(found, list) else []


def _object(found: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _list(raw: Raw, key: str, watch: Watch, line: int | None) -> list[Raw] | None:
    """Return the items of an attribute; ``None`` when it is not a list, or was cut."""
    try:
        text = jsontext.text(raw).encode("utf-8", "backslashreplace") if jsontext.kind(raw) == "a string" else raw
        return jsontext.items(text)
    except DecodeError:
        watch.note("unread", f"{key} is cut, or is not a list", line)
        return None


# -- older generations -------------------------------------------------------------------------------------------------


def _flattened(attributes: Fields) -> dict[str, list[Raw]]:
    """``gen_ai.prompt.N.…`` and ``gen_ai.completion.N.…``."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name, raw in attributes.items():
        if match := _OLD.fullmatch(name):
            found.setdefault((match[1], int(match[2])), {})[match[3]] = jsontext.value(raw)
    lists: dict[str, list[Raw]] = {}
    for (which, _), told in sorted(found.items(), key=lambda each: each[0]):
        calls: dict[int, dict[str, Any]] = {}
        for name, each in told.items():
            if match := _CALL.fullmatch(name):
                calls.setdefault(int(match[1]), {})[match[2]] = each
        message = _message({**told, "tool_calls": [calls[at] for at in sorted(calls)]}, str(told.get("role", "user")))
        lists.setdefault(INPUT if which == "prompt" else OUTPUT, []).append(jsontext.raw(message))
    return lists


def _told(events: list[Fields]) -> dict[str, list[Raw]]:
    """Return the messages of ``gen_ai.user.message`` and ``gen_ai.choice``: events of a span, or a log record alone."""
    lists: dict[str, list[Raw]] = {}
    for fields in events:
        attributes = attributes_of(fields)
        name = string(fields, "name") or string(attributes, "event.name") or string(fields, "event_name") or ""
        match = _EVENT.fullmatch(name)
        if match is None:
            continue
        stored = {**attributes, **inner(fields, "body")}
        told: dict[str, Any] = {key: jsontext.value(raw) for key, raw in stored.items()}
        if choice := inner(stored, "message"):
            told = {key: jsontext.value(raw) for key, raw in choice.items()}
            told["finish_reason"] = None if "finish_reason" not in stored else jsontext.value(stored["finish_reason"])
        message = _message(told, match[1] or "assistant")
        lists.setdefault(INPUT if match[1] else OUTPUT, []).append(jsontext.raw(message))
    return lists


def _message(told: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return a message of an older generation in the current form."""
    parts: list[dict[str, Any]] = []
    content = told.get("content")
    if role == "tool":
        named = told.get("id", told.get("tool_call_id"))
        return {"role": role, "parts": [{"type": "tool_call_response", "id": named, "response": content}]}
    if content is not None:
        text = content if isinstance(content, str) else jsontext.encode(content).decode()
        parts.append({"type": "text", "content": text})
    calls = told.get("tool_calls")
    for each in cast("list[object]", calls) if isinstance(calls, list) else ():
        call = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        function = call.get("function")
        stored = {**call, **(cast("dict[str, Any]", function) if isinstance(function, dict) else {})}
        parts.append({"type": "tool_call", **{key: stored.get(key) for key in ("id", "name", "arguments")}})
    reason = told.get("finish_reason")
    return {"role": role, "parts": parts, **({"finish_reason": reason} if isinstance(reason, str) else {})}
