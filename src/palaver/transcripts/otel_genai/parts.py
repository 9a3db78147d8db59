"""Messages of the conventions, read into ours.

Rules (docs/spec/dialects.md#8):

- A message is ``{role, parts}``. A ``tool_call_response`` is a tool message of its own, whoever's message it stands in.
- ``arguments`` and ``response`` are any JSON; arguments that are text are the model's own text.
- A part that nobody knows, or that the role cannot hold, is an ``Opaque`` part.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from palaver.core import jsontext, trusted
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
from palaver.transcripts import extension_slot
from palaver.transcripts.fields import listed, string, value
from palaver.transcripts.otel_genai.shapes import FINISH, MESSAGE, MODALITIES, NAME, PARTS

if TYPE_CHECKING:
    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.unknown_fields import Watch

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
    """Reads messages. ``wire`` is that of the provider, as far as it is known."""

    def __init__(self, wire: str | None, watch: Watch, line: int | None) -> None:
        """Nothing is read yet."""
        self._wire = wire
        self._watch = watch
        self._line = line

    def messages(self, fields: Fields) -> list[Message]:
        """What a message says, with what it carries. Raises ``DecodeError``."""
        plain = self.plain(fields)
        slot = value(fields, extension_slot.SLOT)
        restored = None if slot is None else extension_slot.restored(plain, slot)
        return plain if restored is None else list(restored)

    def plain(self, fields: Fields) -> list[Message]:
        """What a message says, without what it carries."""
        self._watch.keys(fields, MESSAGE, "message", self._line)
        role = string(fields, "role") or ""
        cls = _CLASSES.get(role)
        if cls is None:
            self._watch.note("unread", f"role {role}", self._line)
        return self._split(cls or UserMessage, listed(fields, "parts"), fields)

    def system(self, parts: list[Raw]) -> SystemMessage:
        """System instructions: parts without a message around them."""
        content: Any = tuple(self._fitting(SystemMessage, parts))
        return trusted.SystemMessage(content=content)

    def _split(self, cls: type, raws: list[Raw], fields: Fields) -> list[Message]:
        """The results that a message holds, and the rest of it."""
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
