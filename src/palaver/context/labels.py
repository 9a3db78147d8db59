"""What stands in the place of something that compaction took out: short texts, and how they are recognised.

Rules (docs/spec/kairo.md#3.3; golden ``compaction``, ``labels``):

- A label of a result names the call. The id is the handle by which the whole of it can be read in the thread.
- Sizes are those of what was taken out: bytes of UTF-8 text, of JSON text, and of inline media.
- A result that a label stands for is told by its metadata and its text together, so that what a tool said is never
  taken for a label.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import UNSET

from palaver.core.messages import ToolMessage
from palaver.core.parts import Inline, Json, Media, Opaque, Text, ToolPart

CUT: Final = "... [truncated by time-micro]"
"""What stands at the end of a text that ``time_micro`` cut."""
GO_ON: Final = "[The tool calls above are done. Go on from here.]"
"""What stands behind calls that were folded in the turn that is open."""
LAST: Final = 5
"""How many messages, or results, the labels say are kept."""

_HEADS: Final = ("[Result: ", "[Tool result snipped - ")
_SHOWN: Final = 20
_LONGEST: Final = 64
"""Characters of a label of reasoning at most."""
_SECOND: Final = 1000
_DAY: Final = 24 * 60 * 60
_TWO: Final = [f"{number:02}" for number in range(60)]


def size(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def result_tokens(label: str) -> int:
    """Tokens of a label that is all of a result, as ``tokens.estimate`` has it."""
    return size(label) * 2 // 9 or 1


def result(message: ToolMessage) -> str:
    """``[Result: c0 - success - 400 bytes]``."""
    content = message.content
    first = content[0] if len(content) == 1 else None
    held = size(first.text) if type(first) is Text else sum([_bytes(part) for part in content])
    return f"[Result: {message.tool_call_id} - {'error' if message.is_error else 'success'} - {held} bytes]"


def snipped(message: ToolMessage) -> str:
    """``[Tool result snipped - c0 at 2026-01-01T00:00:00Z]``; without the time where it is not known."""
    if message.sent_at is None:
        return f"[Tool result snipped - {message.tool_call_id}]"
    return f"[Tool result snipped - {message.tool_call_id} at {_iso(message.sent_at // _SECOND)}]"


def is_label(message: ToolMessage) -> bool:
    """Whether a label stands in the place of a result already."""
    metadata = message.metadata_json
    if metadata is UNSET or len(message.content) != 1:
        return False
    only = message.content[0]
    return type(only) is Text and only.text.startswith(_HEADS) and b'"compaction"' in bytes(metadata)


def reasoning(text: str) -> str:
    """``[Thinking: 10 words about I should look at the...]``. That of a label is the label itself."""
    if len(text) <= _LONGEST and text.startswith("[Thinking: ") and text.endswith("...]"):
        return text
    return f"[Thinking: {len(text.split())} words about {text[:_SHOWN]}...]"


def collapsed(calls: Mapping[str, int], failed: int) -> str:
    """``[Collapsed: 6 tool calls (read x4, write x2) - 5 successful, 1 errors]``."""
    total = sum(calls.values())
    names = ", ".join([f"{name} x{count}" for name, count in calls.items()])
    outcome = f"{total - failed} successful, {failed} errors" if failed else "all successful"
    return f"[Collapsed: {total} tool calls ({names}) - {outcome}]"


def partial(messages: int, tokens: int, last: int) -> str:
    """What stands for the middle of a conversation, of which nothing else is kept."""
    kept = f"Keeping system messages, verbatim messages, and last {last} messages."
    return f"[Partial compaction: {messages} messages ({tokens} tokens) compressed. {kept}]"


def partial_up_to(messages: int, tokens: int, marker: str) -> str:
    """What stands for the conversation before a message."""
    return f"[Partial compaction (UP_TO): {messages} messages ({tokens} tokens) compressed up to marker '{marker}'.]"


def left_out(characters: int, call: str | None = None) -> str:
    """The line that stands between head and tail of what was shortened."""
    whose = f" of the result of {call}" if call else ""
    return f"\n[... {characters} characters{whose} left out ...]\n"


def _iso(seconds: int) -> str:
    day, rest = divmod(seconds, _DAY)
    date = _date(day)
    return f"{seconds} s" if date is None else f"{date}T{_TWO[rest // 3600]}:{_TWO[rest // 60 % 60]}:{_TWO[rest % 60]}Z"


@lru_cache(maxsize=1024)
def _date(day: int) -> str | None:
    """A day since 1970; ``None`` for one that no calendar has."""
    try:
        return datetime.fromtimestamp(day * _DAY, UTC).strftime("%Y-%m-%d")
    except (OverflowError, OSError, ValueError):
        return None


def _bytes(part: ToolPart) -> int:
    match part:
        case Text():
            return size(part.text)
        case Json():
            return len(memoryview(part.value_json))
        case Opaque():
            return len(memoryview(part.raw_json))
        case Media(source=Inline() as source):
            return source.size
        case _:
            return 0
