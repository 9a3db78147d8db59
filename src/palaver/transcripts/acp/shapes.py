"""ACP's content blocks and tool calls, read and written, and how updates become messages (docs/spec/dialects.md#13).

Rules:

- Successive texts are one text: they are pieces of a stream. A block with annotations stays separate.
- Of a tool call, the last value of each field counts. It has no name: its title is used instead, else its kind. Its
  arguments are ``rawInput``, if it has them.
- A call has a result once it is completed, or has failed: its content; if that has only diffs and terminals,
  ``rawOutput`` is placed before them.
- Further fields of a block are kept under ``provider["acp"]``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType

from palaver.core import jsontext, trusted
from palaver.core.messages import FinishReason, Message, ToolMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    Image,
    Inline,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    Url,
)
from palaver.core.usage import Usage
from palaver.transcripts.fields import inner, integer, listed, split, string

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "acp"

KINDS: Final = frozenset(
    ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
)
FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "max_turn_requests": "other",
    "refusal": "refusal",
    "cancelled": "other",
}
ENDED: Final = frozenset(("completed", "failed"))

_CHUNK: Final = frozenset(("sessionUpdate", "content", "messageId", "_meta"))
_CALL: Final = frozenset(
    (
        "sessionUpdate",
        "toolCallId",
        "title",
        "kind",
        "status",
        "content",
        "locations",
        "rawInput",
        "rawOutput",
        "_meta",
    )
)
CHUNKS: Final = {"user_message_chunk": "user", "agent_message_chunk": "said", "agent_thought_chunk": "thought"}
UPDATES: Final = {
    **dict.fromkeys(CHUNKS, _CHUNK),
    "tool_call": _CALL,
    "tool_call_update": _CALL,
    "plan": frozenset(("sessionUpdate", "entries", "_meta")),
    "plan_update": frozenset(("sessionUpdate", "plan", "_meta")),
    "plan_removed": frozenset(("sessionUpdate", "id", "_meta")),
    "available_commands_update": frozenset(("sessionUpdate", "availableCommands", "_meta")),
    "current_mode_update": frozenset(("sessionUpdate", "currentModeId", "modeId", "_meta")),
    "config_option_update": frozenset(("sessionUpdate", "configOptions", "_meta")),
    "session_info_update": frozenset(("sessionUpdate", "title", "updatedAt", "_meta")),
    "usage_update": frozenset(("sessionUpdate", "used", "size", "cost", "_meta")),
}
_BLOCKS: Final = {
    "text": frozenset(("type", "text")),
    "image": frozenset(("type", "data", "mimeType")),
    "audio": frozenset(("type", "data", "mimeType")),
    "resource_link": frozenset(("type", "uri", "name", "mimeType")),
    "resource": frozenset(("type", "resource")),
}
_BESIDE: Final = frozenset(("annotations", "_meta", "uri", "description", "size", "title"))


class Group(Struct):
    """A prompt, or an answer with the results of its calls, while it is read."""

    user: bool = False
    records: list[Record] = []
    content: list[AnyPart] = []
    ids: dict[str, str] = {}
    calls: dict[str, Fields] = {}
    at: int | None = None
    times: dict[str, int | None] = {}
    usage: Usage | None = None
    stop: str | None = None
    prompt: bool = False
    slot: Any = None

    @property
    def pending(self) -> bool:
        """Whether a call has no result yet."""
        return any(string(call, "status") not in ENDED for call in self.calls.values())

    @property
    def id(self) -> str | None:
        """The id that the log gives the message."""
        return self.ids.get("user") or self.ids.get("said") or self.ids.get("thought")

    def begins_anew(self, variant: str, named: str | None) -> bool:
        """Return whether a chunk with that id starts another message."""
        known = self.ids.get(variant)
        if variant == "thought" and known is None:
            known = self.ids.get("said")  # thoughts after a text
        return known is not None and named is not None and known != named

    def add(self, part: AnyPart, *, thought: bool = False) -> None:
        """Add a block of a chunk."""
        last = self.content[-1] if self.content else None
        if thought and isinstance(part, Text):
            part = trusted.Reasoning(part.text, provider_json=part.provider_json)
        if isinstance(part, Text | Reasoning) and isinstance(last, Text | Reasoning) and _run(last, part):
            self.content[-1] = last.replace(text=last.text + part.text)
            return
        self.content.append(part)

    def call(self, named: str, fields: Fields, at: int | None) -> None:
        """Add the fields of a call; the last value of each counts."""
        given = {key: raw for key, raw in fields.items() if key not in {"sessionUpdate", "toolCallId", "_meta"}}
        if named not in self.calls:
            self.calls[named] = given
            self.content.append(trusted.ToolCall(named, ""))
        else:
            self.calls[named].update({key: raw for key, raw in given.items() if raw != jsontext.NULL})
        self.times[named] = at

    def messages(self, form: Form) -> list[Message]:
        """Return the messages of the group."""
        if self.user:
            content: Any = tuple(self.content)
            return [trusted.UserMessage(content=content, sent_at=self.at)]
        parts: Any = tuple(
            [form.call(part.id, self.calls[part.id]) if isinstance(part, ToolCall) else part for part in self.content]
        )
        answer = trusted.AssistantMessage(
            content=parts,
            usage=self.usage,
            finish_reason=None if self.stop is None else FINISH.get(self.stop, "other"),
            finish_reason_raw=UNSET if self.stop is None else self.stop,
            sent_at=self.at,
        )
        made: list[Message] = [answer]
        for named, call in self.calls.items():
            if string(call, "status") in ENDED:
                made.append(form.result(named, call, self.times.get(named)))
        return made


class Form:
    """Reads blocks."""

    def __init__(self, watch: Watch) -> None:
        """Report unexpected contents to ``watch``."""
        self._watch = watch
        self.line: int | None = None

    def block(self, raw: Raw | None) -> AnyPart | None:
        """Return a content block; an unknown one stays as it is."""
        fields = {} if raw is None else split(raw)
        if raw is None or not fields:
            return None
        kind = string(fields, "type") or ""
        known = _BLOCKS.get(kind)
        if known is None:
            self._watch.note("block", kind or "without a type", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        self._watch.keys(fields, known | _BESIDE, kind, self.line)
        part = _part(kind, fields, _provider({key: each for key, each in fields.items() if key not in known}))
        return trusted.Opaque(NAME, jsontext.own(raw)) if part is None else part

    def call(self, named: str, fields: Fields) -> ToolCall | MalformedToolCall:
        """Return a call."""
        name = string(fields, "title") or string(fields, "kind") or "tool"
        given = fields.get("rawInput")
        kept = _provider({key: each for key, each in fields.items() if key in {"kind", "locations"}})
        if given is None or jsontext.is_null(given):
            return trusted.ToolCall(named, name, "", provider_json=kept)
        text = bytes(given).decode()
        if jsontext.kind(given) != "an object":
            return trusted.MalformedToolCall(text, "the arguments are not an object", name, named, provider_json=kept)
        return trusted.ToolCall(named, name, text, provider_json=kept)

    def result(self, named: str, fields: Fields, at: int | None) -> ToolMessage:
        """Return the result of a call."""
        parts: list[AnyPart] = []
        for raw in listed(fields, "content"):
            item = split(raw)
            part = self.block(item.get("content")) if string(item, "type") == "content" else None
            parts.append(trusted.Opaque(NAME, jsontext.own(raw)) if part is None else part)
        output = fields.get("rawOutput")
        if output is not None and not jsontext.is_null(output) and all(isinstance(each, Opaque) for each in parts):
            text = jsontext.kind(output) == "a string"
            parts.insert(0, trusted.Text(jsontext.text(output)) if text else trusted.Json(jsontext.own(output)))
        content: Any = tuple(parts)
        return trusted.ToolMessage(
            content=content,
            tool_call_id=named,
            tool_name=string(fields, "title") or string(fields, "kind") or "tool",
            is_error=string(fields, "status") == "failed",
            sent_at=at,
        )


def _run(last: Text | Reasoning, part: Text | Reasoning) -> bool:
    """Return whether a text continues the one before it."""
    return type(part) is type(last) and part.provider_json is UNSET and last.provider_json is UNSET


def _provider(fields: dict[str, Any]) -> Raw | UnsetType:
    kept = {key: jsontext.own(raw) for key, raw in fields.items()}
    return jsontext.raw({NAME: kept}) if kept else UNSET


def _part(kind: str, fields: Fields, beside: Raw | UnsetType) -> AnyPart | None:
    mime = string(fields, "mimeType")
    match kind:
        case "text":
            return trusted.Text(string(fields, "text") or "", provider_json=beside)
        case "image" | "audio":
            data, uri = string(fields, "data"), string(fields, "uri")
            source = trusted.Url(uri) if not data and uri else trusted.Inline(data or "")
            cls = Image if kind == "image" else Audio
            return cls(source, mime, provider_json=beside)
        case "resource_link":
            uri = string(fields, "uri")
            return (
                None
                if uri is None
                else trusted.File(trusted.Url(uri), mime, string(fields, "name"), provider_json=beside)
            )
        case _:
            stored = inner(fields, "resource")
            text = string(stored, "text")
            return (
                None
                if text is None
                else trusted.Text(text, provider_json=jsontext.raw({NAME: {"resource": _but(stored)}}))
            )


def _but(stored: Fields) -> dict[str, Raw]:
    return {key: jsontext.own(raw) for key, raw in stored.items() if key != "text"}


def turn_usage(fields: Fields) -> Usage | None:
    """Return the usage of a turn from Grok Build: input includes the cache, output the reasoning."""
    if not fields:
        return None
    given, cached = integer(fields, "inputTokens"), integer(fields, "cachedReadTokens")
    written, thought = integer(fields, "cacheCreationTokens"), integer(fields, "reasoningTokens")
    output = integer(fields, "outputTokens")
    return trusted.Usage(
        input=None if given is None else max(0, given - (cached or 0) - (written or 0)),
        cache_read=cached,
        cache_write=written,
        output=None if output is None else max(0, output - (thought or 0)),
        reasoning=thought,
        raw_json=jsontext.raw({key: jsontext.own(raw) for key, raw in fields.items()}),
    )


def block_of(part: AnyPart) -> dict[str, Any] | Raw | None:
    """Return a part as a content block; ``None`` for one that ACP lacks."""
    beside: dict[str, Any] = dict(part.provider.get(NAME, {}))
    match part:
        case Text() if "resource" in beside:
            return {"type": "resource", "resource": {**beside["resource"], "text": part.text}}
        case Text() | Reasoning():
            return {"type": "text", "text": part.text, **beside}
        case Image() | Audio() if isinstance(part.source, Inline):
            kind = "image" if isinstance(part, Image) else "audio"
            mime = part.media_type or ("image/png" if kind == "image" else "audio/wav")
            return {"type": kind, "data": part.source.data, "mimeType": mime, **beside}
        case Image(source=Url() as source):
            return {"type": "image", "data": "", "mimeType": part.media_type or "image/png", "uri": source.url}
        case Opaque(wire="acp"):
            return part.raw_json
        case _:
            return None
