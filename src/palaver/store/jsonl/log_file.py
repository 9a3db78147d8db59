"""A file of lines that grows at its end, open for one writer.

Rules:

- Its name is the time (UTC) of its creation and six hex digits: ``2026-11-20T09-05-00Z-3fa91c.jsonl``. The file is
  always created, never an existing one, and is private to the user. The digits begin with the millisecond, so names
  sort by time, even those of several processes. The names of one ``Names`` sort in the order of their creation.
- Bytes are written at the end (``O_APPEND``), in one call to the system. A partial write is cut off again; if that
  fails too, the file is ``broken``, and takes no more writes.
- The file is locked while it is open, if the system has such locks; so nobody truncates a file in use.

Stability: experimental.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from palaver.core.errors import UnavailableError

if sys.platform != "win32":
    import fcntl

SUFFIX: Final = ".jsonl"
_DIGITS: Final = 6
_TOKENS: Final = 16**_DIGITS
_RANDOM_BITS: Final = 14
_TRIES: Final = 100
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class Names:
    """Names for new files, in ascending order. ``clock`` gives Unix milliseconds."""

    def __init__(self, clock: Callable[[], int], suffix: str = SUFFIX) -> None:
        """Start at a random name of the present second."""
        self._clock = clock
        self._suffix = suffix
        self._second = -1
        self._token = 0

    def next(self) -> str:
        """Return a name that sorts behind the names of earlier milliseconds, even those of other processes."""
        now = self._clock()
        second = now // 1000
        # The first ten bits are the millisecond, since processes that follow each other share a second.
        token = (now % 1000 << _RANDOM_BITS) + secrets.randbelow(1 << _RANDOM_BITS - 1)
        if second <= self._second:
            token = max(token, self._token + 1) if second == self._second else self._token + 1
            second = self._second
            if token >= _TOKENS:
                second, token = second + 1, 0
        self._second, self._token = second, token
        return f"{datetime.fromtimestamp(self._second, UTC):%Y-%m-%dT%H-%M-%SZ}-{self._token:0{_DIGITS}x}{self._suffix}"


class LogFile:
    """An open file. Its methods raise ``OSError``."""

    def __init__(self, path: Path, fd: int) -> None:
        """Take over a descriptor, and lock it.

        Raises ``UnavailableError`` when another writer has it, or when it is not a regular file.
        """
        self.path = path
        self.broken = False
        self._fd = fd
        try:
            self.size = _locked(path, fd)
        except BaseException:
            os.close(fd)
            raise

    @property
    def exists(self) -> bool:
        """Whether the file still has a name: lines in a deleted file are never read."""
        return os.fstat(self._fd).st_nlink > 0

    def write(self, data: bytes) -> None:
        """Add bytes at the end, all or none."""
        done = os.write(self._fd, data)
        try:
            while done < len(data):  # the disk filled up: the next call reports that
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError:
            self.broken = True
            self.cut(os.fstat(self._fd).st_size - done)
            self.broken = False
            raise
        self.size += done

    def cut(self, size: int) -> None:
        """Shorten the file."""
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _locked(path: Path, fd: int) -> int:
    """Lock an open file, and return its size."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise UnavailableError(f"{path}: not a regular file")
    if sys.platform != "win32":
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError(f"{path}: another writer has it open") from None
    return status.st_size


def create(directory: Path, names: Names) -> LogFile:
    """Create a new file, and its directory if it is missing. Raises ``OSError``."""
    directory.mkdir(_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    for left in reversed(range(_TRIES)):
        path = directory / names.next()
        try:
            return LogFile(path, os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE))
        except FileExistsError:
            if not left:
                raise
    raise AssertionError


def reopen(path: Path) -> LogFile:
    """Open an existing file, to append to it. Raises ``OSError``, ``UnavailableError``."""
    return LogFile(path, os.open(path, _FLAGS))


def begin(path: Path) -> BinaryIO:
    """Create a file of that name, private to the user. Raises ``OSError``."""
    return open(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE), "wb")  # noqa: PTH123 (a descriptor)


def sync_file(path: Path) -> None:
    """Wait until the contents of a file are on the disk; a deleted file has none. Raises ``OSError``."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Wait until the entries of a directory are on the disk, if the system supports it."""
    with suppress(PermissionError):  # a directory that may be written need not be readable
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
