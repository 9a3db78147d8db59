"""The contract of a bus: where a swarm says what happens, and others listen.

Every bus passes the one conformance suite (``palaver.testing.buses``); the docstrings here say what it holds them to.

What is promised:

- *A listener can neither break nor delay a turn.* ``publish`` never waits and never raises for what a listener does.
  Each subscription has a queue of its own, of bounded length; what happens when it is full is said by ``overflow``:
  ``drop_oldest`` and ``drop_newest`` lose events and count them in ``dropped``; ``fail`` ends the subscription with
  ``BusyError``.
- *In order.* The events of one client come to each subscription in the order in which they were published by one
  process. A handler (``listen``) is called with one event at a time, in that order.
- *At least once, seen once.* What was published when ``flush`` returned reaches every subscription that has room for
  it, also when a connection broke in between; a second delivery of an event (its ``id``) is left out.
- *From a point.* ``since`` begins with what was kept behind that place, or that time, as far back as the bus keeps
  events.

What is not promised: any order between clients; that an event is kept when the process dies before ``flush`` returned.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from msgspec import Struct

from palaver.swarm.call import LOGGER
from palaver.swarm.events import Event

if TYPE_CHECKING:
    from types import TracebackType

Overflow: TypeAlias = Literal["drop_oldest", "drop_newest", "fail"]
Handler: TypeAlias = Callable[[Event], Awaitable[Any] | Any]
QUEUE: int = 1024
"""How many events wait for one listener, where nothing else is said."""


class Where(Struct, frozen=True, kw_only=True):
    """Which events: everything that is set must be equal; ``test`` is asked last. Nothing set is every event.

    A ``test`` that raises has said no, and is logged.
    """

    client: str | None = None
    source: str | None = None
    type: str | None = None
    swarm: str | None = None
    agent: str | None = None
    run: str | None = None
    name: str | None = None
    test: Callable[[Event], bool] | None = None

    def admits(self, event: Event) -> bool:
        """Whether ``event`` is one of these."""
        if (
            (self.client is not None and event.client != self.client)
            or (self.source is not None and event.source != self.source)
            or (self.type is not None and event.type != self.type)
            or (self.swarm is not None and event.swarm != self.swarm)
            or (self.agent is not None and event.agent != self.agent)
            or (self.run is not None and event.run != self.run)
            or (self.name is not None and event.name != self.name)
        ):
            return False
        if self.test is None:
            return True
        try:
            return bool(self.test(event))
        except Exception:  # noqa: BLE001 (a filter of an application must break nothing)
            LOGGER.exception("the test of a filter raised; the event %s is dropped", event)
            return False


EVERYTHING = Where()


class Since(Struct, frozen=True):
    """Where to begin: behind a ``place``, or with what was sent at a ``time`` (Unix ms) or later.

    Neither: the oldest.
    """

    place: int | None = None
    time: int | None = None


class Subscription(Protocol):
    """The events that somebody asked for, as they come. Closed by ``close``, by leaving its block, or with the bus."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """How many events were lost because nobody took them in time."""
        ...

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Event]:
        """The events, until it is closed. Raises ``BusyError`` under ``fail``."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Take no more; what waits can still be read. Closing twice is allowed."""
        ...

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Be ready: every event published from here on is seen."""
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Listener(Protocol):
    """A function that is called with each event, one at a time. What it raises is logged, and stops nothing."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """How many events were lost because it was called too slowly."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Call it no more. Closing twice is allowed."""
        ...

    @abstractmethod
    async def idle(self) -> None:
        """Wait until it has been called with everything that was published before (after ``flush``)."""
        ...


class Bus(Protocol):
    """Carries events. Entered once, by ``async with``, before anything else is asked of it.

    ``event`` is what happened. ``where`` selects events by client, source, type and so on; ``since`` begins with
    earlier ones, by their place or time. ``size`` is how many may wait for a reader or a ``handler``, and ``overflow``
    what becomes of more.
    """

    @abstractmethod
    def publish(self, event: Event) -> None:
        """Say what happened.

        Never waits; raises ``SwarmError`` for what cannot be written, ``ClosedError`` at its end.
        """
        ...

    @abstractmethod
    async def flush(self) -> None:
        """Wait until everything published is kept. Raises ``BusyError`` where the bus had to give some of it up."""
        ...

    @abstractmethod
    def subscribe(
        self,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        size: int = QUEUE,
        overflow: Overflow = "drop_oldest",
    ) -> Subscription:
        """Ask for events: ``async with bus.subscribe(…) as events: async for event in events``."""
        ...

    @abstractmethod
    async def listen(
        self,
        handler: Handler,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        size: int = QUEUE,
        overflow: Overflow = "drop_oldest",
        once: bool = False,
    ) -> Listener:
        """Let a function, plain or asynchronous, be called with events; with ``once``, with the first alone.

        When this has returned, every event published from then on is heard.
        """
        ...

    @abstractmethod
    async def once(
        self,
        where: Where = EVERYTHING,
        *,
        since: Since | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (a bus ends too, and says which it was)
    ) -> Event:
        """Wait for one event. Raises ``TimeoutError`` after ``timeout`` seconds, ``ClosedError`` when the bus ends."""
        ...

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Connect and begin."""
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, close every subscription, and let go."""
        ...
