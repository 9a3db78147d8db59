"""A folder of journals, written by any number of processes.

Rules:

- Each writer has its own files (``log_file``), with one line (``lines``) for each call. A line of kind ``change`` has
  ``seq``, its order in the folder, and ``changes`` (``journal``).
- Readers and writers hold the lock of the folder, ``palaver.lock``. It contains the newest ``seq``, and -1 during a
  write; a reader that finds -1 reads the files.
- Under the lock there is no other writer: an incomplete line at the end of a file was left by a writer that died. It is
  cut off and reported.
- With ``sync="fsync"``, lines of others are synced before the first line behind them: no line may reach the disk before
  the one that it follows.
- ``rewrite`` writes the whole state into one new file, as lines of kind ``state`` that supersede every smaller ``seq``.
  The file is finished, synced and renamed before the old ones are removed; damaged ones stay, as ``….damaged``.
- A folder without write permission is read-only: nothing changes, and writes are refused.

Stability: experimental.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from palaver.core import jsontext
from palaver.core.errors import DecodeError, StoreError, UnavailableError
from palaver.store.jsonl import journal, lines, log_file
from palaver.store.jsonl.lines import Ledger, Line, Scanner
from palaver.store.jsonl.log_reader import scan
from palaver.store.records import Change
from palaver.store.store import Damage

if sys.platform != "win32":
    import fcntl

Sync: TypeAlias = Literal["flush", "fsync"]
LOCK: Final = "palaver.lock"
SUFFIX: Final = ".changes.jsonl"
_UNFINISHED: Final = ".unfinished"
_DAMAGED: Final = ".damaged"
_OURS: Final = (SUFFIX, _UNFINISHED, _DAMAGED)
_WRITING: Final = -1
_UNREAD: Final = -2
_NUMBER: Final = 8
_RETRY_SECONDS: Final = 0.02
_MAX_LOST: Final = 16 << 20
"""Bytes of damaged stretches that are kept, to identify their contents."""


class Step(NamedTuple):
    """The changes of one line, and its place."""

    place: str
    changes: list[Change]


class Update(NamedTuple):
    """The changes since the last read; ``complete``: it is the whole state, which replaces the earlier one."""

    complete: bool
    steps: list[Step]
    damage: list[Damage]
    lost: list[journal.LostBytes]
    """The kept contents of the damaged stretches of all files."""


class _Read(NamedTuple):
    """A line, to be sorted."""

    seq: int
    number: int
    state: bool
    step: Step


class Folder:
    """The journals of one store. Every method but ``locked`` and ``close`` requires the lock."""

    def __init__(self, path: Path, *, sync: Sync, max_bytes: int, timeout: float, clock: Callable[[], int]) -> None:
        """Open a folder, and create it if it is missing.

        Raises ``StoreError`` for a folder with other files, ``UnavailableError`` for one that cannot be opened.
        """
        self._path = path
        self._sync: Sync = sync
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._names = log_file.Names(clock, SUFFIX)
        self._file: log_file.LogFile | None = None
        with self._faults():
            self.read_only = _is_read_only(path)
            self._lock = _open_lock(path, read_only=self.read_only)
        self.forget()

    def check_writable(self) -> None:
        """Raise ``UnavailableError`` for a folder that is open for reading only."""
        if self.read_only:
            raise UnavailableError(f"{self._path}: open for reading only: this process may not write there")

    # -- the lock ------------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock of the folder. Raises ``UnavailableError`` when others hold it for too long."""
        with self._faults():
            self._acquire()
        try:
            yield
        finally:
            if self._lock >= 0:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _acquire(self) -> None:
        """Poll for the lock: a blocking wait could not be cancelled."""
        if self._lock < 0:  # there is none, and none can be created
            return
        until, pause = time.monotonic() + self._timeout, 0.0001
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise UnavailableError(f"{self._path}: locked by others for {self._timeout:g} seconds") from None
                time.sleep(pause)
                pause = min(2 * pause, _RETRY_SECONDS)
            else:
                return

    @contextmanager
    def _faults(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{error.filename or self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close all files."""
        self._close_file()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # -- reading -------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Read everything again next time, and write to a new file."""
        self._close_file()
        self._seq = _UNREAD
        self._base = 0
        self._read_to: dict[str, int] = {}
        self._ledger = Ledger()
        self._damaged: set[str] = set()
        self._lost: list[journal.LostBytes] = []
        self._unsynced: set[Path] = set()
        self._superseded = False

    def updates(self) -> Update | None:
        """Return the changes since the last read; ``None`` without any. Incomplete ends of files are cut off."""
        with self._faults():
            if self._lock >= 0 and self._seq == int.from_bytes(os.pread(self._lock, _NUMBER, 0), "little", signed=True):
                return None
            files = self.files()
            if any(self._read_to.get(file.name, 0) > file.stat().st_size for file in files):
                self.forget()
            anew = self._seq == _UNREAD
            damage: list[Damage] = []
            found: list[_Read] = []
            for file in files:
                found += self._read_new(file, damage)
            base = max([each.seq for each in found if each.state], default=0)
            if base > self._base:
                anew, self._base = True, base
            self._superseded = self._superseded or any(each.seq < self._base for each in found)
            found = [
                each for each in found if each.seq > self._base or (each.state and each.seq == self._base and anew)
            ]
            found.sort(key=lambda each: (each.seq, each.number))
            self._seq = max(self._seq, self._base, *[each.seq for each in found])
            self._publish_seq(self._seq)
        return Update(anew, [each.step for each in found], damage, self._lost)

    def audit(self) -> tuple[Update, int]:
        """Read all files again; return the state and its size. Changes nothing."""
        with self._faults():
            ledger, damage, size, lost = Ledger(), list[Damage](), 0, list[journal.LostBytes]()
            found: list[_Read] = []
            for file in self.files():
                size += file.stat().st_size
                scanner = Scanner(str(file), ledger)
                found += _read_lines(file, scanner, damage)
                lost += _lost_bytes(file, scanner)
        base = max([each.seq for each in found if each.state], default=0)
        found = [each for each in found if each.seq > base or (each.state and each.seq == base)]
        found.sort(key=lambda each: (each.seq, each.number))
        return Update(complete=True, steps=[each.step for each in found], damage=damage, lost=lost), size

    def has_leftovers(self) -> bool:
        """Return whether there are files that an interrupted rewrite should have removed."""
        with self._faults():
            return self._superseded or any(each.name.endswith(_UNFINISHED) for each in self._path.iterdir())

    def files(self) -> list[Path]:
        """Return the files of the folder."""
        return sorted(each for each in self._path.iterdir() if each.name.endswith(SUFFIX))

    def _read_new(self, file: Path, damage: list[Damage]) -> list[_Read]:
        start = self._read_to.get(file.name, 0)
        if file.stat().st_size == start:
            return []
        scanner = Scanner(str(file), self._ledger, start=start)
        before = len(damage)
        found = _read_lines(file, scanner, damage)
        self._lost += _lost_bytes(file, scanner)
        self._read_to[file.name] = scanner.ended if self.read_only else _trim_end(file, scanner)
        self._unsynced.add(file)
        if any(each.kind != "torn" for each in damage[before:]):
            self._damaged.add(file.name)
        return found

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, changes: list[Change]) -> None:
        """Write the changes of one call; they are durable when this returns."""
        self.check_writable()
        try:
            fields = [("changes", journal.encode(changes))]
            with self._faults():
                self._publish_seq(_WRITING)
                self.sync_read()
                file, new = self._open_file()
                self._number += 1
                seq = self._seq + 1
                file.write(lines.write("change", self._writer, self._number, [("seq", b"%d" % seq), *fields]))
                if self._sync == "fsync":
                    file.sync()
                    if new:
                        log_file.sync_directory(self._path)
                self._ledger.see(self._writer, self._number)
                self._read_to[file.path.name] = file.size
                self._seq = seq
                self._publish_seq(seq)
        except BaseException:
            self.forget()
            raise
        if file.size >= self._max_bytes:
            self._close_file()

    def sync_read(self) -> None:
        """Sync what was read: its writer may have died before it synced, and our writes depend on it."""
        if self._sync != "fsync" or not self._unsynced or self.read_only:
            return
        with self._faults():
            for path in sorted(self._unsynced):
                log_file.sync_file(path)
            log_file.sync_directory(self._path)
        self._unsynced.clear()

    def rewrite(self, state: Iterable[list[Change]]) -> int:
        """Replace all files by one with the whole state; return how much smaller they are now."""
        self.check_writable()
        try:
            with self._faults():
                old = self.files()
                before = sum(file.stat().st_size for file in old)
                self._publish_seq(_WRITING)
                for file in self._path.iterdir():
                    if file.name.endswith(_UNFINISHED):
                        file.unlink()
                damaged, seq = self._damaged, self._seq + 1
                path = self._path / self._names.next()
                self._write_state(path, seq, state)
                for file in old:
                    if file.name in damaged:
                        file.rename(file.with_name(file.name + _DAMAGED))
                    else:
                        file.unlink()
                log_file.sync_directory(self._path)
                self.forget()
                self._seq = self._base = seq
                self._read_to[path.name] = size = path.stat().st_size
                self._publish_seq(seq)
                return before - size
        except BaseException:
            self.forget()
            raise

    def _write_state(self, path: Path, seq: int, state: Iterable[list[Change]]) -> None:
        unfinished = path.with_name(path.name + _UNFINISHED)
        writer = secrets.token_hex(6)
        with log_file.begin(unfinished) as target:
            steps: Iterable[list[Change]] = ([], *state)  # an empty state is a state too
            for number, changes in enumerate(steps, 1):
                fields = [("seq", b"%d" % seq), ("changes", journal.encode(changes))]
                target.write(lines.write("state", writer, number, fields))
            target.flush()
            os.fsync(target.fileno())
        unfinished.rename(path)
        log_file.sync_directory(self._path)

    def _open_file(self) -> tuple[log_file.LogFile, bool]:
        """Return the file to write to, and whether it is new."""
        if self._file is not None and not self._file.exists:
            self._close_file()
        if self._file is not None:
            return self._file, False
        self._file = log_file.create(self._path, self._names)
        self._writer, self._number = secrets.token_hex(6), 0
        return self._file, True

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _publish_seq(self, seq: int) -> None:
        if not self.read_only:
            os.pwrite(self._lock, seq.to_bytes(_NUMBER, "little", signed=True), 0)


def _is_read_only(path: Path) -> bool:
    """Return whether this process may not write to an existing store."""
    files = [path / LOCK, *path.glob(f"*{SUFFIX}")] if path.is_dir() else []
    return any(each.exists() for each in files) and not all(
        os.access(each, os.W_OK) for each in (path, files[0]) if each.exists()
    )


def _open_lock(path: Path, *, read_only: bool) -> int:
    """Open the lock of a folder, and create both if missing; -1 for a read-only folder without a lock."""
    if sys.platform == "win32":
        raise StoreError("a folder of journals needs the file locks of POSIX")
    if read_only:
        return os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC) if (path / LOCK).exists() else -1
    path.mkdir(0o700, parents=True, exist_ok=True)
    lock = path / LOCK
    if not lock.exists() and any(not each.name.endswith(_OURS) for each in path.iterdir() if each.name != LOCK):
        raise StoreError(f"{path}: a folder with other files, not a store")
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _read_lines(file: Path, scanner: Scanner, damage: list[Damage]) -> list[_Read]:
    """Return the lines of a file. Raises ``StoreError`` for a line that only a newer version knows."""
    found: list[_Read] = []
    for each in scan(file, scanner):
        if isinstance(each, Damage):
            damage.append(each)
        else:
            found.append(_parse_line(each, damage))
    return found


