"""The contract of a bus: a swarm publishes events on it, and others listen.

Every bus passes one conformance suite (``palaver.testing.buses``), which tests the docstrings here.

Promised:

- *A listener can neither break nor delay a turn.* ``publish`` never waits and never raises because of a listener. Each
  subscription has a queue of bounded length; ``overflow`` says what happens when it is full: ``drop_oldest`` and
  ``drop_newest`` lose events and count them in ``dropped``; ``fail`` ends the subscription with ``BusyError``.
- *In order.* The events of one client reach each subscription in the order in which one process published them. A
  handler (``listen``) is called with one event at a time, in that order.
- *At least once, seen once.* What was published when ``flush`` returned reaches every subscription that has room for
  it, even if a connection was lost meanwhile; a second delivery of an event (its ``id``) is dropped.
- *From a point.* ``since`` starts with the stored events after that place, or from that time, as far back as the bus
  stores them.

Not promised: an order between clients; that an event is stored when the process dies before ``flush`` returned.

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
"""The default number of events that may wait for one listener."""


class Where(Struct, frozen=True, kw_only=True):
    """A filter of events: all fields that are set must be equal; ``test`` is called last. Without any, all events pass.

    An exception of ``test`` is logged, and rejects the event.
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
        """Return whether ``event`` passes."""
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
    """Where to start: after a ``place``, or with the events sent at a ``time`` (Unix ms) or later.

    With neither, at the oldest event.
    """

    place: int | None = None
    time: int | None = None


class Subscription(Protocol):
    """An iterator over requested events, as they arrive. ``close``, the end of its block or of the bus closes it."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """The number of events that were lost because they were not read in time."""
        ...

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events, until it is closed. Raises ``BusyError`` under ``fail``."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Stop receiving; waiting events can still be read. Closing twice is allowed."""
        ...

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start receiving: every event published from here on is seen."""
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Listener(Protocol):
    """A function that is called with each event, one at a time. Exceptions are logged, and stop nothing."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """The number of events that were lost because the function was too slow."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Stop calling the function. Closing twice is allowed."""
        ...

    @abstractmethod
    async def idle(self) -> None:
        """Wait until the function was called with everything published before (after ``flush``)."""
        ...


class Bus(Protocol):
    """A carrier of events. It must be entered by ``async with`` once, before anything else.

    ``event`` is the event. ``where`` selects events by client, source, type and so on; ``since`` starts with earlier
    ones, by their place or time. ``size`` is how many may wait for a reader or a ``handler``, and ``overflow`` says
    what happens to more.
    """

    @abstractmethod
    def publish(self, event: Event) -> None:
        """Publish an event.

        Never waits. Raises ``SwarmError`` for an event that cannot be encoded, ``ClosedError`` after the end of the
        bus.
        """
        ...

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all published events are stored. Raises ``BusyError`` when the bus had to drop some of them."""
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
        """Subscribe to events: ``async with bus.subscribe(…) as events: async for event in events``."""
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
        """Call a function, plain or asynchronous, with each event; with ``once``, with the first one only.

        Events published after this has returned are not missed.
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
        """Connect and start."""
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, close every subscription, and disconnect."""
        ...
