"""Reading of Codebuff messages. ``options`` reads the data of single providers.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    Message,
    ToolMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    Reasoning,
    ToolCall,
    Video,
)
from palaver.transcripts import extension_slot
from palaver.transcripts.codebuff.options import proof_of, provider_read
from palaver.transcripts.codebuff.shapes import (
    ALLOWED,
    CLASSES,
    DEPRECATED,
    EXTRA,
    LIFETIMES,
    MEDIA,
    NAME,
    NEEDS,
    PART_KEYS,
    base64_prefix,
)
from palaver.transcripts.fields import as_object, inner, integer, kind_of, listed, string, value
from palaver.transcripts.message_list import (
    ABSENT,
    Form,
    built,
    provider_of,
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.unknown_fields import Watch


class CodebuffReader(Form):
    """Reads a message of Codebuff."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = EXTRA
    keys: ClassVar[frozenset[str]] = frozenset(
        ("role", "content", "toolCallId", "toolName", "providerOptions", "tags", "sentAt", *DEPRECATED)
    )
    always: ClassVar[frozenset[str]] = frozenset()
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (
        (),
        ("sessionState", "mainAgentState", "messageHistory"),
        ("mainAgentState", "messageHistory"),
        ("messageHistory",),
    )
    unsupported: ClassVar[Mapping[str, str]] = {"id": "a message of Codebuff has no id"}

    def __init__(self, watch: Watch) -> None:
        """Start without calls."""
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
        """Return the carried data among the options of a message."""
        return value(inner(fields, "providerOptions"), extension_slot.SLOT)

    def read(self, fields: Fields, line: int | None) -> list[Message]:
        """Return the messages of a record, with carried data."""
        self._place += 1
        messages = super().read(fields, line)
        if self._place in self._last:
            messages = [structs.replace(each, verbatim=True) for each in messages]
        return messages

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a record; nothing for our note after a malformed call."""
        role = string(fields, "role") or ""
        cls = CLASSES.get(role)
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
        read |= {"role", "content", *DEPRECATED} | ({"providerOptions"} if whole else set())
        beside.update((key, jsontext.own(fields[key])) for key in sorted(self.keys - read) if key in fields)
        return [built(cls, provider_json=provider_of({**provider, EXTRA: beside}), **says)]

    def _around(self, fields: Fields) -> tuple[dict[str, Any], set[str]]:
        """Return tags, time, and the effects of the deprecated keys."""
        for key in DEPRECATED:
            if key in fields:
                self.watch.note("deprecated", f"message.{key}", self.line)
        tags = [jsontext.text(raw) for raw in listed(fields, "tags") if jsontext.kind(raw) == "a string"]
        read = {"tags"} if tags and len(tags) == len(listed(fields, "tags")) else set[str]()
        tags = tags if read else []
        lifetime = LIFETIMES.get(string(fields, "timeToLive") or "")
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
        known = PART_KEYS.get(kind)
        if known is None or kind not in ALLOWED[cls]:
            self.watch.note("block", kind or "without a type", self.line)
            return trusted.Opaque(NAME, jsontext.own(raw))
        missing = next((key for key in NEEDS[kind] if kind_of(fields, key) != "a string"), None)
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


def _hoisted(fields: Fields) -> Fields:
    """Return a result of the first form in the later form, with the fields of its content beside the content."""
    content = as_object(fields.get("content", jsontext.NULL))
    if string(content, "type") != "tool-result":
        return fields
    rest = {key: raw for key, raw in content.items() if key not in {"type", "output"}}
    return {**rest, **fields, "content": content.get("output", Raw(b"[]"))}


def _failed(content: Sequence[AnyPart]) -> bool:
    """Return whether a result is only Codebuff's answer for a failed tool: JSON with an ``errorMessage``."""
    match content:
        case (Json(value_json=raw),):
            return "errorMessage" in as_object(raw)
        case _:
            return False


def _made(kind: str, fields: Fields, beside: dict[str, Any]) -> AnyPart | None:
    """Return a part with its required fields; ``None`` when neutral fields cannot represent it."""
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
        cls = MEDIA.get((media_type or "").partition("/")[0], File)
        return cls(trusted.Inline(string(fields, "data") or ""), media_type)
    if isinstance(source, Inline) and before != base64_prefix(kind, media_type):
        beside["before"] = before
    if media_type is None and typed is not None:
        media_type = typed
        beside[ABSENT] = ["mediaType"]
    if kind == "image":
        return trusted.Image(source, media_type)
    name = string(fields, "filename")
    return trusted.File(source, media_type, name=name) if name is not None or "filename" not in fields else None