def _lost_bytes(file: Path, scanner: Scanner) -> list[journal.LostBytes]:
    """Return the contents of the damaged stretches of a file that was read."""
    if not scanner.lost:
        return []
    found: list[journal.LostBytes] = []
    rest = _MAX_LOST
    with file.open("rb") as source:
        for start, stop in scanner.lost:
            rest -= stop - start
            if rest >= 0:
                source.seek(start)
                found.append(journal.LostBytes(f"{file}, bytes {start} to {stop}", source.read(stop - start)))
    return found


def _parse_line(line: Line, damage: list[Damage]) -> _Read:
    place = f"{line.file}, byte {line.offset}"
    seq = jsontext.value(line.fields.get("seq", jsontext.NULL))
    if line.kind not in {"change", "state"} or type(seq) is not int:
        raise StoreError(
            f"{place}: a line of kind {line.kind!r:.40} and number {seq!r:.40}; it may be of a newer version"
        )
    try:
        changes, lost = journal.decode(line.fields.get("changes", jsontext.NULL), place)
    except DecodeError as error:
        raise StoreError(f"{place}: {error}; it may be of a newer version") from None
    damage += lost
    return _Read(seq, line.number, line.kind == "state", Step(place, changes))


def _trim_end(file: Path, scanner: Scanner) -> int:
    """Cut off an incomplete line at the end of a file; return its size."""
    end = max(scanner.ended, scanner.sound)
    if end < file.stat().st_size:
        os.truncate(file, end)
    if end > scanner.ended:  # the line lacks only its line break
        with file.open("ab") as target:
            target.write(b"\n")
        end += 1
    return end
