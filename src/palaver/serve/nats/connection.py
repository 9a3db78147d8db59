"""The connection to NATS: made, watched, and made again when it breaks.

Rules:

- A connection that breaks is given up with everything that it had not sent yet. A new one begins with nothing, so that
  nothing old can overtake: whoever sends or listens begins again on it where it stands.
- The first connection is made at once, or ``TransportError`` names the server; one that answers and cannot, just now,
  is asked twice more. Later connections are tried for until one is made.

The NATS client, or word of what to install. Nothing else in Palaver imports it.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

import anyio

from palaver.core.errors import PalaverError, SwarmError, TransportError
from palaver.swarm.subscriptions import Signal

# --- driver -----------------------------------------------------------------------------------------------------------


try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import Error as NatsError
    from nats.js import JetStreamContext
    from nats.js.api import (
        AckPolicy,
        ConsumerConfig,
        DeliverPolicy,
        DiscardPolicy,
        RetentionPolicy,
        StorageType,
        StreamConfig,
    )
    from nats.js.errors import APIError, NotFoundError
except ImportError as error:
    raise SwarmError(
        f"NATS is spoken by nats-py, which is not installed: pip install 'palaver[nats]' ({error})"
    ) from None

FAILURES = (NatsError, OSError, TimeoutError)
"""Everything that the client raises when a server is away, or says no."""

__all__ = [
    "FAILURES",
    "APIError",
    "AckPolicy",
    "Client",
    "ConsumerConfig",
    "DeliverPolicy",
    "DiscardPolicy",
    "JetStreamContext",
    "Msg",
    "NatsError",
    "NotFoundError",
    "RetentionPolicy",
    "StorageType",
    "StreamConfig",
    "Subscription",
]


# --- link -------------------------------------------------------------------------------------------------------------


_log = logging.getLogger("palaver.swarm")
_CONNECT: Final = 3
_ANSWER: Final = 5.0
_SOONEST, _LATEST = 0.05, 2.0
_TRIES: Final = 3
_PARTING: Final = 2.0
_PING: Final = 10


class Connection:
    """One connection. ``down`` is set when it is of no use any more, and for good."""

    def __init__(self) -> None:
        """Be not connected yet."""
        self.client = Client()
        self.down = asyncio.Event()
        self.trouble: Exception | None = None
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    @property
    def streams(self) -> JetStreamContext:
        """JetStream, over this connection."""
        return self.client.jetstream(timeout=_ANSWER)  # pyright: ignore[reportUnknownMemberType] (untyped options)

    async def subscribe(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Have a function called with what comes under a subject, one message at a time."""
        made = await self.client.subscribe(subject, cb=heard)  # pyright: ignore[reportUnknownMemberType]
        self._subscriptions.add(made)
        return made

    async def make(self, stream: StreamConfig) -> None:
        """Make a stream."""
        await self.streams.add_stream(stream)  # pyright: ignore[reportUnknownMemberType]

    async def consume(self, stream: str, config: ConsumerConfig) -> str:
        """Make a consumer of a stream; gives its name."""
        info = await self.streams.add_consumer(stream, config)  # pyright: ignore[reportUnknownMemberType]
        return info.name

    async def open(self, url: str) -> None:
        """Connect to one server."""
        await self.client.connect(
            servers=[url],
            name="palaver",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # the client counts attempts at the first connection too
            reconnect_time_wait=0,
            connect_timeout=_CONNECT,
            error_cb=self._told,
            closed_cb=self._closed,
            ping_interval=_PING,
        )

    async def forget(self, stream: str, consumer: str | None) -> None:
        """Let the server remove a consumer, now rather than soon; does not wait until it has."""
        if consumer is not None:
            await self.client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", reply=self.client.new_inbox())

    async def close(self) -> None:
        """Let go; waits no longer than it must."""
        self.down.set()
        with anyio.move_on_after(_PARTING, shield=True):
            try:
                await self.client.close()
            except FAILURES as error:
                _log.debug("while closing a connection to NATS: %s", error)
        self._sweep()

    def _sweep(self) -> None:
        """End what the client leaves behind where the connection breaks while it closes: tasks, an error, a socket."""
        reading: asyncio.Task[None] | None = getattr(self.client, "_reading_task", None)
        if reading is not None:
            reading.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        for each in tuple(self._subscriptions):
            task: asyncio.Task[None] | None = getattr(each, "_wait_for_msgs_task", None)
            if task is not None:
                task.cancel()
        transport: Any = getattr(self.client, "_transport", None)
        if transport is not None:
            transport.close()

    async def _closed(self) -> None:
        self.down.set()

    async def _told(self, error: Exception) -> None:
        self.trouble = error
        _log.debug("NATS: %s", said(error))


class Link:
    """Keeps a connection up. ``prepare`` is done on each new one before anybody else uses it."""

    def __init__(self, urls: Sequence[str], prepare: Callable[[Connection], Awaitable[None]]) -> None:
        """Use one of these servers; try them in turn."""
        self._urls = cycle(urls)
        self._count = len(urls)
        self._prepare = prepare
        self._connection: Connection | None = None
        self._made = Signal()
        self._over = False
        self.shown = ", ".join(_shown(url) for url in urls)

    async def open(self) -> None:
        """Make the first connection. Raises ``TransportError``."""
        failure: TransportError | None = None
        for turn in range(self._count * _TRIES):
            if turn >= self._count and not (failure and isinstance(failure.__cause__, APIError)):
                break  # nobody is there; a server that is there and says no may only be busy
            if turn and turn % self._count == 0:
                await anyio.sleep(_LATEST)
            try:
                self._connection = await self._connect()
            except TransportError as error:
                failure = error
            else:
                return
        raise failure or TransportError("no NATS server was named")

    async def ready(self) -> Connection:
        """The connection, as soon as there is one."""
        while self._connection is None or self._connection.down.is_set():
            await self._made.wait()
        return self._connection

    def fail(self, connection: Connection, reason: Exception) -> None:
        """Say that a connection is of no use any more."""
        if not connection.down.is_set():
            _log.warning("NATS at %s: %s; connecting again", self.shown, said(reason))
            connection.down.set()

    async def keep(self) -> None:
        """Watch over the connection, and replace it, until this is cancelled."""
        while self._connection is not None:
            await self._connection.down.wait()
            if self._over:
                return
            await self._connection.close()
            wait = _SOONEST
            while self._connection.down.is_set():
                try:
                    self._connection = await self._connect()
                except PalaverError as error:
                    _log.debug("%s", error)
                    await anyio.sleep(wait)
                    wait = min(2 * wait, _LATEST)
            self._made.tell()

    async def close(self) -> None:
        """Let go of the connection."""
        self._over = True
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> Connection:
        url = next(self._urls)
        connection = Connection()
        try:
            await connection.open(url)
            await self._prepare(connection)
        except FAILURES as error:
            await connection.close()
            raise TransportError(
                f"{_shown(url)}: no NATS server with JetStream answers: {said(connection.trouble or error)}"
            ) from error
        except BaseException:
            await connection.close()
            raise
        return connection


def said(error: Exception) -> str:
    """What an error says, or what it is."""
    return str(error) or type(error).__name__


def _shown(url: str) -> str:
    """A URL without what may be a password in it."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
