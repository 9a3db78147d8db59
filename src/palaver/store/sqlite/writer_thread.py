"""The single writer thread.

Rules:

- Callers submit work and wait. All waiting work is done in one transaction, with one commit: during the commit of one
  group, the next one gathers. So callers that wait at the same time share the cost of a durable commit.
- Each piece of work has its own outcome. It checks before it writes; when it raises without having written, the others
  are not affected. When it raises later, or SQLite does, the group is rolled back and each is done again, alone.
- Work gets its answer after the commit, never before.
- It is not a caller's thread: an interrupt (Ctrl-C) in a caller cannot leave another's work unfinished.
- After ``fork`` the child has no such thread, and SQLite forbids it the connection: the child must open the file again.

Stability: experimental.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeAlias, TypeVar, cast

from palaver.core.errors import StoreError, UnavailableError
from palaver.store.sqlite.errors import store_error
from palaver.store.sqlite.schema import pace_checkpoints

T = TypeVar("T")
Work: TypeAlias = Callable[[sqlite3.Connection], T]

_MAX_GROUP: Final = 256
_PACED: Final = 64
"""Commits after which the size of the file is read again."""


class _Job:
    """A piece of work, and its outcome."""

    __slots__ = ("alone", "done", "error", "result", "work")

    def __init__(self, work: Work[Any], *, alone: bool) -> None:
        self.work = work
        self.alone = alone
        self.result: Any = None
        self.error: Exception | None = None
        self.done = Lock()
        self.done.acquire()


class Writer:
    """Does work on its own connection. ``path`` is for error texts."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        """Take over a connection, and start."""
        self._path = path
        self._process = os.getpid()
        self._lock = Lock()
        self._open = True
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(db, self._queue, path), name=f"writer of {path}", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, alone: bool = False) -> T:
        """Do work in a transaction (``alone``: outside of any); return its result after the commit.

        Raises what the work raised.
        """
        job = _Job(work, alone=alone)
        self.check()  # before the lock too: in a forked process, no thread may be left to release it
        with self._lock:
            self.check()
            self._queue.put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child process, where SQLite even forbids closing the connections."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise ``StoreError`` when the store is closed, or was opened before a fork."""
        if not self._open:
            raise StoreError(f"{self._path}: the store is closed")
        if self.forked:
            raise StoreError(f"{self._path}: opened before this process was forked; open it again")

    def close(self) -> None:
        """Finish waiting work, and close the connection."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()


class ReadOnlyWriter(Writer):
    """Replaces the writer of a read-only file: it refuses all work."""

    def __init__(self, path: str, why: str) -> None:
        """Start with ``why``, the reason for error texts."""
        self._path = path
        self._process = os.getpid()
        self._why = why
        self._open = True

    def run(self, work: Work[T], *, alone: bool = False) -> T:  # noqa: ARG002 (as a writer's)
        """Raise ``UnavailableError``."""
        self.check()
        raise UnavailableError(f"{self._path}: open for reading only: {self._why}")

    def close(self) -> None:
        """Do nothing: no work waits."""
        self._open = False


def _serve(db: sqlite3.Connection, queue: SimpleQueue[_Job | None], path: str) -> None:
    more, commits = True, 0
    while more:
        taken = [queue.get()]
        with suppress(Empty):
            while len(taken) < _MAX_GROUP:
                taken.append(queue.get_nowait())
        jobs = [job for job in taken if job is not None]
        more = len(jobs) == len(taken)
        together = [job for job in jobs if not job.alone]
        if together:
            _commit(db, together, path)
            commits += 1
            if commits % _PACED == 0:
                with suppress(sqlite3.Error):
                    pace_checkpoints(db)
        for job in jobs:
            if job.alone:
                _do_alone(db, job, path)
            job.done.release()
        del taken, jobs, together  # do not hold finished work while waiting
    db.close()


def _commit(db: sqlite3.Connection, jobs: list[_Job], path: str) -> None:
    """Do work in one transaction; if that fails, do each in one of its own."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:  # not the work's fault: each retry alone would wait as long again
        for job in jobs:
            job.error = store_error(error, path)
        return
    try:
        for job in jobs:
            before = db.total_changes
            try:
                job.result = job.work(db)
            except StoreError as error:
                if db.total_changes != before:
                    raise
                job.error = error
        db.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 (raised in the caller)
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if len(jobs) == 1:
            jobs[0].error = store_error(error, path)
            return
        for job in jobs:
            job.error = None
            _commit(db, [job], path)


def _do_alone(db: sqlite3.Connection, job: _Job, path: str) -> None:
    try:
        job.result = job.work(db)
    except Exception as error:  # noqa: BLE001 (raised in the caller)
        job.error = store_error(error, path)
