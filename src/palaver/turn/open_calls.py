"""Calls that were left open: found behind a run, at the end of a thread, and in a store.

Rules (DAS-25, ADR 17):

- The calls of the last answer that have no result are open. Unless a record says that they are pending, they may have
  run already, and need a new approval where their tool is not repeatable.
- A call is decided once. A run that waits can be continued from the ``Run`` that it returned (``previous``) until its
  calls are decided; ``settled`` finds that in what the thread has behind the run. To decide anew on purpose is to fork
  the thread before the decision.
- ``pending`` reads one thread, ``all_pending`` all threads of a store. Both block; in async code write
  ``await to_thread(all_pending, store)``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from palaver.core.errors import NotFoundError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import client_calls
from palaver.core.parts import ToolCall
from palaver.core.type_checks import check_arguments
from palaver.store.store import Query, Store
from palaver.store.stored_thread import StoredThread
from palaver.threads.thread import MAIN, Entry, Thread
from palaver.threads.view import DISCARDED, RECORD
from palaver.turn.approvals import PENDING, SOURCE, ApprovalRequest, Recorded, recorded
from palaver.turn.journal import AnyThread
from palaver.turn.notes import deferred_messages

if TYPE_CHECKING:
    from collections.abc import Iterator


class OpenAnswer(Struct, frozen=True):
    """An answer with open calls, the results so far by index, and its approval records."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    results: tuple[ToolMessage | None, ...]
    recorded: Recorded = Recorded()
    deferred: tuple[Message, ...] = ()
    """Messages that arrived while calls were open; they belong behind the results."""

    @property
    def may_have_run(self) -> bool:
        """Whether calls may have run."""
        return not self.recorded.pending

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls without a result."""
        return tuple([call for call, each in zip(self.calls, self.results, strict=True) if each is None])


def open_answer(path: Sequence[Entry]) -> OpenAnswer | None:
    """Return the answer with open calls at the end of a path, or ``None``. Costs the length of the last step."""
    behind: list[Message] = []
    for entry in reversed(path):
        message = entry.message
        if isinstance(message, AssistantMessage) and DISCARDED not in message.tags:
            return _open(message, behind[::-1])
        if not isinstance(message, ToolMessage) and RECORD not in message.tags:
            return None
        behind.append(message)
    return None


def last_answer(path: Sequence[Entry]) -> AssistantMessage | None:
    """Return the answer at the end of a path; ``None`` when the path ends in anything else."""
    for entry in reversed(path):
        if RECORD in entry.message.tags:
            continue
        message = entry.message
        return message if isinstance(message, AssistantMessage) and DISCARDED not in message.tags else None
    return None


def _open(message: AssistantMessage, behind: Sequence[Message]) -> OpenAnswer | None:
    calls = client_calls(message)
    results: list[ToolMessage | None] = [None] * len(calls)
    for each in behind:
        if isinstance(each, ToolMessage):
            for place, call in enumerate(calls):
                if results[place] is None and call.id == each.tool_call_id:
                    results[place] = each
                    break
    if all(each is not None for each in results):
        return None
    unanswered = [call for call, each in zip(calls, results, strict=True) if each is None]
    return OpenAnswer(message, calls, tuple(results), recorded(behind, unanswered), deferred_messages(behind))


class Settled(Struct, frozen=True):
    """A pending call that was settled later: decided, or closed by a prompt without a decision."""

    call: str
    how: Literal["decided", "closed"]


def settled(tree: Thread, leaf: str | None, calls: Collection[str]) -> Settled | None:
    """Return the first of ``calls`` (ids, pending at ``leaf``) that is settled behind ``leaf``, on any branch.

    A decision comes before a closed call. Costs the records and results that follow ``leaf``.
    """
    closed: Settled | None = None
    walk = list(tree.children(leaf))[::-1]
    while walk:
        entry = tree.entry(walk.pop())
        message = entry.message
        if isinstance(message, ToolMessage):
            answered = message.tool_call_id
            if closed is None and answered is not None and answered in calls:
                closed = Settled(answered, "closed")
        elif RECORD not in message.tags:
            continue  # a prompt or an answer: the calls are over
        elif message.source == SOURCE:
            decided = [call for call in message.payload.get("decided", ()) if call in calls]
            if decided:
                return Settled(decided[0], "decided")
        walk += tree.children(entry.id)[::-1]
    return closed


_END: Final = 32
"""Entries that are read of a thread at first; a step is seldom longer."""


class PendingApprovals(Struct, frozen=True, kw_only=True):
    """A branch that waits for decisions, and its requests."""

    thread: str
    branch: str
    requests: tuple[ApprovalRequest, ...]


def pending(thread: AnyThread, branch: str = MAIN) -> tuple[ApprovalRequest, ...]:
    """Return the requests that a run in ``thread`` waits for, at the end of ``branch``.

    A ``StoredThread`` has a branch of its own, and ``branch`` is ignored. Raises ``StoreError`` for an unknown branch.
    """
    check_arguments("pending", pending, locals())
    return pending_at(thread.path() if isinstance(thread, StoredThread) else thread.path(branch))


def all_pending(store: Store, *, since: int | None = None, limit: int = 10_000) -> tuple[PendingApprovals, ...]:
    """Return the branches in ``store`` that wait for decisions, newest request first.

    ``since`` (Unix milliseconds) leaves out older requests. At most ``limit`` requests are read, the newest first.
    Raises as ``Store.search`` does.
    """
    check_arguments("all_pending", all_pending, locals())
    hits = store.search(Query(tag=PENDING, since=since, limit=limit))
    return tuple([each for thread in dict.fromkeys(hit.thread for hit in hits) for each in _of(store, thread)])


def _of(store: Store, thread: str) -> Iterator[PendingApprovals]:
    try:
        for branch in store.info(thread).branches:
            requests = pending_at(end_of_branch(store, thread, branch))
            if requests:
                yield PendingApprovals(thread=thread, branch=branch, requests=requests)
    except NotFoundError:  # it was deleted just now
        return


def end_of_branch(store: Store, thread: str, branch: str = MAIN) -> Sequence[Entry]:
    """Return the end of a stored ``branch``, from its last answer on or from before it. Raises ``StoreError``."""
    end = store.path(thread, branch, last=_END)
    whole = len(end) < _END or any(isinstance(entry.message, AssistantMessage) for entry in end)
    return end if whole else store.path(thread, branch)


def pending_at(path: Sequence[Entry]) -> tuple[ApprovalRequest, ...]:
    """Return the requests at the end of a path."""
    opened = open_answer(path)
    return () if opened is None else tuple(opened.recorded.pending.values())
