"""Connections of uvicorn with a time limit for what they send, and a limit of their number.

Rules:

- ``uvicorn.Config(front, http=Connections, limit_concurrency=1000)``. uvicorn itself waits for headers for ever.
- A head has ``HEAD`` seconds from the first byte it could come, a body ``BODY``, however they are cut. Then the
  connection is closed. Between requests uvicorn's ``timeout_keep_alive`` counts. A WebSocket has no such limit.
- Of more than ``limit_concurrency`` connections the one goes that has waited longest for its head to be whole; when all
  have sent theirs, the new one. So connections that say nothing cannot keep out those that ask, before anybody is
  known.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD: Final = 10.0
BODY: Final = 30.0
"""Seconds; a front says 408 before."""
BACKLOG: Final = 128
"""Connections that are accepted at a time, before any of them is looked at: ``uvicorn.Config(backlog=…)``."""
MOST: Final = 2048
_PATIENCE: Final = {h11.IDLE: HEAD, h11.SEND_BODY: BODY}
"""Seconds in each state in which something of a request is still to come."""


def most_connections() -> int:
    """So many connections as this process can have open, with a quarter of its files left for other things."""
    if sys.platform == "win32":
        return MOST
    import resource  # noqa: PLC0415 (there is none elsewhere)

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files * 3 // 4))


class Connections(H11Protocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _awaited: Any = None
    """The state of the peer for which the timer runs."""
    since: float = 0.0
    """When the last request was over, or the connection began."""

    def connection_made(self, transport: Any) -> None:  # uvicorn wants a Transport, asyncio a BaseTransport
        """Begin; make room."""
        # uvicorn's own limit answers 503 to whoever asks while others keep the connections: it is replaced by ours.
        most, self.limit_concurrency = self.limit_concurrency, None
        super().connection_made(transport)
        self.since = self.loop.time()
        self._watch()
        if most is not None and len(self.connections) > most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, and look what is still to come."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin the next request."""
        self.since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Let the timer run while something of a request is still to come; never anew for the same."""
        if self.transport.get_protocol() is not self:  # it is a WebSocket now, and h11 sees no end of its head
            self._stop()
            return
        state = self.conn.their_state
        idle = self.timeout_keep_alive_task is not None  # uvicorn's timer runs
        if idle or state not in _PATIENCE or self.transport.is_closing():
            self._stop()
        elif state is not self._awaited:
            self._stop()
            self._awaited = state
            self._timer = self.loop.call_later(_PATIENCE[state], self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._awaited = None

    def _make_room(self) -> None:
        waiting = (each for each in self.connections if isinstance(each, Connections) and each.is_waiting)
        gone = min(waiting, key=lambda each: each.since, default=self)
        self.connections.discard(gone)  # the transport ends it later
        gone.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is under way."""
        return self.conn.their_state is h11.IDLE
