"""A swarm at work: its sessions, its bus, its store, and the tasks that run for it.

Rules:

- One session for each client at a time; a session that has closed leaves nothing behind. Clients are called neither
  ``shared`` nor nothing.
- Everything that runs beside a turn runs in the swarm's own group of tasks, and ends with it.
- Without a store a conversation lives as long as its session. With one it is opened again where it ended, with active
  agent, stack, states, storages and bans.
- A bus that is given is entered already and stays open; without one the swarm has a bus of its own.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import TaskGroup

from palaver.core.errors import ClosedError, SwarmError
from palaver.core.type_checks import check_arguments
from palaver.store.store import Store
from palaver.swarm.bus import Bus
from palaver.swarm.call_context import LOGGER
from palaver.swarm.events import SHARED, Event
from palaver.swarm.local_bus import LocalBus
from palaver.swarm.log import Log, open_log
from palaver.swarm.names import checked_client_id, client_thread
from palaver.swarm.resources import Shared, open_shared
from palaver.swarm.session import Session
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.swarm import Swarm


class LiveSwarm:
    """A swarm that has been started. ``bus`` carries its events."""

    def __init__(self, swarm: Swarm, *, store: Store | None = None, bus: Bus | None = None) -> None:
        """Set what it uses; ``async with`` starts it."""
        check_arguments(f"the swarm {getattr(swarm, 'name', '')!r}", LiveSwarm.__init__, locals(), SwarmError)
        self.swarm, self.store = swarm, store
        self._own_bus = bus is None
        self.bus: Bus = LocalBus() if bus is None else bus
        self._sessions: dict[str, Session] = {}
        self._alone: dict[str, tuple[anyio.Lock, int]] = {}
        self._group: TaskGroup | None = None
        self._shared: Shared | None = None

    async def __aenter__(self) -> Self:
        """Start. Raises ``StoreError``."""
        if self._own_bus:
            await self.bus.__aenter__()
        try:
            self._shared = await open_shared(self.swarm, self.store, self.publish)
        except BaseException as error:
            if self._own_bus:
                await self.bus.__aexit__(type(error), error, error.__traceback__)
            raise
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every session, and end."""
        group, self._group = self._group, None
        try:
            with anyio.CancelScope(shield=True):
                for session in tuple(self._sessions.values()):
                    await session.close()
        finally:  # asyncio's own cancellation goes past a shield
            for session in tuple(self._sessions.values()):
                session.end()
            try:
                if group is not None:
                    group.cancel_scope.cancel()
                    await group.__aexit__(None, None, None)
            finally:
                if self._own_bus:
                    await self.bus.__aexit__(None, None, None)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self, client: str) -> Session:
        """The session of a client: ``async with live.session("ann") as session``."""
        return Session(self, checked_client_id(client))

    async def open(self, client: str) -> Session:
        """Open the session of a client; ``close`` ends it. Raises as ``Session`` does."""
        session = self.session(client)
        await session.__aenter__()
        return session

    @asynccontextmanager
    async def alone(self, client: str) -> AsyncGenerator[None]:
        """Wait until nobody else in here has this client: one after the other, in the order of asking.

        Raises ``TypeError`` for what is no text.
        """
        lock, waiting = self._alone.get(checked_client_id(client), (anyio.Lock(), 0))
        self._alone[client] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._alone[client]
            if waiting == 1:
                del self._alone[client]
            else:
                self._alone[client] = (lock, waiting - 1)

    def get(self, client: str) -> Session | None:
        """The session that a client has just now. Raises ``TypeError`` for what is no text."""
        return self._sessions.get(checked_client_id(client))

    @property
    def clients(self) -> tuple[str, ...]:
        """Who has a session."""
        return tuple(self._sessions)

    def enter(self, session: Session) -> None:
        """Take a session in. Raises ``SwarmError`` when its client has one already, or may not be called that."""
        if self._group is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not started")
        client = session.client
        if not client or client == SHARED:
            raise SwarmError(f"no client may be called {client!r}")
        if client in self._sessions:
            raise SwarmError(f"the client {client!r} has a session of the swarm {self.swarm.name!r} already")
        self._sessions[client] = session

    def leave(self, session: Session) -> None:
        """Forget a session."""
        if self._sessions.get(session.client) is session:
            del self._sessions[session.client]

    async def log(self, client: str) -> Log:
        """Open the log of a client. Raises ``StoreError``."""
        thread = client_thread(self.swarm.realm, client)
        if self.store is None:
            return Log(Thread(thread))
        return await open_log(self.store, thread)

    @property
    def shared(self) -> Shared:
        """What belongs to all clients; its ``policies`` ban and unban. Raises ``ClosedError`` before the start."""
        if self._shared is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not started")
        return self._shared

    # -- what sessions use -------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """Say what happened; a bus that cannot take it disturbs nothing."""
        try:
            self.bus.publish(event)
        except Exception:  # noqa: BLE001 (whatever a bus raises is told, and a turn goes on)
            LOGGER.exception("the event %s was not published", event)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Run something in the swarm's group of tasks. Raises ``ClosedError`` when it has ended."""
        if self._group is None:
            raise ClosedError(f"the swarm {self.swarm.name!r} is not running")
        self._group.start_soon(function, *arguments)
