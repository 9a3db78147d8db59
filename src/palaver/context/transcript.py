"""A transcript: messages as one text, for a model that is to sum them up, not to go on with them.

Rules (docs/spec/deepagents-swift.md#8.5, DAS-28; docs/spec/kairo.md#D15, #D30):

- A message is an entry: ``User:``, ``Assistant:``, ``Tool result:``, ``System:`` or ``Earlier summary:``, and what it
  says; all its text parts, its calls as ``Called: name(arguments)``, media by name. Reasoning is left out. A message
  that says nothing is no entry.
- ``(kept)`` behind the role marks a message that stays in the conversation.
- Nothing inside can pass for an entry or for the end of the transcript: only entries begin at the edge, every other
  line is indented, and a tag of the transcript's own name is taken apart.
- Long texts lose their middle, and a marker says how much. The limits go down until the whole fits; people and earlier
  summaries have the most room. Where the lowest is not enough, messages in the middle go.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, assert_never

from msgspec import Struct

from palaver.core.errors import excerpt
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Video,
)

_LIMITS: Final = (8000, 4000, 2000, 1000, 500, 250, 120)
"""Characters of a text, from generous to terse."""
_PEOPLE: Final = 16
"""How much more room people and earlier summaries have."""
_NAME: Final = 120
_TAG: Final = re.compile(r"<(?=\s*+(?:/\s*+)?transcript\b)", re.IGNORECASE)


class Entry(Struct, frozen=True):
    """A message in a transcript. ``dear``: one with more room, that is left out last."""

    label: str
    text: str
    dear: bool = False


def entry(message: Message, *, stays: bool = False) -> Entry | None:
    """A message as an entry, or ``None`` when it says nothing. ``stays``: it is not removed."""
    text = "\n".join(filter(None, map(shown, message.content))).strip()
    dear = False
    if message.is_summary:
        label, dear = "Earlier summary", True
    elif isinstance(message, ToolMessage):
        label, text = "Tool result", _result(message, text)
    elif isinstance(message, AssistantMessage):
        label = "Assistant"
    elif isinstance(message, UserMessage):
        label, dear = "User", message.mode != "tool"
    else:
        label = "System"
    return Entry(f"{label} (kept)" if stays else label, text, dear) if text else None


def transcript(entries: Sequence[Entry], size: int, *, untold: int = 0) -> str:
    """The entries as one text between tags, of about ``size`` UTF-8 bytes at most.

    ``untold`` is the number of entries that were left out before them.
    """
    said: list[str] = []
    for limit in _LIMITS:
        if limit > _LIMITS[-1] and sum([min(len(each.text), _room(each, limit)) for each in entries]) > size:
            continue
        said = [_written(each, limit) for each in entries]
        if sum(map(_bytes, said)) <= size:
            break
    else:
        said = _without_middle(said, size)
    if untold:
        said.insert(0, f"[{untold} earlier messages are left out here]")
    return "<transcript>\n" + "\n\n".join(said) + "\n</transcript>"


def _without_middle(said: Sequence[str], size: int) -> list[str]:
    """A third of the room for the oldest, the rest for the newest, of which there is always one."""
    left = size // 3
    head = 0
    while head < len(said) - 1 and (left := left - _bytes(said[head])) >= 0:
        head += 1
    left = size - size // 3 - _bytes(said[-1])
    tail = len(said) - 1
    while tail > head and (left := left - _bytes(said[tail - 1])) >= 0:
        tail -= 1
    gap = [f"[{tail - head} messages are left out here]"] if tail > head else []
    return [*said[:head], *gap, *said[tail:]]


def clamped(text: str, limit: int) -> str:
    """The text without its middle, when it is longer than ``limit`` characters, and how many are gone."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) + 2


def _room(each: Entry, limit: int) -> int:
    return limit * _PEOPLE if each.dear else limit


def _written(each: Entry, limit: int) -> str:
    text = clamped(each.text, _room(each, limit))
    return f"{each.label}: " + "\n  ".join(_TAG.sub("&lt;", text).splitlines())


def _result(message: ToolMessage, text: str) -> str:
    about = ", ".join([word for word in (message.tool_name, "error" if message.is_error else None) if word])
    return f"[{excerpt(about, _NAME)}] {text or '(empty)'}" if about else text or "(empty)"


def shown(part: AnyPart) -> str:
    """A part as text: what it says, calls, or media by name; nothing for reasoning."""
    match part:
        case Text() | Refusal():
            return part.text
        case Reasoning():
            return ""
        case ToolCall():
            return f"Called: {part.name}({part.arguments_json})"
        case MalformedToolCall():
            return f"Called, but it could not be read: {part.name or ''}({part.raw})"
        case Json():
            return bytes(part.value_json).decode()
        case ServerToolResult():
            return f"Result: {bytes(part.output_json).decode()}"
        case File() if part.name:
            return f"[file: {excerpt(part.name, _NAME)}]"
        case Image() | Audio() | Video() | File():
            return f"[{type(part).__name__.lower()}]"
        case Opaque():
            return "[unknown block]"
        case _:
            assert_never(part)
