"""HTTP connections of uvicorn with a time limit for requests, and a better limit on their number.

- Use it as ``uvicorn.Config(app, http=LimitedH11Protocol, limit_concurrency=1000)``. uvicorn itself waits for headers
  without a limit.
- A client has ``HEAD_TIMEOUT`` seconds to send a head and ``BODY_TIMEOUT`` seconds for a body, however it splits them.
  Then the connection is closed. Between requests uvicorn's ``timeout_keep_alive`` applies. A WebSocket has no such
  limit.
- Above ``limit_concurrency`` the connection that has waited longest for its head is closed; when all have sent their
  heads, the new one. So silent connections cannot keep out those that send requests.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT: Final = 10.0
BODY_TIMEOUT: Final = 30.0
"""The number of seconds; ``HttpApp`` answers 408 earlier."""
BACKLOG: Final = 128
"""The number of connections that wait to be accepted: ``uvicorn.Config(backlog=…)``."""
MAX_CONNECTIONS: Final = 2048
_TIMEOUTS: Final = {h11.IDLE: HEAD_TIMEOUT, h11.SEND_BODY: BODY_TIMEOUT}
"""The timeout of each state in which a part of a request is still missing."""


def default_connection_limit() -> int:
    """Return how many connections this process can open, with a quarter of its file descriptors to spare."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # noqa: PLC0415 (Unix only)

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, files * 3 // 4))


class LimitedH11Protocol(H11Protocol):
    """One HTTP/1.1 connection."""

    _timer: asyncio.TimerHandle | None = None
    _timed_state: Any = None
    """The state of the client that the timer limits."""
    idle_since: float = 0.0
    """When the last request ended, or the connection was made."""

    def connection_made(self, transport: Any) -> None:  # uvicorn expects a Transport, asyncio a BaseTransport
        """Start the timer, and close another connection above the limit."""
        # uvicorn's own limit answers 503 to the client that sends a request while silent ones keep their connections.
        maximum, self.limit_concurrency = self.limit_concurrency, None
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._update_timer()
        if maximum is not None and len(self.connections) > maximum:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle data, and update the timer."""
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
        self._update_timer()

    def _update_timer(self) -> None:
        """Run the timer while a part of a request is missing. It does not restart in the same state."""
        if self.transport.get_protocol() is not self:  # it is a WebSocket now, and h11 sees no end of its head
            self._stop_timer()
            return
        state = self.conn.their_state
        idle = self.timeout_keep_alive_task is not None  # uvicorn's timer runs
        if idle or state not in _TIMEOUTS or self.transport.is_closing():
            self._stop_timer()
        elif state is not self._timed_state:
            self._stop_timer()
            self._timed_state = state
            self._timer = self.loop.call_later(_TIMEOUTS[state], self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timed_state = None

    def _make_room(self) -> None:
        waiting = (each for each in self.connections if isinstance(each, LimitedH11Protocol) and each.is_waiting)
        oldest = min(waiting, key=lambda each: each.idle_since, default=self)
        self.connections.discard(oldest)  # the transport closes it later
        oldest.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is in progress."""
        return self.conn.their_state is h11.IDLE
