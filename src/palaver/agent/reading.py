"""``read_result``: what was left out of a result, or is not in the prompt any more, is read from the thread.

Rules:

- It reads a stretch of a result, or finds a text in it (letters of either case, no pattern language). The handle is the
  id of the call, or that of any message of the thread, as ``search_history`` names it: then it reads what that says.
- The whole of a result is in a record on the path of the conversation, or in its message. Where compaction has cleared
  or folded the message, it is in the conversation as it was before, which the thread keeps: so it works in another
  process and on another day.
- It is offered always: what was left out in an earlier run must be readable in this one, and tools that come and go
  miss the prompt cache.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from palaver.agent import graphemes
from palaver.agent.arguments import read_arguments
from palaver.agent.calling import WHOLE
from palaver.agent.cut_results import READING
from palaver.agent.limiting import CHARACTERS, READ_RESULT, stretch, text_of
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext
from palaver.context.rewriting import COMPACTION
from palaver.context.transcript import shown
from palaver.core.errors import ToolError, excerpt
from palaver.core.messages import SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.threads.thread import Entry
from palaver.threads.view import RECORD, is_sent

_LENGTH: Final = CHARACTERS
"""The most characters that one call reads."""
_FOUND: Final = 20
"""The most places that one call finds."""
_AROUND: Final = 80
"""Characters that are shown on each side of a place."""

_DEFINITION: Final = Tool.of(
    READ_RESULT,
    "Read on in a result that was cut, read one that was removed to save space, or find a text in one. The note in its "
    "place names the handle: the id of the call. The id of any earlier message is a handle too.",
    {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "Which result or message: the handle that is named."},
            "start": {"type": "integer", "minimum": 0, "description": "The character to begin with; 0 is the first."},
            "length": {"type": "integer", "minimum": 1, "maximum": _LENGTH, "description": "How many characters."},
            "find": {"type": "string", "description": "A text to find, in place of reading a stretch."},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
)


class _Asked(Struct, frozen=True):
    handle: str
    start: int
    length: int
    find: str


def _check(call: ToolCall) -> _Asked:
    given = read_arguments(call)
    handle = given.get("handle", given.get("call_id"))
    if not isinstance(handle, str) or not handle:
        raise InvalidArgumentsError("handle: expected the handle that the note of a cut result names")
    find = given.get("find", "")
    if not isinstance(find, str):
        raise InvalidArgumentsError("find: expected a text")
    start, length = _number(given, "start", 0), _number(given, "length", _LENGTH)
    return _Asked(handle, max(start, 0), min(max(length, 1), _LENGTH), find)


def _number(given: dict[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InvalidArgumentsError(f"{name}: expected a whole number")
    return int(value)


async def _read(asked: _Asked, context: ToolContext) -> Output:
    whole = whole_result(context.path, asked.handle)
    if whole is None:
        entries = context.path if context.host is None else context.host.entries()
        whole = whole_result(entries, asked.handle)
        whole = whole_message(entries, asked.handle) if whole is None else whole
    if whole is None:
        raise ToolError(f"handle: there is no result and no message {excerpt(asked.handle)!r} in this conversation")
    said = "\n".join(_places(whole, asked.find)) if asked.find else stretch(whole, asked.start, asked.length)
    return Output(content=(Text(said or "(nothing there: the result is shorter)"),))


def whole_result(path: Sequence[Entry], call: str) -> str | None:
    """All text of the result of a call, from the records on a path or else its message, the newest first.

    ``None`` without a result, and where compaction has left nothing of it but a label.
    """
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, SystemMessage) and message.source == WHOLE and RECORD in message.tags:
            kept = message.payload
            if kept["call"] == call:
                return str(kept["text"])
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, ToolMessage) and message.tool_call_id == call and COMPACTION not in message.metadata:
            return "\n".join([text for part in message.content if (text := text_of(part)) is not None])
    return None


def whole_message(entries: Sequence[Entry], id: str) -> str | None:
    """All that the message of that id says, as it was first written; ``None`` without one that models may see."""
    for entry in entries:
        message = entry.message
        if message.id == id and is_sent(message):
            return "\n".join(filter(None, map(shown, message.content)))
    return None


def _places(whole: str, wanted: str) -> Iterator[str]:
    """The places of a text, each with what stands around it."""
    folded, low = whole.lower(), wanted.lower()
    if len(folded) != len(whole):  # some letters are longer in lower case, and places would be wrong
        folded, low = whole, wanted
    count = folded.count(low)
    yield f"{count} found." if count <= _FOUND else f"{count} found; the first {_FOUND}:"
    place = -1
    for _ in range(min(count, _FOUND)):
        place = folded.index(low, place + 1 if place < 0 else place + len(low))
        around = whole[max(place - _AROUND, 0) : place + len(low) + _AROUND]
        yield f"at {graphemes.count(whole[:place])}: {' '.join(around.split())}"


READER: Final = AgentTool(
    definition=_DEFINITION, run=_read, check=_check, effect="read", limit=4 * _LENGTH, scope=READING
)
"""The tool."""
