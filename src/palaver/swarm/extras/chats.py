"""Sessions that are opened on demand and closed when they are idle.

- A client's session is opened with its first message and closed ``idle`` seconds after its last turn. A session with a
  turn in progress is not idle. The check for idle sessions runs every ``check`` seconds.
- ``on_close`` observes closed sessions and changes nothing.
- ``auto_close`` does the same for one session of an application: it is closed after a number of seconds without a turn,
  a new message in its log, or a call of ``tick``.

See docs/spec/agent-swarm-kit.md#5.2.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import anyio

from palaver.core.errors import ClosedError, SwarmError
from palaver.core.type_checks import check_arguments
from palaver.swarm.call import watched
from palaver.swarm.session import Session
from palaver.swarm.swarm import LiveSwarm
from palaver.swarm.user_input import Content

IDLE: Final = 900.0
"""The default number of seconds after which an idle session is closed."""
CHECK: Final = 60.0
"""The default number of seconds between two checks for idle sessions."""
TICK: Final = 1.0
"""The number of seconds between two checks of one session."""


class Chats:
    """The sessions of many clients, kept open while they are used. An async context manager.

    ``client`` is the id of a client.
    """

    def __init__(
        self,
        live: LiveSwarm,
        *,
        idle: float = IDLE,
        check: float = CHECK,
        on_close: Callable[[str], Any] | None = None,
    ) -> None:
        """Manage the sessions of ``live``, a swarm that is started.

        A session is closed after ``idle`` seconds without a turn, checked every ``check`` seconds. ``on_close`` gets
        the client's id. Raises ``SwarmError`` for arguments of another type.
        """
        check_arguments("Chats", Chats.__init__, locals(), SwarmError)
        self.live, self._idle, self._check, self._on_close = live, idle, check, on_close
        self._used: dict[str, float] = {}
        self._group = anyio.create_task_group()
        self._open = False

    async def __aenter__(self) -> Self:
        """Start the check for idle sessions."""
        await self._group.__aenter__()
        self._group.start_soon(self._watch)
        self._open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all sessions."""
        self._open = False
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                for client in tuple(self._used):
                    await self.close(client)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients with an open session."""
        return tuple(self._used)

    async def session(self, client: str) -> Session:
        """Return a client's session, and open it if needed. Raises as ``LiveSwarm.open`` does."""
        if not self._open:
            raise ClosedError("the chats are closed")
        async with self.live.alone(client):
            self._used[client] = anyio.current_time()
            session = self.live.get(client)
            if session is not None and not session.closed:
                return session
            try:
                return await self.live.open(client)
            except BaseException:
                self._used.pop(client, None)
                raise

    async def complete(self, client: str, content: Content, payload: Any = None, *, run: str | None = None) -> str:
        """Send a client's message and return the answer. Raises as ``Session.complete`` does.

        ``content``, ``payload`` and ``run`` are those of ``Session.complete``.
        """
        session = await self.session(client)
        try:
            return await session.complete(content, payload, run=run)
        finally:
            if client in self._used:
                self._used[client] = anyio.current_time()

    async def close(self, client: str) -> bool:
        """Close a client's session. Return whether there was one."""
        async with self.live.alone(client):
            return await self._close_session(client)

    async def _close_session(self, client: str) -> bool:
        known = self._used.pop(client, None) is not None
        session = self.live.get(client)
        if not known or session is None:
            return False
        await session.close()
        await watched("on_close", self._on_close, client)
        return True

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(self._check)
            for client in tuple(self._used):
                async with self.live.alone(client):
                    session = self.live.get(client)
                    due = self._used.get(client, anyio.current_time()) + self._idle
                    if session is None or (not session.busy and anyio.current_time() >= due):
                        await self._close_session(client)


class AutoClose:
    """Closes a session that is idle. Made by ``auto_close``; the parameters are those of ``auto_close``."""

    def __init__(self, session: Session, seconds: float, on_close: Callable[[str], Any] | None) -> None:
        """Start to watch the session."""
        self.session, self._seconds, self._on_close = session, seconds, on_close
        self._scope = anyio.CancelScope()
        self._since, self._length = anyio.current_time(), len(session.log.path)
        session.spawn(None, self._watch)

    def tick(self) -> None:
        """Mark the session as used."""
        self._since = anyio.current_time()

    def cancel(self) -> None:
        """Stop watching; the session stays open."""
        self._scope.cancel()

    async def _watch(self) -> None:
        with self._scope:
            while anyio.current_time() < self._since + self._seconds:
                await anyio.sleep(min(TICK, self._seconds))
                length = len(self.session.log.path)
                if self.session.busy or length != self._length:
                    self._length = length
                    self.tick()
            with anyio.CancelScope(shield=True):  # closing ends this task too
                await self.session.close()
                await watched("on_close", self._on_close, self.session.client)


def auto_close(session: Session, seconds: float = IDLE, *, on_close: Callable[[str], Any] | None = None) -> AutoClose:
    """Close ``session`` after ``seconds`` without use. ``on_close`` gets the client's id."""
    return AutoClose(session, seconds, on_close)
