"""Spilling: large results stay out of the context, and are read from the thread when they are needed.

Rules:

- A result whose text is longer than ``characters`` is kept whole in a record beside it. The model is sent its head, its
  tail and a note that says how to read on. Media are not cut. ``shorten`` makes another short form of a text, such as
  ``limiting.compress``; the note follows it.
- ``read_result`` reads a stretch of a result, or finds a text in it (letters of either case, no pattern language). It
  reads the records on the path of the conversation, so that it works in another process and on another day, and also
  those that the loop's own limit made (``Agent(result_limit=…)``), whose notes then say how to read on. A result that
  was not cut is read from its message.
- It is offered always: what was cut in an earlier run must be readable in this one, and tools that come and go miss the
  prompt cache.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from palaver.agent import graphemes
from palaver.agent.arguments import read_arguments
from palaver.agent.calling import WHOLE
from palaver.agent.limiting import CHARACTERS, READ_RESULT, stretch, text_of
from palaver.agent.middleware import CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.tool import AgentTool, InvalidArgumentsError, Output, ToolContext
from palaver.core.errors import MessageError, ToolError, excerpt
from palaver.core.messages import SystemMessage, ToolMessage
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.threads.thread import Entry
from palaver.threads.view import RECORD

_LENGTH: Final = CHARACTERS
"""The most characters that one call reads."""
_FOUND: Final = 20
"""The most places that one call finds."""
_AROUND: Final = 80
"""Characters that are shown on each side of a place."""

_DEFINITION: Final = Tool.of(
    READ_RESULT,
    "Read on in a result that was cut, or find a text in it. The note at the cut names the handle.",
    {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "Which result: the handle that its note names."},
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


class Spilling(Middleware):
    """Keeps large results out of the context, and offers ``read_result``."""

    def __init__(
        self,
        characters: int = CHARACTERS,
        *,
        head: int | None = None,
        tail: int | None = None,
        shorten: Callable[[str], str] | None = None,
    ) -> None:
        """Set how much of a result is sent: ``head`` and ``tail`` together when it is longer than ``characters``.

        By default the head is two thirds of it, and the tail a quarter. Raises ``MessageError`` when they are longer.
        """
        self._characters = characters
        self._head = characters * 2 // 3 if head is None else head
        self._tail = characters // 4 if tail is None else tail
        if min(self._head, self._tail) < 0 or self._head + self._tail > characters:
            raise MessageError(f"head and tail: {self._head} and {self._tail} are not within {characters} characters")
        self._shorten = shorten
        self._tool = AgentTool(
            definition=_DEFINITION, run=_read, check=_check, effect="read", limit=4 * _LENGTH, scope="spilling"
        )

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tool ``read_result``."""
        return (self._tool,)

    async def wrap_tool_call(self, request: ToolRequest, context: RunContext, call: CallTool) -> Output:  # noqa: ARG002 (a hook)
        """Shorten what is too long."""
        output = await call(request)
        texts = [text for part in output.content if (text := text_of(part)) is not None]
        whole = "\n".join(texts)
        if request.tool.name == READ_RESULT or output.whole is not None or len(whole) <= self._characters:
            return output  # a character has one code point at least
        total = graphemes.count(whole)
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
        head, _ = graphemes.cut(whole, 0, self._head)
        tail, _ = graphemes.cut(whole, total - self._tail, self._tail)
        note = f"[... {omitted} characters omitted. To read them, call {_reading(handle, self._head)}. ...]"
        return f"{head}\n{note}\n{tail}"


def _reading(handle: str, start: int) -> str:
    return f'{READ_RESULT} with {{"handle": "{handle}", "start": {start}}}'


# -- the tool ----------------------------------------------------------------------------------------------------------


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
        raise ToolError(f"handle: there is no result {excerpt(asked.handle)!r} in this conversation")
    said = "\n".join(_places(whole, asked.find)) if asked.find else stretch(whole, asked.start, asked.length)
    return Output(content=(Text(said or "(nothing there: the result is shorter)"),))


def whole_result(path: Sequence[Entry], call: str) -> str | None:
    """All text of the result of a call, from the records on a path or else its message; ``None`` without a result."""
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, SystemMessage) and message.source == WHOLE and RECORD in message.tags:
            kept = message.payload
            if kept["call"] == call:
                return str(kept["text"])
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, ToolMessage) and message.tool_call_id == call:
            return "\n".join([text for part in message.content if (text := text_of(part)) is not None])
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
