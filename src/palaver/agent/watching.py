"""Events on their way from a run to who watches it.

Rules:

- One reader reads with ``async for``. When it is slow, the run waits for it at the next place where it can, once
  ``ROOM`` events are waiting; nothing is dropped and memory stays bounded.
- When nobody reads, nothing is kept.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio import from_thread

if TYPE_CHECKING:
    from palaver.agent.events import AgentEvent

ROOM: Final = 256


class Watch:
    """A queue of events between one run and one reader."""

    def __init__(self) -> None:
        """Begin with nothing, in the thread of the event loop."""
        self._home = get_ident()
        self._waiting: deque[AgentEvent] = deque()
        self._closed = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def put(self, event: AgentEvent) -> None:
        """Add an event; never waits for the reader. A tool may call it from a worker thread."""
        if self._closed:
            return
        self._waiting.append(event)
        if get_ident() == self._home:
            self._arrived.set()
        else:
            with suppress(RuntimeError):  # the event loop is gone, and the reader with it
                from_thread.run_sync(self._arrive)

    def _arrive(self) -> None:
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
        """The events, until the run is over. It may be left at any of them: there is nothing to close."""
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
