"""The connection to NATS: opened, watched, and opened again when it breaks. Only this module imports the NATS client.

- A broken connection is discarded with everything that it had not sent. A new one starts empty, so that no old message
  can overtake a newer one: senders and listeners start again where they are.
- The first connection is made at once, or ``TransportError`` names the server. A server that answers with an error is
  tried twice more. Later connections are retried until one succeeds.

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

from palaver.core.errors import MissingPackageError, PalaverError, SwarmError, TransportError
from palaver.swarm.subscriptions import Signal

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
    raise MissingPackageError.of("a bus on NATS needs nats-py", "nats", error) from None

FAILURES = (NatsError, OSError, TimeoutError)
"""What the client raises when a server is unavailable or refuses."""

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


_log = logging.getLogger("palaver.swarm")
_CONNECT: Final = 3
_REQUEST_TIMEOUT: Final = 5.0
_MIN_WAIT, _MAX_WAIT = 0.05, 2.0
_TRIES: Final = 3
_CLOSE_TIMEOUT: Final = 2.0
_PING: Final = 10


class Connection:
    """One connection. ``down`` is set when it is broken; it never recovers."""

    def __init__(self) -> None:
        """Start unconnected."""
        self.client = Client()
        self.down = asyncio.Event()
        self.last_error: Exception | None = None
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    @property
    def streams(self) -> JetStreamContext:
        """JetStream, over this connection."""
        return self.client.jetstream(timeout=_REQUEST_TIMEOUT)  # pyright: ignore[reportUnknownMemberType] (untyped options)

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call a function with the messages of a subject, one at a time."""
        subscription = await self.client.subscribe(subject, cb=on_message)  # pyright: ignore[reportUnknownMemberType]
        self._subscriptions.add(subscription)
        return subscription

    async def create_stream(self, stream: StreamConfig) -> None:
        """Create a stream."""
        await self.streams.add_stream(stream)  # pyright: ignore[reportUnknownMemberType]

    async def consume(self, stream: str, config: ConsumerConfig) -> str:
        """Create a consumer of a stream. Return its name."""
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
            error_cb=self._on_error,
            closed_cb=self._closed,
            ping_interval=_PING,
        )

    async def delete_consumer(self, stream: str, consumer: str | None) -> None:
        """Ask the server to remove a consumer, without waiting for it."""
        if consumer is not None:
            await self.client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", reply=self.client.new_inbox())

    async def close(self) -> None:
        """Disconnect, within a short time limit."""
        self.down.set()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            try:
                await self.client.close()
            except FAILURES as error:
                _log.debug("while closing a connection to NATS: %s", error)
        self._clean_up_client()

    def _clean_up_client(self) -> None:
        """End what the client leaves when the connection breaks while closing: tasks, an error, a socket."""
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

    async def _on_error(self, error: Exception) -> None:
        self.last_error = error
        _log.debug("NATS: %s", error_text(error))


class Link:
    """Keeps a connection open. ``prepare`` runs on each new one before its first use."""

    def __init__(self, urls: Sequence[str], prepare: Callable[[Connection], Awaitable[None]]) -> None:
        """Use one of these servers; try them in order. Raises ``SwarmError`` for a URL that is none."""
        self._urls = cycle(urls)
        self._count = len(urls)
        self._prepare = prepare
        self._connection: Connection | None = None
        self._reconnected = Signal()
        self._closing = False
        self.display_name = ", ".join(_without_password(url) for url in urls)

    async def open(self) -> None:
        """Make the first connection. Raises ``TransportError``."""
        failure: TransportError | None = None
        for turn in range(self._count * _TRIES):
            if turn >= self._count and not (failure and isinstance(failure.__cause__, APIError)):
                break  # no server answers; one that answers with an error may only be busy
            if turn and turn % self._count == 0:
                await anyio.sleep(_MAX_WAIT)
            try:
                self._connection = await self._connect()
            except TransportError as error:
                failure = error
            else:
                return
        raise failure or TransportError("no NATS server was named")

    async def ready(self) -> Connection:
        """Wait for an open connection and return it."""
        while self._connection is None or self._connection.down.is_set():
            await self._reconnected.wait()
        return self._connection

    def mark_broken(self, connection: Connection, reason: Exception) -> None:
        """Mark a connection as broken."""
        if not connection.down.is_set():
            _log.warning("NATS at %s: %s; connecting again", self.display_name, error_text(reason))
            connection.down.set()

    async def maintain(self) -> None:
        """Watch the connection and replace it when it breaks, until cancelled."""
        while self._connection is not None:
            await self._connection.down.wait()
            if self._closing:
                return
            await self._connection.close()
            pause = _MIN_WAIT
            while self._connection.down.is_set():
                try:
                    self._connection = await self._connect()
                except PalaverError as error:
                    _log.debug("%s", error)
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _MAX_WAIT)
            self._reconnected.notify()

    async def close(self) -> None:
        """Close the connection."""
        self._closing = True
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
            cause = error_text(connection.last_error or error)
            raise TransportError(f"{_without_password(url)}: no NATS server with JetStream answers: {cause}") from error
        except BaseException:
            await connection.close()
            raise
        return connection


def error_text(error: Exception) -> str:
    """Return the text of an error, or its type."""
    return str(error) or type(error).__name__


def _without_password(url: str) -> str:
    """Return a URL without its password. Raises ``SwarmError`` for what is none, such as a port beyond 65535."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        _ = parts.port  # the client would fail with it in the middle of a connection
    except ValueError as error:
        raise SwarmError(f"the URL of a NATS server: {error}") from None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
