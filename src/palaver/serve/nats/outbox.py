"""What waits to be written to the stream, and the one task that writes it.

Rules:

- Events are sent in the order of publishing, up to ``WINDOW`` of them ahead of their acknowledgements. One connection
  carries them in that order and the server takes them in that order, so what a broken connection leaves unwritten is an
  end of the row, never its middle.
- On a new connection everything that is not acknowledged is sent again, from the oldest on. What had been written
  after all is known to the server by its id and left out: nothing is written twice, nor behind what came later.
- An event that the server refuses for good is given up; anything else is tried again.
- When ``limit`` events wait, the next one is given up. ``flush`` says how many were, to all who wait in it.

The order can break where a server takes one event and refuses an earlier one for a reason that passes: in a cluster,
when the stream's leader changes between two events of one client.

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
"""So many events are on their way at once."""

_log = logging.getLogger("palaver.swarm")
_PATIENCE: Final = 5.0
"""After so many seconds without one acknowledgement a connection is given up."""
_LOOK: Final = 1.0
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
    """The server could not write an event now."""


_ACK: Final = msgspec.json.Decoder(_Ack)


class Outbox:
    """Events on their way to the stream."""

    def __init__(self, link: Link, limit: int) -> None:
        """Let up to ``limit`` events wait."""
        self._link = link
        self._limit = limit
        self._items: deque[_Item] = deque()
        self._first = 0  # the number of the oldest
        self._sent = 0  # how many of them have been sent over the connection of now
        self._given_up = 0
        self._told = 0  # of how many of these somebody was told
        self._heard_at = 0.0
        self._trouble: str | None = None
        self._stir = asyncio.Event()
        self._went = Signal()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, subject: str, id_: str, data: bytes) -> None:
        """Let an event be written; without room, give it up."""
        if len(self._items) >= self._limit:
            self._give_up(f"{self._limit} events wait to be written already")
            return
        self._items.append(_Item(subject, id_, data))
        self._stir.set()

    async def flush(self) -> None:
        """Wait until all that is here now is written. Raises ``BusyError`` where something was given up."""
        end, told = self._first + len(self._items), self._told
        while self._first < end:
            await self._went.wait()
        lost, self._told = self._given_up - told, self._given_up
        if lost:
            raise BusyError(f"{lost} events could not be written: more waited than may wait, or they were refused")

    async def run(self) -> None:
        """Write, over one connection after another, until this is cancelled."""
        while True:
            connection = await self._link.ready()
            try:
                await self._write(connection)
            except FAILURES as error:
                self._link.fail(connection, error)

    async def _write(self, connection: Connection) -> None:
        client, inbox = connection.client, connection.client.new_inbox()
        start = len(inbox) + 1

        async def acknowledged(message: Msg) -> None:
            self._acknowledge(int(message.subject[start:]), message)

        self._sent, self._trouble = 0, None
        await connection.subscribe(f"{inbox}.*", acknowledged)
        while not connection.down.is_set():
            self._stir.clear()
            while self._sent < min(len(self._items), WINDOW):
                if not self._sent:
                    self._heard_at = anyio.current_time()
                item = self._items[self._sent]
                reply = f"{inbox}.{self._first + self._sent}"
                self._sent += 1
                await client.publish(item.subject, item.data, reply=reply, headers={"Nats-Msg-Id": item.id})
            with anyio.move_on_after(_LOOK):
                await self._stir.wait()
            if self._trouble is not None:
                raise _RefusedError(self._trouble)
            if self._sent and anyio.current_time() - self._heard_at > _PATIENCE:
                raise TimeoutError(f"nothing was acknowledged within {_PATIENCE} s")

    def _acknowledge(self, number: int, message: Msg) -> None:
        self._stir.set()
        place = number - self._first
        if not 0 <= place < len(self._items):
            return
        headers: dict[str, Any] = message.headers or {}
        if "Status" in headers:
            self._trouble = f"the stream does not answer ({headers['Status']})"
            return
        refusal = _ACK.decode(message.data).error
        if refusal is not None and refusal.code != _BAD_REQUEST:
            self._trouble = refusal.description
            return
        if refusal is not None:
            self._give_up(refusal.description)
        self._heard_at = anyio.current_time()
        self._items[place].acked = True
        for _ in range(sum(1 for _ in _leading(self._items))):
            self._items.popleft()
            self._first += 1
            self._sent -= 1
        self._went.tell()

    def _give_up(self, reason: str) -> None:
        if self._given_up == self._told:
            _log.error("an event was given up, and others may be: %s", reason)
        self._given_up += 1


def _leading(items: deque[_Item]) -> list[_Item]:
    """The items at the front that are acknowledged."""
    found: list[_Item] = []
    for item in islice(items, WINDOW):
        if not item.acked:
            break
        found.append(item)
    return found
