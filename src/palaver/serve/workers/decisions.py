"""Decide calls of a client's thread that wait, and find the turn that they belong to.

- The calls that wait are at the end of the thread, and belong to one turn. Its name is that of the message that began
  it, so its events, its answer and its decisions have the same name.
- Decisions that were taken already are not taken again. With the name of their turn they get its answer, and a turn
  that broke off behind them goes on, as when its message is sent again.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.core.errors import NotFoundError
from palaver.core.messages import AssistantMessage, Message, UserMessage
from palaver.core.pairs import client_calls
from palaver.store.store import to_thread
from palaver.swarm.names import TURN, client_thread
from palaver.turn.approvals import ApprovalRequest, Decision, DecisionError, checked_mapping, recorded
from palaver.turn.open_calls import end_of_branch, open_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.store.store import Store
    from palaver.swarm.session import Session
    from palaver.threads.thread import Entry


class PendingTurn(Struct, frozen=True):
    """A turn that waits for decisions: its name, and the requests. Without requests, nothing waits."""

    run: str | None = None
    requests: tuple[ApprovalRequest, ...] = ()


def pending_turn(path: Sequence[Entry]) -> PendingTurn:
    """Return the turn that waits at the end of ``path``."""
    opened = open_answer(path)
    if opened is None or not opened.recorded.pending:
        return PendingTurn()
    return PendingTurn(_turn_of(opened.message), tuple(opened.recorded.pending.values()))


async def stored_pending_turn(store: Store, realm: str, client: str) -> PendingTurn:
    """Return the turn of ``client`` that waits, from the ``store`` of a swarm of that ``realm``.

    Raises ``StoreError``.
    """
    try:
        return pending_turn(await to_thread(end_of_branch, store, client_thread(realm, client)))
    except NotFoundError:
        return PendingTurn()


async def decide_calls(session: Session, decisions: Mapping[str, Decision], run: str | None) -> str:
    """Take ``decisions`` by call id in a ``session``, and return the answer of the turn.

    With ``run``, the name of the turn, decisions that were taken in it already get its answer. Raises as
    ``Session.decide``.
    """
    if run is not None and checked_mapping(decisions, "decide"):
        turn = _messages_of(session.log.path, run)
        calls = [call for each in turn if isinstance(each, AssistantMessage) for call in client_calls(each)]
        taken = recorded(turn, calls).decided
        if all(taken.get(call) == each for call, each in decisions.items()):
            return await continue_turn(session, run)
    return await session.decide(decisions, run=run)


async def continue_turn(session: Session, run: str) -> str:
    """Return the answer of the turn ``run`` of a ``session``; go on with a turn that broke off.

    The answer is ``""`` while calls of it wait. Raises ``DecisionError`` for an unknown turn, and as
    ``Session.complete``.
    """
    turn = _messages_of(session.log.path, run)
    opening = turn[0] if turn else None
    if not isinstance(opening, UserMessage):
        raise DecisionError(f"nothing is pending in the turn {run!r}")
    return await session.complete(opening, run=run)


def _turn_of(message: Message) -> str | None:
    name = message.metadata.get(TURN) if message.metadata else None
    return name if isinstance(name, str) else None


def _messages_of(path: Sequence[Entry], run: str) -> Sequence[Message]:
    """Return what ``path`` holds from the message of the turn ``run`` on; nothing when it lacks that."""
    behind: list[Message] = []
    for entry in reversed(path):
        behind.append(entry.message)
        if isinstance(entry.message, UserMessage) and _turn_of(entry.message) == run:
            return behind[::-1]
    return ()
