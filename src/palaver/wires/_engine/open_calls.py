"""Calls of one turn that wait for their results, on wires whose results do not have to name a call by its id.

A call is filed under several keys and found under each; the first that is open is taken. Each step is one look-up,
however many calls there are.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from palaver.core.parts import ToolCall


class OpenCalls:
    """Calls in order. ``keys`` gives all keys of a call."""

    def __init__(self, calls: Iterable[ToolCall], keys: Callable[[ToolCall], Iterable[Hashable]]) -> None:
        """File the calls."""
        self._keys = keys
        self._open: dict[int, ToolCall] = {}
        self._filed: dict[Hashable, deque[int]] = {}
        self._count = 0
        self.add(calls)

    def add(self, calls: Iterable[ToolCall]) -> None:
        """File more calls behind those that are filed."""
        for call in calls:
            self._open[self._count] = call
            for key in self._keys(call):
                self._filed.setdefault(key, deque()).append(self._count)
            self._count += 1

    def __bool__(self) -> bool:
        """Whether a call is open."""
        return bool(self._open)

    def take(self, key: Hashable) -> ToolCall | None:
        """Close the first open call that is filed under ``key``; ``None`` when there is none."""
        filed = self._filed.get(key, deque())
        while filed:
            call = self._open.pop(filed.popleft(), None)
            if call is not None:
                return call
        return None
