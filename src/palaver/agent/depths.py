"""How deep in a conversation an entry stands: the number of entries that were ever before it.

Rules:

- Without compaction it is the place in the path. A compaction makes the path shorter; its record says how deep it was,
  and what comes behind is deeper. So two entries of one conversation never have the same depth, and an entry has the
  same one in every process.
- Each entry is looked at once, as long as the path goes on where it ended.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.rewriting import depth_of
from palaver.threads.thread import Entry


class Depths:
    """Follows a path."""

    __slots__ = ("_last", "_offset", "_read")

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._read, self._offset = 0, 0
        self._last: str | None = None

    def at(self, path: Sequence[Entry], place: int) -> int:
        """The depth of a place of a path, behind which no compaction stands."""
        if self._read and (self._read > len(path) or path[self._read - 1].id != self._last):
            self._read, self._offset = 0, 0
        for at in range(self._read, len(path)):
            known = depth_of(path[at].message)
            if known is not None:
                self._offset = known - at
        self._read = len(path)
        self._last = path[-1].id if path else None
        return place + self._offset
