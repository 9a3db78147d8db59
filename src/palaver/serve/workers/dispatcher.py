"""Hand in messages of clients, whoever answers them.

- A message that was handed in is answered, even when nobody waits any more: ``timeout`` or the caller's cancellation
  ends the wait, not the turn. ``cancel`` ends the turn.
- ``run`` names a turn, and a turn is answered once. A second ``ask`` with the same name, also after a ``TimeoutError``,
  waits for the same answer. Without a name a turn cannot be asked for again.
- The messages of one client are answered in order, one at a time. When too many wait, the next raises ``BusyError``.
- A turn whose calls wait for decisions is answered with ``""``. ``pending`` returns the calls, ``decide`` goes on with
  the turn, in the same order as messages. A message that comes in place of decisions closes the calls.
- ``bus`` carries the events of all clients, including streamed text (``agent delta``).

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

from palaver.core.errors import ClosedError, TurnError
from palaver.serve.workers.client_queues import IDLE, LIMIT, ClientQueue, ClientQueues
from palaver.serve.workers.decisions import PendingTurn, decide_calls, pending_turn, stored_pending_turn
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from palaver.swarm.bus import Bus
    from palaver.swarm.session import Session
    from palaver.swarm.swarm import LiveSwarm
    from palaver.turn.approvals import Decision


class WorkerFailedError(TurnError):
    """A worker's turn failed with an unexpected error. Its text is for operators, not for clients."""


class Dispatcher(Protocol):
    """Takes messages of clients and returns their answers. An async context manager."""

    @property
    @abstractmethod
    def bus(self) -> Bus:
        """The events of all clients."""
        ...

    @abstractmethod
    async def ask(
        self,
        client: str,
        text: str,
        *,
        payload: Any = None,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (it ends the wait, not the turn)
    ) -> str:
        """Send a client's message and return the answer; ``""`` when the turn was cancelled.

        Raises ``TimeoutError`` after ``timeout`` seconds, ``BusyError``, ``ClosedError`` when the dispatcher closes,
        and the error of the turn: a ``PalaverError``, or a ``TurnError`` with its text when a worker answered.
        """
        ...

    @abstractmethod
    async def cancel(self, client: str) -> bool:
        """Cancel the client's turn in progress; its answer is ``""``. Return whether there was one."""
        ...

    @abstractmethod
    async def pending(self, client: str) -> PendingTurn:
        """Return the turn of ``client`` that waits for decisions, without waiting for a turn in progress.

        Raises ``StoreError``, and ``SwarmError`` when the dispatcher cannot read it.
        """
        ...

    @abstractmethod
    async def decide(
        self,
        client: str,
        decisions: Mapping[str, Decision],
        *,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (it ends the wait, not the turn)
    ) -> str:
        """Decide calls of ``client`` that wait, and return the answer of their turn; ``""`` while calls wait.

        ``decisions`` are by call id. ``run`` is the name of the turn, as ``pending`` returns it: calls of another turn
        are not decided, and decisions that were taken already get the turn's answer again. ``timeout`` is as in
        ``ask``. Raises ``DecisionError`` when the decisions do not fit the calls that wait, or when another agent is
        active, then nothing was decided; and as ``ask``.
        """
        ...

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open."""
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Reply:
    """The answer of a turn, for all callers that wait for it."""

    def __init__(self) -> None:
        """Start without an answer."""
        self._event = anyio.Event()
        self._text = ""
        self._error: Exception | None = None

    def set_answer(self, text: str) -> None:
        """Set the answer."""
        self._text = text
        self._event.set()

    def set_error(self, error: Exception) -> None:
        """Set the error of the turn."""
        self._error = error
        self._event.set()

    @property
    def done(self) -> bool:
        """Whether the answer or the error is set."""
        return self._event.is_set()

    async def wait(self, seconds: float | None = None) -> str:
        """Wait for the answer. Raises the error of the turn, or ``TimeoutError``."""
        with anyio.fail_after(seconds):
            await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._text


class LocalDispatcher(Dispatcher):
    """The dispatcher of a swarm in this process. The swarm is started already and outlives it."""

    def __init__(self, live: LiveSwarm, *, idle: float = IDLE, limit: int = LIMIT) -> None:
        """Close a session after ``idle`` seconds; let at most ``limit`` messages of a client wait."""
        self._live = live
        self._queues = ClientQueues(live, idle=idle, limit=limit)
        self._replies: dict[tuple[str, str], Reply] = {}

    @property
    def bus(self) -> Bus:
        """The events of all clients."""
        return self._live.bus

    async def finish(self) -> None:
        """Finish the turns in progress. Waiting messages are not answered."""
        await self._queues.finish(self._queues.clients)

    async def __aenter__(self) -> Self:
        """Open."""
        await self._queues.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close: cancel unanswered turns; their callers get ``ClosedError``."""
        for reply in self._replies.values():
            reply.set_error(ClosedError("the dispatcher closed before the turn was answered"))
        self._replies.clear()
        await self._queues.__aexit__(kind, error, trace)

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
        key = (client, run or uuid7())
        reply = self._replies.get(key)
        if reply is None:
            reply = self._reply(key, lambda session: session.complete(text, payload, run=key[1]))
        return await reply.wait(timeout)

    def _reply(self, key: tuple[str, str], work: Callable[[Session], Awaitable[str]]) -> Reply:
        """Put work into the queue of the client of ``key``, and return its reply."""
        reply = Reply()
        self._queues.put(key[0], partial(self._turn, key, work, reply))
        self._replies[key] = reply
        return reply

    async def _turn(
        self, key: tuple[str, str], work: Callable[[Session], Awaitable[str]], reply: Reply, queue: ClientQueue
    ) -> None:
        try:
            reply.set_answer(await work(await queue.session()))
        except Exception as error:  # noqa: BLE001 (the caller that waits for the answer gets it)
            reply.set_error(error)
        finally:
            self._replies.pop(key, None)

    async def cancel(self, client: str) -> bool:
        """Cancel the client's turn in progress; its answer is ``""``. Return whether there was one."""
        session = self._live.get(client)
        return session is not None and await session.cancel()

    async def pending(self, client: str) -> PendingTurn:
        """Return the turn of ``client`` that waits for decisions. Raises ``StoreError``."""
        if self._live.store is not None:
            return await stored_pending_turn(self._live.store, self._live.swarm.realm, client)
        session = self._live.get(client)
        return PendingTurn() if session is None else pending_turn(session.log.path)

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
        return await self._reply((client, uuid7()), lambda session: decide_calls(session, decisions, run)).wait(timeout)
