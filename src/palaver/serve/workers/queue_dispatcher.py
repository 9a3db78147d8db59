"""The desk whose messages are answered by workers, wherever they are (extra ``nats``).

Rules:

- A message joins the queue of its swarm, and its answer comes over the bus. The desk listens before it hands
  anything in, for all of its clients at once.
- Who waits for ``again`` seconds has the turn asked for again, and then after twice as long, and so on: a turn that was
  answered is not run twice, and its answer is given again. So an answer that nobody heard (a listener that was full, a
  bus that forgot) is heard later.
- The messages of one client are handed in one after the other, in the order of asking.

On asyncio alone: the NATS client knows no other event loop.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from palaver.core.errors import BusyError, ClosedError, TurnError
from palaver.serve.workers.client_queues import MOST
from palaver.serve.workers.dispatcher import Dispatcher, Reply, WorkerFailedError
from palaver.serve.workers.queue import PARTITIONS, Asked, TurnQueue
from palaver.serve.workers.worker import ANSWER
from palaver.swarm.bus import Listener, Where
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.bus import Bus
    from palaver.swarm.events import Event

AGAIN: Final = 15.0
"""Seconds after which a turn is asked for again, where nothing else is said."""

_ROOM: Final = 65_536
_CANCEL: Final = 5.0


class _Client:
    """What is under way of one client."""

    def __init__(self) -> None:
        self.sending = anyio.Lock()
        self.replies: dict[str, Reply] = {}
        self.askers = Counter[str]()
        self.waiting = 0


class QueueDispatcher(Dispatcher):
    """The desk of a swarm that workers answer for. ``bus`` is entered already, and outlives it."""

    def __init__(
        self,
        swarm: str,
        *,
        nats: str,
        bus: Bus,
        partitions: int = PARTITIONS,
        prefix: str = "palaver",
        again: float = AGAIN,
        most: int = MOST,
    ) -> None:
        """Hand in messages for the swarm of that name; let ``most`` messages of a client wait here."""
        self._swarm, self._bus = swarm, bus
        self._queue = TurnQueue(nats, swarm, partitions=partitions, prefix=prefix)
        self._again, self._most = again, most
        self._clients: dict[str, _Client] = {}
        self._sending: set[anyio.CancelScope] = set()
        self._listener: Listener | None = None
        self._open = False

    @property
    def bus(self) -> Bus:
        """What happens, of all clients."""
        return self._bus

    async def __aenter__(self) -> Self:
        """Open. Raises ``TransportError`` where no server answers."""
        await self._queue.__aenter__()
        try:
            where = Where(source="session", type=ANSWER, swarm=self._swarm)
            self._listener = await self._bus.listen(self._heard, where, size=_ROOM)
        except BaseException:
            await self._queue.__aexit__(None, None, None)
            raise
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close: whoever waits is told so; the turns go on."""
        self._open = False
        if self._listener is not None:
            self._listener.close()
        for client in self._clients.values():
            for reply in client.replies.values():
                reply.fail(ClosedError("the desk closed before the turn was answered"))
        for scope in tuple(self._sending):
            scope.cancel()
        await self._queue.__aexit__(kind, error, trace)

    def _heard(self, event: Event) -> None:
        client = self._clients.get(event.client)
        reply = None if client is None else client.replies.get(event.run or "")
        if reply is None or reply.given:
            return
        if "error" in event.output:
            failed = WorkerFailedError if event.output.get("internal") else TurnError
            reply.fail(failed(f"{event.output.get('code')}: {event.output['error']}"))
        else:
            reply.give(str(event.output.get("result", "")))

    async def ask(
        self,
        client: str,
        text: str,
        *,
        payload: Any = None,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as the protocol says)
    ) -> str:
        """Say something as a client, and wait for the answer. Raises as ``Dispatcher.ask``."""
        if not self._open:
            raise ClosedError("the desk is closed")
        held = self._clients.setdefault(client, _Client())
        if held.waiting >= self._most:
            raise BusyError(f"{self._most} messages of the client {client!r} wait already")
        asked = Asked(run=run or uuid7(), client=client, text=text, payload=payload)
        reply = held.replies.setdefault(asked.run, Reply())
        held.waiting += 1
        held.askers[asked.run] += 1
        try:
            with anyio.fail_after(timeout):
                return await self._answered(held, asked, reply)
        finally:
            held.waiting -= 1
            held.askers[asked.run] -= 1
            if not held.askers[asked.run]:
                del held.askers[asked.run], held.replies[asked.run]
            if not held.waiting:
                self._clients.pop(client, None)

    async def _answered(self, held: _Client, asked: Asked, reply: Reply) -> str:
        patience = self._again
        while not reply.given:
            await self._hand_in(held, asked)
            with anyio.move_on_after(patience):
                return await reply.wait()
            patience *= 2
        return await reply.wait()

    async def _hand_in(self, held: _Client, asked: Asked) -> None:
        """Let a turn wait; a server that is away is waited for until the desk closes."""
        with anyio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                async with held.sending:
                    await self._queue.send(asked)
            finally:
                self._sending.discard(scope)

    async def cancel(self, client: str) -> bool:
        """Answer the turn under way of a client with ``""``; give whether there was one."""
        return await self._queue.cancel(client, _CANCEL)
