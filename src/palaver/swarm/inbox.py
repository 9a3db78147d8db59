"""The queue of one listener: of bounded length, filled without waiting, emptied by whoever takes.

Rules:

- ``put`` never waits. Where there is no room, ``overflow`` says which event is lost, or that this is the end.
- What is kept from before the listener came (``keep``) does not count against the length: it was never sent too fast.
- After ``close`` nothing joins; what waits can still be taken, and then the end is told: ``StopAsyncIteration``, or the
  error that ended it.
- For one event loop; nothing here may be called from another thread.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import anyio

from palaver.core.errors import BusyError, SwarmError
from palaver.swarm.bus import Overflow
from palaver.swarm.events import Event


class Signal:
    """Wakes all that wait for it now. Costs next to nothing while nobody does."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._event: anyio.Event | None = None

    def tell(self) -> None:
        """Wake those that wait."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Wait until the next ``tell``."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


class Inbox:
    """The events that wait for one listener. ``dropped`` counts those that were lost."""

    def __init__(self, size: int, overflow: Overflow) -> None:
        """Let up to ``size`` events wait. Raises ``SwarmError`` where that is none."""
        if size < 1:
            raise SwarmError(f"a listener has room for at least one event, not {size}")
        self.dropped = 0
        self.closed = False
        self.error: BusyError | None = None
        self._size = size
        self._overflow: Overflow = overflow
        self._waiting: deque[tuple[int, Event]] = deque()
        self._kept = 0  # of those that wait, the first so many do not count
        self._last = 0  # the number of the event that joined last
        self._running: int | None = None
        self._came, self._left = Signal(), Signal()

    def keep(self, events: Iterable[Event]) -> None:
        """Put in what was kept, before anything else joins."""
        for event in events:
            self._last += 1
            self._waiting.append((self._last, event))
        self._kept = len(self._waiting)
        self._came.tell()

    def put(self, event: Event) -> None:
        """Let an event join."""
        if self.closed:
            return
        if len(self._waiting) - self._kept >= self._size:
            self.dropped += 1
            if self._overflow == "drop_newest":
                return
            if self._overflow == "fail":
                self.error = BusyError(f"a listener let {self._size} events wait, and there was room for no more")
                self.close()
                return
            del self._waiting[self._kept]
        self._last += 1
        self._waiting.append((self._last, event))
        self._came.tell()

    @property
    def full(self) -> bool:
        """Whether the next event would have no room."""
        return not self.closed and len(self._waiting) - self._kept >= self._size

    async def room(self) -> None:
        """Wait until there is room, or this is closed."""
        while self.full:
            await self._left.wait()

    async def take(self) -> Event:
        """The event that waits longest; ``running`` until ``done`` is called, or the next one taken."""
        self._running = None
        while not self._waiting:
            self._left.tell()
            if self.closed:
                raise self.error or StopAsyncIteration
            await self._came.wait()
        self._running, event = self._waiting.popleft()
        if self._kept:
            self._kept -= 1
        self._left.tell()
        return event

    def done(self) -> None:
        """What was taken last has been dealt with."""
        self._running = None
        self._left.tell()

    def close(self, *, discard: bool = False) -> None:
        """Take no more; with ``discard``, what waits is forgotten."""
        self.closed = True
        if discard:
            self._waiting.clear()
            self._kept = 0
        self._came.tell()
        self._left.tell()

    @property
    def busy(self) -> bool:
        """Whether something waits, or was taken and is not done."""
        return self._running is not None or bool(self._waiting)

    async def idle(self) -> None:
        """Wait until what has joined by now was dealt with, or lost."""
        last = self._last
        while (self._running is not None and self._running <= last) or (self._waiting and self._waiting[0][0] <= last):
            await self._left.wait()
