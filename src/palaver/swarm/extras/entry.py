"""Other ways to use a swarm than a plain session: one shot, a connection, a fork, coalesced and rate-limited messages.

- ``complete`` opens a session, sends one message, and closes it. Calls for one client run one after the other,
  including the closing, so the client is free for the next call (K4).
- ``connect`` returns a ``Connection``: each non-empty answer goes to the connector. ``notify`` reaches only the
  connector. An exception of the connector is raised by ``send`` and logged by ``notify``.
- ``fork`` lends a session to a function and always closes it. An exception of the function goes to ``on_error``.
- ``Scheduled`` coalesces messages that arrive during a turn: superseded ones are committed as the user's, in order;
  only the newest is answered, and all callers get that answer (K14).
- ``RateLimited``: a message within ``delay`` seconds after the start of the previous one returns ``""``.
- Both wrap a session or a connection, whose connector gets each answer once.

See docs/spec/agent-swarm-kit.md#5.2.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, TypeVar

import anyio
from msgspec import Struct

from palaver.core.errors import ClosedError
from palaver.swarm.call import LOGGER, called
from palaver.swarm.session import Session
from palaver.swarm.swarm import LiveSwarm
from palaver.swarm.user_input import Content, UserInput, checked_text, said

T = TypeVar("T")

DELAY: Final = 1.0
"""The default number of seconds."""


class Answer(Struct, frozen=True, kw_only=True):
    """An answer, as a connector gets it."""

    data: str
    client: str
    agent: str


Connector = Callable[[Answer], Awaitable[Any] | Any]


async def complete(live: LiveSwarm, content: Content, client: str, payload: Any = None) -> str:
    """Send one message of a client without a session. Return the answer. Raises as ``Session.complete`` does.

    ``live`` is the swarm, ``client`` the id of the client; ``content`` and ``payload`` are those of
    ``Session.complete``.
    """
    async with live.alone(client), live.session(client) as session:
        return await session.complete(content, payload)


async def fork(
    live: LiveSwarm,
    client: str,
    work: Callable[[Session], Awaitable[T]],
    *,
    on_error: Callable[[Exception], Any] | None = None,
) -> T | None:
    """Lend a session of ``client`` to ``work``, and return the result; ``None`` when ``work`` raised.

    ``live`` is the swarm. ``on_error`` gets what ``work`` raised; it is logged too. Raises ``SwarmError`` when the
    client has a session already.
    """
    async with live.session(client) as session:
        try:
            return await work(session)
        except Exception as error:  # noqa: BLE001 (``on_error`` gets it)
            LOGGER.error("the work for the client %r failed", client, exc_info=error)
            if on_error is not None:
                await called(on_error, error)
            return None


class Connection:
    """A client's session whose answers go to a function. Made by ``connect``; ``async with`` opens and closes it.

    ``live`` is the swarm, ``client`` the id of the client. ``connector`` is a function of an ``Answer``, plain or
    asynchronous. ``content`` and ``payload`` are those of ``Session.complete``.
    """

    def __init__(self, live: LiveSwarm, client: str, connector: Connector) -> None:
        """Prepare the session; ``async with`` opens it."""
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
        """Send a message. The answer goes to the connector and is returned. Raises what the connector raises."""
        answer = await self.session.complete(content, payload)
        if answer:
            await called(self._connector, self._answer(answer))
        return answer

    async def notify(self, text: str) -> None:
        """Send ``text`` to the connector alone. Policies may change it; it is not stored."""
        text = checked_text(text, "text")
        refused = await self.session.refused_output(text)
        try:
            await called(self._connector, self._answer(text if refused is None else refused))
        except Exception:  # noqa: BLE001 (no caller waits for it)
            LOGGER.exception("the connector of %r raised", self.session.client)

    def _answer(self, text: str) -> Answer:
        return Answer(data=text, client=self.session.client, agent=self.session.agent)


def connect(live: LiveSwarm, client: str, connector: Connector) -> Connection:
    """Return the connection of a client; ``async with`` opens it. The parameters are those of ``Connection``."""
    return Connection(live, client, connector)


def _target(of: Session | Connection) -> tuple[Session, Callable[[Content, Any], Awaitable[str]]]:
    """Return the session, and the function that sends a message to it."""
    return (of, of.complete) if isinstance(of, Session) else (of.session, of.send)


class RateLimited:
    """A session that takes at most one message in ``delay`` seconds.

    ``of`` is a session or a connection. ``content`` and ``payload`` are those of ``Session.complete``.
    """

    def __init__(
        self, of: Session | Connection, *, delay: float = DELAY, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        """Wrap a session. ``clock`` returns seconds."""
        self.session, self._send = _target(of)
        self._delay, self._clock = delay, clock
        self._next_allowed = float("-inf")

    async def complete(self, content: Content, payload: Any = None) -> str:
        """Do as ``Session.complete``; return ``""`` when it is too soon."""
        message, now = said(content), self._clock()
        if now < self._next_allowed:
            return ""
        self._next_allowed = now + self._delay
        return await self._send(message, payload)


class _Pending:
    """The messages that arrived during a turn, and the answer to the newest of them."""

    def __init__(self) -> None:
        self.texts: list[tuple[UserInput, Any]] = []
        self.done = anyio.Event()
        self.answer = ""
        self.error: Exception | None = None


class Scheduled:
    """A session that answers only the newest of the messages that arrived while it was busy.

    ``of`` is a session or a connection. ``content`` and ``payload`` are those of ``Session.complete``.
    """

    def __init__(self, of: Session | Connection) -> None:
        """Wrap a session."""
        self.session, self._send = _target(of)
        self._next: _Pending | None = None
        self._busy = False

    async def complete(self, content: Content, payload: Any = None) -> str:
        """Send a message. Return the answer to the newest message of those that waited together.

        Return ``""`` when the session closed meanwhile. Raises as ``Session.complete`` does.
        """
        message = said(content)
        if not self._busy or self.session.closed:
            self._busy = True
            try:
                return await self._send(message, payload)
            finally:
                if self._next is None or self.session.closed:
                    self._release(None)
                else:
                    self.session.spawn(None, self._answer_pending)
        pending = self._next = self._next or _Pending()
        pending.texts.append((message, payload))
        await pending.done.wait()
        if pending.error is not None:
            raise pending.error
        return pending.answer

    async def _answer_pending(self) -> None:
        """Answer the pending messages until there are none."""
        pending: _Pending | None = None
        try:
            while self._next is not None:
                pending, self._next = self._next, None
                try:
                    *superseded, (text, payload) = pending.texts
                    for earlier, extra in superseded:
                        await self.session.commit_user(earlier, payload=extra)
                    pending.answer = await self._send(text, payload)
                except Exception as error:  # noqa: BLE001 (the waiting callers get it)
                    ended = isinstance(error, ClosedError) and self.session.closed
                    pending.error = None if ended else error
                pending.done.set()
        finally:
            self._release(pending)

    def _release(self, pending: _Pending | None) -> None:
        """Mark the session as free, and release all waiting callers."""
        for each in (pending, self._next):
            if each is not None:
                each.done.set()
        self._busy, self._next = False, None
