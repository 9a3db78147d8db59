"""The events that wait to be written to the stream, and the task that writes them.

- Events are sent in order, up to ``WINDOW`` of them ahead of their acknowledgements, over one connection. So a broken
  connection leaves the last events unwritten, never some in the middle.
- A new connection sends all unacknowledged events again, oldest first. The server recognises written ones by their id,
  so nothing is written twice or out of order.
- An event that the server refuses permanently is given up. Any other failure is retried.
- When ``limit`` events wait, the next one is given up. ``flush`` reports the number to every caller that waits in it.

The order can break in a cluster, when the stream's leader changes between two events of one client: then the server may
take an event after a temporary refusal of an earlier one.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import Any, Final

import anyio
import msgspec

from palaver.core.errors import BusyError
from palaver.serve.nats.connection import FAILURES, Connection, Link, Msg
from palaver.swarm.subscriptions import Signal

WINDOW: Final = 512
"""The number of events that are sent ahead of their acknowledgements."""

_log = logging.getLogger("palaver.swarm")
_ACK_TIMEOUT: Final = 5.0
"""A connection without an acknowledgement for this number of seconds is broken."""
_CHECK_INTERVAL: Final = 1.0
_BAD_REQUEST: Final = 400


class _Item(msgspec.Struct, gc=False):
    subject: str
    id: str
    data: bytes
    acked: bool = False


class _Refusal(msgspec.Struct, frozen=True):
    code: int = 0
    description: str = ""


class _Ack(msgspec.Struct, frozen=True):
    error: _Refusal | None = None


class _RefusedError(OSError):
    """The server could not write an event for now."""


_ACK: Final = msgspec.json.Decoder(_Ack)


class Outbox:
    """Events that wait to be written to the stream."""

    def __init__(self, link: Link, limit: int) -> None:
        """Let up to ``limit`` events wait."""
        self._link = link
        self._limit = limit
        self._items: deque[_Item] = deque()
        self._first = 0  # the number of the oldest
        self._sent = 0  # how many of them were sent over the current connection
        self._given_up = 0
        self._reported = 0  # how many of these were reported
        self._last_ack_at = 0.0
        self._error: str | None = None
        self._wake = asyncio.Event()
        self._progress = Signal()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, subject: str, id_: str, data: bytes) -> None:
        """Add an event. Without room, give it up."""
        if len(self._items) >= self._limit:
            self._give_up(f"{self._limit} events are already waiting")
            return
        self._items.append(_Item(subject, id_, data))
        self._wake.set()

    async def flush(self) -> None:
        """Wait until all events are written. Raises ``BusyError`` when some were given up."""
        end, reported = self._first + len(self._items), self._reported
        while self._first < end:
            await self._progress.wait()
        lost, self._reported = self._given_up - reported, self._given_up
        if lost:
            raise BusyError(f"{lost} events could not be written: the outbox was full, or the server refused them")

    async def run(self) -> None:
        """Write events, over one connection after another, until cancelled."""
        while True:
            connection = await self._link.ready()
            try:
                await self._write(connection)
            except FAILURES as error:
                self._link.mark_broken(connection, error)

    async def _write(self, connection: Connection) -> None:
        client, inbox = connection.client, connection.client.new_inbox()
        start = len(inbox) + 1

        async def acknowledged(message: Msg) -> None:
            self._acknowledge(int(message.subject[start:]), message)

        self._sent, self._error = 0, None
        await connection.subscribe(f"{inbox}.*", acknowledged)
        while not connection.down.is_set():
            self._wake.clear()
            while self._sent < min(len(self._items), WINDOW):
                if not self._sent:
                    self._last_ack_at = anyio.current_time()
                item = self._items[self._sent]
                reply = f"{inbox}.{self._first + self._sent}"
                self._sent += 1
                await client.publish(item.subject, item.data, reply=reply, headers={"Nats-Msg-Id": item.id})
            with anyio.move_on_after(_CHECK_INTERVAL):
                await self._wake.wait()
            if self._error is not None:
                raise _RefusedError(self._error)
            if self._sent and anyio.current_time() - self._last_ack_at > _ACK_TIMEOUT:
                raise TimeoutError(f"nothing was acknowledged within {_ACK_TIMEOUT} s")

    def _acknowledge(self, number: int, message: Msg) -> None:
        self._wake.set()
        place = number - self._first
        if not 0 <= place < len(self._items):
            return
        headers: dict[str, Any] = message.headers or {}
        if "Status" in headers:
            self._error = f"the stream does not answer ({headers['Status']})"
            return
        refusal = _ACK.decode(message.data).error
        if refusal is not None and refusal.code != _BAD_REQUEST:
            self._error = refusal.description
            return
        if refusal is not None:
            self._give_up(refusal.description)
        self._last_ack_at = anyio.current_time()
        self._items[place].acked = True
        for _ in range(sum(1 for _ in _leading(self._items))):
            self._items.popleft()
            self._first += 1
            self._sent -= 1
        self._progress.notify()

    def _give_up(self, reason: str) -> None:
        if self._given_up == self._reported:
            _log.error("an event was given up, and others may follow: %s", reason)
        self._given_up += 1


def _leading(items: deque[_Item]) -> list[_Item]:
    """Return the acknowledged items at the front."""
    found: list[_Item] = []
    for item in islice(items, WINDOW):
        if not item.acked:
            break
        found.append(item)
    return found
