"""What compaction must preserve, and the texts that replace what it removes.

Rules (docs/spec/kairo.md#3.3, #3.7; goldens ``compaction``, ``labels``):

- ``preserved`` finds what no stage touches: messages marked ``verbatim`` (I1), system and developer messages, the last
  message of each tag in ``Plan.keep_last``, and results that the model has not seen, with their answer (I10). The task
  (first user message, I8) and the last prompt stay, but may be shortened. Reasoning of the open turn is unchanged.
- A ``round`` is an answer with the results of its calls; it is removed whole or not at all (I2).
- A label names the call, whose id is the handle to read the whole result in the thread. Sizes are UTF-8 bytes of text
  or JSON, and bytes of inline media. Metadata and text together identify a label.
- A ``placeholder`` is a user message (I4) with ``source="compaction"``. ``payload["compaction"]`` has its ``stage``,
  the ``messages`` and ``tokens`` it stands for, and the ids that it ``replaces``.
- ``values`` reads results as JSON: a JSON part, or a text that spells an object or a list. A result with an
  ``errorMessage`` is an error.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from palaver.context.plan import SOURCE, Item, Plan
from palaver.context.rewrite import COMPACTION
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.factories import user
from palaver.core.messages import AssistantMessage, DeveloperMessage, Message, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import Image, Inline, Json, Media, Opaque, Text, ToolPart
from palaver.tokens.estimate import estimate

# --- labels -----------------------------------------------------------------------------------------------------------


CUT: Final = "... [truncated by time-micro]"
"""The end of a text that ``time_micro`` cut."""
GO_ON: Final = "[The tool calls above are done. Go on from here.]"
"""The text behind folded calls in the open turn."""
LAST: Final = 5
"""The number of kept messages, or results, that the labels name."""

_HEADS: Final = ("[Result: ", "[Tool result snipped - ")
_SHOWN: Final = 20
_MAX_REASONING: Final = 64
"""The most characters of a label of reasoning."""
_SECOND: Final = 1000
_DAY: Final = 24 * 60 * 60
_TWO: Final = [f"{number:02}" for number in range(60)]


def size(text: str) -> int:
    """Return the size of a text in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def result_tokens(label: str) -> int:
    """Return the tokens of a label that is a whole result, as ``tokens.estimate`` counts them."""
    return size(label) * 2 // 9 or 1


def result_label(message: ToolMessage) -> str:
    """``[Result: c0 - success - 400 bytes]``."""
    content = message.content
    first = content[0] if len(content) == 1 else None
    held = size(first.text) if type(first) is Text else sum([_bytes(part) for part in content])
    return f"[Result: {message.tool_call_id} - {'error' if message.is_error else 'success'} - {held} bytes]"


def snipped_label(message: ToolMessage) -> str:
    """``[Tool result snipped - c0 at 2026-01-01T00:00:00Z]``; without the time where it is not known."""
    if message.sent_at is None:
        return f"[Tool result snipped - {message.tool_call_id}]"
    return f"[Tool result snipped - {message.tool_call_id} at {_iso(message.sent_at // _SECOND)}]"


def is_label(message: ToolMessage) -> bool:
    """Return whether the result is a label already."""
    metadata = message.metadata_json
    if metadata is UNSET or len(message.content) != 1:
        return False
    only = message.content[0]
    return type(only) is Text and only.text.startswith(_HEADS) and b'"compaction"' in bytes(metadata)


def reasoning_label(text: str) -> str:
    """``[Thinking: 10 words about I should look at the...]``. The label of a label is the label itself."""
    if len(text) <= _MAX_REASONING and text.startswith("[Thinking: ") and text.endswith("...]"):
        return text
    return f"[Thinking: {len(text.split())} words about {text[:_SHOWN]}...]"


def collapsed_label(calls: Mapping[str, int], is_failed: int) -> str:
    """``[Collapsed: 6 tool calls (read x4, write x2) - 5 successful, 1 errors]``."""
    total = sum(calls.values())
    names = ", ".join([f"{name} x{count}" for name, count in calls.items()])
    outcome = f"{total - is_failed} successful, {is_failed} errors" if is_failed else "all successful"
    return f"[Collapsed: {total} tool calls ({names}) - {outcome}]"


def partial_label(messages: int, tokens: int, last: int) -> str:
    """Return the label of the middle of a conversation, of which nothing else is kept."""
    rest = f"Keeping system messages, verbatim messages, and last {last} messages."
    return f"[Partial compaction: {messages} messages ({tokens} tokens) compressed. {rest}]"


def partial_up_to_label(messages: int, tokens: int, marker: str) -> str:
    """Return the label of the conversation before a message."""
    return f"[Partial compaction (UP_TO): {messages} messages ({tokens} tokens) compressed up to marker '{marker}'.]"


def omitted(characters: int, call: str | None = None) -> str:
    """Return the line between the head and the tail of a shortened text."""
    whose = f" of the result of {call}" if call else ""
    return f"\n[... {characters} characters{whose} left out ...]\n"


def _iso(seconds: int) -> str:
    day, rest = divmod(seconds, _DAY)
    date = _date(day)
    return f"{seconds} s" if date is None else f"{date}T{_TWO[rest // 3600]}:{_TWO[rest // 60 % 60]}:{_TWO[rest % 60]}Z"


