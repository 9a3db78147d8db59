"""Records in an order in which each follows the record that it names as its parent.

Rules:

- Programs write a record when it is ready, not in the order of the tree: a result may precede its response. Such a
  record waits until its parent has arrived. All others pass in the order of the file.
- A record without an id belongs to the record before it, and waits with it.
- A parent may never arrive. At the end of the file, or when the waiting records have more than ``LIMIT`` bytes, the
  first of them passes without its parent, followed by its descendants.
- Memory: an id for each record that passed, and the waiting records.

Stability: experimental.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.transcripts.record import Record

LIMIT: Final = 1 << 26
"""The most bytes that may wait."""
_COST: Final = 1024
"""The cost of a waiting record, in addition to its bytes."""


class _Waiting(NamedTuple):
    awaited: str | int
    id: str | None
    record: Record


class ParentsFirst:
    """Orders the records of one file."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Start without records; ``limit`` is in bytes."""
        self._limit = limit
        self._passed: set[str] = set()
        self._stored: dict[int, _Waiting] = {}  # by number in the file
        self._numbers: dict[str, int] = {}  # of the held records, by id
        self._children: dict[str | int, list[int]] = {}  # by the id, or the number, of the record awaited
        self._last = -1
        self._size = 0
        self.reordered = False
        """Whether a record had to wait."""

    def take(self, record: Record, id: str | None, parent: str | None) -> Iterator[Record]:
        """Take the next record of the file; return those that may be read now."""
        awaited: str | int | None = parent if parent not in self._passed else None
        if id is None and parent is None and self._last in self._stored:
            awaited = self._last
        self._last = record.at
        if awaited is None:
            yield record
            yield from self._release(self._below(record.at, id))
            return
        self.reordered = True
        self._stored[record.at] = _Waiting(awaited, id, record)
        self._children.setdefault(awaited, []).append(record.at)
        if id is not None:
            self._numbers.setdefault(id, record.at)
        self._size += len(record.raw) + _COST
        while self._size > self._limit:
            yield from self._release([self._first()])

    def rest(self) -> Iterator[Record]:
        """Yield the records whose parent did not arrive."""
        while self._stored:
            yield from self._release([self._first()])

    def _first(self) -> int:
        """Return the topmost waiting ancestor of the oldest record; in a cycle, any of them."""
        number = next(iter(self._stored))
        known_messages: set[int] = set()
        while number not in known_messages:
            known_messages.add(number)
            awaited = self._stored[number].awaited
            number = self._numbers.get(awaited, number) if isinstance(awaited, str) else awaited
        return number

    def _release(self, numbers: list[int]) -> Iterator[Record]:
        """Yield these records and all that wait for them, each as early as the order of the file allows."""
        heapify(numbers)
        while numbers:
            number = heappop(numbers)
            found = self._stored.pop(number, None)
            if found is None:
                continue
            self._size -= len(found.record.raw) + _COST
            yield found.record
            for each in self._below(number, found.id):
                heappush(numbers, each)

    def _below(self, number: int, id: str | None) -> list[int]:
        """Return the records that wait for one that passes now."""
        below = self._children.pop(number, [])
        if id is None:
            return below
        self._passed.add(intern(id))
        if self._numbers.get(id) == number:
            del self._numbers[id]
        return below + self._children.pop(id, [])
