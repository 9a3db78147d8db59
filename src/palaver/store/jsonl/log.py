"""The message log: every message once, in order, one line each, in files of JSON Lines.

Rules:

- ``append`` returns when the line is as durable as ``sync`` asks: ``none`` (in memory, written in blocks of 64 KiB and
  at ``close``), ``flush`` (at the system: it survives the death of the process) or ``fsync`` (on the disk).
  ``lines`` describes the form of a file, ``log_line`` the contents of a line.
- A log writes to a file of its own, created with the first message, and continues in a new one after ``max_bytes``. So
  any number of logs and processes may use one directory. A forked process creates a file of its own. No id becomes
  part of a path (DAS-29).
- A message that was logged is skipped, by the id of its entry, else by its own, within its thread. The log keeps
  those ids: some 100 bytes a message. A message without either is always written.
- Failures are not raised into the conversation (DAS-21): each one goes to ``on_error`` or, without it, as a warning to
  the logger ``palaver.store.jsonl.log``. A line that could not be written is not written later; the next message is
  tried again, and the line numbers tell a reader that some are missing.
- It is safe for use from several OS threads. A call blocks: from async code, call it in a thread.

Stability: experimental.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, get_args
from weakref import WeakSet

import platformdirs
from msgspec import Struct, structs

from palaver.core.errors import DecodeError, StoreError
from palaver.core.messages import Message
from palaver.store.jsonl import lines, log_file, log_line
from palaver.store.jsonl.lines import Line, Scanner
from palaver.store.jsonl.log_line import LogContext
from palaver.store.jsonl.log_reader import scan
from palaver.store.store import Damage
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from types import TracebackType

Sync: TypeAlias = Literal["none", "flush", "fsync"]
MAX_BYTES: Final = 64 << 20
_BLOCK: Final = 64 << 10
_logger: Final = logging.getLogger(__name__)


class LogSink(Protocol):
    """An interface for receivers of log messages. ``JsonlLog`` is one; an application may have its own, also async."""

    def append(self, message: Message, context: LogContext, /) -> Awaitable[object] | None:
        """Take a message, and raise nothing. The returned awaitable is awaited before the run continues."""
        ...


class LogFailure(Struct, frozen=True):
    """A failure of a log.

    ``lost``: ``lines`` of them are not in the log, starting with that of ``message`` (its id, if any). ``unsynced``:
    they are written, but may not be on the disk. ``slow``: they are written, but it took long. ``unresumed``: the
    file to resume cannot be opened, and the log creates one of its own.
    """

    kind: Literal["lost", "unsynced", "slow", "unresumed"]
    cause: Exception
    lines: int = 0
    thread: str | None = None
    message: str | None = None

    def __str__(self) -> str:
        """``lost: [Errno 28] No space left on device (lines: 1, from message 0193… of thread trip on)``."""
        if not self.lines:
            return f"{self.kind}: {self.cause}"
        return (
            f"{self.kind}: {self.cause} (lines: {self.lines}, from message {self.message} of thread {self.thread} on)"
        )


class _Pending(Struct, frozen=True):
    """A line that is not written yet, and its message."""

    thread: str
    message: str | None
    key: str | None
    data: bytes = b""


class JsonlLog:
    """A log in a directory, by default in that of the user (``default_directory``).

    ``clock`` gives Unix milliseconds; an ``append`` of more than ``slow`` seconds is reported.
    ``resume`` is a file to continue: its messages are not logged again, and an incomplete line at its end is cut off
    and reported. ``lost`` counts the messages that are not in the log.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        sync: Sync = "flush",
        max_bytes: int = MAX_BYTES,
        on_error: Callable[[LogFailure | Damage], None] | None = None,
        clock: Callable[[], int] = now_ms,
        slow: float = 5.0,
        resume: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepare a log; without ``resume``, no file is touched yet. Raises ``StoreError`` for an unknown ``sync``."""
        if sync not in get_args(Sync):
            raise StoreError(f"sync: {sync!r} is not one of {', '.join(get_args(Sync))}")
        self.directory = default_directory() if directory is None else Path(directory)
        self.lost = 0
        self._sync: Sync = sync
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._clock = clock
        self._slow = slow
        self._names = log_file.Names(clock)
        self._lock = Lock()
        self._closed = False
        self._file: log_file.LogFile | None = None
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._seen: dict[str, set[str]] = {}
        self._start_new_file()
        if resume is not None:
            self._resume(Path(resume))
        _open_logs.add(self)

    @property
    def path(self) -> Path | None:
        """The current file; ``None`` before the first message."""
        return None if self._file is None else self._file.path

    def append(self, message: Message, context: LogContext, /) -> None:
        """Log a message. Raises nothing."""
        began = time.monotonic()
        with self._lock:
            failure = self._log(message, context)
        took = time.monotonic() - began
        if failure is None and took > self._slow:
            cause = TimeoutError(f"it took {took:.1f} s")
            failure = LogFailure("slow", cause, 1, context.thread, message.id)
        self._report(failure)

    def close(self) -> None:
        """Write pending lines, and close the file. Closing twice is allowed; a later message is lost."""
        with self._lock:
            failure = self._write()
            self._closed = True
            self._close_file()
        self._report(failure)

    def __enter__(self) -> Self:
        """Close the log at the end of a ``with`` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _log(self, message: Message, context: LogContext) -> LogFailure | None:
        seen = self._seen.setdefault(context.thread, set())
        key = message.id if context.entry is None else context.entry
        if key in seen:
            return None
        line = _Pending(context.thread, message.id, key)
        self._number += 1  # also when the rest fails: the missing number then shows it
        try:
            if self._closed:
                raise StoreError("the log is closed")  # noqa: TRY301 (a failure like any other here)
            fields = log_line.fields(message, context, self._clock())
            data = lines.write(log_line.KIND, self._writer, self._number, fields)
        except Exception as error:  # noqa: BLE001 (whatever fails here is no part of the conversation)
            return self._failed("lost", error, [line])
        self._pending.append(structs.replace(line, data=data))
        self._pending_bytes += len(data)
        if key is not None:
            seen.add(key)
        return self._write() if self._sync != "none" or self._pending_bytes >= _BLOCK else None

    def _write(self) -> LogFailure | None:
        """Write all pending lines, in one call."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not pending:
            return None
        try:
            file, new = self._open_file()
            file.write(b"".join([each.data for each in pending]))
        except Exception as error:  # noqa: BLE001 (as in `_take`)
            return self._failed("lost", error, pending)
        try:
            if self._sync == "fsync":
                file.sync()
                if new:
                    log_file.sync_directory(self.directory)
        except OSError as error:
            self._close_file()  # it is not known how much of it is written
            return self._failed("unsynced", error, pending)
        if file.size >= self._max_bytes:
            self._start_new_file()
        return None

    def _open_file(self) -> tuple[log_file.LogFile, bool]:
        """Return the file to write to, and whether it is new."""
        if self._file is not None and (self._file.broken or not self._file.exists):
            self._close_file()
        if self._file is not None:
            return self._file, False
        self._file = log_file.create(self.directory, self._names)
        return self._file, True

    def _failed(self, kind: Literal["lost", "unsynced"], cause: Exception, pending: list[_Pending]) -> LogFailure:
        if kind == "lost":
            self.lost += len(pending)
            for each in pending:
                if each.key is not None:
                    self._seen[each.thread].discard(each.key)
        return LogFailure(kind, cause, len(pending), pending[0].thread, pending[0].message)

    def _start_new_file(self) -> None:
        """Create a file with the next line."""
        self._close_file()
        self._writer = secrets.token_hex(6)
        self._number = 0

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    # -- the rest

    def _resume(self, path: Path) -> None:
        """Continue a file: read its ids, and cut off an incomplete line at its end."""
        file: log_file.LogFile | None = None
        try:
            file = log_file.reopen(path)
            scanner = Scanner(str(path))
            for found in scan(path, scanner):
                if isinstance(found, Damage):
                    self._report(found)
                else:
                    self._remember(found)
            end = max(scanner.ended, scanner.sound)
            if file.size > end:
                file.cut(end)
            if end > scanner.ended:
                file.write(b"\n")
        except (OSError, StoreError) as error:
            if file is not None:
                file.close()
            self._report(LogFailure("unresumed", error))
        else:
            self._file = file

    def _remember(self, line: Line) -> None:
        """Remember the message of this line, so that it is not logged again."""
        with suppress(DecodeError):
            read = log_line.read(line)
            key = read.message.id if read.context.entry is None else read.context.entry
            if key is not None:
                self._seen.setdefault(read.context.thread, set()).add(key)

    def _report(self, what: LogFailure | Damage | None) -> None:
        """Report a failure, outside the lock: the callback may log."""
        if what is None:
            return
        try:
            if self._on_error is None:
                _logger.warning("%s", what)
            else:
                self._on_error(what)
        except Exception:
            _logger.exception("on_error raised while handling: %s", what)

    def _after_fork(self) -> None:
        """In a forked child, drop the file and the pending lines, which are the parent's."""
        self._lock = Lock()
        self._pending, self._pending_bytes = [], 0
        self._start_new_file()


_open_logs: Final[WeakSet[JsonlLog]] = WeakSet()


def _after_fork() -> None:
    for each in list(_open_logs):
        each._after_fork()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)


def default_directory() -> Path:
    """Return the directory for the logs of this user."""
    return platformdirs.user_log_path("palaver", appauthor=False)
