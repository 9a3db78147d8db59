"""Session traces of the Hugging Face viewer (docs/spec/dialects.md#16). They are written, never read.

Lines: a ``session`` line, then a ``message`` line for each message. The viewer renders the files of Claude Code, Codex
and pi as they are, so copy those instead.

Not represented: media, proofs of reasoning, several blocks of reasoning (they are joined), the order of blocks,
usage, errors of tools, branches (the one that was asked for is written), markers, the provider's own tools (written as
text).
A malformed call keeps its text as its arguments.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.core import jsontext
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    Json,
    MalformedToolCall,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.transcripts import extension_slot
from palaver.transcripts.conversation import derived_id, session_of
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.writer import WriteState, singly, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.threads.thread import Entry

NAME: Final = "hf_sts"
HARNESS: Final = "palaver"

_ROLES: Final[dict[type, str]] = {
    UserMessage: "user",
    AssistantMessage: "assistant",
    SystemMessage: "system",
    DeveloperMessage: "system",
    ToolMessage: "tool",
}


_SAID: Final = frozenset(
    ("content", "id", "sent_at", "model", "usage", "tool_call_id", "tool_name", "is_error", "reason", "scope")
)
"""The fields of messages that lines have, or that have a loss of their own. A tool's name is that of the call."""
_PARTS: Final[dict[type, frozenset[str]]] = {
    Text: frozenset(("text",)),
    Reasoning: frozenset(("text", "signature", "encrypted")),
    ToolCall: frozenset(("id", "name", "arguments_json", "provider_executed")),
    MalformedToolCall: frozenset(("id", "name", "raw")),
}
"""The fields of parts that a line has, or that have a loss of their own; other parts are left out, or become text."""


def detect(head: Head) -> Detection | None:
    """Return a first line ``session`` that names a harness."""
    first = head.first
    return Detection(1.0) if first.get("type") == "session" and "harness" in first and "id" in first else None


class _RecordWriter:
    """Writes one conversation."""

    groups = staticmethod(singly)

    def __init__(self, writing: WriteState) -> None:
        self._writing = writing

    def head(self) -> Iterator[bytes]:
        """Yield the line of the session."""
        session = session_of(self._writing.metadata)
        title = self._writing.take_title()
        yield jsontext.encode(
            {
                "type": "session",
                "harness": session.file_format or HARNESS,
                "id": session.id or self._writing.thread.id,
                **({} if title is None else {"name": title}),
            }
        )

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def render(self, group: Sequence[Entry], _old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield a line for a message."""
        for entry in group:
            message = entry.message
            role = _ROLES.get(type(message))
            if role is None or isinstance(message, RescueMarker | FlushMarker):
                self._lose(entry, "dropped", message.role, "the format has no markers")
                continue
            yield jsontext.encode({"type": "message", "message": {"role": role, **self._fields(entry, message)}})

    def _fields(self, entry: Entry, message: Message) -> dict[str, Any]:
        texts = [self._text(entry, place, part) for place, part in enumerate(message.content)]
        fields: dict[str, Any] = {"content": "\n\n".join(text for text in texts if text is not None)}
        thoughts = [part for part in message.content if isinstance(part, Reasoning) and part.text]
        if thoughts:
            fields["reasoningContent"] = "\n\n".join(part.text for part in thoughts)
        calls = [
            _call(part, derived_id(entry.id, place))
            for place, part in enumerate(message.content)
            if isinstance(part, ToolCall | MalformedToolCall)
            and not (isinstance(part, ToolCall) and part.provider_executed)
        ]
        if calls:
            fields["toolCalls"] = calls
        if isinstance(message, ToolMessage) and message.tool_call_id is not None:
            fields["toolCallId"] = message.tool_call_id
        if message.sent_at is not None:
            fields["timestamp"] = message.sent_at
        if isinstance(message, AssistantMessage) and message.model is not None:
            fields["model"] = message.model
        self._beside(entry, message, len(thoughts))
        return fields

    def _text(self, entry: Entry, place: int, part: AnyPart) -> str | None:
        """Return a part in the text; ``None`` for one that is placed elsewhere, or left out."""
        match part:
            case Text():
                return part.text
            case Refusal():
                self._lose(entry, "converted", "refusal", "written as text", place)
                return part.text
            case Json():
                self._lose(entry, "converted", "json", "written as text", place)
                return bytes(part.value_json).decode()
            case ToolCall() if part.provider_executed:
                self._lose(entry, "converted", "server tool call", "written as text", place)
                return f"{part.name}({part.arguments_json})"
            case ServerToolResult():
                self._lose(entry, "converted", "server tool result", "written as text", place)
                return bytes(part.output_json).decode()
            case Reasoning():
                if part.signature is not None or part.encrypted is not None:
                    self._lose(entry, "dropped", "proof of reasoning", "the format has text only", place)
                return None
            case Media() | Opaque():
                what = "media" if isinstance(part, Media) else "opaque part"
                self._lose(entry, "dropped", what, "the format has text only", place)
                return None
            case MalformedToolCall():
                self._lose(entry, "converted", "malformed tool call", "its text is the arguments", place)
                return None
            case _:
                return None

    def _beside(self, entry: Entry, message: Message, thoughts: int) -> None:
        """Report the losses of the message's fields."""
        for name in unsupported(extension_slot.without_records(message), _SAID):
            self._lose(entry, "dropped", name, "the format has no place for it")
        for place, part in enumerate(message.content):
            for name in unsupported(part, _PARTS[type(part)]) if type(part) in _PARTS else ():
                self._lose(entry, "dropped", name, "the format has no place for it", place)
        spoken = [_rank(part) for part in message.content]
        if spoken != sorted(spoken):
            self._lose(entry, "approximated", "order of parts", "reasoning, text and calls are separate")
        if thoughts > 1:
            self._lose(entry, "approximated", "reasoning", "several blocks are joined")
        if isinstance(message, AssistantMessage) and message.usage is not None:
            self._lose(entry, "dropped", "usage", "the format has no place for it")
        if isinstance(message, ToolMessage) and message.is_error:
            self._lose(entry, "dropped", "is_error", "the format has no place for it")
        if isinstance(message, DeveloperMessage):
            self._lose(entry, "converted", "developer", "written as a system message")

    def _lose(self, entry: Entry, kind: Any, what: str, why: str, part: int | None = None) -> None:
        self._writing.lose(kind, what, why, entry, part)


def _call(part: ToolCall | MalformedToolCall, made: str) -> dict[str, Any]:
    arguments = part.arguments_json if isinstance(part, ToolCall) else part.raw
    return {"id": part.id or made, "function": {"name": part.name or "", "arguments": arguments}}


def _rank(part: AnyPart) -> int:
    """Return the order of a part when it is read back: reasoning, then text, then calls."""
    match part:
        case Reasoning():
            return 0
        case ToolCall() if not part.provider_executed:
            return 2
        case MalformedToolCall():
            return 2
        case _:
            return 1


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Hugging Face session traces",
    fidelity="write",
    detector=detect,
    record_reader=None,
    record_writer=_RecordWriter,
    history="all",
    keeps=("texts", "reasoning as one text", "calls, results and their ids", "times, models"),
    loses=(
        "media",
        "proofs of reasoning",
        "the order of parts",
        "usage",
        "errors of tools",
        "branches",
        "markers",
        "the provider's own tools (as text)",
    ),
)
