"""Grouped appends: writer threads send the appends of many callers as one call of the function ``append``.

Rules:

- Callers queue an ``AppendRequest`` and wait. Waiting requests are sent in one transaction; while one group is on its
  way, the next one gathers. So callers that wait at the same time share round trips and commits.
- ``WRITERS`` threads send, so that one prepares its group while the server works on another. All appends to one thread
  of the store use the same writer, and appends to one branch keep their order.
- Each request has its own ``Outcome``. When a group fails as a whole, and the server is up, each caller gets ``BUSY``
  and tries alone on its own connection; so it does where another client holds the thread.
- ``again`` says that an earlier try may have committed; the entries are then found by their ids.
- Writer threads are not those of callers, so an interrupt in a caller cannot break another's append. An idle writer
  holds neither the store nor a connection, and ends when the store is collected.

Stability: experimental.
"""

from __future__ import annotations

import json
import os
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Condition, Lock, Thread
from typing import Final, LiteralString, NamedTuple, TypeAlias

from msgspec import UNSET, UnsetType

from palaver.core.errors import NotFoundError, StoreError
from palaver.store import message_codec
from palaver.store.postgres import call_parameters
from palaver.store.postgres.database import Link, encodable, is_lost
from palaver.store.postgres.updates import KEEP, SHARED, lock_thread, missing_blobs
from palaver.store.records import Prepared, check_same_messages
from palaver.store.store import Appended
from palaver.threads.ids import now_ms
from palaver.threads.thread import Entry, head_conflict

# --- appending --------------------------------------------------------------------------------------------------------


_APPEND: Final[LiteralString] = (
    "select * from {s}.append(%s::json, %s, %s, %s, %s::text[], %s::smallint[], %s::bigint[], %b::bytea, "  # noqa: S608 (of constants)
    f"{call_parameters.PLACEHOLDERS})"
)


class AppendRequest(NamedTuple):
    """An append that is ready to be sent, repeatedly if necessary; ``size`` in bytes."""

    thread: str
    branch: str
    expect: str | UnsetType | None
    key: str | None
    rows: Sequence[Prepared]
    size: int


class Outcome(NamedTuple):
    """The outcome of an append, as the function ``append`` reports it."""

    kind: str
    entry: str | None
    place: int
    messages: int


BUSY: Final = "busy"


def append(link: Link, request: AppendRequest, *, again: bool) -> Outcome:
    """Append the messages of one call, of any size, even while another client holds the thread."""
    if request.size <= call_parameters.MAX_BYTES:
        return append_group(link, [request], again=again)[0]
    with link.transaction():
        link.execute(SHARED)
        lock_thread(link, request.thread)
        for digest in missing_blobs(link, request.rows):
            raise message_codec.missing_blob(digest)
        for call in call_parameters.calls(request.rows):
            link.execute(KEEP, *call)
        return _call_append(link, [request], call_parameters.EMPTY, waits=True, again=again)[0]


def append_group(link: Link, requests: Sequence[AppendRequest], *, again: bool, waits: bool = True) -> list[Outcome]:
    """Append the messages of several calls in one transaction, which must fit into one call of ``append``.

    Each has its own outcome. Without ``waits`` it is ``BUSY`` when another client holds the thread.
    """
    if not any(row.packed.external_blobs for each in requests for row in each.rows):
        return _append_small(link, requests, again=again, waits=waits)
    with link.transaction():
        link.execute(SHARED)
        gone = missing_blobs(link, [row for each in requests for row in each.rows])
        outcomes = [_missing_blob_outcome(each, gone) for each in requests]
        sound = [each for each, outcome in zip(requests, outcomes, strict=True) if outcome is None]
        found = iter(_append_small(link, sound, again=again, waits=waits) if sound else ())
        return [next(found) if outcome is None else outcome for outcome in outcomes]


def _missing_blob_outcome(request: AppendRequest, gone: Collection[bytes]) -> Outcome | None:
    """Return the outcome of an append that names a missing blob."""
    digest = next((digest for row in request.rows for digest in row.packed.external_blobs if digest in gone), None)
    return None if digest is None else Outcome("no blob", digest.hex(), 0, 0)


def _append_small(link: Link, requests: Sequence[AppendRequest], *, again: bool, waits: bool) -> list[Outcome]:
    return _call_append(
        link,
        requests,
        call_parameters.calls(row for each in requests for row in each.rows)[0],
        waits=waits,
        again=again,
    )


