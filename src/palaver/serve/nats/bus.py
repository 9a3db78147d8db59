"""The bus over NATS JetStream: for many processes and machines, with stored events for late readers.

- All events of a bus are one stream, and an event's place is its number there. A missing stream is created with
  ``max_age`` and ``max_bytes``; an existing one is left unchanged.
- The subject of an event is ``palaver.events.<client>.<source>``. A token keeps ASCII letters, digits, ``-`` and ``_``;
  any other byte of its UTF-8 is ``=`` and two hex digits; empty text is ``=``. Above 200 characters it is ``==`` and
  the SHA-256.
- ``publish`` puts an event into the outbox, which one task writes. While a server is unavailable nothing is lost, as
  long as the process lives and the outbox has room.
- Subscriptions survive a broken connection and a restart of the server.
- Runs on asyncio only: the NATS client knows no other event loop.

Stability: experimental.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from palaver.core.errors import ClosedError, SwarmError
from palaver.serve.nats.connection import Connection, Link, NotFoundError, StorageType, StreamConfig
from palaver.serve.nats.feed import Feed
from palaver.serve.nats.outbox import Outbox
from palaver.swarm.bus import Where
from palaver.swarm.events import Event, encode
from palaver.swarm.subscriptions import GRACE, ListeningBus, Subscribed

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_MAX_TOKEN: Final = 200


@lru_cache(maxsize=4096)
def token(text: str) -> str:
    """Encode text as one token of a subject. Raises ``UnicodeEncodeError`` for lone surrogates."""
    data = text.encode()
    if not data:
        return "="
    encoded = "".join([chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in data])
    return encoded if len(encoded) <= _MAX_TOKEN else f"=={hashlib.sha256(data).hexdigest()}"


def subject(prefix: str, client: str, source: str) -> str:
    """Return the subject of an event."""
    return f"{prefix}.{token(client)}.{token(source)}"


def pattern(prefix: str, where: Where) -> str:
    """Return a subject pattern that covers the wanted events."""
    client = "*" if where.client is None else token(where.client)
    source = "*" if where.source is None else token(where.source)
    return f"{prefix}.{client}.{source}"


STREAM: Final = "PALAVER_EVENTS"
PREFIX: Final = "palaver.events"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_SUBJECT: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_HEADERS: Final = 1024
"""Bytes of a message that are not the event."""
_DUPLICATE_WINDOW: Final = timedelta(minutes=2)
"""How long the server remembers the id of an event."""


class NatsBus(ListeningBus):
    """A ``Bus`` over a stream of NATS JetStream."""

    def __init__(
        self,
        url: str,
        *,
        stream: str = STREAM,
        prefix: str = PREFIX,
        max_age: timedelta = timedelta(days=7),
        max_bytes: int = 2**30,
        outbox: int = 65_536,
        grace: float = GRACE,
    ) -> None:
        """Use one of these servers: ``nats://a:4222,nats://b:4222``.

        Entering raises ``TransportError`` with the URL when none answers.
        """
        super().__init__(grace)
        if not _NAME.fullmatch(stream):
            raise SwarmError(f"the name of a stream has ASCII letters, digits, - and _, not {stream!r}")
        if not _SUBJECT.fullmatch(prefix):
            raise SwarmError(f"a prefix of subjects is words separated by dots, not {prefix!r}")
        self._stream, self._prefix = stream, prefix
        self._config = StreamConfig(
            name=stream,
            subjects=[f"{prefix}.*.*"],
            storage=StorageType.FILE,
            max_age=max_age.total_seconds(),
            max_bytes=max_bytes,
            duplicate_window=min(_DUPLICATE_WINDOW, max_age).total_seconds()
            if max_age
            else _DUPLICATE_WINDOW.total_seconds(),
        )
        self._max_payload = 0
        self._link = Link([each.strip() for each in url.split(",")], self._prepare)
        self._outbox = Outbox(self._link, outbox)
        self._feeds: dict[Subscribed, Feed] = {}

    def publish(self, event: Event) -> None:
        """Publish an event. Raises ``SwarmError`` when it cannot be encoded, ``ClosedError`` after the end."""
        if self._closed is not None:
            raise ClosedError(self._closed)
        data = encode(event)
        if len(data) > self._max_payload:
            raise SwarmError(f"event {event.source} {event.type}: {len(data):,} bytes are more than the server accepts")
        self._outbox.put(subject(self._prefix, event.client, event.source), token(event.id), data)

    async def flush(self) -> None:
        """Wait until all published events are acknowledged. Raises ``BusyError`` when some were given up."""
        await self._outbox.flush()

    async def caught_up(self, events: Subscribed) -> None:
        """Wait until a subscription has received all events that the stream has now."""
        if (feed := self._feeds.get(events)) is not None:
            await feed.caught_up()

    async def _attach(self, events: Subscribed) -> None:
        assert self._tasks is not None  # noqa: S101 (subscriptions are attached to a bus that was entered)
        feed = Feed(self._link, self._stream, pattern(self._prefix, events.where), events)
        self._feeds[events] = feed
        self._tasks.start_soon(feed.run)
        await feed.ready()

    def _detach(self, events: Subscribed) -> None:
        if (feed := self._feeds.pop(events, None)) is not None:
            feed.stop()

    async def _begin(self, tasks: TaskGroup) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise SwarmError("a bus over NATS runs on asyncio only: its client knows no other event loop") from None
        await self._link.open()
        tasks.start_soon(self._link.maintain)
        tasks.start_soon(self._outbox.run)

    async def _end(self) -> None:
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        """Create the stream if needed, and read the server's limit of a message."""
        try:
            config = (await connection.streams.stream_info(self._stream)).config
        except NotFoundError:
            await connection.create_stream(self._config)
        else:
            if self._config.subjects != config.subjects:
                raise SwarmError(
                    f"stream {self._stream} of {self._link.display_name} is for {', '.join(config.subjects or ())},"
                    f" not for {self._prefix}"
                )
        self._max_payload = connection.client.max_payload - _HEADERS
