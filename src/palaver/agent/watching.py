"""Events on their way from a run to who watches it.

Rules:

- One reader reads with ``async for``. When it is slow, the run waits for it at the next place where it can, once
  ``ROOM`` events are waiting; nothing is dropped and memory stays bounded.
- When nobody reads, nothing is kept.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

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

    async def events(self) -> AsyncIterator[AgentEvent]:
        """The events, until the run is over."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                self._taken.set()
                yield event
            if self._closed:
                return
            self._arrived = anyio.Event()
            await self._arrived.wait()
