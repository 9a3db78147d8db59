"""A dispatcher whose messages are answered by workers, wherever they run (extra ``nats``).

- A message joins the queue of its swarm, and the answer arrives over the bus. One listener for all clients is
  subscribed before the first message is handed in.
- After ``retry_after`` seconds without an answer the turn is sent again, then after twice as long, and so on. An
  answered turn is not run twice: its answer is sent again. So an answer that was lost (a full listener, an expired
  event) arrives later.
- The messages of one client are handed in one after the other, in order. Decisions join the same queue, and are taken
  once, also when they are sent again.

Runs on asyncio only: the NATS client knows no other event loop.

Stability: experimental.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from palaver.core.errors import BusyError, ClosedError, SwarmError, TurnError
from palaver.serve.workers.client_queues import LIMIT
from palaver.serve.workers.decisions import PendingTurn, stored_pending_turn
from palaver.serve.workers.dispatcher import Dispatcher, Reply, WorkerFailedError
from palaver.serve.workers.queue import PARTITIONS, TurnQueue, TurnRequest
from palaver.serve.workers.worker import ANSWER
from palaver.swarm.bus import Listener, Where
from palaver.threads.ids import uuid7
from palaver.turn.approvals import Decision, DecisionError, checked_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from palaver.store.store import Store
    from palaver.swarm.bus import Bus
    from palaver.swarm.events import Event

RETRY_AFTER: Final = 15.0
"""The default number of seconds after which a turn is sent again."""

_BUFFER: Final = 65_536
_CANCEL_TIMEOUT: Final = 5.0


class _Client:
    """The unanswered turns of one client."""

    def __init__(self) -> None:
        self.sending = anyio.Lock()
        self.replies: dict[str, Reply] = {}
        self.callers = Counter[str]()
        self.waiting = 0


class QueueDispatcher(Dispatcher):
    """The dispatcher of a swarm that workers answer. ``bus`` is open already and outlives it."""

    def __init__(
        self,
        swarm: str,
        *,
        nats: str,
        bus: Bus,
        partitions: int = PARTITIONS,
        prefix: str = "palaver",
        retry_after: float = RETRY_AFTER,
        limit: int = LIMIT,
        store: Store | None = None,
        realm: str | None = None,
    ) -> None:
        """Dispatch for the swarm of that name; let at most ``limit`` messages of a client wait.

        ``store`` is that of the workers, which ``pending`` reads. ``realm`` is that of the swarm, if it has one.
        """
        self._swarm, self._bus = swarm, bus
        self._store, self._realm = store, realm or swarm
        self._queue = TurnQueue(nats, swarm, partitions=partitions, prefix=prefix)
        self._retry_after, self._limit = retry_after, limit
        self._clients: dict[str, _Client] = {}
        self._sending: set[anyio.CancelScope] = set()
        self._listener: Listener | None = None
        self._open = False

    @property
    def bus(self) -> Bus:
        """The events of all clients."""
        return self._bus

    async def __aenter__(self) -> Self:
        """Open. Raises ``TransportError`` when no server answers."""
        await self._queue.__aenter__()
        try:
            where = Where(source="session", type=ANSWER, swarm=self._swarm)
            self._listener = await self._bus.listen(self._on_answer, where, size=_BUFFER)
        except BaseException:
            await self._queue.__aexit__(None, None, None)
            raise
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close: callers get ``ClosedError``; the turns go on."""
        self._open = False
        if self._listener is not None:
            self._listener.close()
        for client in self._clients.values():
            for reply in client.replies.values():
                reply.set_error(ClosedError("the dispatcher closed before the turn was answered"))
        for scope in tuple(self._sending):
            scope.cancel()
        await self._queue.__aexit__(kind, error, trace)

    def _on_answer(self, event: Event) -> None:
        client = self._clients.get(event.client)
        reply = None if client is None else client.replies.get(event.run or "")
        if reply is None or reply.done:
            return
        if "error" in event.output:
            code = event.output.get("code")
            if code == DecisionError.error_code:
                reply.set_error(DecisionError(str(event.output["error"])))
                return
            failed = WorkerFailedError if event.output.get("internal") else TurnError
            reply.set_error(failed(f"{code}: {event.output['error']}"))
        else:
            reply.set_answer(str(event.output.get("result", "")))

    async def ask(
        self,
        client: str,
        text: str,
        *,
        payload: Any = None,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as the protocol says)
    ) -> str:
        """Send a client's message and return the answer. Raises as ``Dispatcher.ask``."""
        return await self._answer(TurnRequest(run=run or uuid7(), client=client, text=text, payload=payload), timeout)

    async def pending(self, client: str) -> PendingTurn:
        """Return the turn of ``client`` that waits for decisions.

        Raises ``SwarmError`` for a dispatcher without ``store``, and ``StoreError``.
        """
        if self._store is None:
            raise SwarmError("calls that wait are read from the store of the workers: QueueDispatcher(…, store=…)")
        return await stored_pending_turn(self._store, self._realm, client)

    async def decide(
        self,
        client: str,
        decisions: Mapping[str, Decision],
        *,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as the protocol says)
    ) -> str:
        """Decide calls of ``client`` that wait, and return the answer of their turn.

        ``decisions``, ``run`` and ``timeout`` are as in ``Dispatcher.decide``. Raises as it does.
        """
        checked = dict(checked_mapping(decisions, "decide"))
        return await self._answer(TurnRequest(run=uuid7(), client=client, decisions=checked, turn=run), timeout)

    async def _answer(self, request: TurnRequest, seconds: float | None) -> str:
        """Send a request, and return the answer."""
        if not self._open:
            raise ClosedError("the dispatcher is closed")
        client = request.client
        state = self._clients.setdefault(client, _Client())
        if state.waiting >= self._limit:
            raise BusyError(f"the queue of the client {client!r} is full (limit: {self._limit})")
        reply = state.replies.setdefault(request.run, Reply())
        state.waiting += 1
        state.callers[request.run] += 1
        try:
            with anyio.fail_after(seconds):
                return await self._await_answer(state, request, reply)
        finally:
            state.waiting -= 1
            state.callers[request.run] -= 1
            if not state.callers[request.run]:
                del state.callers[request.run], state.replies[request.run]
            if not state.waiting:
                self._clients.pop(client, None)

    async def _await_answer(self, state: _Client, request: TurnRequest, reply: Reply) -> str:
        wait = self._retry_after
        while not reply.done:
            await self._send(state, request)
            with anyio.move_on_after(wait):
                return await reply.wait()
            wait *= 2
        return await reply.wait()

    async def _send(self, state: _Client, request: TurnRequest) -> None:
        """Put a turn into the queue. Wait for an unavailable server until the dispatcher closes."""
        with anyio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                async with state.sending:
                    await self._queue.send(request)
            finally:
                self._sending.discard(scope)

    async def cancel(self, client: str) -> bool:
        """Cancel the client's turn in progress; its answer is ``""``. Return whether there was one."""
        return await self._queue.cancel(client, _CANCEL_TIMEOUT)
