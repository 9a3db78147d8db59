"""Read the message log: every sound line, in order, and the damage between them.

Rules:

- ``read_log`` reads a file, or all files of a directory whose names end in ``.jsonl``, sorted by name, which is the
  order of their creation. It holds one line at a time (and what a scanner of ``lines`` holds).
- Damage is added to ``damage`` when reading has passed it, and does not stop reading. Lines of an unknown kind are
  counted in ``others``, and are not damage.
- A line whose message cannot be decoded is damage, and yields a record in its place (``store.unreadable``), so that
  the lines behind it keep their places.
- ``threads_of`` builds the threads of the lines. A line with an ``entry`` follows its ``parent``; a line without one
  follows the line before it in its thread. The head of a branch is its last line; the conversation before a compaction
  has the branch that ``kept`` names. The log does not record rewinds, or forks without an append.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from palaver.core.errors import DecodeError, NotFoundError, StoreError, UnavailableError
from palaver.store.jsonl import log_line
from palaver.store.jsonl.lines import Ledger, Line, Scanner
from palaver.store.jsonl.log_file import SUFFIX
from palaver.store.jsonl.log_line import LogLine
from palaver.store.records import unreadable
from palaver.store.store import Damage
from palaver.threads.thread import MAIN, Entry, Thread

_CHUNK: Final = 1 << 18


class LogReader(Iterator[LogLine]):
    """An iterator over the lines of a log; ``read_log`` makes it."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Start with these files, in this order."""
        self.damage: list[Damage] = []
        self.others: Counter[str] = Counter()
        self._lines = self._read(files)

    def __next__(self) -> LogLine:
        """Return the next sound line. Raises ``UnavailableError`` for a file that cannot be opened."""
        return next(self._lines)

    def _read(self, files: Iterable[Path]) -> Iterator[LogLine]:
        ledger = Ledger()
        for file in files:
            for found in scan(file, Scanner(str(file), ledger)):
                if isinstance(found, Damage):
                    self.damage.append(found)
                elif found.kind != log_line.KIND:
                    self.others[found.kind] += 1
                else:
                    yield from self._parsed(found)

    def _parsed(self, line: Line) -> Iterator[LogLine]:
        """Yield the contents of a line. A line with an unreadable message keeps its place, for the lines behind it."""
        try:
            yield log_line.read(line)
        except DecodeError as error:
            place = f"{line.file}, byte {line.offset}"
            try:
                read = log_line.read(line, salvage=True)
            except DecodeError:
                self.damage.append(Damage("unreadable", place, str(error)))
            else:
                context = read.context
                self.damage.append(Damage("unreadable", place, str(error), context.thread, context.entry))
                yield read


def read_log(where: str | os.PathLike[str]) -> LogReader:
    """Read the log in a file or in a directory. Raises ``NotFoundError`` when there is none."""
    path = Path(where)
    if path.is_dir():
        return LogReader(files_of(path))
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory")
    return LogReader([path])


def files_of(directory: Path) -> list[Path]:
    """Return the files of a log, in the order of their creation. Raises ``UnavailableError``."""
    try:
        return sorted(each for each in directory.iterdir() if each.name.endswith(SUFFIX))
    except OSError as error:
        raise UnavailableError(f"{directory}: {error.strerror}") from None


def scan(file: Path, scanner: Scanner) -> Iterator[Line | Damage]:
    """Run a file through a scanner, from the scanner's start. Raises ``UnavailableError`` if it cannot be opened."""
    try:
        source = file.open("rb", buffering=0)
    except OSError as error:
        raise UnavailableError(f"{file}: {error.strerror}") from None
    with source:
        at = source.seek(scanner.ended)
        while True:
            try:
                data = source.read(_CHUNK)
            except OSError as error:
                yield Damage("unreadable", f"{file}, byte {at}", str(error.strerror))
                break
            if not data:
                break
            at += len(data)
            yield from scanner.feed(data)
    yield from scanner.finish()


class Rebuilt(Struct, frozen=True):
    """Threads by their ids, and entries that could not be placed."""

    threads: dict[str, Thread]
    damage: tuple[Damage, ...] = ()


def threads_of(lines: Iterable[LogLine]) -> Rebuilt:
    """Build the threads of the lines.

    For a missing parent, a record (``store.unreadable``) is placed behind the last entry of the branch; in an empty
    branch, the entry is the first. An entry that exists already with another message or parent is skipped. All of
    these are reported.
    """
    threads: dict[str, Thread] = {}
    last: dict[str, str] = {}
    damage: list[Damage] = []
    for line in lines:
        context = line.context
        thread = threads.get(context.thread)
        if thread is None:
            thread = threads[context.thread] = Thread(context.thread)
        if context.entry is None:
            entry = Entry(line.id, last.get(thread.id), line.message)
        else:
            entry = Entry(context.entry, context.parent, line.message)
        place = f"{line.file}, byte {line.offset}"
        branch = context.branch or MAIN
        parent = entry.parent
        if parent is not None and parent not in thread:
            reason = f"its parent {parent} is missing"
            damage.append(Damage("missing", place, reason, thread.id, entry.id))
            before = thread.branches.get(branch) or last.get(thread.id)
            if before is None:
                entry = Entry(entry.id, None, line.message)
            else:
                record = unreadable(b"", f"{place}: {reason}", id=parent)
                thread.add([Entry(parent, before, record)])
        if context.kept is not None and context.kept not in thread.branches:
            thread.fork(context.kept, at=thread.branches.get(branch))
        try:
            thread.add([entry], {} if entry.id in thread else {branch: entry.id})
        except StoreError as error:
            damage.append(Damage("altered", place, str(error), thread.id, entry.id))
        else:
            last[thread.id] = entry.id
    return Rebuilt(threads, tuple(damage))
