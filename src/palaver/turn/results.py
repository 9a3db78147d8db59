"""Shortened tool results: store the original, read it in pieces, and search the conversation.

Rules:

- ``Offload`` stores a long result in a record and sends its head, its tail and a note. Media are not cut.
- ``read_result`` reads a range of a result or finds a text in it. Its handle is the id of the call, or of any
  message. It finds the original on the path, or where compaction replaced it: also in another process.
- ``search_history`` finds all words, case-insensitively, in every entry on all branches. Reasoning, records,
  summaries, unseen answers and messages before the last flush are not searched. The newest hits come first.
- Both tools are offered once a result was cut, and stay (``CutResults``): a changing list of tools misses the cache.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

from msgspec import Struct, structs

from palaver.context.plan import SOURCE
from palaver.context.rewrite import COMPACTION
from palaver.context.summary_stage import shown
from palaver.core.errors import MessageError, ToolError, excerpt
from palaver.core.messages import FlushMarker, Message, SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.threads.thread import Entry
from palaver.threads.view import RECORD, is_sent, scope_of
from palaver.turn import tool_output
from palaver.turn.middleware import CallTool, Middleware, RunContext, ToolRequest
from palaver.turn.tool import AgentTool, InvalidArgumentsError, Output, ToolContext, read_arguments
from palaver.turn.tool_call import WHOLE
from palaver.turn.tool_output import CHARACTERS, READ_RESULT, stretch, text_of
from palaver.wires._engine.metadata import iso

# --- cut results ------------------------------------------------------------------------------------------------------


READING: Final = "reading"
"""The ``scope`` of tools that read shortened results."""
_CUT: Final = frozenset((WHOLE, SOURCE))


@final
class CutResults:
    """Detects shortened results in a thread that only grows."""

    __slots__ = ("_cut", "_looked")

    def __init__(self) -> None:
        """Start before the first entry."""
        self._cut, self._looked = False, 0

    def in_thread(self, entries: Sequence[Entry]) -> bool:
        """Whether a thread has a shortened result. Costs what is new in it."""
        if not self._cut:
            self._cut = any(entries[place].message.source in _CUT for place in range(self._looked, len(entries)))
            self._looked = len(entries)
        return self._cut


# --- reading ----------------------------------------------------------------------------------------------------------


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


class _ReadArguments(Struct, frozen=True):
    handle: str
    start: int
    length: int
    find: str


def _check(call: ToolCall) -> _ReadArguments:
    given = read_arguments(call)
    handle = given.get("handle", given.get("call_id"))
    if not isinstance(handle, str) or not handle:
        raise InvalidArgumentsError("handle: expected the handle from the note of a cut result")
    find = given.get("find", "")
    if not isinstance(find, str):
        raise InvalidArgumentsError("find: expected a text")
    start, length = _number(given, "start", 0), _number(given, "length", _LENGTH)
    return _ReadArguments(handle, max(start, 0), min(max(length, 1), _LENGTH), find)


def _number(given: dict[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InvalidArgumentsError(f"{name}: expected a whole number")
    return int(value)


async def _read(arguments: _ReadArguments, context: ToolContext) -> Output:
    whole = whole_result(context.path, arguments.handle)
    if whole is None:
        entries = context.path if context.host is None else context.host.entries()
        whole = whole_result(entries, arguments.handle)
        whole = whole_message(entries, arguments.handle) if whole is None else whole
    if whole is None:
        raise ToolError(f"handle: there is no result and no message {excerpt(arguments.handle)!r} in this conversation")
    text = (
        "\n".join(_places(whole, arguments.find))
        if arguments.find
        else stretch(whole, arguments.start, arguments.length)
    )
    return Output(content=(Text(text or "(nothing there: the result is shorter)"),))


def whole_result(path: Sequence[Entry], call: str) -> str | None:
    """Return the full text of the result of ``call``, an id, from a record on ``path`` or from its message.

    The newest comes first. ``None`` without a result, and where compaction left nothing of it but a label.
    """
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, SystemMessage) and message.source == WHOLE and RECORD in message.tags:
            payload = message.payload
            if payload["call"] == call:
                return str(payload["text"])
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, ToolMessage) and message.tool_call_id == call and COMPACTION not in message.metadata:
            return "\n".join([text for part in message.content if (text := text_of(part)) is not None])
    return None


def whole_message(entries: Sequence[Entry], id: str) -> str | None:
    """Return the original text of the message with an id; ``None`` without one that models may see."""
    for entry in entries:
        message = entry.message
        if message.id == id and is_sent(message):
            return "\n".join(filter(None, map(shown, message.content)))
    return None


def _places(whole: str, wanted: str) -> Iterator[str]:
    """The places of a text, each with the text around it."""
    folded, low = whole.lower(), wanted.lower()
    if len(folded) != len(whole):  # some letters are longer in lower case, which would shift the places
        folded, low = whole, wanted
    count = folded.count(low)
    yield f"{count} found." if count <= _FOUND else f"{count} found; the first {_FOUND}:"
    place = -1
    for _ in range(min(count, _FOUND)):
        place = folded.index(low, place + 1 if place < 0 else place + len(low))
        around = whole[max(place - _AROUND, 0) : place + len(low) + _AROUND]
        yield f"at {tool_output.count(whole[:place])}: {' '.join(around.split())}"


READER: Final = AgentTool(
    definition=_DEFINITION, run=_read, check=_check, effect="read", limit=4 * _LENGTH, scope=READING
)
"""The tool ``read_result``."""


# --- recalling --------------------------------------------------------------------------------------------------------


SEARCH_HISTORY: Final = "search_history"
"""The tool's name."""
HITS: Final = 10
"""Hits that are shown by default."""
_MOST: Final = 50
_BEFORE: Final = 60
"""Characters that are shown before the first word that was found."""
_SHOWN: Final = 240
"""Characters that are shown of a hit."""
_OWN: Final = frozenset((READ_RESULT, SEARCH_HISTORY))