@lru_cache(maxsize=1024)
def _date(day: int) -> str | None:
    """Return a day since 1970; ``None`` when the calendar lacks it."""
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


# --- kept -------------------------------------------------------------------------------------------------------------


class Preserved(NamedTuple):
    """Places in the items of a plan. ``task``: the first user message; ``prompt``: the last."""

    untouchable: bytearray
    """1 for each message that must not be changed, else 0."""
    task: int | None
    open_turn: int
    """Where the open turn begins; the number of items when no turn is open."""
    prompt: int | None = None

    def removable(self, place: int) -> bool:
        """Return whether a message may be removed, or folded into another."""
        return not self.untouchable[place] and place not in (self.task, self.prompt)


def preserved(plan: Plan) -> Preserved:
    """Return what a plan must keep unchanged. Costs one pass."""
    items, tags = plan.items, plan.keep_last
    size = len(items)
    untouchable = bytearray(size)
    task: int | None = None
    user = -1
    last_answer = -1
    for place, item in enumerate(items):
        message = item.message
        if message.verbatim:
            untouchable[place] = 1
        kind = type(message)  # of a closed family: cheaper than isinstance
        if kind is AssistantMessage:
            last_answer = place
        elif kind is UserMessage:
            if message.mode != "tool" and not message.is_summary:
                user = place
                if task is None:
                    task = place
        elif kind is SystemMessage or kind is DeveloperMessage:
            untouchable[place] = 1
    seen_all = last_answer < 0 or not (
        last_answer < size - 1 and isinstance(items[last_answer + 1].message, ToolMessage)
    )
    open_turn = size
    if last_answer >= 0 and not seen_all:
        for place in range(last_answer, size):
            message = items[place].message
            if place == last_answer or isinstance(message, ToolMessage):
                untouchable[place] = 1
        open_turn = user + 1
    if tags:
        left = set(tags)
        for place in range(size - 1, -1, -1):
            found = left.intersection(items[place].message.tags)
            if found:
                untouchable[place] = 1
                left -= found
                if not left:
                    break
    return Preserved(untouchable, task, open_turn, user if user >= 0 else None)


def rounds(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Return the rounds, oldest first, each as the places where it begins and ends (behind its last message)."""
    starts = [place for place, item in enumerate(items) if type(item.message) is not ToolMessage or place == 0]
    return list(pairwise([*starts, len(items)]))


# --- standing ---------------------------------------------------------------------------------------------------------


def placeholder(
    plan: Plan, stage: str, text: str, items: Sequence[Item], *images: Image, entries: Sequence[Any] | None = None
) -> Item:
    """Return a message that stands for items of a plan; ``entries`` are remembered in its record."""
    record = {
        "stage": stage,
        "messages": sum([_messages(item.message) for item in items]),
        "tokens": sum([_tokens(plan, item) for item in items]),
        "replaces": [item.message.id for item in items if item.message.id is not None],
        **({} if entries is None else {"entries": entries}),
    }
    message = user(text, *images, mode="tool", source=SOURCE, payload={COMPACTION: record})
    return Item(message, estimate(message))


def record_of(message: Message) -> Mapping[str, Any] | None:
    """Return the record of a message that stands for others; ``None`` for any other message."""
    if message.source != SOURCE or message.payload_json is UNSET:
        return None
    return _object(_object(message.payload).get(COMPACTION)) or None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, jsontext.FrozenDict) else {}


def _messages(message: Message) -> int:
    return _counted(message, "messages") or 1


def _tokens(plan: Plan, item: Item) -> int:
    return _counted(item.message, "tokens") or plan.scaled(item.tokens)


def _counted(message: Message, what: str) -> int | None:
    """Return how many messages or tokens a message says that it stands for."""
    count = (record_of(message) or {}).get(what)
    return count if type(count) is int and count > 0 else None


# --- results ----------------------------------------------------------------------------------------------------------


TERMINAL: Final = frozenset(
    ("run_terminal_command", "run_command", "run_shell_command", "execute_command", "exec_command", "bash", "shell")
)
"""Tools that run commands, by the usual names."""


def values(message: ToolMessage) -> list[Any]:
    """Return the values that a result holds as JSON."""
    return [value for part in message.content if (value := _value(part)) is not None]


def objects(message: ToolMessage) -> list[dict[str, Any]]:
    """Return the objects among its values."""
    return [value for value in values(message) if isinstance(value, dict)]


def is_failed(message: ToolMessage) -> bool:
    """Return whether the result is an error."""
    return message.is_error or any("errorMessage" in each for each in objects(message))


def result_text(message: ToolMessage) -> str:
    """Return all text of a result; media and unknown blocks have none."""
    return "\n".join([_text(part) for part in message.content if isinstance(part, Text | Json)])


def _value(part: ToolPart) -> Any:
    if isinstance(part, Json):
        return part.value
    if not isinstance(part, Text) or not part.text.lstrip().startswith(("{", "[")):
        return None
    try:
        return jsontext.view(part.text)
    except DecodeError:
        return None


def _text(part: Text | Json) -> str:
    if isinstance(part, Text):
        return part.text
    value = part.value
    return value if isinstance(value, str) else bytes(part.value_json).decode()
