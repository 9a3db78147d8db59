"""Codebuff message histories, as its later versions write them; the first form (SDK 0.1) is read too.

Source: docs/spec/codebuff.md#1.

A list of messages, one alone, or the state of a run (``sessionState.mainAgentState.messageHistory``). Read: fields and
parts as they are; a string for content, and a result within a ``tool-result``, as the first form has them. The
deprecated keys are obeyed, reported once, and never written: ``timeToLive`` becomes a tag (``expires:…``),
``keepDuringTruncation`` and the last message of each of ``keepLastTags`` are ``verbatim``.

``providerOptions`` are what only one provider understands. Options of ``openaiCompatible`` are fields of the wire
``openai_chat``; the cache mark of ``anthropic`` and the proofs of reasoning become those of their wires. Other options
are in the spelling of the AI SDK, which no wire takes, and stay under the name that they have.

What it cannot say: ids, agents, modes, developer messages (they become system messages), markers, malformed calls (a
user message tagged ``TOOL_CALL_ERROR`` tells of them), refusals (as text), results that are text (as JSON), media by
URL in results, usage and model, payloads, metadata.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    Video,
)
from palaver.threads.expiry import EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT
from palaver.transcripts import codebuff_strict, extension_slot
from palaver.transcripts.codebuff_options import options_of, proof_of, provider_read
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.fields import as_object, inner, integer, kind_of, listed, string, value
from palaver.transcripts.format import Origin, TranscriptFormat
from palaver.transcripts.message_list import (
    ABSENT,
    DocumentReading,
    Form,
    ListRendering,
    Telling,
    built,
    empty,
    held,
    provider_of,
    seen,
    source_of,
    tag_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.unknown_fields import Watch
    from palaver.transcripts.writer import Writing

NAME: Final = "codebuff"
EXTRA: Final = "codebuff_fields"
ERROR: Final = "TOOL_CALL_ERROR"
"""The tag of the note that tells the model of a call that was none."""

_CLASSES: Final[dict[str, type[Any]]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "system": SystemMessage,
}
_OWN: Final = frozenset(("sentAt", "tags", "timeToLive", "keepDuringTruncation", "keepLastTags"))
_LIFETIMES: Final = {"agentStep": EXPIRES_AGENT_STEP, "userPrompt": EXPIRES_USER_PROMPT}
_DEPRECATED: Final = ("timeToLive", "keepDuringTruncation", "keepLastTags")
_PARTS: Final = {
    "text": frozenset(("type", "text", "providerOptions")),
    "reasoning": frozenset(("type", "text", "providerOptions")),
    "image": frozenset(("type", "image", "mediaType", "providerOptions")),
    "file": frozenset(("type", "data", "mediaType", "filename", "providerOptions")),
    "tool-call": frozenset(("type", "toolCallId", "toolName", "input", "providerExecuted", "providerOptions")),
    "json": frozenset(("type", "value")),
    "media": frozenset(("type", "data", "mediaType")),
}
_NEEDS: Final = {
    "text": ("text",),
    "reasoning": ("text",),
    "image": ("image",),
    "file": ("data", "mediaType"),
    "tool-call": ("toolCallId", "toolName"),
    "json": (),
    "media": ("data", "mediaType"),
}
_HELD: Final = {
    SystemMessage: ("text",),
    UserMessage: ("text", "image", "file"),
    AssistantMessage: ("text", "reasoning", "tool-call"),
    ToolMessage: ("json", "media"),
}
_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}


def sees(head: Head) -> Detection | None:
    """Messages whose content is a list of its parts, with the keys that only it has."""
    state = head.fields
    for key in ("sessionState", "mainAgentState", "messageHistory"):
        if key in state:
            return Detection(0.95, "v2" if "traceSessionId" in head.fields else None)
    found, most = seen(head, _CLASSES)
    if not most:
        return empty(head)
    if any("type" in each or "agentName" in each for each in found):
        return None
    if any(_OWN & each.keys() for each in found) or any(_is_result(each) for each in found):
        return Detection(0.9, "v2" if any(isinstance(each.get("content"), list) for each in found) else None)
    if any(_is_v1(each) for each in found):
        return Detection(0.9, "v1")
    if any("id" in each or "parts" in each or "tool_calls" in each for each in found):
        return None
    parts = [part for each in found for part in _listed(each.get("content"))]
    if all(isinstance(each.get("content"), list) for each in found) and all(_is_part(part) for part in parts):
        return Detection(0.7 if any(word(part, "type") in {"tool-call", "reasoning"} for part in parts) else 0.5)
    return None


def _listed(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else ()  # pyright: ignore[reportUnknownVariableType]


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and word(part, "type") in _PARTS  # pyright: ignore[reportUnknownArgumentType]


def _is_result(each: Mapping[str, Any]) -> bool:
    return each["role"] == "tool" and isinstance(each.get("toolCallId"), str) and isinstance(each.get("content"), list)


def _is_v1(each: Mapping[str, Any]) -> bool:
    content: object = each.get("content")
    kind = cast("dict[str, Any]", content).get("type") if isinstance(content, dict) else None
    return each["role"] == "tool" and kind == "tool-result"


class CodebuffForm(Form):
    """A message of Codebuff."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = EXTRA
    keys: ClassVar[frozenset[str]] = frozenset(
        ("role", "content", "toolCallId", "toolName", "providerOptions", "tags", "sentAt", *_DEPRECATED)
    )
    always: ClassVar[frozenset[str]] = frozenset()
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (
        (),
        ("sessionState", "mainAgentState", "messageHistory"),
        ("mainAgentState", "messageHistory"),
        ("messageHistory",),
    )
    unsaid: ClassVar[Mapping[str, str]] = {"id": "a message of Codebuff has no id"}

    def __init__(self, watch: Watch) -> None:
        """Begin with no call met."""
        super().__init__(watch)
        self._last: frozenset[int] = frozenset()
        self._place = -1
        self._noted: set[str] = set()

    def begin(self, items: Sequence[Fields | None], session: Session) -> Session:
        """Find the last message of each tag of which the last one is kept."""
        last: dict[str, int] = {}
        for place, fields in enumerate(items):
            for raw in listed(fields or {}, "keepLastTags"):
                if jsontext.kind(raw) == "a string":
                    last[jsontext.text(raw)] = place
        self._last = frozenset(last.values())
        return session

    def slot(self, fields: Fields) -> Any:
        """What a message carries among its options."""
        return value(inner(fields, "providerOptions"), extension_slot.SLOT)

    def carry(self, record: dict[str, Any], slot: dict[str, Any]) -> None:
        """Let a message carry something among its options."""
        record["providerOptions"] = {**record.get("providerOptions", {}), extension_slot.SLOT: slot}

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, fields: Fields, line: int | None) -> list[Message]:
        """What a message says, with what it carries."""
        self._place += 1
        messages = super().read(fields, line)
        if self._place in self._last:
            messages = [structs.replace(each, verbatim=True) for each in messages]
        return messages

    def plain(self, fields: Fields) -> list[Message]:
        """What a message says; nothing where it is the note that we put behind a malformed call."""
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None or "content" not in fields:
            self.watch.note("unread", f"role {role}", self.line)
            return []
        slot = self.slot(fields)
        if isinstance(slot, dict) and "note" in slot:
            return []
        if cls is ToolMessage:
            fields = _hoisted(fields)
        self.watch.keys(fields, self.keys, "message", self.line)
        beside: dict[str, Any] = {key: jsontext.own(raw) for key, raw in fields.items() if key not in self.keys}
        says, read = self._around(fields)
        provider, whole = provider_read(fields.get("providerOptions"))
        says["content"] = self._content(cls, fields["content"])
        if cls is ToolMessage:
            for key, name in (("tool_call_id", "toolCallId"), ("tool_name", "toolName")):
                says[key] = string(fields, name)
                read |= {name} if says[key] is not None else set()
            if absent := [name for name in ("toolCallId", "toolName") if name not in fields]:
                beside[ABSENT] = absent
            says["is_error"] = _failed(says["content"])
        read |= {"role", "content", *_DEPRECATED} | ({"providerOptions"} if whole else set())
        beside.update((key, jsontext.own(fields[key])) for key in sorted(self.keys - read) if key in fields)
        return [built(cls, provider_json=provider_of({**provider, EXTRA: beside}), **says)]

    def _around(self, fields: Fields) -> tuple[dict[str, Any], set[str]]:
        """Tags, time, and what the deprecated keys ask for."""
        for key in _DEPRECATED:
            if key in fields:
                self.watch.note("deprecated", f"message.{key}", self.line)
        tags = [jsontext.text(raw) for raw in listed(fields, "tags") if jsontext.kind(raw) == "a string"]
        read = {"tags"} if tags and len(tags) == len(listed(fields, "tags")) else set[str]()
        tags = tags if read else []
        lifetime = _LIFETIMES.get(string(fields, "timeToLive") or "")
        if lifetime is not None and lifetime not in tags:
            tags.append(lifetime)
        at = integer(fields, "sentAt")
        read |= {"sentAt"} if at is not None else set()
        return {"tags": tuple(tags), "sent_at": at, "verbatim": value(fields, "keepDuringTruncation") is True}, read

    def _content(self, cls: type[Any], raw: Raw) -> tuple[AnyPart, ...]:
        kind = jsontext.kind(raw)
        if kind == "a string" and cls is not ToolMessage:
            return (trusted.Text(jsontext.text(raw)),)
        if kind != "an array":
            raise DecodeError(f"content is {kind}")
        return tuple([self._part(each, cls) for each in jsontext.items(raw)])

    def _part(self, raw: Raw, cls: type[Any]) -> AnyPart:
        fields = as_object(raw)
        kind = string(fields, "type") or ""
        known = _PARTS.get(kind)
        if known is None or kind not in _HELD[cls]:
            self.watch.note("block", kind or "without a type", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        missing = next((key for key in _NEEDS[kind] if kind_of(fields, key) != "a string"), None)
        if missing is not None:
            self.watch.note("value", f"{kind}.{missing}", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self.watch.keys(fields, known, kind, self.line)
        options = fields.get("providerOptions")
        proof = proof_of(options) if kind == "reasoning" else None
        provider, whole = provider_read(options, proof, reasoning=kind == "reasoning")
        beside: dict[str, Any] = {
            key: each for key, each in fields.items() if key not in known or (key == "providerOptions" and not whole)
        }
        if options is not None and not whole:
            self.watch.note("value", f"{kind}.providerOptions", self.line)
        made = _made(kind, fields, beside)
        if made is None:
            self.watch.note("value", kind, self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        if proof is not None and whole and isinstance(made, Reasoning):
            made = made.replace(signature=proof.signature, encrypted=proof.encrypted, wire=proof.wire)
        return structs.replace(made, provider_json=provider_of({**provider, EXTRA: beside}))

    # -- writing ---------------------------------------------------------------------------------------------------

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """A malformed call, the results that follow, and the note behind them are one group."""
        group: list[Entry] = []
        for entry in entries:
            message = entry.message
            if group and not (group[0].message.malformed_tool_calls and isinstance(message, ToolMessage)):
                if ERROR in message.tags:
                    self._noted.add(group[0].id)
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    def packs(self, group: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Each message is a record."""
        for entry in group:
            yield (entry,)

    def behind(self, group: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """The note on calls that could not be read, unless the conversation has it already."""
        broken = group[0].message.malformed_tool_calls
        if broken and group[0].id not in self._noted:
            texts = [f"{part.reason}: {part.raw}" for part in broken]
            yield {
                "role": "user",
                "content": [{"type": "text", "text": "A tool call could not be read. " + "\n".join(texts)}],
                "tags": [ERROR],
                "providerOptions": {extension_slot.SLOT: {"note": True}},
            }

    def said(self, entries: Sequence[Entry], telling: Telling) -> dict[str, Any] | None:
        """The record of a message."""
        message = entries[0].message
        if isinstance(message, RescueMarker | FlushMarker):
            return None
        result = isinstance(message, ToolMessage)
        content = [_said(part, index, telling, result=result) for index, part in enumerate(message.content)]
        role = "system" if isinstance(message, DeveloperMessage) else message.role
        cls = _CLASSES[role]
        record: dict[str, Any] = {"role": role, "content": [each for each in content if each is not None]}
        for index, each in enumerate(content):
            if isinstance(each, dict) and each["type"] not in _HELD[cls]:
                record["content"] = [block for block in record["content"] if block is not each]
                telling.lose(
                    "dropped", tag_of(message.content[index]), f"a message of role {role} cannot hold it", index
                )
        if isinstance(message, ToolMessage):
            beside = held(message, EXTRA)
            without = {*beside, *(value(beside, ABSENT) or ())}
            if message.tool_call_id is not None or "toolCallId" not in without:
                record["toolCallId"] = message.tool_call_id or ""
            if message.tool_name is not None or "toolName" not in without:
                record["toolName"] = message.tool_name or self.tools.get(message.tool_call_id or "", "")
        if options := options_of(message, EXTRA):
            record["providerOptions"] = options
        if message.tags:
            record["tags"] = list(message.tags)
        if message.sent_at is not None:
            record["sentAt"] = message.sent_at
        return self.with_rest(record, held(message, EXTRA))


def _hoisted(fields: Fields) -> Fields:
    """A result of the first form as the later one has it: what stands in its content stands beside it."""
    content = as_object(fields.get("content", jsontext.NULL))
    if string(content, "type") != "tool-result":
        return fields
    rest = {key: raw for key, raw in content.items() if key not in {"type", "output"}}
    return {**rest, **fields, "content": content.get("output", Raw(b"[]"))}


def _failed(content: Sequence[AnyPart]) -> bool:
    """Whether a result is wholly what Codebuff answers with when a tool fails: JSON with an ``errorMessage``."""
    match content:
        case (Json(value_json=raw),):
            return "errorMessage" in as_object(raw)
        case _:
            return False


def _made(kind: str, fields: Fields, beside: dict[str, Any]) -> AnyPart | None:
    """A part that has what it needs; ``None`` when it cannot be said in neutral fields."""
    match kind:
        case "text":
            return trusted.Text(string(fields, "text") or "")
        case "reasoning":
            return trusted.Reasoning(string(fields, "text") or "")
        case "json":
            return trusted.Json(jsontext.own(fields["value"])) if "value" in fields else None
        case "tool-call":
            return _call(fields)
        case _:
            return _medium(kind, fields, beside)


def _call(fields: Fields) -> ToolCall | None:
    given, executed = fields.get("input"), value(fields, "providerExecuted")
    if given is None or jsontext.kind(given) != "an object" or executed not in (None, True):
        return None
    if executed is None and "providerExecuted" in fields:
        return None
    called, name = string(fields, "toolCallId") or "", string(fields, "toolName") or ""
    return trusted.ToolCall(called, name, bytes(given).decode(), provider_executed=executed is True)


def _medium(kind: str, fields: Fields, beside: dict[str, Any]) -> Image | Audio | Video | File | None:
    media_type = string(fields, "mediaType")
    found = source_of(string(fields, "image" if kind == "image" else "data") or "")
    if found is None or ("mediaType" in fields and media_type is None):
        return None
    source, typed, before = found
    if isinstance(source, Inline) and not source.valid:
        return None
    if kind == "media":
        cls = _MEDIA.get((media_type or "").partition("/")[0], File)
        return cls(trusted.Inline(string(fields, "data") or ""), media_type)
    if isinstance(source, Inline) and before != _before(kind, media_type):
        beside["before"] = before
    if media_type is None and typed is not None:
        media_type = typed
        beside[ABSENT] = ["mediaType"]
    if kind == "image":
        return trusted.Image(source, media_type)
    name = string(fields, "filename")
    return trusted.File(source, media_type, name=name) if name is not None or "filename" not in fields else None


def _before(kind: str, media_type: str | None) -> str:
    """What stands before base64 where we write it: an image is a data URI, a file is plain."""
    return f"data:{media_type};base64," if kind == "image" and media_type is not None else ""


def _said(part: AnyPart, index: int, telling: Telling, *, result: bool) -> dict[str, Any] | Raw | None:
    match part:
        case Opaque(wire="codebuff"):
            return part.raw_json
        case Json() if result:
            return {"type": "json", "value": part.value_json, **held(part, EXTRA)}
        case MalformedToolCall():
            telling.lose("converted", "malformed_tool_call", "told in a note behind the results", index)
            return None
        case Image() | Audio() | Video() | File():
            block = _said_medium(part, result=result)
        case Text() if not result:
            block = {"type": "text", "text": part.text}
        case Reasoning():
            block = {"type": "reasoning", "text": part.text}
        case ToolCall():
            executed = {"providerExecuted": True} if part.provider_executed else {}
            arguments = telling.arguments(part, index)
            block = {
                "type": "tool-call",
                "toolCallId": part.id,
                "toolName": part.name,
                "input": arguments,
                **executed,
            }
        case Text():
            telling.lose("converted", "text", "a result is JSON: written as a string", index)
            return {"type": "json", "value": part.text}
        case _:
            text = telling.text_for(part, index)
            return None if text is None else {"type": "text", "text": text}
    if block is None:
        telling.lose("dropped", tag_of(part), "only bytes and URLs can be said, and in a result only bytes", index)
        return None
    options = options_of(part, EXTRA)
    rest = {key: raw for key, raw in held(part, EXTRA).items() if key not in {"before", ABSENT}}
    return {**block, **({"providerOptions": options} if options and not result else {}), **rest}


def _said_medium(part: Media, *, result: bool) -> dict[str, Any] | None:
    beside = held(part, EXTRA)
    before = string(beside, "before")
    if result:
        if not isinstance(part.source, Inline):
            return None
        return {"type": "media", "data": part.source.data, "mediaType": part.media_type or "application/octet-stream"}
    kind = "image" if isinstance(part, Image) else "file"
    text = text_of(part, _before(kind, part.media_type) if before is None else before)
    if text is None:
        return None
    typed = {} if part.media_type is None or value(beside, ABSENT) else {"mediaType": part.media_type}
    if kind == "image":
        return {"type": "image", "image": text, **typed}
    named = {"filename": part.name} if isinstance(part, File) and part.name is not None else {}
    return {"type": "file", "data": text, "mediaType": part.media_type or "application/octet-stream", **named}


def _reading(origin: Origin, watch: Watch) -> DocumentReading:
    return DocumentReading(CodebuffForm(watch), origin)


def _rendering(writing: Writing) -> ListRendering:
    return ListRendering(CodebuffForm, writing)


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Codebuff message histories",
    fidelity="bytes",
    sees=sees,
    reading=_reading,
    rendering=_rendering,
    framing="document",
    resumes=True,
    extension=".json",
    rules=codebuff_strict.check,
    keeps=("tags and times", "provider options", "reasoning with proof", "images and files", "results as JSON"),
    loses=(
        "ids",
        "developer messages (as system)",
        "malformed calls (as a note)",
        "results that are text (as JSON)",
        "media by URL in results",
        "usage and model",
        "markers",
    ),
)
