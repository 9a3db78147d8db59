"""The common base of every bus: subscriptions over inboxes, and a task for each listener.

Rules:

- A bus defines how events get into an inbox (``_attach``, ``_detach``); the rest of the contract is here, once.
- The tasks of the listeners are children of the bus's block, and end with it. Exceptions of a handler are logged.
- At its end a bus first flushes, and waits until its listeners have handled all events, at most ``grace`` seconds;
  handlers may publish meanwhile. A cancelled block does not wait.

The queue of one listener: of bounded length, filled without waiting, emptied by its reader:

- ``put`` never waits. When the queue is full, ``overflow`` says which event is lost, or that the queue ends.
- Stored events from before the subscription (``keep``) do not count against the length: they were not sent too fast.
- After ``close`` no event is added; waiting ones can still be taken, and then the end is reported:
  ``StopAsyncIteration``, or the error that ended it.
- For one event loop; nothing here may be called from another thread.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import count as counter
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio.lowlevel import checkpoint

from palaver.core.errors import BusyError, ClosedError, SwarmError
from palaver.swarm.bus import EVERYTHING, QUEUE, Handler, Overflow, Since, Where
from palaver.swarm.call import is_cancelled
from palaver.swarm.events import Event

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup


# --- inbox ------------------------------------------------------------------------------------------------------------


class Signal:
    """Wakes all current waiters. Costs almost nothing without any."""

    def __init__(self) -> None:
        """Start without waiters."""
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake all waiters."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Wait until the next ``notify``."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


class Inbox:
    """The events that wait for one listener. ``dropped`` counts the lost ones."""

    def __init__(self, size: int, overflow: Overflow) -> None:
        """Let up to ``size`` events wait. Raises ``SwarmError`` for a size below 1."""
        if size < 1:
            raise SwarmError(f"a listener needs room for at least one event, not {size}")
        self.dropped = 0
        self.closed = False
        self.error: BusyError | None = None
        self._size = size
        self._overflow: Overflow = overflow
        self._waiting: deque[tuple[int, Event]] = deque()
        self._kept = 0  # the number of waiting events, from the first, that do not count
        self._last = 0  # the number of the last event added
        self._running: int | None = None
        self._came, self._left = Signal(), Signal()

    def keep(self, events: Iterable[Event]) -> None:
        """Add stored events, before any others."""
        for event in events:
            self._last += 1
            self._waiting.append((self._last, event))
        self._kept = len(self._waiting)
        self._came.notify()

    def put(self, event: Event) -> None:
        """Add an event."""
        if self.closed:
            return
        if len(self._waiting) - self._kept >= self._size:
            self.dropped += 1
            if self._overflow == "drop_newest":
                return
            if self._overflow == "fail":
                self.error = BusyError(f"a listener was too slow: {self._size} events were waiting")
                self.close()
                return
            del self._waiting[self._kept]
        self._last += 1
        self._waiting.append((self._last, event))
        self._came.notify()

    @property
    def full(self) -> bool:
        """Whether there is no room for another event."""
        return not self.closed and len(self._waiting) - self._kept >= self._size

    async def room(self) -> None:
        """Wait until there is room, or the inbox is closed."""
        while self.full:
            await self._left.wait()

    async def take(self) -> Event:
        """Return the oldest waiting event; it is ``running`` until ``done`` is called, or the next one is taken."""
        self._running = None
        while not self._waiting:
            self._left.notify()
            if self.closed:
                raise self.error or StopAsyncIteration
            await self._came.wait()
        self._running, event = self._waiting.popleft()
        if self._kept:
            self._kept -= 1
        self._left.notify()
        return event

    def done(self) -> None:
        """Mark the last taken event as handled."""
        self._running = None
        self._left.notify()

    def close(self, *, discard: bool = False) -> None:
        """Accept no more events; with ``discard``, drop the waiting ones."""
        self.closed = True
        if discard:
            self._waiting.clear()
            self._kept = 0
        self._came.notify()
        self._left.notify()

    @property
    def busy(self) -> bool:
        """Whether an event waits, or was taken and is not done."""
        return self._running is not None or bool(self._waiting)

    async def idle(self) -> None:
        """Wait until all events added so far are handled, or lost."""
        last = self._last
        while (self._running is not None and self._running <= last) or (self._waiting and self._waiting[0][0] <= last):
            await self._left.wait()


# --- listening --------------------------------------------------------------------------------------------------------


GRACE: Final = 5.0
"""The seconds that a bus waits for its listeners, at its end."""

_log = logging.getLogger("palaver.swarm")
_BREATH: Final = 64
"""The number of events that are read without giving other tasks a chance to run."""


class Subscribed:
    """The requested events of a bus (``Subscription``)."""

    def __init__(self, bus: ListeningBus, where: Where, since: Since | None, inbox: Inbox) -> None:
        """Belong to a bus; events arrive only after it is entered."""
        self.where = where
        self.since = since
        self.inbox = inbox
        self._bus = bus
        self._entered = False
        self._given = 0

    @property
    def dropped(self) -> int:
        """The number of events that were lost because they were not read in time."""
        return self.inbox.dropped

    def close(self) -> None:
        """Stop receiving; waiting events can still be read."""
        self.inbox.close()
        self._bus.let_go(self)

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events, until it is closed. Raises ``BusyError`` under ``fail``."""
        if not self._entered:
            raise SwarmError("enter the subscription (async with) before you read its events")
        return self

    async def __anext__(self) -> Event:
        """Return the next event; now and then, other tasks may run first."""
        self._given += 1
        if not self._given % _BREATH:
            await checkpoint()
        return await self.inbox.take()

    async def __aenter__(self) -> Self:
        """Start receiving: every event published from here on is seen."""
        if self._entered:
            raise SwarmError("a subscription can be entered only once")
        self._entered = True
        await self._bus.take_in(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Heard:
    """A function that is called with each event (``Listener``)."""

    def __init__(self, bus: ListeningBus, events: Subscribed, handler: Handler, *, once: bool) -> None:
        """Call ``handler`` with events; with ``once``, with the first one only."""
        self._bus, self._events, self._handler, self._once = bus, events, handler, once

    @property
    def dropped(self) -> int:
        """The number of events that were lost because the function was too slow."""
        return self._events.dropped

    def close(self) -> None:
        """Stop calling the function, also with waiting events."""
        self._events.inbox.close(discard=True)
        self._events.close()

    async def idle(self) -> None:
        """Wait until the function was called with everything published before."""
        await self._bus.caught_up(self._events)
        await self._events.inbox.idle()

    @property
    def busy(self) -> bool:
        """Whether the function is running, or will be called at once."""
        return self._events.inbox.busy

    async def work(self) -> None:
        """Call the function with one event at a time, until it is closed."""
        inbox = self._events.inbox
        for number in counter(1):
            if not number % _BREATH:
                await checkpoint()
            try:
                event = await inbox.take()
            except StopAsyncIteration:
                return
            except BusyError as error:
                _log.warning("a listener of the bus was closed: %s", error)
                self._events.close()
                return
            if self._once:
                self.close()
            try:
                waits = self._handler(event)
                if inspect.isawaitable(waits):
                    await waits
            except Exception:  # noqa: BLE001 (whatever an application raises stops nothing)
                _log.exception("a listener of the bus failed on %s", event)
            except asyncio.CancelledError:  # an awaited task was cancelled, or this one
                task = asyncio.current_task()
                if is_cancelled() or task is None or task.cancelling():
                    raise
                _log.exception("a listener of the bus failed on %s", event)
            finally:
                inbox.done()


class ListeningBus(ABC):
    """The common part of all buses. The parameters are those of ``Bus``; ``events`` is a subscription."""

    def __init__(self, grace: float) -> None:
        """Start without listeners; ``grace`` is how many seconds the end may wait for them."""
        self._closed: str | None = "the bus is not open (async with)"
        self._grace = grace
        self._tasks: TaskGroup | None = None
        self._open: dict[Subscribed, None] = {}
        self._heard: dict[Heard, None] = {}

    @abstractmethod
    async def _attach(self, events: Subscribed) -> None:
        """Deliver events to the inbox of a subscription, from now on or from its ``since``."""

    @abstractmethod
    def _detach(self, events: Subscribed) -> None:
        """Stop delivering. May be called twice, and without ``_attach``."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all published events are stored."""

    @abstractmethod
    async def _begin(self, tasks: TaskGroup) -> None:
        """Connect; ``tasks`` are ended with the bus."""

    @abstractmethod
    async def _end(self) -> None:
        """Disconnect; no event arrives or leaves any more."""

    @abstractmethod
    async def caught_up(self, events: Subscribed) -> None:
        """Wait until the stored events are in the inbox of a subscription."""

    # -- for subscriptions -------------------------------------------------------------------------------------------

    async def take_in(self, events: Subscribed) -> None:
        """Start a subscription. Raises ``ClosedError``."""
        if self._closed is not None:
            raise ClosedError(self._closed)
        self._open[events] = None
        try:
            await self._attach(events)
        except BaseException:
            events.close()
            raise

    def let_go(self, events: Subscribed) -> None:
        """End a subscription."""
        if events in self._open:
            del self._open[events]
            self._detach(events)

    # -- for users ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        size: int = QUEUE,
        overflow: Overflow = "drop_oldest",
    ) -> Subscribed:
        """Subscribe to events: ``async with bus.subscribe(…) as events: async for event in events``."""
        return Subscribed(self, where, since, Inbox(size, overflow))

    async def listen(
        self,
        handler: Handler,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        size: int = QUEUE,
        overflow: Overflow = "drop_oldest",
        once: bool = False,
    ) -> Heard:
        """Call a function, plain or asynchronous, with each event; with ``once``, with the first one only."""
        events = self.subscribe(where, since=since, size=size, overflow=overflow)
        await events.__aenter__()
        heard = Heard(self, events, handler, once=once)
        if self._tasks is None or self._closed is not None:
            events.close()
            raise ClosedError("the bus was closed")
        self._heard[heard] = None
        self._tasks.start_soon(self._work, heard)
        return heard

    async def once(
        self,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (the contract's)
    ) -> Event:
        """Wait for one event. Raises ``TimeoutError`` after ``timeout`` seconds, ``ClosedError`` when the bus ends."""
        with anyio.fail_after(timeout):
            async with self.subscribe(where, since=since, size=1, overflow="drop_newest") as events:
                async for event in events:
                    return event
        raise ClosedError("the bus was closed before such an event came")

    async def _work(self, heard: Heard) -> None:
        try:
            await heard.work()
        finally:
            heard.close()
            del self._heard[heard]

    async def __aenter__(self) -> Self:
        """Connect and start."""
        if self._tasks is not None:
            raise SwarmError("a bus can be entered only once")
        self._tasks = await anyio.create_task_group().__aenter__()
        try:
            await self._begin(self._tasks)
        except BaseException:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
            raise
        self._closed = None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, give the listeners the rest, close every subscription, and disconnect."""
        assert self._tasks is not None  # noqa: S101 (left only after it was entered)
        try:
            if kind is None or issubclass(kind, Exception):
                await self._wind_up()
        finally:
            self._closed = "the bus is closed"
            for events in list(self._open):
                events.close()
            try:
                await self._end()
            finally:
                self._tasks.cancel_scope.cancel()
                await self._tasks.__aexit__(None, None, None)

    async def _wind_up(self) -> None:
        with anyio.move_on_after(self._grace) as grace:
            busy = True
            while busy:
                await self._flush_or_say()
                for heard in list(self._heard):
                    await heard.idle()
                busy = any(heard.busy for heard in self._heard)  # a handler may have published
            await self._flush_or_say()
        if grace.cancelled_caught:
            _log.warning("the bus was closed before all events were written or delivered")

    async def _flush_or_say(self) -> None:
        try:
            await self.flush()
        except BusyError as error:
            _log.warning("while closing the bus: %s", error)
