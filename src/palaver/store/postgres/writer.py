"""Threads that send appends, those of many callers together.

Rules:

- Callers hand in an append and wait. What waits is sent as one group, in one transaction: while one group is sent, the
  next one gathers. So round trips and commits are shared by those who wait at once.
- ``WRITERS`` threads, so that one makes its group ready while the server works on that of another. All appends to one
  thread of the store go through the same writer, so the writers do not wait for each other.
- Each append has its own outcome (``appending.Outcome``). When a group fails as a whole, and not because the server
  stayed away, nobody knows whose fault it was: each of its callers is told ``BUSY``, as where another client holds the
  thread, and tries alone, on a connection of its own.
- Threads of their own, not those of callers: an interrupt (Ctrl-C) in a caller cannot leave another's work half done.
  An idle one holds neither store nor connections: a store that nobody closed goes when nobody knows it any more, and
  its threads with it.

Stability: experimental.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Lock, Thread
from typing import Final, TypeAlias

from palaver.core.errors import StoreError
from palaver.store.postgres import batch
from palaver.store.postgres.appending import BUSY, Joining, Outcome
from palaver.store.postgres.database import is_lost

Send: TypeAlias = Callable[[Sequence[Joining]], Sequence[Outcome]]

WRITERS: Final = 2
_MOST: Final = 128


class _Job:
    """An append, how it is sent, and what became of it."""

    __slots__ = ("done", "error", "joining", "outcome", "send")

    def __init__(self, joining: Joining, send: Send) -> None:
        self.joining = joining
        self.send = send
        self.outcome = Outcome(BUSY, None, 0, 0)
        self.error: Exception | None = None
        self.done = Lock()
        self.done.acquire()


class Writers:
    """Send appends by a function that takes a group of them. ``name`` is for the names of the threads."""

    def __init__(self, send: Send, name: str) -> None:
        """Begin."""
        self._send = send
        self._process = os.getpid()
        self._writers = [_Writer(name) for _ in range(WRITERS)]
        for writer in self._writers:
            weakref.finalize(self, writer.end).atexit = False

    def run(self, joining: Joining) -> Outcome:
        """Send an append, together with others. Raises ``StoreError``."""
        if os.getpid() != self._process:
            raise StoreError("the store was opened before this process was forked; open it again")
        job = _Job(joining, self._send)
        self._writers[hash(joining.thread) % WRITERS].put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.outcome

    def close(self) -> None:
        """Finish what waits."""
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.thread.join()


class _Writer:
    """One of the threads, and what waits for it."""

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
            del jobs  # what was asked for is not held while nothing is asked

    def _taken(self) -> list[_Job]:
        """Wait for work, and take what fits into one call; nothing when it is over."""
        jobs: list[_Job] = []
        size = 0
        with self._changed:
            while self._open and not self._waiting:
                self._changed.wait()
            while self._waiting and len(jobs) < _MOST:
                size += self._waiting[0].joining.size
                if jobs and size > batch.MOST:
                    break
                jobs.append(self._waiting.popleft())
        return jobs


def _send(jobs: Sequence[_Job]) -> None:
    """Send a group, and let its callers go on."""
    try:
        outcomes = jobs[0].send([job.joining for job in jobs])
    except Exception as error:  # noqa: BLE001 (raised in the caller)
        if len(jobs) == 1 or not isinstance(error, StoreError) or is_lost(error.__cause__):
            for job in jobs:
                job.error = error
    else:
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.outcome = outcome
    for job in jobs:
        job.done.release()
