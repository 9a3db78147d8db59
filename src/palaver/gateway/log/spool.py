"""The spool: records in files, written before a client sees the end of its answer, and read by the writer of the log.

Rules:

- Each process has its own folder, which it holds by a lock. The folder of a process that died is free for others.
- A folder holds segments (``00000000.spool``, ``00000001.spool``, …). A record is its length, its CRC-32, and its
  bytes; it is one write. The last segment grows, until it is larger than ``SEGMENT``.
- Segments are the only thing that the spool and its reader share: who has read a segment to its end deletes it.
- A record that was altered is passed over by its length, when whole ones follow. Otherwise what cannot be read ends its
  segment: the process died while it wrote, or a length was altered.
- A write that fails is undone. ``append`` then raises ``UnavailableError``, and the spool is full until as much as that
  can be written.
- It needs POSIX: locks of ``flock``, which a child process inherits, and ``writev``.

Stability: experimental.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from zlib import crc32

import anyio

from palaver.core.errors import UnavailableError
from palaver.store.store import to_thread

if TYPE_CHECKING:
    from io import BufferedReader

if sys.platform != "win32":
    import fcntl

SEGMENT: Final = 4 << 20
"""The size in bytes after which a segment is followed by another."""
SUFFIX: Final = ".spool"
_LOCK: Final = "lock"
_PAGE: Final = 4096
_HEAD: Final = Layout("<II")


class SpooledRecord(NamedTuple):
    """The bytes of a record, the offset of its end in the segment, and whether it is as it was written."""

    data: bytes
    end: int
    whole: bool = True


def segments(folder: Path) -> list[Path]:
    """Return the segments of a folder, the oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def read(file: BufferedReader, offset: int) -> Iterator[SpooledRecord]:
    """Yield the records of a segment behind an offset, up to the last whole one."""
    altered: list[SpooledRecord] = []
    file.seek(offset)
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, check = _HEAD.unpack(head)
        data = file.read(length)
        if not length or len(data) < length:
            return
        offset += _HEAD.size + length
        if crc32(data) != check:
            altered.append(SpooledRecord(data, offset, whole=False))
            continue
        yield from altered
        altered.clear()
        yield SpooledRecord(data, offset)


def framed(data: bytes) -> bytes:
    """Return a record: its length, its check, and its bytes."""
    return _HEAD.pack(len(data), crc32(data)) + data


def lock_folder(folder: Path) -> int | None:
    """Lock a folder, and return what ``unlock`` takes; ``None`` when another process has it, or when it is gone."""
    try:
        found = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        if sys.platform != "win32":
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / _LOCK).exists():  # else it was removed meanwhile
            return found
    except BlockingIOError:
        pass
    os.close(found)
    return None


def remove_folder(folder: Path, lock: int) -> None:
    """Remove a folder that has no more segments, and unlock it."""
    if not segments(folder):
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


class Spool:
    """Appends records in a folder of its own, below ``root``. Used by one event loop."""

    def __init__(self, root: Path, *, max_bytes: int, sync: bool = False) -> None:
        """Make the folder, readable only for its owner, and lock it. Raises ``UnavailableError``."""
        self.folder = root / uuid.uuid4().hex
        self._max_bytes, self._sync = max_bytes, sync
        self._number = 0
        self._syncs = _GroupSync()
        self.broken: str | None = None
        """Why a write failed, since when none of its size succeeded."""
        self._failed = 0
        try:
            self.folder.mkdir(mode=0o700, parents=True)
            lock = lock_folder(self.folder)
            self._file = self._open()
        except OSError as error:
            raise _unavailable(self.folder, error) from None
        if lock is None:
            raise UnavailableError(f"{self.folder}: cannot be locked")
        self.lock: int = lock
        """What holds the folder; its user closes it."""
        self._size = self._end = 0

    def _open(self) -> int:
        path = self.folder / f"{self._number:08}{SUFFIX}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @property
    def size(self) -> int:
        """The size of all segments in bytes. What was read lately may be counted still."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether the spool is larger than it may be, or cannot be written to."""
        if self._size > self._max_bytes:
            if self._end:
                with suppress(OSError):
                    self._continue()  # the reader deletes only segments that do not grow any more
            self._size = self._counted()
        return self._size > self._max_bytes or (self.broken is not None and not self._works())

    def append(self, data: bytes) -> None:
        """Write a record. Raises ``UnavailableError``."""
        try:
            if self._end > SEGMENT:
                self._continue()
            self._write(_HEAD.pack(len(data), crc32(data)), data)
        except OSError as error:
            failed = _unavailable(self.folder, error)
            self.broken, self._failed = str(failed), max(self._failed, _HEAD.size + len(data))
            raise failed from None
        if self.broken is not None and _HEAD.size + len(data) >= self._failed:
            self._repaired()
        self._end += _HEAD.size + len(data)
        self._size += _HEAD.size + len(data)

    def _write(self, *pieces: bytes) -> None:
        written = os.writev(self._file, pieces)
        if written < sum(map(len, pieces)):
            os.ftruncate(self._file, self._end)
            raise OSError(errno.ENOSPC, "no space left on device")

    def _works(self) -> bool:
        """Whether a write succeeds again: one of zeros, which is no record, and is undone."""
        try:
            self._write(bytes(max(self._failed, _PAGE)))
            os.ftruncate(self._file, self._end)
        except OSError:
            return False
        self._repaired()
        return True

    def _repaired(self) -> None:
        self.broken, self._failed = None, 0

    def _continue(self) -> None:
        """Begin another segment."""
        if self._sync:
            os.fdatasync(self._file)
        before = self._file
        self._number += 1
        self._file, self._end = self._open(), 0
        os.close(before)
        self._size = self._counted()

    def _counted(self) -> int:
        """Return the size of the segments that there are now."""
        with os.scandir(self.folder) as found:
            return sum(_size(each) for each in found if each.name.endswith(SUFFIX))

    async def synced(self) -> None:
        """Wait until what was appended is on the disk. Many that wait share one ``fsync``."""
        await self._syncs.wait(self._file)

    def close(self) -> None:
        """Write no more; the folder stays locked until its reader has removed it."""
        os.close(self._file)

    def __enter__(self) -> Self:
        """Close the spool at the end of a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the spool."""
        self.close()


class _GroupSync:
    """One ``fsync`` at a time. All who come while one runs share the next one."""

    def __init__(self) -> None:
        self._started = self._finished = 0
        self._running: anyio.Event | None = None

    async def wait(self, file: int) -> None:
        wanted = self._started + 1
        while self._finished < wanted:
            if self._running is not None:
                await self._running.wait()
                continue
            self._running = anyio.Event()
            self._started += 1
            number = self._started
            copy = os.dup(file)  # the segment may be closed meanwhile
            try:
                await to_thread(os.fsync, copy)
                self._finished = number
            finally:
                os.close(copy)
                self._running.set()
                self._running = None


def _size(segment: os.DirEntry[str]) -> int:
    try:
        return segment.stat().st_size
    except FileNotFoundError:  # it was read just now
        return 0


def _unavailable(folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"{folder}: {(error.strerror or str(error)).lower()}")
