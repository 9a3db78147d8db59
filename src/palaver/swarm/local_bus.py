"""The bus within one process. It has no dependencies, runs on asyncio and trio, and stores events in memory only.

Rules:

- ``publish`` puts an event only into the inboxes with a filter for its client and its source: its cost grows with their
  number, not with that of all listeners.
- The last ``history`` events are stored for ``since``; an event whose id is among them was published already, and is
  dropped.
- Listeners get the event itself, so its mappings belong to the bus once it is published. Values that no bus could
  encode are refused here too.
- For the event loop in which it was entered; not for other threads.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from anyio.abc import TaskGroup
from msgspec import structs

from palaver.core.errors import ClosedError, SwarmError
from palaver.core.messages import MESSAGE_CLASSES
from palaver.core.type_checks import check_arguments
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import Event, encode, names_of
from palaver.swarm.subscriptions import GRACE, Inbox, ListeningBus, Subscribed

_Key: TypeAlias = tuple[str | None, str | None]
_Route: TypeAlias = tuple[Inbox, Callable[[Event], bool] | None]

_SIMPLE: Final = (bool, float, int, type(None))


class LocalBus(ListeningBus):
    """Carries events within this process (``Bus``)."""

    def __init__(self, history: int = 10_000, *, grace: float = GRACE) -> None:
        """Store the last ``history`` events for ``since``. Raises ``SwarmError`` for a negative number.

        ``grace`` is how many seconds the end of the bus waits for busy handlers.
        """
        check_arguments("LocalBus", LocalBus.__init__, locals(), SwarmError)
        super().__init__(grace)
        if history < 0:
            raise SwarmError(f"a bus cannot keep {history} events")
        self._kept: deque[Event] = deque()
        self._ids: set[str] = set()
        self._history = history
        self._place = 0
        self._routes: dict[_Key, dict[Subscribed, _Route]] = {}

    def publish(self, event: Event) -> None:
        """Publish an event. Raises ``SwarmError`` for one that cannot be encoded, ``ClosedError`` after the end."""
        if self._closed is not None:
            raise ClosedError(self._closed)
        if not _writable(event):
            encode(event)
        if event.id in self._ids:
            return
        self._place += 1
        if self._history:
            self._keep(event)
        if self._routes:
            self._hand_out(event)

    def _keep(self, event: Event) -> None:
        self._kept.append(event)
        self._ids.add(event.id)
        if len(self._kept) > self._history:
            self._ids.discard(self._kept.popleft().id)

    def _hand_out(self, event: Event) -> None:
        client, source, routes = event.client, event.source, self._routes
        placed: Event | None = None
        for key in ((client, source), (client, None), (None, source), (None, None)):
            if (asked := routes.get(key)) is None:
                continue
            if placed is None:
                placed = event.at(self._place)
            for inbox, admits in tuple(asked.values()):  # a filter may close or start a subscription
                if admits is None or admits(placed):
                    inbox.put(placed)

    async def flush(self) -> None:
        """Return at once: published events are stored."""

    async def caught_up(self, events: Subscribed) -> None:
        """Return at once: published events are in the inboxes."""

    async def _begin(self, tasks: TaskGroup) -> None:
        """Do nothing: there is no connection."""

    async def _end(self) -> None:
        """Do nothing: there is no connection."""

    async def _attach(self, events: Subscribed) -> None:
        if events.since is not None:
            events.inbox.keep(each for each in self._since(events.since) if events.where.admits(each))
        where = events.where
        rest = structs.replace(where, client=None, source=None)
        key = (where.client, where.source)
        route = (events.inbox, None if rest == Where() else rest.admits)
        self._routes.setdefault(key, {})[events] = route

    def _detach(self, events: Subscribed) -> None:
        key = (events.where.client, events.where.source)
        if (asked := self._routes.get(key)) is not None and asked.pop(events, None) is not None and not asked:
            del self._routes[key]

    def _since(self, since: Since) -> Iterator[Event]:
        before = self._place - len(self._kept)  # the place before the first stored event
        skipped = 0 if since.place is None else max(0, since.place - before)
        for number, event in enumerate(islice(self._kept, skipped, None), before + skipped + 1):
            if since.time is None or event.sent_at >= since.time:
                yield event.at(number)


def _writable(event: Event) -> bool:
    """Return whether an event can certainly be encoded, as far as is seen without encoding it."""
    if not names_of(event).isascii():
        return False
    for values in (event.input, event.output):
        for name, value in values.items():
            if not name.isascii():
                return False
            if isinstance(value, str):
                if not value.isascii():
                    return False
            elif not isinstance(value, _SIMPLE) and not (name == "message" and isinstance(value, MESSAGE_CLASSES)):
                return False
    return True
