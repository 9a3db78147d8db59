"""The desk where messages of clients are handed in, whoever answers them.

Rules:

- What was handed in is answered, whether or not somebody still waits for it: ``timeout``, or the caller's own end,
  ends the waiting and not the turn. ``cancel`` ends the turn.
- ``run`` names a turn, and a turn is answered once: to ask again by the same name, after a ``TimeoutError`` too, is to
  wait for the same answer. Who gives no name cannot ask again.
- The messages of one client are answered in the order of asking, one after the other; where too many wait already,
  ``BusyError`` refuses the next.
- ``bus`` carries the events of all clients, for those who want to see an answer grow (``agent delta``).

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

from palaver.core.errors import ClosedError, TurnError
from palaver.serve.workers.client_queues import IDLE, MOST, ClientQueues, Lane
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.swarm.bus import Bus
    from palaver.swarm.live import LiveSwarm


class WorkerFailedError(TurnError):
    """A worker's turn ended with an error that is none of Palaver's. Its text is for operators, not for clients."""


class Dispatcher(Protocol):
    """Where messages of clients are handed in. Entered by ``async with``."""

    @property
    @abstractmethod
    def bus(self) -> Bus:
        """What happens, of all clients."""
        ...

    @abstractmethod
    async def ask(
        self,
        client: str,
        text: str,
        *,
        payload: Any = None,
        run: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (it ends the waiting, and not the turn)
    ) -> str:
        """Say something as a client, and wait for the answer; ``""`` when the turn was cancelled.

        Raises ``TimeoutError`` after ``timeout`` seconds, ``BusyError``, ``ClosedError`` when the desk closes, and what
        the turn ended with: any ``PalaverError``, or, where somebody else answers, a ``TurnError`` that says it.
        """
        ...

    @abstractmethod
    async def cancel(self, client: str) -> bool:
        """Answer the turn under way of a client with ``""``; give whether there was one."""
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
    """The answer of a turn, for those who wait for it."""

    def __init__(self) -> None:
        """There is none yet."""
        self._done = anyio.Event()
        self._text = ""
        self._error: Exception | None = None

    def give(self, text: str) -> None:
        """This is it."""
        self._text = text
        self._done.set()

    def fail(self, error: Exception) -> None:
        """The turn ended with an error."""
        self._error = error
        self._done.set()

    @property
    def given(self) -> bool:
        """Whether it is there."""
        return self._done.is_set()

    async def wait(self, seconds: float | None = None) -> str:
        """Wait for it. Raises the error that the turn ended with, ``TimeoutError``."""
        with anyio.fail_after(seconds):
            await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._text


class LocalDesk(Dispatcher):
    """The desk of a swarm at work in this process. Its swarm is started already, and outlives it."""

    def __init__(self, live: LiveSwarm, *, idle: float = IDLE, most: int = MOST) -> None:
        """Close sessions that were ``idle`` for so many seconds; let ``most`` messages of a client wait."""
        self._live = live
        self._client_queues = ClientQueues(live, idle=idle, most=most)
        self._replies: dict[tuple[str, str], Reply] = {}

    @property
    def bus(self) -> Bus:
        """What happens, of all clients."""
        return self._live.bus

    async def finish(self) -> None:
        """Let the turns under way come to their end; what waits behind them is not answered."""
        await self._client_queues.finish(self._client_queues.clients)

    async def __aenter__(self) -> Self:
        """Open."""
        await self._client_queues.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close: what is not answered is cancelled, and whoever waits for it is told."""
        for reply in self._replies.values():
            reply.fail(ClosedError("the desk closed before the turn was answered"))
        self._replies.clear()
        await self._client_queues.__aexit__(kind, error, trace)

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
        key = (client, run or uuid7())
        reply = self._replies.get(key)
        if reply is None:
            reply = Reply()
            self._client_queues.put(client, partial(self._turn, key[1], text, payload, reply))
            self._replies[key] = reply
        return await reply.wait(timeout)

    async def _turn(self, run: str, text: str, payload: Any, reply: Reply, lane: Lane) -> None:
        try:
            session = await lane.session()
            reply.give(await session.complete(text, payload, run=run))
        except Exception as error:  # noqa: BLE001 (it belongs to whoever waits for the answer)
            reply.fail(error)
        finally:
            self._replies.pop((lane.client, run), None)

    async def cancel(self, client: str) -> bool:
        """Answer the turn under way of a client with ``""``; give whether there was one."""
        session = self._live.get(client)
        return session is not None and await session.cancel()
