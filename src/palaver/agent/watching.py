"""Events on their way from a run to who watches it.

Rules:

- One reader reads with ``async for``. When it is slow, the run waits for it at the next place where it can, once
  ``ROOM`` events are waiting; nothing is dropped and memory stays bounded.
- When nobody reads, nothing is kept.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Self

import anyio

if TYPE_CHECKING:
    from palaver.agent.events import AgentEvent

ROOM: Final = 256


class Watch:
    """A queue of events between one run and one reader."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._waiting: deque[AgentEvent] = deque()
        self._closed = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def put(self, event: AgentEvent) -> None:
        """Add an event; never waits."""
        if not self._closed:
            self._waiting.append(event)
            self._arrived.set()

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._waiting) >= ROOM and not self._closed:
            self._taken = anyio.Event()
            await self._taken.wait()

    def close(self) -> None:
        """Nothing follows."""
        self._closed = True
        self._arrived.set()
        self._taken.set()

    def __aiter__(self) -> Self:
        """The events, until the run is over. No generator: a reader may leave without closing anything."""
        return self

    async def __anext__(self) -> AgentEvent:
        """The next event."""
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        self._taken.set()
        return self._waiting.popleft()
