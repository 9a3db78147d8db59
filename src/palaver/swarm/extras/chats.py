"""Sessions that somebody else looks after: opened on demand, and closed when nobody speaks for a while.

Rules (docs/spec/agent-swarm-kit.md#5.2):

- A client's session is opened when it is first spoken to, and closed ``idle`` seconds after the end of its last turn.
  A session whose turn is under way is not idle.
- What is told of a closed session (``on_close``) only looks on.
- Idle sessions are looked for every ``check`` seconds, by the clock of the event loop.
- ``auto_close`` does that for one session that an application holds: it is closed when for so many seconds no turn was
  under way, nothing joined its log, and nobody said ``tick``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import anyio

from palaver.core.errors import ClosedError, SwarmError
from palaver.core.type_checks import check_arguments
from palaver.swarm.call_context import watched
from palaver.swarm.live import LiveSwarm
from palaver.swarm.session import Session
from palaver.swarm.user_input import Content

IDLE: Final = 900.0
"""Seconds after which a session that nobody uses is closed."""
CHECK: Final = 60.0
"""Seconds between two looks for idle sessions."""
TICK: Final = 1.0
"""Seconds between two looks at one."""


class Chats:
    """The sessions of many clients, kept while they are used. ``async with`` begins and ends it."""

    def __init__(
        self,
        live: LiveSwarm,
        *,
        idle: float = IDLE,
        check: float = CHECK,
        on_close: Callable[[str], Any] | None = None,
    ) -> None:
        """Stand before a swarm. ``on_close`` gets the client's name."""
        check_arguments("Chats", Chats.__init__, locals(), SwarmError)
        self.live, self._idle, self._check, self._on_close = live, idle, check, on_close
        self._used: dict[str, float] = {}
        self._group = anyio.create_task_group()
        self._open = False

    async def __aenter__(self) -> Self:
        """Begin to look for idle sessions."""
        await self._group.__aenter__()
        self._group.start_soon(self._look)
        self._open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all of them."""
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
        """Whose sessions are open."""
        return tuple(self._used)

    async def session(self, client: str) -> Session:
        """The session of a client, opened where it is not. Raises as ``LiveSwarm.open`` does."""
        if not self._open:
            raise ClosedError("these chats are closed")
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
        """Say something as a client. Raises as ``Session.complete`` does."""
        session = await self.session(client)
        try:
            return await session.complete(content, payload, run=run)
        finally:
            if client in self._used:
                self._used[client] = anyio.current_time()

    async def close(self, client: str) -> bool:
        """Close a client's session; give whether there was one."""
        async with self.live.alone(client):
            return await self._closed(client)

    async def _closed(self, client: str) -> bool:
        known = self._used.pop(client, None) is not None
        session = self.live.get(client)
        if not known or session is None:
            return False
        await session.close()
        await watched("on_close", self._on_close, client)
        return True

    async def _look(self) -> None:
        while True:
            await anyio.sleep(self._check)
            for client in tuple(self._used):
                async with self.live.alone(client):
                    session = self.live.get(client)
                    due = self._used.get(client, anyio.current_time()) + self._idle
                    if session is None or (not session.busy and anyio.current_time() >= due):
                        await self._closed(client)


class AutoClose:
    """Closes a session that is idle. Made by ``auto_close``."""

    def __init__(self, session: Session, seconds: float, on_close: Callable[[str], Any] | None) -> None:
        """Begin to look."""
        self.session, self._seconds, self._on_close = session, seconds, on_close
        self._scope = anyio.CancelScope()
        self._since, self._length = anyio.current_time(), len(session.log.path)
        session.spawn(None, self._look)

    def tick(self) -> None:
        """Say that the session is in use."""
        self._since = anyio.current_time()

    def cancel(self) -> None:
        """Let the session be."""
        self._scope.cancel()

    async def _look(self) -> None:
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
    """Close a session when nobody has used it for a while. ``on_close`` gets the client's name."""
    return AutoClose(session, seconds, on_close)