_SEARCH: Final = Tool.of(
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
    """A hit: its message, the handle for ``read_result``, and the text."""

    handle: str
    message: Message
    text: str


class _Query(Struct, frozen=True):
    words: tuple[str, ...]
    limit: int


def _query(call: ToolCall) -> _Query:
    given = read_arguments(call)
    find, limit = given.get("find"), given.get("limit", HITS)
    words = tuple(find.split()) if isinstance(find, str) else ()
    if not words:
        raise InvalidArgumentsError("find: expected words to look for")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit // 1:
        raise InvalidArgumentsError("limit: expected a whole number")
    return _Query(words, min(max(int(limit), 1), _MOST))


async def _search(query: _Query, context: ToolContext) -> Output:
    entries = context.path if context.host is None else context.host.entries()
    found = found_in(entries, query.words)
    if not found:
        return Output(content=(Text("Nothing found. Try fewer words, or others."),))
    newest = found[-query.limit :][::-1]
    head = f"{len(found)} found:" if len(newest) == len(found) else f"{len(found)} found; the newest {len(newest)}:"
    return Output(content=(Text("\n".join([head, *[_line(hit, query.words) for hit in newest]])),))


def found_in(entries: Sequence[Entry], words: Sequence[str]) -> list[Hit]:
    """Return the messages that contain all the words, oldest first. Costs the size of all that is searched."""
    wanted = [word.lower() for word in words]
    originals = list(_originals(entries))
    wholes = _wholes(entries)
    named = Counter([each.tool_call_id for each in originals if isinstance(each, ToolMessage)])
    found: list[Hit] = []
    for message in originals:
        handle, text = message.id, _searchable_text(message)
        if isinstance(message, ToolMessage) and message.tool_call_id and named[message.tool_call_id] == 1:
            handle = message.tool_call_id
            text = wholes.get(handle, text)
        low = text.lower()
        if handle is not None and all(word in low for word in wanted):
            found.append(Hit(handle, message, text))
    return found


def _originals(entries: Sequence[Entry]) -> Iterator[Message]:
    """Each searchable message once, in its original form."""
    seen: set[str | None] = set()
    for entry in entries[_flushed(entries) :]:
        message = entry.message
        if message.id in seen or not is_sent(message) or message.source == SOURCE:
            continue
        seen.add(message.id)
        if not (isinstance(message, ToolMessage) and message.tool_name in _OWN):
            yield message


def _flushed(entries: Sequence[Entry]) -> int:
    """Return the index behind the last flush: messages before it are hidden and not searched."""
    for place in range(len(entries) - 1, -1, -1):
        message = entries[place].message
        if isinstance(message, FlushMarker) and scope_of(message) != "turn":
            return place + 1
    return 0


def _searchable_text(message: Message) -> str:
    parts = [part for part in message.content if not (isinstance(part, ToolCall) and part.name in _OWN)]
    return "\n".join(filter(None, map(shown, parts)))


def _wholes(entries: Sequence[Entry]) -> dict[str, str]:
    """The full texts of shortened results, by call id."""
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


SEARCHER: Final = AgentTool(definition=_SEARCH, run=_search, check=_query, effect="read", scope=READING)
"""The tool ``search_history``."""


# --- spilling ---------------------------------------------------------------------------------------------------------


class Offload(Middleware):
    """Stores large results in the thread, sends a short form, and offers ``read_result``."""

    def __init__(
        self,
        characters: int = CHARACTERS,
        *,
        head: int | None = None,
        tail: int | None = None,
        shorten: Callable[[str], str] | None = None,
    ) -> None:
        """Set how much of a result is sent: ``head`` and ``tail`` together when it is longer than ``characters``.

        By default ``head`` is two thirds of ``characters``, and ``tail`` a quarter. ``shorten`` writes the short form
        instead. Raises ``MessageError`` when head and tail are longer than ``characters``.
        """
        check_arguments("Offload", Offload.__init__, locals())
        self._characters = characters
        self._head = characters * 2 // 3 if head is None else head
        self._tail = characters // 4 if tail is None else tail
        if min(self._head, self._tail) < 0 or self._head + self._tail > characters:
            raise MessageError(f"head and tail: {self._head} and {self._tail} are not within {characters} characters")
        self._shorten = shorten

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tool ``read_result``."""
        return (READER,)

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:  # noqa: ARG002 (a hook)
        """Shorten a result that is too long."""
        output = await call(request)
        texts = [text for part in output.content if (text := text_of(part)) is not None]
        whole = "\n".join(texts)
        shown = request.tool.name != READ_RESULT and not request.hidden
        if not shown or output.whole is not None or len(whole) <= self._characters:
            return output  # a character has one code point at least
        total = tool_output.count(whole)
        if total <= self._characters:
            return output
        media = [part for part in output.content if text_of(part) is None]
        short = Text(self._short(whole, total, request.context.call.id))
        return structs.replace(output, content=(short, *media), whole=whole)

    def _short(self, whole: str, total: int, handle: str) -> str:
        if self._shorten is not None:
            short = self._shorten(whole)
            return f"{short}\n[Shortened from {total} characters. To read all, call {_reading(handle, 0)}.]"
        omitted = total - self._head - self._tail
        head, _ = tool_output.cut(whole, 0, self._head)
        tail, _ = tool_output.cut(whole, total - self._tail, self._tail)
        note = f"[... {omitted} characters omitted. To read them, call {_reading(handle, self._head)}. ...]"
        return f"{head}\n{note}\n{tail}"


def _reading(handle: str, start: int) -> str:
    return f'{READ_RESULT} with {{"handle": "{handle}", "start": {start}}}'
