"""Spilling: large results stay out of the context, and are read from the thread when they are needed.

Rules:

- A result whose text is longer than ``characters`` is kept whole in a record beside it. The model is sent its head, its
  tail and a note that says how to read on. Media are not cut. ``shorten`` makes another short form of a text, such as
  ``limiting.compress``; the note follows it.
- ``read_result`` (``palaver.agent.reading``) reads on, also in results that the loop's own limit cut
  (``Agent(result_limit=…)``), whose notes then say how.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from palaver.agent import graphemes
from palaver.agent.limiting import CHARACTERS, READ_RESULT, text_of
from palaver.agent.middleware import CallTool, Middleware, RunContext, ToolRequest
from palaver.agent.reading import READER
from palaver.agent.tool import AgentTool, Output
from palaver.core.argument_types import check_arguments
from palaver.core.errors import MessageError
from palaver.core.parts import Text


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
        check_arguments("Spilling", Spilling.__init__, locals())
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
        """Shorten what is too long."""
        output = await call(request)
        texts = [text for part in output.content if (text := text_of(part)) is not None]
        whole = "\n".join(texts)
        shown = request.tool.name != READ_RESULT and not request.hidden
        if not shown or output.whole is not None or len(whole) <= self._characters:
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