def _call_append(
    link: Link, requests: Sequence[AppendRequest], call: call_parameters.Columns, *, waits: bool, again: bool
) -> list[Outcome]:
    order = sorted(range(len(requests)), key=lambda at: requests[at][:2])
    rows = [row for at in order for row in requests[at].rows]
    found = link.execute(
        _APPEND,
        json.dumps([_request_json(requests[at]) for at in order]),
        waits,
        again,
        now_ms(),
        call_parameters.array([row.id for row in rows]),
        call_parameters.array([row.stamps for row in rows]),
        call_parameters.array([row.sent_at for row in rows]),
        b"".join([row.packed.body.digest for row in rows]),
        *call,
    ).fetchall()
    outcomes = {at: Outcome(*row) for at, row in zip(order, found, strict=True)}
    return [outcomes[at] for at in range(len(requests))]


def _request_json(request: AppendRequest) -> dict[str, object]:
    expect = request.expect
    return {
        "thread": encodable(request.thread),
        "branch": encodable(request.branch),
        "expects": expect is not UNSET,
        "expected": encodable(expect) if isinstance(expect, str) else None,
        "key": request.key,
        "messages": len(request.rows),
    }


def append_result(request: AppendRequest, outcome: Outcome, earlier: Callable[[int, int], Sequence[Entry]]) -> Appended:
    """Return the result of an append. ``earlier`` reads entries from one place to another."""
    thread, branch, _, key, rows, _ = request
    match outcome.kind:
        case "joined":
            return Appended(_entries(rows, outcome.entry))
        case "repeated":
            known = earlier(outcome.place, outcome.place + outcome.messages)
            check_same_messages(known, rows, thread, key or "")
            return Appended(tuple(known), repeated=True)
        case "no thread":
            raise NotFoundError(f"no thread {thread!r}")
        case "no branch":
            raise NotFoundError(f"thread {thread}: no branch {branch!r}")
        case "no blob":
            raise message_codec.missing_blob(bytes.fromhex(outcome.entry or ""))
        case _:
            raise head_conflict(thread, branch, outcome.entry)


def _entries(rows: Iterable[Prepared], parent: str | None) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for row in rows:
        entries.append(row.entry(parent))
        parent = row.id
    return tuple(entries)


# --- writer -----------------------------------------------------------------------------------------------------------


Send: TypeAlias = Callable[[Sequence[AppendRequest]], Sequence[Outcome]]

WRITERS: Final = 2
_MAX_GROUP: Final = 128


class _Job:
    """An append, how it is sent, and its outcome."""

    __slots__ = ("done", "error", "outcome", "request", "send")

    def __init__(self, request: AppendRequest, send: Send) -> None:
        self.request = request
        self.send = send
        self.outcome = Outcome(BUSY, None, 0, 0)
        self.error: Exception | None = None
        self.done = Lock()
        self.done.acquire()


class Writers:
    """Sends appends through a function that takes a group of them. ``name`` is for the names of the threads."""

    def __init__(self, send: Send, name: str) -> None:
        """Start without threads."""
        self._send = send
        self._process = os.getpid()
        self._writers = [_Writer(name) for _ in range(WRITERS)]
        for writer in self._writers:
            weakref.finalize(self, writer.end).atexit = False

    def run(self, request: AppendRequest) -> Outcome:
        """Send an append, together with others. Raises ``StoreError``."""
        if os.getpid() != self._process:
            raise StoreError("the store was opened before this process was forked; open it again")
        job = _Job(request, self._send)
        self._writers[hash(request.thread) % WRITERS].put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.outcome

    def close(self) -> None:
        """Finish waiting appends."""
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.thread.join()


class _Writer:
    """One of the threads, and its queue."""

    def __init__(self, name: str) -> None:
        self._waiting: deque[_Job] = deque()
        self._open = True
        self._changed = Condition()
        self.thread = Thread(target=self._serve, name=f"writer of {name}", daemon=True)
        self.thread.start()

    def put(self, job: _Job) -> None:
        with self._changed:
            if not self._open:
                raise StoreError("the store is closed")
            self._waiting.append(job)
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()

    def _serve(self) -> None:
        while jobs := self._taken():
            _send(jobs)
            del jobs  # do not hold finished appends while waiting

    def _taken(self) -> list[_Job]:
        """Wait for work, and take as much as fits into one call; nothing after the end."""
        jobs: list[_Job] = []
        size = 0
        with self._changed:
            while self._open and not self._waiting:
                self._changed.wait()
            while self._waiting and len(jobs) < _MAX_GROUP:
                size += self._waiting[0].request.size
                if jobs and size > call_parameters.MAX_BYTES:
                    break
                jobs.append(self._waiting.popleft())
        return jobs


def _send(jobs: Sequence[_Job]) -> None:
    """Send a group, and wake its callers."""
    try:
        outcomes = jobs[0].send([job.request for job in jobs])
    except Exception as error:  # noqa: BLE001 (raised in the caller)
        if len(jobs) == 1 or not isinstance(error, StoreError) or is_lost(error.__cause__):
            for job in jobs:
                job.error = error
    else:
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.outcome = outcome
    for job in jobs:
        job.done.release()
