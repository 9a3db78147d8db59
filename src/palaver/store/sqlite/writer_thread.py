"""The one thread that writes.

Rules:

- Callers hand in work and wait. All the work that waits is done in one transaction, with one commit: while the disk
  takes in one group, the next one gathers. So the cost of a durable commit is shared by those who wait at once.
- Each piece of work has its own outcome. It checks before it writes; when it raises without having written, the others
  are not touched. When it raises later, or SQLite does, the group is undone and each is done again, alone.
- Work gets its answer after the commit, never before.
- A thread of its own, not that of a caller: an interrupt (Ctrl-C) in a caller cannot leave another's work half done.
- After ``fork`` the child has no such thread, and SQLite forbids it the connection: the child must open the file anew.

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
"""Commits after which the file is asked anew how large it is."""


class _Job:
    """Work, and what became of it."""

    __slots__ = ("alone", "done", "error", "result", "work")

    def __init__(self, work: Work[Any], *, alone: bool) -> None:
        self.work = work
        self.alone = alone
        self.result: Any = None
        self.error: Exception | None = None
        self.done = Lock()
        self.done.acquire()


class Writer:
    """Does work on a connection of its own. ``path`` is for error texts."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        """Take over a connection, and begin."""
        self._path = path
        self._process = os.getpid()
        self._lock = Lock()
        self._open = True
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(db, self._queue, path), name=f"writer of {path}", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, alone: bool = False) -> T:
        """Do work in a transaction (``alone``: outside of any); return what it returned when that is kept.

        Raises what the work raised.
        """
        job = _Job(work, alone=alone)
        self.check()  # before the lock too: in a forked process, nobody may be there to release it
        with self._lock:
            self.check()
            self._queue.put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child process, where SQLite forbids even to close the connections."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise ``StoreError`` when the store is closed, or belongs to the process that this one was forked from."""
        if not self._open:
            raise StoreError(f"{self._path}: the store is closed")
        if self.forked:
            raise StoreError(f"{self._path}: opened before this process was forked; open it again")

    def close(self) -> None:
        """Finish what waits, and close the connection."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()


class ReadOnlyWriter(Writer):
    """Stands for the writer of a file that is open for reading only: it refuses all work."""

    def __init__(self, path: str, why: str) -> None:
        """``why`` says why nothing can be written."""
        self._path = path
        self._process = os.getpid()
        self._why = why
        self._open = True

    def run(self, work: Work[T], *, alone: bool = False) -> T:  # noqa: ARG002 (as a writer's)
        """Raise ``UnavailableError``."""
        self.check()
        raise UnavailableError(f"{self._path}: open for reading only: {self._why}")

    def close(self) -> None:
        """Nothing waits."""
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
        del taken, jobs, together  # what was asked for is not held while nothing is asked
    db.close()


def _commit(db: sqlite3.Connection, jobs: list[_Job], path: str) -> None:
    """Do work in one transaction; where that fails, each in one of its own."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:  # no work's fault: tried again for each alone, all would wait for as long again
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
