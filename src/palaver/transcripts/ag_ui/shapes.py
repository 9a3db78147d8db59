"""The words of AG-UI: events, messages, parts; and its messages, read into ours.

Rules (docs/spec/dialects.md#12):

- A response is one message here: reasoning, then text, then calls, as several messages or as events. Calls without text
  belong to the text before them; text or reasoning after text or calls starts the next response, unless its id says
  that it was written as a piece of the one before (``<id>-2``).
- ``activity`` is for the user interface only.

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
    Video,
    settled,
)
from palaver.core.usage import Usage
from palaver.transcripts import extension_slot
from palaver.transcripts.fields import inner, integer, listed, split, string, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

NAME: Final = "ag_ui"
VERSION: Final = "1.0"

_EVENT: Final = frozenset(("type", "timestamp", "rawEvent", "metadata", "subagentRunId"))
_TEXT: Final = _EVENT | {"messageId", "role", "name", "delta"}
_CALL: Final = _EVENT | {"toolCallId", "toolCallName", "parentMessageId", "delta"}
_INPUT: Final = frozenset(
    (
        "threadId",
        "runId",
        "protocolVersion",
        "parentRunId",
        "state",
        "messages",
        "tools",
        "context",
        "forwardedProps",
        "resume",
    )
)
EVENTS: Final = {
    "TEXT_MESSAGE_START": _TEXT,
    "TEXT_MESSAGE_CONTENT": _TEXT,
    "TEXT_MESSAGE_END": _TEXT,
    "TEXT_MESSAGE_CHUNK": _TEXT,
    "TOOL_CALL_START": _CALL,
    "TOOL_CALL_ARGS": _CALL,
    "TOOL_CALL_END": _CALL,
    "TOOL_CALL_CHUNK": _CALL,
    "TOOL_CALL_RESULT": _EVENT | {"messageId", "toolCallId", "content", "role", "error"},
    "REASONING_START": _TEXT | {"encryptedContent"},
    "REASONING_MESSAGE_START": _TEXT,
    "REASONING_MESSAGE_CONTENT": _TEXT,
    "REASONING_MESSAGE_END": _TEXT,
    "REASONING_MESSAGE_CHUNK": _TEXT,
    "REASONING_END": _TEXT,
    "REASONING_ENCRYPTED_VALUE": _EVENT | {"subtype", "entityId", "encryptedValue"},
    "THINKING_START": _EVENT | {"title"},
    "THINKING_END": _EVENT,
    "THINKING_TEXT_MESSAGE_START": _EVENT,
    "THINKING_TEXT_MESSAGE_CONTENT": _EVENT | {"delta"},
    "THINKING_TEXT_MESSAGE_END": _EVENT,
    "STATE_SNAPSHOT": _EVENT | {"snapshot"},
    "STATE_DELTA": _EVENT | {"delta"},
    "MESSAGES_SNAPSHOT": _EVENT | {"messages"},
    "ACTIVITY_SNAPSHOT": _EVENT | {"messageId", "activityType", "content", "replace"},
    "ACTIVITY_DELTA": _EVENT | {"messageId", "activityType", "patch"},
    "RUN_STARTED": _EVENT | {"threadId", "runId", "protocolVersion", "parentRunId", "input"},
    "RUN_FINISHED": _EVENT | {"threadId", "runId", "result", "outcome", "usage"},
    "RUN_ERROR": _EVENT | {"message", "code", "usage", "threadId", "runId"},
    "STEP_STARTED": _EVENT | {"stepName"},
    "STEP_FINISHED": _EVENT | {"stepName"},
    "SUBAGENT_STARTED": _EVENT | {"name", "description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"},
    "SUBAGENT_FINISHED": _EVENT | {"result", "outcome"},
    "SUBAGENT_ERROR": _EVENT | {"message", "code"},
    "RAW": _EVENT | {"event", "source"},
    "CUSTOM": _EVENT | {"name", "value"},
    "": _INPUT | {"type"},
}
SPOKEN: Final = ("TEXT_MESSAGE_", "TOOL_CALL_", "REASONING_", "THINKING_")
"""The prefixes of the types of message events."""

_MESSAGE: Final = frozenset(("id", "role", "content", "name", "encryptedValue", "metadata", "subagentRunId"))
ROLES: Final = {
    "developer": _MESSAGE,
    "system": _MESSAGE,
    "user": _MESSAGE,
    "assistant": _MESSAGE | {"toolCalls"},
    "tool": _MESSAGE | {"toolCallId", "error"},
    "activity": _MESSAGE | {"activityType"},
    "reasoning": _MESSAGE,
}
PARTS: Final = {
    "text": frozenset(("type", "id", "text", "metadata")),
    "image": frozenset(("type", "id", "source", "metadata")),
    "audio": frozenset(("type", "id", "source", "metadata")),
    "video": frozenset(("type", "id", "source", "metadata")),
    "document": frozenset(("type", "id", "source", "metadata")),
    "binary": frozenset(("type", "mimeType", "id", "url", "data", "filename")),
}


_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}
_CLASSES: Final[dict[str, type[Any]]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


class Piece:
    """A part in progress."""

    def __init__(self, kind: str, named: str, text: str = "") -> None:
        """``kind`` is ``text``, ``reasoning`` or ``call``."""
        self.kind = kind
        self.id = named
        self.name = ""
        self.texts = [text]
        self.sealed: str | None = None

    @property
    def part(self) -> AnyPart:
        """The part, as far as it was received."""
        text = "".join(self.texts)
        if self.kind == "text":
            return trusted.Text(text)
        if self.kind == "reasoning":
            return trusted.Reasoning(text, encrypted=self.sealed)
        call = settled(trusted.ToolCall(self.id, self.name, text))
        return call if self.sealed is None else call.replace(provider={NAME: {"encryptedValue": self.sealed}})


class Response:
    """A message in progress, and its records."""

    def __init__(self, role: str = "assistant") -> None:
        """Start empty."""
        self.role = role
        self.records: list[Record] = []
        self.pieces: list[Piece] = []
        self.id: str | None = None
        self.name: str | None = None
        self.at: int | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.error: str | None = None
        self.slot: Any = None

    def find(self, kind: str, named: str) -> Piece | None:
        """Return the piece of a kind and an id."""
        return next((each for each in reversed(self.pieces) if each.kind == kind and each.id == named), None)

    def takes(self, kind: str, named: str) -> bool:
        """Return whether a new piece belongs to this response."""
        if self.role != "assistant":
            return False
        if self.id is not None and (named == self.id or named.startswith(f"{self.id}-")):
            return True
        return kind == "call" or self.id is None

    @property
    def plain(self) -> Message:
        """The message, without carried data."""
        content: Any = tuple([each.part for each in self.pieces])
        if self.role != "assistant":
            cls = _CLASSES.get(self.role, UserMessage)
            return _named(cls(content=content), self.name)
        return trusted.AssistantMessage(
            content=content,
            agent=self.name,
            usage=self.usage,
            model=self.model,
            finish_reason=None if self.error is None else "error",
        )

    @property
    def message(self) -> Message:
        """The message."""
        plain = self.plain
        found = None if self.slot is None else extension_slot.restored([plain], self.slot)
        message = plain if not found else found[0]
        if self.error is not None and isinstance(message, AssistantMessage) and not found:
            message = message.replace(metadata={"error": self.error})
        return message if message.sent_at is not None else structs.replace(message, sent_at=self.at)


def told(response: Response, fields: Fields) -> None:
    """Add an ``assistant`` or ``reasoning`` message to a response."""
    named = string(fields, "id") or ""
    response.slot = slot_of(fields) or response.slot
    if string(fields, "role") == "reasoning":
        piece = Piece("reasoning", named, string(fields, "content") or "")
        piece.sealed = string(fields, "encryptedValue")
        response.pieces.append(piece)
        return
    response.id = response.id or named or None
    response.name = response.name or string(fields, "name")
    calls = listed(fields, "toolCalls")
    text = string(fields, "content")
    if text or (text is not None and not calls):
        response.pieces.append(Piece("text", named, text))
    for raw in calls:
        call = split(raw)
        function = inner(call, "function")
        piece = Piece("call", string(call, "id") or "", string(function, "arguments") or "")
        piece.name = string(function, "name") or ""
        piece.sealed = string(call, "encryptedValue")
        response.pieces.append(piece)


def goes_on(response: Response, fields: Fields) -> bool:
    """Return whether a message of the list belongs to the response before it."""
    kind = "reasoning" if string(fields, "role") == "reasoning" else "text"
    if kind == "text" and "content" not in fields and listed(fields, "toolCalls"):
        kind = "call"
    return response.takes(kind, string(fields, "id") or "")


def slot_of(fields: Fields) -> Any:
    """Return the carried data of a message."""
    return value(inner(fields, "metadata"), extension_slot.SLOT)


def plain_message(fields: Fields, names: dict[str, str], watch: Watch, line: int | None) -> Message | None:
    """Return a message that is not a response; ``None`` for one that is only for the user interface."""
    role = string(fields, "role") or ""
    if role == "tool":
        return result(fields, names, watch, line)
    cls = _CLASSES.get(role)
    if cls is None:
        return None
    message = cls(content=content_of(cls, fields, watch, line))
    return _named(message, string(fields, "name"))


def _named(message: Message, name: str | None) -> Message:
    return message if name is None else message.replace(provider={NAME: {"name": name}})


def result(fields: Fields, names: dict[str, str], watch: Watch, line: int | None) -> ToolMessage:
    """Return a tool message, from a message or an event with a result."""
    call = string(fields, "toolCallId")
    failed = string(fields, "error")
    content = content_of(ToolMessage, fields, watch, line)
    message = trusted.ToolMessage(
        content=content or ((trusted.Text(failed),) if failed else ()),
        tool_call_id=call,
        tool_name=names.get(call or ""),
        is_error=failed is not None,
    )
    return message if failed is None or failed == message.text else message.replace(metadata={"error": failed})


def content_of(cls: type, fields: Fields, watch: Watch, line: int | None) -> tuple[Any, ...]:
    """Return the parts of ``content``: a string, or parts."""
    raw = fields.get("content")
    if raw is None or jsontext.is_null(raw):
        return ()
    match jsontext.kind(raw):
        case "a string":
            return (trusted.Text(jsontext.text(raw)),)
        case "an array":
            parts = [(_part(each, watch, line), each) for each in jsontext.items(raw)]
            return tuple(
                [part if holds(cls, part) else trusted.Opaque(NAME, jsontext.own(each)) for part, each in parts]
            )
        case _:
            return (trusted.Opaque(NAME, jsontext.own(raw)),)


def _part(raw: Raw, watch: Watch, line: int | None) -> AnyPart:
    fields = split(raw)
    kind = string(fields, "type") or ""
    if kind not in PARTS:
        watch.note("block", kind or "without a type", line)
        return trusted.Opaque(NAME, jsontext.own(raw))
    watch.keys(fields, PARTS[kind], kind, line)
    if kind == "text":
        return trusted.Text(string(fields, "text") or "")
    if kind == "binary":
        return _binary(fields) or trusted.Opaque(NAME, jsontext.own(raw))
    source = inner(fields, "source")
    stored, mime = string(source, "value"), string(source, "mimeType")
    if stored is None:
        return trusted.Opaque(NAME, jsontext.own(raw))
    match string(source, "type"):
        case "data":
            place: Any = trusted.Inline(stored)
        case "url":
            place = trusted.Url(stored)
        case "file":
            place = trusted.FileId(stored, string(source, "provider") or NAME)
        case _:
            return trusted.Opaque(NAME, jsontext.own(raw))
    cls = _MEDIA.get(kind)
    name = string(inner(fields, "metadata"), "filename")
    return trusted.File(place, mime, name) if cls is None else cls(place, mime)


def _binary(fields: Fields) -> AnyPart | None:
    """Return a medium in the form before 1.0."""
    mime = string(fields, "mimeType")
    cls = _MEDIA.get((mime or "").partition("/")[0])
    data, url, named = string(fields, "data"), string(fields, "url"), string(fields, "id")
    if data is None and url is None and named is None:
        return None
    place = (
        trusted.Inline(data)
        if data is not None
        else trusted.Url(url)
        if url is not None
        else trusted.FileId(named or "", NAME)
    )
    return trusted.File(place, mime, string(fields, "filename")) if cls is None else cls(place, mime)


def usage_of(entries: Sequence[Raw]) -> tuple[Usage | None, str | None]:
    """Return the counters at the end of a run, which include their details, and the model if there was only one."""
    if not entries:
        return None, None
    total = trusted.Usage()
    models: set[str | None] = set()
    for raw in entries:
        counts = split(raw)
        read, wrote = integer(counts, "cachedInputTokens"), integer(counts, "cacheWriteInputTokens")
        reasoned, given, made = (integer(counts, key) for key in ("reasoningTokens", "inputTokens", "outputTokens"))
        models.add(string(counts, "model"))
        total += trusted.Usage(
            input=None if given is None else max(given - (read or 0) - (wrote or 0), 0),
            cache_read=read,
            cache_write=wrote,
            output=None if made is None else max(made - (reasoned or 0), 0),
            reasoning=reasoned,
        )
    whole = jsontext.raw(list(entries)) if len(entries) > 1 else jsontext.own(entries[0])
    return structs.replace(total, raw_json=whole), models.pop() if len(models) == 1 else None
