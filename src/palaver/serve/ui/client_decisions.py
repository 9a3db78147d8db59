"""What a request decides of the calls that wait, and which message it asks.

Rules:

- A call that only the client can answer (``client_tool``, ``ask_user``) waits; the client's result comes with a later
  request and is the decision ``answer``.
- A message of the user behind results and decisions is the next one: first the calls that wait get their results.
  Other calls that wait are closed by the message, as by any (``NOT_RUN_UNDECIDED``).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaver.core.errors import DecodeError
from palaver.core.messages import Message, UserMessage
from palaver.serve.ui.shapes import SOURCE
from palaver.serve.ui.turns import UiRequest
from palaver.threads.view import RECORD
from palaver.turn.approvals import Decision, DecisionError, Recorded, checked_decisions
from palaver.turn.open_calls import open_answer

if TYPE_CHECKING:
    from palaver.threads.thread import Entry


def may_decide(request: UiRequest) -> bool:
    """Return whether a request may decide something."""
    return bool(request.decisions or request.results or request.earlier)


def requested_decisions(request: UiRequest, found: Recorded, *, known: bool) -> dict[str, Decision]:
    """Return what a request decides of the calls whose records were ``found``.

    ``known``: the conversation has the message of the user at the end of the request. What waits is behind it then,
    and the history before it is of earlier calls, whose ids may be the same: some providers count anew in each answer.
    Results of the client are for calls that wait for nothing else: it cannot stand in for another tool. A decision in
    the history that its call does not allow was refused before, and must not keep from the message behind it. One that
    was taken while other calls wait comes again with theirs.
    """
    waiting = found.pending.values()
    allowed = {(each.call.id, choice) for each in waiting for choice in each.choices}
    client_calls = {each.call.id for each in waiting if each.choices == ("answer",)}
    new = {call: each for call, each in request.decisions.items() if not _is_taken(each, found.decided.get(call))}
    if known:
        return new
    return {
        **{call: each for call, each in request.results.items() if call in client_calls},
        **{call: each for call, each in request.earlier.items() if (call, each.kind) in allowed},
        **new,
    }


def _is_taken(decision: Decision, taken: Decision | None) -> bool:
    return taken is not None and (decision.kind == "reject") == (taken.kind == "reject")


def recorded_at(path: Sequence[Entry]) -> Recorded:
    """Return what is recorded of the calls at the end of a path."""
    opened = open_answer(path)
    return Recorded() if opened is None else opened.recorded


def check_says(request: UiRequest, found: Recorded) -> None:
    """Refuse a request that decides nothing, unless the user says something. Raises ``DecisionError``."""
    if request.again or (request.messages and isinstance(request.messages[-1], UserMessage)):
        return
    checked_decisions(request.decisions, found.pending.values())
    raise DecisionError("no call waits for the results")


def last_id(request: UiRequest) -> str | None:
    """Return the id of the message of the user at the end of a request, if there is one."""
    last = request.messages[-1] if request.messages else None
    return last.id if isinstance(last, UserMessage) else None


def check_asked(request: UiRequest) -> None:
    """Refuse a request without a message of the user, unless something else is to be done; and an empty one."""
    last = request.messages[-1] if request.messages else None
    if request.again or isinstance(last, UserMessage) or not (request.decisions or request.results):
        asked_message(request)


def asked_message(request: UiRequest) -> UserMessage:
    """Return the user message that is to be answered. Raises ``DecodeError`` when there is none, or nothing in it."""
    messages = up_to_user(request.messages) if request.again else request.messages
    last = messages[-1] if messages else None
    if not isinstance(last, UserMessage):
        why = "there is no message of the user" if request.again else "the last one is not of the user"
        raise DecodeError(f"{why}, and no call is decided", path="messages", source=SOURCE)
    if not last.content:
        raise DecodeError("the last one has no text and no file", path="messages", source=SOURCE)
    return last


def up_to_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages up to the last one of the user."""
    places = [place for place, each in enumerate(messages) if isinstance(each, UserMessage)]
    return messages[: places[-1] + 1] if places else ()


def is_typed(message: Message) -> bool:
    """Return whether the user has typed a message."""
    return isinstance(message, UserMessage) and message.mode != "tool" and RECORD not in message.tags
