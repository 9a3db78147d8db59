"""An immutable prefix of a list that only grows.

Rules:

- Taking a prefix copies nothing, and the prefix never changes. The owner of the list may only append to it.
- ``continues`` tells in constant time whether one prefix extends another of the same list.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast, overload

T = TypeVar("T")


class ListPrefix(Sequence[T]):
    """The first ``length`` items of ``items``; immutable."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T], length: int | None = None) -> None:
        """Look at a list that only grows; without ``length``, at all that it holds now."""
        self._items = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step < 0:
                return [self._items[position] for position in range(start, stop, step)]
            return self._items[start:stop:step]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else index + self._length]

    def continues(self, other: object) -> bool:
        """Whether this begins with all of another, being a window on the same list. Costs nothing."""
        if not isinstance(other, ListPrefix):
            return False
        its = cast("ListPrefix[object]", other)
        return self._items is its._items and self._length >= len(its)  # noqa: SLF001 (of the same class)

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        """Two are equal when their items are."""
        if not isinstance(other, ListPrefix):
            return NotImplemented
        others = cast("ListPrefix[object]", other)
        return len(self) == len(others) and all(mine == its for mine, its in zip(self, others, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the size, not the text."""
        return f"{type(self).__name__}({self._length} items)"
