"""Ways into a swarm beside a plain session: one shot, a connection, a fork, messages that coalesce or are held back.

Rules (docs/spec/agent-swarm-kit.md#5.2):

- ``complete`` opens a session, says one thing, and closes it. Of one client one after the other, closing included, so
  that a call that is made when the last has ended finds the client free (K4).
- ``connect`` gives a ``Connection``: each answer that is not empty goes to the connector; ``notify`` reaches the
  connector alone. A connector that raises makes ``send`` raise; ``notify`` logs it.
- ``fork`` lends a session to a function, and closes it in any case; what the function raises goes to ``on_error``.
- ``Scheduled``: while an answer is awaited, further messages coalesce. Those that a newer one supersedes are
  committed as the user's, in the order in which they came; the newest alone is answered, and everybody who waits gets
  that answer (K14).
- ``Rated``: a message within ``delay`` seconds of the start of the one before it gives ``""``.
- Both stand before a session, or before a connection, whose connector is then told each answer once.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, TypeVar

import anyio
from msgspec import Struct

from palaver.core.errors import ClosedError
from palaver.swarm.call_context import LOGGER, called
from palaver.swarm.live import LiveSwarm
from palaver.swarm.session import Session
from palaver.swarm.user_input import Content, UserInput, checked_text, said

T = TypeVar("T")

DELAY: Final = 1.0
"""Seconds, where nothing else is said."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a connector is told."""

    data: str
    client: str
    agent: str


Connector = Callable[[Answer], Awaitable[Any] | Any]


async def complete(live: LiveSwarm, content: Content, client: str, payload: Any = None) -> str:
    """Say one thing as a client who has no session, and give the answer. Raises as ``Session.complete`` does."""
    async with live.alone(client), live.session(client) as session:
        return await session.complete(content, payload)


async def fork(
    live: LiveSwarm,
    client: str,
    work: Callable[[Session], Awaitable[T]],
    *,
    on_error: Callable[[Exception], Any] | None = None,
) -> T | None:
    """Lend a session to a function and give what it gives; ``None`` when it raised.

    Raises ``SwarmError`` when the client has a session already.
    """
    async with live.session(client) as session:
        try:
            return await work(session)
        except Exception as error:  # noqa: BLE001 (it is told to whoever asked for it)
            LOGGER.error("the work for the client %r failed", client, exc_info=error)
            if on_error is not None:
                await called(on_error, error)
            return None


class Connection:
    """A client behind a function that is told every answer. Made by ``connect``; ``async with`` opens and closes it."""

    def __init__(self, live: LiveSwarm, client: str, connector: Connector) -> None:
        """Stand ready."""
        self.session = live.session(client)
        self._connector = connector

    async def __aenter__(self) -> Self:
        """Open. Raises as ``Session`` does."""
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close."""
        await self.session.close()

    async def send(self, content: Content, payload: Any = None) -> str:
        """Say something; the connector is told the answer, and it is given. Raises what the connector raises."""
        answer = await self.session.complete(content, payload)
        if answer:
            await called(self._connector, self._told(answer))
        return answer

    async def notify(self, text: str) -> None:
        """Tell the connector something that no agent said; nothing of it is kept. Policies have the last word."""
        text = checked_text(text, "text")
        refused = await self.session.refused_output(text)
        try:
            await called(self._connector, self._told(text if refused is None else refused))
        except Exception:  # noqa: BLE001 (nobody waits for it)
            LOGGER.exception("the connector of %r raised", self.session.client)

    def _told(self, text: str) -> Answer:
        return Answer(data=text, client=self.session.client, agent=self.session.agent)


def connect(live: LiveSwarm, client: str, connector: Connector) -> Connection:
    """Make the connection of a client; ``async with`` opens it, and its ``send`` speaks."""
    return Connection(live, client, connector)


def _speaking(of: Session | Connection) -> tuple[Session, Callable[[Content, Any], Awaitable[str]]]:
    """A session, and how it is spoken to."""
    return (of, of.complete) if isinstance(of, Session) else (of.session, of.send)


class Rated:
    """A session that is spoken to at most once in ``delay`` seconds."""

    def __init__(
        self, of: Session | Connection, *, delay: float = DELAY, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        """Stand before a session. ``clock`` gives seconds."""
        self.session, self._say = _speaking(of)
        self._delay, self._clock = delay, clock
        self._free = float("-inf")

    async def complete(self, content: Content, payload: Any = None) -> str:
        """Say something, as ``Session.complete`` does; gives ``""`` when it is too soon."""
        told, now = said(content), self._clock()
        if now < self._free:
            return ""
        self._free = now + self._delay
        return await self._say(told, payload)


class _Waiting:
    """The messages that came while a turn was under way, and everybody who waits for the answer to the newest."""

    def __init__(self) -> None:
        self.texts: list[tuple[UserInput, Any]] = []
        self.done = anyio.Event()
        self.answer = ""
        self.error: Exception | None = None


class Scheduled:
    """A session that answers the newest of the messages that came while it was busy."""

    def __init__(self, of: Session | Connection) -> None:
        """Stand before a session."""
        self.session, self._say = _speaking(of)
        self._next: _Waiting | None = None
        self._busy = False

    async def complete(self, content: Content, payload: Any = None) -> str:
        """Say something; the answer is that to the newest message of those that waited together.

        Gives ``""`` when the session closed meanwhile. Raises as ``Session.complete`` does.
        """
        told = said(content)
        if not self._busy or self.session.closed:
            self._busy = True
            try:
                return await self._say(told, payload)
            finally:
                if self._next is None or self.session.closed:
                    self._release(None)
                else:
                    self.session.spawn(None, self._rest)
        waiting = self._next = self._next or _Waiting()
        waiting.texts.append((told, payload))
        await waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        return waiting.answer

    async def _rest(self) -> None:
        """Answer those that wait, until nobody does."""
        waiting: _Waiting | None = None
        try:
            while self._next is not None:
                waiting, self._next = self._next, None
                try:
                    *superseded, (text, payload) = waiting.texts
                    for earlier, its in superseded:
                        await self.session.commit_user(earlier, payload=its)
                    waiting.answer = await self._say(text, payload)
                except Exception as error:  # noqa: BLE001 (it belongs to those who wait)
                    ended = isinstance(error, ClosedError) and self.session.closed
                    waiting.error = None if ended else error
                waiting.done.set()
        finally:
            self._release(waiting)

    def _release(self, waiting: _Waiting | None) -> None:
        """Be free again; nobody waits in vain."""
        for each in (waiting, self._next):
            if each is not None:
                each.done.set()
        self._busy, self._next = False, None
