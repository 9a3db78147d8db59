"""A conversation as a page loads it: what people see of a stored one, for the protocols to write.

Rules:

- It is what ``threads.view`` shows to people: no instructions, no notes of the runtime, no discarded answers. Calls and
  results are there where the endpoint shows tools, and so are those that were put to the client for a decision.
- While an answer is under way, it ends where that began: the stream is read again from its beginning.
- Only texts, reasoning, calls, results, and files with bytes or an http(s) URL are shown: what a client may send.
- What the records behind an answer say of its calls comes with it: which wait, and what was decided. Only the last
  answer has calls that wait.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import AnyPart, Audio, File, Image, Inline, MalformedToolCall, ToolCall, Url, Video
from palaver.threads.view import RECORD, is_shown
from palaver.turn.approvals import ApprovalRequest, Recorded, recorded

_FILES: Final = (Image, Audio, Video, File)


class Shown(Struct, frozen=True):
    """A ``message`` for a page, and what is ``recorded`` of its calls."""

    message: Message
    recorded: Recorded = Recorded()


class History(Struct, frozen=True):
    """A conversation for a page: its ``messages``, oldest first, and the calls that are ``waiting`` for the user."""

    messages: tuple[Shown, ...] = ()
    waiting: tuple[ApprovalRequest, ...] = ()


def history_of(
    messages: Sequence[Message],
    change: Callable[[Iterable[Shown]], Iterable[Shown]],
    asks: Callable[[ApprovalRequest], bool] = lambda _: True,
) -> History:
    """Return what a page shows of ``messages``, which are those of a thread with its records.

    ``change`` takes out what the endpoint does not show (``without_tools``), and ``asks`` says whether a call waits for
    the user.
    """
    shown = tuple(change([each for each in _with_records(messages) if is_shown(each.message)]))
    waiting = [each for one in shown[-1:] for each in one.recorded.pending.values() if asks(each)]
    return History(shown, tuple(waiting))


def _with_records(messages: Sequence[Message]) -> Iterator[Shown]:
    start = 0
    while start < len(messages):
        end = start + 1
        while end < len(messages) and _belongs(messages[end]):
            end += 1
        message, *behind = messages[start:end]
        found = recorded(behind, client_calls(message)) if isinstance(message, AssistantMessage) else Recorded()
        if end < len(messages):  # the conversation went on, so nothing of it waits
            found = structs.replace(found, closed=frozenset(found.closed | found.pending.keys()))
        yield Shown(message, found)
        yield from map(Shown, behind)
        start = end


def _belongs(message: Message) -> bool:
    return isinstance(message, ToolMessage) or RECORD in message.tags


def without_tools(shown: Iterable[Shown]) -> Iterator[Shown]:
    """Yield messages without calls and results, but with those that were put to the client for a decision."""
    asked: frozenset[str] = frozenset()
    for each in shown:
        message = each.message
        if isinstance(message, AssistantMessage):
            asked = each.recorded.asked
            yield structs.replace(each, message=without_calls(message, asked))
        elif not isinstance(message, ToolMessage) or message.tool_call_id in asked:
            yield each


def without_calls(message: AssistantMessage, asked: Container[str] = ()) -> AssistantMessage:
    """Return an answer without its calls, but those whose ids are in ``asked``."""
    return message.replace(content=tuple([each for each in message.content if _is_said(each, asked)]))


def _is_said(part: AnyPart, asked: Container[str]) -> bool:
    return part.id in asked if isinstance(part, ToolCall) else not isinstance(part, MalformedToolCall)


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
