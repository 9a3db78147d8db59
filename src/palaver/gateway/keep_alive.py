"""Events that say nothing, in a stream in which nothing comes: proxies and clients close a connection that is silent.

Rules:

- The event is the one of the client's wire (``ClientApi.idle_event``). A wire without one gets none.
- It is sent between two events only, and never before the first byte of an answer: what it would need, a status, is not
  known before a model has answered.

Stability: experimental.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

import anyio

from palaver.gateway.client_api import last_bytes

if TYPE_CHECKING:
    from starlette.types import Send

    from palaver.gateway.client_api import ClientApi


@final
class StreamSender:
    """Sends the pieces of a stream, and an event that says nothing after each ``seconds`` without a piece."""

    def __init__(self, send: Send, api: ClientApi, seconds: float) -> None:
        """Keep the arguments."""
        self._send = send
        self._api = api
        self._seconds = seconds
        self._sent = time.perf_counter()
        self._end = b""
        self._busy = False

    async def send(self, data: bytes) -> None:
        """Send a piece."""
        self._busy = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._busy, self._end, self._sent = False, last_bytes(self._end, data), time.perf_counter()

    def stop(self) -> None:
        """Send no more events."""
        self._busy = True

    async def run(self) -> None:
        """Send events that say nothing, until this is cancelled."""
        event = self._api.idle_event
        if event is None or not self._seconds:
            return
        while True:
            silent = time.perf_counter() - self._sent
            if silent < self._seconds:
                await anyio.sleep(self._seconds - silent)
                continue
            if not self._busy and self._api.ends_event(self._end):
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
            self._sent = time.perf_counter()
