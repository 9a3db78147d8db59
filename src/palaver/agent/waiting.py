"""What waits for a decision: in a thread, and in all threads of a store.

Rules:

- What waits stands in the thread itself (``palaver.agent.approvals``), so nothing has to be kept beside it, and no
  crash can part the two.
- ``waiting`` finds the records of requests by their tag, which stores have an index of, newest first, and reads the end
  of the threads that they stand in: it costs the requests that were ever made since ``since``, not the conversations.
- It reads, and so it blocks: from async code, ``await in_thread(waiting, store)``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.agent.approvals import PENDING, ApprovalRequest
from palaver.agent.journal import AnyThread
from palaver.agent.resuming import left_open
from palaver.core.argument_types import check_arguments
from palaver.core.errors import NotFoundError
from palaver.core.messages import AssistantMessage
from palaver.store.store import Query, Store
from palaver.store.stored import StoredThread
from palaver.threads.thread import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.threads.thread import Entry

_END: Final = 32
"""Entries that are read of a thread at first; a step is seldom longer."""


class Waiting(Struct, frozen=True, kw_only=True):
    """A branch of a thread that waits, and for what."""

    thread: str
    branch: str
    requests: tuple[ApprovalRequest, ...]


def pending(thread: AnyThread, branch: str = MAIN) -> tuple[ApprovalRequest, ...]:
    """What must be decided before a run can go on in a thread. The branch of a ``StoredThread`` is its own."""
    check_arguments("pending", pending, locals())
    return pending_at(thread.path() if isinstance(thread, StoredThread) else thread.path(branch))


def waiting(store: Store, *, since: int | None = None, limit: int = 10_000) -> tuple[Waiting, ...]:
    """The branches that wait, those asked last first.

    ``since`` (Unix milliseconds) leaves out what was asked before; at most ``limit`` requests are looked at, the
    newest. Raises as ``Store.search`` does.
    """
    check_arguments("waiting", waiting, locals())
    hits = store.search(Query(tag=PENDING, since=since, limit=limit))
    return tuple([each for thread in dict.fromkeys(hit.thread for hit in hits) for each in _of(store, thread)])


def _of(store: Store, thread: str) -> Iterator[Waiting]:
    try:
        for branch in store.info(thread).branches:
            requests = pending_at(_end(store, thread, branch))
            if requests:
                yield Waiting(thread=thread, branch=branch, requests=requests)
    except NotFoundError:  # it was deleted just now
        return


def _end(store: Store, thread: str, branch: str) -> Sequence[Entry]:
    end = store.path(thread, branch, last=_END)
    whole = len(end) < _END or any(isinstance(entry.message, AssistantMessage) for entry in end)
    return end if whole else store.path(thread, branch)


def pending_at(path: Sequence[Entry]) -> tuple[ApprovalRequest, ...]:
    """What must be decided at the end of a path."""
    opened = left_open(path)
    return () if opened is None else tuple(opened.recorded.pending.values())
