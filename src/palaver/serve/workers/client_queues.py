"""A queue and a session for each client.

- The work of one client is done in order, one piece at a time. Clients do not wait for each other.
- The first work that needs a session opens it. It is closed when its client is idle for a while or the session ends,
  unless others than the queue use it.
- A client has at most ``limit`` pieces of work here, including the current one; ``None`` means no limit.
- Work handles its own errors. An exception that it raises is logged, and the next work is done.
- Work that is put while a queue is being dropped or finished joins a new queue, which starts after the old one.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import anyio
from anyio.abc import TaskGroup

from palaver.core.errors import BusyError, ClosedError
from palaver.swarm.call import LOGGER

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.session import Session
    from palaver.swarm.swarm import LiveSwarm

IDLE: Final = 60.0
"""The default number of seconds after which the session of an idle client is closed."""
LIMIT: Final = 64
"""The default limit of pieces of work for one client."""

Work: TypeAlias = "Callable[[ClientQueue], Awaitable[None]]"


class ClientQueue:
    """The queue of one client."""

    def __init__(self, live: LiveSwarm, client: str) -> None:
        """Start empty."""
        self.live, self.client = live, client
        self.waiting: deque[Work] = deque()
        """The first one is in progress."""
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.wake = anyio.Event()
        self.closing = False
        self._session: Session | None = None

    async def session(self) -> Session:
        """Return the client's session, and open it if needed. Raises as ``LiveSwarm.acquire``."""
        if self._session is not None and self._session.closed:
            self._session = None
        if self._session is None:
            self._session = await self.live.acquire(self.client)
        return self._session

    async def close(self) -> None:
        """Give the session back, which closes it unless others use it. The next work takes one again."""
        session, self._session = self._session, None
        if session is not None:
            with anyio.CancelScope(shield=True):
                await self.live.release(session)


class ClientQueues:
    """The queues of all clients, as an async context manager. Leaving it cancels unfinished work."""

    def __init__(self, live: LiveSwarm, *, idle: float = IDLE, limit: int | None = LIMIT) -> None:
        """Close a session after ``idle`` seconds; accept at most ``limit`` pieces of work for a client."""
        self._live, self._idle, self._limit = live, idle, limit
        self._queues: dict[str, ClientQueue] = {}
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Start to accept work."""
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the work in progress and close every session."""
        group, self._group = self._group, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients that have a queue."""
        return tuple(self._queues)

    def put(self, client: str, work: Work) -> None:
        """Add work to the queue of a client. Raises ``BusyError`` when it is full, ``ClosedError`` when closed."""
        if self._group is None:
            raise ClosedError("the dispatcher is closed")
        queue = self._queues.get(client)
        if queue is None or queue.closing:
            previous, queue = queue, ClientQueue(self._live, client)
            self._queues[client] = queue
            self._group.start_soon(self._run, queue, previous)
        if self._limit is not None and len(queue.waiting) >= self._limit:
            raise BusyError(f"the queue of the client {client!r} is full (limit: {self._limit})")
        queue.waiting.append(work)
        queue.wake.set()

    def drop(self, clients: Iterable[str]) -> None:
        """Cancel the work of these clients, discard what waits, and close their sessions."""
        for queue in [queue for queue in map(self._queues.get, clients) if queue is not None]:
            queue.closing = True
            queue.scope.cancel()

    async def finish(self, clients: Iterable[str]) -> None:
        """Finish the current work of these clients, discard what waits, and close their sessions."""
        queues = [queue for queue in map(self._queues.get, clients) if queue is not None]
        for queue in queues:
            queue.closing = True
            while len(queue.waiting) > 1:
                queue.waiting.pop()
            queue.wake.set()
        for queue in queues:
            await queue.done.wait()

    async def _run(self, queue: ClientQueue, previous: ClientQueue | None) -> None:
        if previous is not None:
            with anyio.CancelScope(shield=True):
                await previous.done.wait()
        try:
            with queue.scope:
                while queue.waiting:
                    await self._drain(queue)
                    if queue.closing:
                        break
                    with anyio.move_on_after(self._idle):
                        await queue.wake.wait()
                    if not queue.waiting:
                        await queue.close()
        finally:
            await queue.close()
            if self._queues.get(queue.client) is queue:
                del self._queues[queue.client]
            queue.done.set()

    async def _drain(self, queue: ClientQueue) -> None:
        while queue.waiting:
            try:
                await queue.waiting[0](queue)
            except Exception:  # noqa: BLE001 (the next work is done all the same)
                LOGGER.exception("work for the client %r failed", queue.client)
            queue.waiting.popleft()
        queue.wake = anyio.Event()
