"""A conversation as a page loads it: what people see of a stored one, for the protocols to write.

Rules:

- It is what ``threads.view`` shows to people: no instructions, no notes of the runtime, no discarded answers. Calls and
  results are there where the endpoint shows tools, and so are calls that wait for the client.
- While an answer is under way, it ends where that began: the stream is read again from its beginning.
- Only texts, reasoning, calls, results, and files with bytes or an http(s) URL are shown: what a client may send.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import AnyPart, Audio, File, Image, Inline, MalformedToolCall, ToolCall, Url, Video
from palaver.threads.view import is_shown
from palaver.turn.approvals import ApprovalRequest

_FILES: Final = (Image, Audio, Video, File)


class History(Struct, frozen=True):
    """A conversation for a page: its ``messages``, oldest first, and the calls that are ``waiting`` for the client."""

    messages: tuple[Message, ...] = ()
    waiting: tuple[ApprovalRequest, ...] = ()


def history_of(messages: Iterable[Message], waiting: Sequence[ApprovalRequest], *, show_tools: bool) -> History:
    """Return what a page shows of ``messages``.

    ``waiting`` are the calls that wait for the client; ``show_tools`` is whether others are shown, and results.
    """
    open_calls = {each.call.id for each in waiting}
    shown = (each for each in messages if is_shown(each))
    kept = shown if show_tools else _without_tools(shown, open_calls)
    return History(tuple(kept), tuple(waiting))


def _without_tools(messages: Iterable[Message], open_calls: set[str]) -> Iterator[Message]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            content = [each for each in message.content if _is_said(each, open_calls)]
            yield message.replace(content=content)
        elif not isinstance(message, ToolMessage):
            yield message


def _is_said(part: AnyPart, open_calls: set[str]) -> bool:
    return part.id in open_calls if isinstance(part, ToolCall) else not isinstance(part, MalformedToolCall)


def url_of(part: AnyPart) -> str | None:
    """Return the ``data:`` URL, or the http(s) one, of the file ``part``; ``None`` for what no page can show."""
    if not isinstance(part, _FILES):
        return None
    if isinstance(part.source, Inline):
        return part.data_uri if part.source.valid else None
    return part.source.url if isinstance(part.source, Url) and part.source.url.startswith("http") else None


def was_rejected(message: ToolMessage) -> bool:
    """Return whether the result ``message`` says that the user rejected its call."""
    noted: Any = message.metadata.get("approval")
    return bool(noted) and noted.get("decision") == "reject"
