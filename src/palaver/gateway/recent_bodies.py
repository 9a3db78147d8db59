"""What was made of the last bodies of conversations, found again by a body that goes on like one of them: pure.

Rules:

- Programs send a conversation whole with each request, so a body begins with most of the one before it. Of several that
  share enough, the one that shares most is found.
- What is taken is gone until it is given back: two requests at once in one conversation do not share it.
- All of it has a bound, in bytes as ``cost`` counts them; the oldest is forgotten first.

Stability: experimental.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar, final

T = TypeVar("T")

_BEGINNING: Final = 64
"""Bytes by which bodies are told apart first."""
STEP: Final = 1 << 16
"""Bytes that are compared at once."""
_MANY: Final = 64
"""How many bodies with one beginning are remembered."""


class _Recent(NamedTuple, Generic[T]):
    body: bytes
    settled: int
    """How many bytes of the body a later one has to share."""
    value: T


@final
class RecentBodies(Generic[T]):
    """Remembers a value for each body."""

    def __init__(self, limit: int, cost: Callable[[bytes], int] = len) -> None:
        """Remember nothing yet."""
        self._limit, self._cost = limit, cost
        self._size = 0
        self._known: OrderedDict[tuple[Hashable, bytes], list[_Recent[T]]] = OrderedDict()

    def take(self, key: Hashable, body: bytes) -> T | None:
        """Return what was made of the body that ``body`` goes on; ``None`` where there is none. Keys never mix."""
        known = self._known.get((key, body[:_BEGINNING]), [])
        best, longest = None, 0
        for place, each in enumerate(known):
            if _share(each.body, body, max(longest + 1, each.settled)):
                best, longest = place, common_prefix(each.body, body)
        if best is None:
            return None
        taken = known.pop(best)
        self._size -= self._cost(taken.body)
        if not known:
            del self._known[key, body[:_BEGINNING]]
        return taken.value

    def give_back(self, key: Hashable, body: bytes, settled: int, value: T) -> None:
        """Remember what was made of a body, of which a later one has to share ``settled`` bytes."""
        place = (key, body[:_BEGINNING])
        self._size += self._cost(body)
        known = self._known.setdefault(place, [])
        known.append(_Recent(body, settled, value))
        self._known.move_to_end(place)
        if len(known) > _MANY:
            self._size -= self._cost(known.pop(0).body)
        while self._size > self._limit:
            place, known = next(iter(self._known.items()))
            self._size -= self._cost(known.pop(0).body)
            if not known:
                del self._known[place]


def _share(before: bytes, now: bytes, least: int) -> bool:
    """Whether two bodies share so many bytes."""
    return min(len(before), len(now)) >= least and now.startswith(before[:least])


def common_prefix(one: bytes, other: bytes) -> int:
    """Return how many bytes both begin with."""
    most = min(len(one), len(other))
    start = 0
    while start < most and one.startswith(other[start : min(start + STEP, most)], start):
        start += STEP
    if start >= most:
        return most
    low, high = start, min(start + STEP, most)  # the same up to low; different within high
    while low < high:
        half = (low + high + 1) // 2
        if one[low:half] == other[low:half]:
            low = half
        else:
            high = half - 1
    return low
