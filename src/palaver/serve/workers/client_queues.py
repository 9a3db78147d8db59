"""A queue for each client, and the session that its work is done in.

Rules:

- The work of one client is done in the order in which it was put, one after the other; clients do not wait for each
  other.
- A session is opened by the first work that asks for it, and closed when its client has been idle for a while, or when
  it is over by itself; then the next work opens another.
- At most ``most`` pieces of work of one client are here at a time, the one under way among them; ``None`` for any
  number.
- Work deals with its own errors: what it raises all the same is logged, and the next work is done.
- What is put while a queue is being dropped or finished joins a new one, which begins when the old one is over.

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import anyio
from anyio.abc import TaskGroup

from palaver.core.errors import BusyError, ClosedError
from palaver.swarm.call_context import LOGGER

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.live import LiveSwarm
    from palaver.swarm.session import Session

IDLE: Final = 60.0
"""Seconds after which the session of an idle client is closed, where nothing else is said."""
MOST: Final = 64
"""How much of one client may be here at a time, where nothing else is said."""

Work: TypeAlias = "Callable[[Lane], Awaitable[None]]"


class Lane:
    """The queue of one client."""

    def __init__(self, live: LiveSwarm, client: str) -> None:
        """Begin with nothing."""
        self.live, self.client = live, client
        self.waiting: deque[Work] = deque()
        """The first one is under way."""
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        self.stir = anyio.Event()
        self.leaving = False
        self._session: Session | None = None

    async def session(self) -> Session:
        """The session of the client; opened where there is none. Raises as ``LiveSwarm.open``."""
        if self._session is not None and self._session.closed:
            self._session = None
        if self._session is None:
            self._session = await self.live.open(self.client)
        return self._session

    async def close(self) -> None:
        """Close the session; the next work has another."""
        session, self._session = self._session, None
        if session is not None:
            with anyio.CancelScope(shield=True):
                await session.close()


class ClientQueues:
    """The queues of all clients. Entered by ``async with``; at the end, what is not done is cancelled."""

    def __init__(self, live: LiveSwarm, *, idle: float = IDLE, most: int | None = MOST) -> None:
        """Stand ready."""
        self._live, self._idle, self._most = live, idle, most
        self._client_queues: dict[str, Lane] = {}
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what is under way, and close every session."""
        group, self._group = self._group, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)

    @property
    def clients(self) -> tuple[str, ...]:
        """Who has a queue just now."""
        return tuple(self._client_queues)

    def put(self, client: str, work: Work) -> None:
        """Let work join the queue of a client. Raises ``BusyError`` when it is full, ``ClosedError`` at the end."""
        if self._group is None:
            raise ClosedError("the desk is closed")
        lane = self._client_queues.get(client)
        if lane is None or lane.leaving:
            before, lane = lane, Lane(self._live, client)
            self._client_queues[client] = lane
            self._group.start_soon(self._run, lane, before)
        if self._most is not None and len(lane.waiting) >= self._most:
            raise BusyError(f"{self._most} messages of the client {client!r} wait already")
        lane.waiting.append(work)
        lane.stir.set()

    def drop(self, clients: Iterable[str]) -> None:
        """Cancel what is under way for these clients, forget what waits, and have their sessions closed."""
        for lane in [lane for lane in map(self._client_queues.get, clients) if lane is not None]:
            lane.leaving = True
            lane.scope.cancel()

    async def finish(self, clients: Iterable[str]) -> None:
        """Let what is under way for these clients come to its end, forget what waits, and close their sessions."""
        client_queues = [lane for lane in map(self._client_queues.get, clients) if lane is not None]
        for lane in client_queues:
            lane.leaving = True
            while len(lane.waiting) > 1:
                lane.waiting.pop()
            lane.stir.set()
        for lane in client_queues:
            await lane.over.wait()

    async def _run(self, lane: Lane, before: Lane | None) -> None:
        if before is not None:
            with anyio.CancelScope(shield=True):
                await before.over.wait()
        try:
            with lane.scope:
                while lane.waiting:
                    await self._work_off(lane)
                    if lane.leaving:
                        break
                    with anyio.move_on_after(self._idle):
                        await lane.stir.wait()
                    if not lane.waiting:
                        await lane.close()
        finally:
            await lane.close()
            if self._client_queues.get(lane.client) is lane:
                del self._client_queues[lane.client]
            lane.over.set()

    async def _work_off(self, lane: Lane) -> None:
        while lane.waiting:
            try:
                await lane.waiting[0](lane)
            except Exception:  # noqa: BLE001 (the next one's turn comes all the same)
                LOGGER.exception("work for the client %r failed", lane.client)
            lane.waiting.popleft()
        lane.stir = anyio.Event()
