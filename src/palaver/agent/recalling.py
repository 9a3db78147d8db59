"""``search_history``: what a summary stands for is found in the thread, and read with ``read_result``.

Rules:

- It looks at every entry of the thread, on all branches: so also at what compaction took out of the prompt. A message
  that stands on several branches is one hit, and is read as it was first written, not as it was shortened.
- A message is a hit when all the words occur in it, in letters of either case and in any order, each as a stretch of
  text (no pattern language). It says its text, what it called, and all of a result that was cut. Reasoning, records and
  what nobody was shown are not searched; neither are summaries, what these two tools were asked and gave, and what
  stands before the last flush of the thread.
- A hit has a handle for ``read_result``: the id of the call for a result, else that of the message. Where several
  results have one call's id, it is that of the message too. The newest hits come first.
- It is offered always, as ``read_result`` is: tools that come and go miss the prompt cache.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from palaver.agent.arguments import read_arguments
from palaver.agent.calling import WHOLE
from palaver.agent.cut_results import READING
from palaver.agent.limiting import READ_RESULT
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext
from palaver.context.plan import SOURCE
from palaver.context.transcript import shown
from palaver.core.messages import FlushMarker, Message, SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.threads.thread import Entry
from palaver.threads.view import RECORD, is_sent, scope_of
from palaver.wires.creation import iso

SEARCH_HISTORY: Final = "search_history"
"""The tool's name."""
HITS: Final = 10
"""Hits that are shown, where the model does not say how many."""
_MOST: Final = 50
_BEFORE: Final = 60
"""Characters that are shown before the first word that was found."""
_SHOWN: Final = 240
"""Characters that are shown of a hit."""
_OWN: Final = frozenset((READ_RESULT, SEARCH_HISTORY))

_DEFINITION: Final = Tool.of(
    SEARCH_HISTORY,
    "Search the whole conversation, also the messages that a summary stands for and results that were removed to save "
    "space. Each hit names a handle: read the whole of it with read_result.",
    {
        "type": "object",
        "properties": {
            "find": {"type": "string", "description": "Words that the message contains, all of them, in any order."},
            "limit": {"type": "integer", "minimum": 1, "maximum": _MOST, "description": "How many hits, newest first."},
        },
        "required": ["find"],
        "additionalProperties": False,
    },
)


class Hit(Struct, frozen=True):
    """A message that was found: its handle for ``read_result``, and what it says."""

    handle: str
    message: Message
    text: str


class _Asked(Struct, frozen=True):
    words: tuple[str, ...]
    limit: int


def _check(call: ToolCall) -> _Asked:
    given = read_arguments(call)
    find, limit = given.get("find"), given.get("limit", HITS)
    words = tuple(find.split()) if isinstance(find, str) else ()
    if not words:
        raise InvalidArgumentsError("find: expected words to look for")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit // 1:
        raise InvalidArgumentsError("limit: expected a whole number")
    return _Asked(words, min(max(int(limit), 1), _MOST))


async def _search(asked: _Asked, context: ToolContext) -> Output:
    entries = context.path if context.host is None else context.host.entries()
    found = found_in(entries, asked.words)
    if not found:
        return Output(content=(Text("Nothing found. Try fewer words, or others."),))
    told = found[-asked.limit :][::-1]
    head = f"{len(found)} found:" if len(told) == len(found) else f"{len(found)} found; the newest {len(told)}:"
    return Output(content=(Text("\n".join([head, *[_line(hit, asked.words) for hit in told]])),))


def found_in(entries: Sequence[Entry], words: Sequence[str]) -> list[Hit]:
    """The messages in which all the words occur, the oldest first. Costs the size of all that is searched."""
    wanted = [word.lower() for word in words]
    originals = list(_originals(entries))
    wholes = _wholes(entries)
    named = Counter([each.tool_call_id for each in originals if isinstance(each, ToolMessage)])
    found: list[Hit] = []
    for message in originals:
        handle, text = message.id, _said(message)
        if isinstance(message, ToolMessage) and message.tool_call_id and named[message.tool_call_id] == 1:
            handle = message.tool_call_id
            text = wholes.get(handle, text)
        low = text.lower()
        if handle is not None and all(word in low for word in wanted):
            found.append(Hit(handle, message, text))
    return found


def _originals(entries: Sequence[Entry]) -> Iterator[Message]:
    """Each message once, as it was first written: what may be searched of it."""
    seen: set[str | None] = set()
    for entry in entries[_flushed(entries) :]:
        message = entry.message
        if message.id in seen or not is_sent(message) or message.source == SOURCE:
            continue
        seen.add(message.id)
        if not (isinstance(message, ToolMessage) and message.tool_name in _OWN):
            yield message


def _flushed(entries: Sequence[Entry]) -> int:
    """Behind which entries nothing is hidden by a flush: what was to be forgotten is not found either."""
    for place in range(len(entries) - 1, -1, -1):
        message = entries[place].message
        if isinstance(message, FlushMarker) and scope_of(message) != "turn":
            return place + 1
    return 0


def _said(message: Message) -> str:
    parts = [part for part in message.content if not (isinstance(part, ToolCall) and part.name in _OWN)]
    return "\n".join(filter(None, map(shown, parts)))


def _wholes(entries: Sequence[Entry]) -> dict[str, str]:
    """The whole texts of results that were cut, by their calls."""
    found: dict[str, str] = {}
    for entry in entries:
        message = entry.message
        if isinstance(message, SystemMessage) and message.source == WHOLE and RECORD in message.tags:
            found[message.payload["call"]] = str(message.payload["text"])
    return found


def _line(hit: Hit, words: Sequence[str]) -> str:
    """``- c12 (result of look, 2026-01-01T00:00:00Z): …excerpt…``."""
    message = hit.message
    who = f"result of {message.tool_name}" if isinstance(message, ToolMessage) else message.role
    sent = message.sent_at
    when = "" if sent is None else f", {iso(sent)}"
    return f"- {hit.handle} ({who}{when}): {_excerpt(hit.text, words)}"


def _excerpt(text: str, words: Sequence[str]) -> str:
    """The text around the first of the words, on one line."""
    low = text.lower()
    at = min([low.find(word.lower()) for word in words]) if len(low) == len(text) else 0
    start = max(at - _BEFORE, 0)
    piece = " ".join(text[start : start + _SHOWN].split())
    return f"{'…' if start else ''}{piece}{'…' if start + _SHOWN < len(text) else ''}"


SEARCHER: Final = AgentTool(definition=_DEFINITION, run=_search, check=_check, effect="read", scope=READING)
"""The tool."""
